// Guided requests on the model itself, on every backend of this machine, of a model of each version of the arithmetic:
// masks change which tokens are drawn and nothing else.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "catch.hpp"
#include "kaiju/arith/float32.hpp"
#include "kaiju/kaiju.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "talk.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

constexpr int32_t kVocab = 272;

using Mask = std::vector<uint32_t>;
using Masks = std::function<Mask(size_t place)>;
// Of each token: itself, its log-probability and its alternatives as bits.
using Words = std::vector<uint32_t>;

Mask all_ones() { return Mask(static_cast<size_t>(mask_words(kVocab)), ~0u); }

// Of the token at a place in a reply.
Mask random_mask(uint64_t seed, size_t place) {
  test::Random random(seed * 1000 + place);
  Mask mask(static_cast<size_t>(mask_words(kVocab)), 0);
  const int32_t percent = random.pick({1, 10, 50, 95});
  for (int32_t token = 0; token < kVocab; ++token)
    if (random.chance(percent)) mask[static_cast<size_t>(token / 32)] |= 1u << token % 32;
  mask[static_cast<size_t>(random.below(8))] |= 1u << random.below(32);
  return mask;
}
Masks random_masks(uint64_t seed) {
  return [seed](size_t place) { return random_mask(seed, place); };
}
bool allows(const Mask& mask, uint32_t token) { return (mask[token / 32] >> token % 32 & 1) != 0; }

std::vector<int32_t> prompt_of(int32_t count) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < count; ++i) prompt.push_back((i * i * 5 + i * 11 + 3) % kVocab);
  return prompt;
}

// Greedy, and sampled with everything that changes logits or leaves tokens out.
RequestOptions options_of(bool sampled) {
  RequestOptions options;
  options.max_tokens = 40;
  options.logprobs = 3;
  if (!sampled) return options;
  options.sampling.temperature = 1.3f;
  options.sampling.top_k = 60;
  options.sampling.top_p = 0.95f;
  options.sampling.min_p = 0.001f;
  options.sampling.repetition_penalty = 1.2f;
  options.sampling.logit_bias = {{7, 2.0f}, {20, -3.0f}, {271, 1.0f}};
  options.sampling.seed = 12;
  return options;
}

class Talk : public test::Talk {
 public:
  explicit Talk(const std::string& backend, int32_t arithmetic, int32_t chunk_tokens = 0)
      : test::Talk(test::small_config_of(arithmetic, "guided"), 21, options(backend, chunk_tokens)) {}

  // Guided by `masks`; without any, unguided.
  RequestId submit(SessionId session, const std::vector<int32_t>& prompt, RequestOptions options, Masks masks = {}) {
    options.guided = static_cast<bool>(masks);
    const RequestId request = test::Talk::submit(session, prompt, options);
    if (masks) masks_[request] = std::move(masks), give(request);
    return request;
  }
  RequestId submit(const std::vector<int32_t>& prompt, RequestOptions options, Masks masks = {}) {
    return submit(session(), prompt, std::move(options), std::move(masks));
  }
  std::vector<Words> run(const std::vector<int32_t>& prompt, const RequestOptions& options, const Masks& masks = {}) {
    const RequestId request = submit(prompt, options, masks);
    drain();
    return words[request];
  }

  std::map<RequestId, std::vector<Words>> words;
  std::map<RequestId, bool> ended;

 private:
  static RunOptions options(const std::string& backend, int32_t chunk_tokens) {
    RunOptions options = options_of(backend, 4, 96);
    options.engine.chunk_tokens = chunk_tokens;
    return options;
  }
  void take(const Event& event) override {
    if (event.kind == EventKind::kDone) ended[event.request] = true;
    if (event.kind != EventKind::kToken) return;
    Words word = {static_cast<uint32_t>(event.token), arith::bits_of(event.logprob)};
    for (const TokenLogprob& other : event.top) {
      word.push_back(static_cast<uint32_t>(other.token));
      word.push_back(arith::bits_of(other.logprob));
    }
    words[event.request].push_back(std::move(word));
    heard_.push_back(event.request);
  }
  void end_step() override {
    for (const RequestId request : std::exchange(heard_, {}))
      if (masks_.count(request) && !ended[request]) give(request);
  }
  void give(RequestId request) {
    const Mask mask = masks_[request](words[request].size());
    const Status given = engine().guide(request, {mask, {}});
    INFO(given.message());
    REQUIRE(given.ok());
  }

  std::vector<RequestId> heard_;  // in this step
  std::map<RequestId, Masks> masks_;
};

}  // namespace

TEST_CASE("masks that allow every token change no bit, on every backend") {
  const int32_t arithmetic = GENERATE(1, 2);
  for (const std::string& backend : backend_names())
    for (const bool sampled : {false, true}) {
      INFO(backend << ", arithmetic " << arithmetic << ", sampled " << sampled);
      Talk plain(backend, arithmetic), guided(backend, arithmetic);
      const std::vector<Words> expected = plain.run(prompt_of(100), options_of(sampled));
      CHECK(expected.size() == 40);
      CHECK(guided.run(prompt_of(100), options_of(sampled), [](size_t) { return all_ones(); }) == expected);
    }
}

TEST_CASE("a mask of one token gives that token, with the log-probabilities of the model, on every backend") {
  const int32_t arithmetic = GENERATE(1, 2);
  for (const std::string& backend : backend_names())
    for (const bool sampled : {false, true}) {
      INFO(backend << ", arithmetic " << arithmetic << ", sampled " << sampled);
      Talk plain(backend, arithmetic), guided(backend, arithmetic);
      RequestOptions free = options_of(false);
      free.logprobs = 64;
      const std::vector<Words> expected = plain.run(prompt_of(70), free);
      std::vector<int32_t> forced;
      const std::vector<Words> heard = guided.run(prompt_of(70), options_of(sampled), [&](size_t place) {
        forced.push_back(static_cast<int32_t>((place * 37 + 11) % kVocab));
        Mask mask(static_cast<size_t>(mask_words(kVocab)), 0);
        mask[static_cast<size_t>(forced.back() / 32)] = 1u << forced.back() % 32;
        return mask;
      });
      REQUIRE(heard.size() == 40);
      for (size_t place = 0; place < heard.size(); ++place)
        CHECK(heard[place][0] == static_cast<uint32_t>(forced[place]));
      // The first one's row is that of the unguided request.
      for (size_t i = 2; i < 8; ++i) CHECK(heard[0][i] == expected[0][i]);
      for (size_t i = 2; i < expected[0].size(); i += 2)
        if (expected[0][i] == heard[0][0]) CHECK(expected[0][i + 1] == heard[0][1]);
    }
}

TEST_CASE("tokens outside the masks are never drawn, and every backend draws the same") {
  const int32_t arithmetic = GENERATE(1, 2);
  test::repeat(4, [&](test::Random& random) {
    const auto seed = static_cast<uint64_t>(random.below(1 << 30));
    for (const bool sampled : {false, true}) {
      std::vector<Words> expected;
      for (const std::string& backend : backend_names()) {
        INFO(backend << ", arithmetic " << arithmetic << ", sampled " << sampled << ", masks " << seed);
        Talk talk(backend, arithmetic);
        const std::vector<Words> heard = talk.run(prompt_of(90), options_of(sampled), random_masks(seed));
        REQUIRE(heard.size() == 40);
        for (size_t place = 0; place < heard.size(); ++place) CHECK(allows(random_mask(seed, place), heard[place][0]));
        if (expected.empty()) expected = heard;
        CHECK(heard == expected);
      }
    }
  });
}

TEST_CASE("guided requests in chunks, from the cache, of a fork, suspended or beside others have the same bits") {
  const int32_t arithmetic = GENERATE(1, 2);
  const std::vector<int32_t> prompt = prompt_of(150);
  const RequestOptions options = options_of(true);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk alone(backend, arithmetic);
    const std::vector<Words> expected = alone.run(prompt, options, random_masks(4)),
                             other = alone.run(prompt_of(60), options);
    Talk chunked(backend, arithmetic, 17);
    CHECK(chunked.run(prompt, options, random_masks(4)) == expected);

    Talk talk(backend, arithmetic);
    const SessionId first = talk.session();
    RequestOptions prompt_only = options;
    prompt_only.max_tokens = 0;
    talk.submit(first, prompt, prompt_only);
    talk.drain();
    const SessionId child = talk.engine().fork_session(first, prompt.size()).value();
    REQUIRE(talk.engine().truncate_session(child, prompt.size() - 5).ok());
    const RequestId cached = talk.submit(first, {}, options, random_masks(4));
    const RequestId forked =
        talk.submit(child, std::vector<int32_t>(prompt.end() - 5, prompt.end()), options, random_masks(4));
    const RequestId beside = talk.submit(prompt_of(60), options);
    const RequestId waiting = talk.submit(
        prompt,
        [&] {
          RequestOptions of = options;
          of.priority = 1;
          return of;
        }(),
        random_masks(5));
    REQUIRE(talk.engine().suspend(waiting).ok());
    while (talk.words[cached].size() < 20) talk.step();
    REQUIRE(talk.engine().suspend(cached).ok());
    for (int i = 0; i < 3; ++i) talk.step();
    CHECK(talk.words[cached].size() <= 21);
    REQUIRE(talk.engine().resume(cached).ok());
    REQUIRE(talk.engine().resume(waiting).ok());
    talk.drain();
    CHECK(talk.words[cached] == expected);
    CHECK(talk.words[forked] == expected);
    CHECK(talk.words[beside] == other);
    CHECK(talk.words[waiting].size() == 40);
  }
}

TEST_CASE("a logits hook sees the sequence and may change every logit") {
  const int32_t arithmetic = GENERATE(1, 2);
  const std::vector<int32_t> prompt = prompt_of(40);
  const RequestOptions options = options_of(true);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk talk(backend, arithmetic);
    RequestOptions hooked = options;
    std::vector<int32_t> seen;
    size_t calls = 0;
    hooked.logits_hook = [&](std::span<float> logits, std::span<const int32_t> tokens) {
      CHECK(logits.size() == kVocab);
      seen.assign(tokens.begin(), tokens.end());
      const Mask mask = random_mask(4, calls++);
      for (int32_t token = 0; token < kVocab; ++token)
        if (!allows(mask, static_cast<uint32_t>(token)))
          logits[static_cast<size_t>(token)] = token % 3 == 0 ? NAN : token % 3 == 1 ? HUGE_VALF : -HUGE_VALF;
    };
    const std::vector<Words> expected = talk.run(prompt, options, random_masks(4));
    CHECK(talk.run(prompt, hooked) == expected);  // the log-probabilities too: they are the model's
    CHECK(calls == 40);
    REQUIRE(seen.size() == prompt.size() + 39);
    CHECK(std::equal(prompt.begin(), prompt.end(), seen.begin()));
    for (size_t i = 0; i < 39; ++i) CHECK(static_cast<uint32_t>(seen[prompt.size() + i]) == expected[i][0]);

    const std::vector<Words> plain = talk.run(prompt, options);
    hooked.logits_hook = [](std::span<float> logits, std::span<const int32_t>) {
      std::fill(logits.begin(), logits.end(), NAN);
    };
    CHECK(talk.run(prompt, hooked) == plain);
  }
}

TEST_CASE("a chain of samplers draws the same tokens on every backend, with masks and beside other requests") {
  const int32_t arithmetic = GENERATE(1, 2);
  RequestOptions chained;
  chained.max_tokens = 40;
  chained.logprobs = 3;
  chained.sampling.samplers = {{SamplerKind::kDry, {0.8, 1.75, 2, 0}},
                               {SamplerKind::kFrequencyPenalty, {0.5, 20}},
                               {SamplerKind::kTopNSigma, {2.5}},
                               {SamplerKind::kXtc, {0.5, 0.02}},
                               {SamplerKind::kDynamicTemperature, {0.6, 1.4, 1}}};
  chained.sampling.logit_bias = {{7, 2.0f}, {20, -3.0f}, {271, 1.0f}};
  chained.sampling.seed = 12;
  std::vector<std::vector<Words>> expected;
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk talk(backend, arithmetic);
    std::vector<std::vector<Words>> found = {talk.run(prompt_of(50), chained),
                                             talk.run(prompt_of(50), chained, random_masks(5)),
                                             talk.run(prompt_of(60), options_of(true))};
    CHECK(found[0] != found[1]);
    const std::vector<RequestId> at_once = {talk.submit(prompt_of(50), chained),
                                            talk.submit(prompt_of(50), chained, random_masks(5)),
                                            talk.submit(prompt_of(60), options_of(true))};
    talk.drain();
    for (size_t i = 0; i < at_once.size(); ++i) {
      CHECK(found[i].size() == 40);
      CHECK(talk.words[at_once[i]] == found[i]);
    }
    if (expected.empty()) expected = found;
    CHECK(found == expected);
  }
}
