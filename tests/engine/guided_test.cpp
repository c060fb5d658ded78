// Guided requests: the host says before each token what it may be.
#include <cmath>
#include <functional>
#include <random>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

using Mask = std::vector<uint32_t>;

constexpr int32_t kVocab = 97;
constexpr Nanoseconds kNow{0}, kMoment{20'000'000};

Mask all_ones() { return Mask(static_cast<size_t>(mask_words(kVocab)), ~0u); }

// Of a token's place in a reply: a random set of tokens, at least one.
Mask random_mask(uint64_t seed, size_t place) {
  Mask mask(static_cast<size_t>(mask_words(kVocab)));
  const auto chance = static_cast<int32_t>(1 + mix(seed * 31 + place) % 99);
  for (int32_t token = 0; token < kVocab; ++token)
    if (static_cast<int32_t>(mix(seed * 7919 + place * 131 + static_cast<uint64_t>(token)) % 100) < chance)
      mask[static_cast<size_t>(token / 32)] |= 1u << token % 32;
  mask[0] |= 1u << mix(seed + place) % 32;
  return mask;
}

using Masks = std::function<Mask(size_t place)>;

Masks random_masks(uint64_t seed) {
  return [seed](size_t place) { return random_mask(seed, place); };
}

RequestOptions guided(int32_t max_tokens) {
  RequestOptions options = asking(max_tokens);
  options.guided = true;
  return options;
}

struct Guided : Harness {
  explicit Guided(bool beside = false, EngineOptions options = {}, const ExecutorInfo& info = small_facts())
      : Harness(info, options) {
    executor->beside_host = beside;
  }
  RequestId submit_guided(SessionId session, const std::vector<int32_t>& prompt, int32_t max_tokens, Masks masks) {
    const RequestId request = submit(session, prompt, guided(max_tokens));
    guides[request] = {std::move(masks), 0};
    return request;
  }
  Status guide(RequestId request, const Mask& mask, int32_t sequence = 0) {
    return engine->guide(request, {mask, {}}, sequence);
  }
  // Guides every guided request that waits.
  void give() {
    for (auto& [request, of] : guides) give(request);
  }
  void give(RequestId request) {
    const Reply& reply = replies[request];
    auto& [masks, given] = guides[request];
    if (reply.done || reply.failed || given > reply.tokens.size()) return;
    REQUIRE(guide(request, masks(reply.tokens.size())).message() == "");
    given = reply.tokens.size() + 1;
  }
  // Until a host would sleep.
  void step_while_awake() {
    for (int steps = 0; steps < 2000; ++steps) {
      if (!engine->wait(kNow)) return;
      step();
    }
    FAIL("a host that has nothing to step never sleeps");
  }
  void run_all() {
    for (int steps = 0; engine->pending() > 0 && steps < 100000; ++steps) {
      give();
      step();
    }
    REQUIRE(engine->pending() == 0);
  }
  std::vector<int32_t> reference_of(const std::vector<int32_t>& prompt, int32_t count, const Masks& masks,
                                    const RequestOptions& options = {}) const {
    ScriptReference reference(info, check_sampling(options.sampling, info.vocab_size).value());
    for (const int32_t token : prompt) reference.push(token);
    std::vector<int32_t> tokens;
    while (static_cast<int32_t>(tokens.size()) < count) {
      tokens.push_back(Script::allowed(masks(tokens.size()), reference.draw(), info.vocab_size));
      reference.push(tokens.back());
    }
    return tokens;
  }

  struct Of {
    Masks masks;
    size_t given = 0;
  };
  std::map<RequestId, Of> guides;
};

}  // namespace

TEST_CASE("a guided request whose masks allow everything generates the tokens of an unguided one") {
  for (const bool beside : {false, true}) {
    Guided h(beside);
    const std::vector<int32_t> prompt = tokens_from(1, 150);
    const RequestId request = h.submit_guided(h.session(), prompt, 100, [](size_t) { return all_ones(); });
    h.run_all();
    CHECK(h.replies[request].tokens == h.reference(prompt, 100));
    CHECK(h.executor->guided == 100);
  }
}

TEST_CASE("a guided request samples under the mask of each token") {
  for (const bool beside : {false, true})
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      INFO("seed " << seed << ", beside the host " << beside);
      Guided h(beside);
      const std::vector<int32_t> prompt = tokens_from(seed, 1 + 13 * seed);
      const RequestId request = h.submit_guided(h.session(), prompt, 60, random_masks(seed));
      h.run_all();
      CHECK(h.replies[request].tokens == h.reference_of(prompt, 60, random_masks(seed)));
    }
}

TEST_CASE("a guided request computes its prompt but for the last token and then waits, without anything to step") {
  Guided h;
  const RequestId request = h.submit(h.session(), tokens_from(1, 200), guided(3));
  CHECK(h.engine->wait(kMoment));
  h.step_while_awake();
  CHECK(h.executor->rows == 199);
  CHECK(h.executor->guided == 0);
  CHECK_FALSE(h.engine->wait(kMoment));
  CHECK(h.engine->pending() == 1);
  CHECK(h.engine->metrics().requests_running == 1);
  const size_t runs = h.executor->runs;
  for (int i = 0; i < 3; ++i) h.step();  // a host may step all the same
  CHECK(h.executor->runs == runs);
  for (size_t count = 1; count <= 3; ++count) {
    REQUIRE(h.guide(request, all_ones()).ok());
    CHECK(h.engine->wait(kMoment));
    h.step();
    CHECK(h.executor->runs == runs + count);
    CHECK(h.replies[request].tokens.size() == count);
    if (count < 3) CHECK_FALSE(h.engine->wait(kMoment));
  }
  CHECK(h.replies[request].done);
  CHECK(h.replies[request].tokens == h.reference(tokens_from(1, 200), 3));
}

TEST_CASE("a guide given before the prompt is computed counts for the first token") {
  Guided h;
  const std::vector<int32_t> prompt = tokens_from(2, 300);
  const RequestId request = h.submit(h.session(), prompt, guided(1));
  REQUIRE(h.guide(request, random_mask(5, 0)).ok());
  h.drain();
  CHECK(h.replies[request].tokens == h.reference_of(prompt, 1, random_masks(5)));
}

TEST_CASE("a guide replaces one that was not used, also where a step is tried again") {
  Guided h;
  const std::vector<int32_t> prompt = tokens_from(3, 30);
  const RequestId request = h.submit(h.session(), prompt, guided(2));
  REQUIRE(h.guide(request, random_mask(6, 9)).ok());
  REQUIRE(h.guide(request, random_mask(7, 0)).ok());
  h.step();
  h.executor->before_run = [](const StepPlan&) { return Status(StatusCode::kBusy, "not now"); };
  REQUIRE(h.guide(request, random_mask(6, 9)).ok());
  CHECK(h.engine->step().code() == StatusCode::kBusy);
  REQUIRE(h.guide(request, random_mask(7, 1)).ok());
  CHECK(h.engine->wait(kMoment));
  h.executor->before_run = nullptr;
  h.drain();
  CHECK(h.replies[request].tokens == h.reference_of(prompt, 2, random_masks(7)));
}

TEST_CASE("guided requests that wait disturb no other request, and do not keep a host awake") {
  for (const bool beside : {false, true}) {
    Guided h(beside);
    const RequestId waiting = h.submit(h.session(), tokens_from(1, 70), guided(10));
    const RequestId other = h.submit(h.session(), tokens_from(2, 40), asking(80));
    h.step_while_awake();
    CHECK(h.replies[other].tokens == h.reference(tokens_from(2, 40), 80));
    CHECK(h.engine->pending() == 1);
    CHECK_FALSE(h.engine->wait(kMoment));
    CHECK(h.engine->cancel(waiting).ok());
    h.drain();
    CHECK(h.replies[waiting].reason == DoneReason::kCancelled);
  }
}

TEST_CASE("a host sleeps while guided requests have every slot and others wait for one") {
  Guided h;
  std::vector<RequestId> requests;
  for (int i = 0; i < 4; ++i)
    requests.push_back(
        h.submit_guided(h.session(), tokens_from(static_cast<uint64_t>(i), 20), 5, [](size_t) { return all_ones(); }));
  const RequestId other = h.submit(h.session(), tokens_from(9, 20), asking(5));
  h.step_while_awake();
  CHECK(h.engine->metrics().requests_running == 4);
  CHECK(h.replies[other].tokens.empty());
  CHECK_FALSE(h.engine->wait(kMoment));
  h.run_all();
  CHECK(h.replies[other].tokens == h.reference(tokens_from(9, 20), 5));
}

TEST_CASE("no request waits for a block whose last token waits for a guide") {
  for (const int32_t length : {64, 128, 100, 129})
    for (const int32_t shared : {0, length - 1, length}) {
      INFO("length " << length << ", shared " << shared);
      Guided h;
      const std::vector<int32_t> prompt = tokens_from(4, static_cast<size_t>(length));
      RequestOptions options = in_scope("wren", shared, "salt", 5);
      RequestOptions waits = options;
      waits.guided = true;
      const RequestId first = h.submit(h.session(), prompt, waits);
      h.step();
      const RequestId second = h.submit(h.session(), prompt, options);
      const RequestId third = h.submit(h.session(), prompt + tokens_from(5, 100), options);
      h.step_while_awake();
      CHECK(h.replies[second].tokens == h.reference(prompt, 5));
      CHECK(h.replies[third].tokens == h.reference(prompt + tokens_from(5, 100), 5));
      h.guides[first] = {[](size_t) { return all_ones(); }, 0};
      h.run_all();
      CHECK(h.replies[first].tokens == h.reference(prompt, 5));
    }
}

TEST_CASE("beside the host a guided request is never ahead of its guide, and the others run ahead all the same") {
  Guided h(true);
  const std::vector<int32_t> prompt = tokens_from(1, 40), other_prompt = tokens_from(2, 50);
  const RequestId request = h.submit_guided(h.session(), prompt, 30, random_masks(8));
  const RequestId other = h.submit(h.session(), other_prompt, asking(120));
  while (h.replies[other].tokens.size() < 20) h.step();  // no guide comes
  size_t runs = h.executor->runs;
  while (h.replies[other].tokens.size() < 40) h.step();
  CHECK(h.executor->runs == runs + 20);
  CHECK(h.executor->most_under_way == 2);
  runs = h.executor->runs;
  while (h.replies[other].tokens.size() < 100) {
    h.give();
    const size_t before = h.executor->runs;
    h.step();
    CHECK(h.executor->runs == before + 1);  // the next one runs already
  }
  CHECK(h.executor->runs == runs + 60);
  CHECK(h.replies[request].done);  // in every other step
  h.run_all();
  CHECK(h.replies[request].tokens == h.reference_of(prompt, 30, random_masks(8)));
  CHECK(h.replies[other].tokens == h.reference(other_prompt, 120));
}

TEST_CASE("guides that are wrong are refused by name") {
  Guided h;
  const RequestId plain = h.submit(h.session(), tokens_from(1, 20), asking(50));
  const RequestId request = h.submit(h.session(), tokens_from(1, 20), guided(50));
  const auto says = [](const Status& status, StatusCode code, const char* what) {
    INFO(status.message());
    CHECK(status.code() == code);
    CHECK(status.message().find(what) != std::string::npos);
  };
  using enum StatusCode;
  says(h.guide(plain, all_ones()), kInvalidArgument, "not guided");
  says(h.guide(99, all_ones()), kNotFound, "no unfinished request 99");
  says(h.guide(request, all_ones(), 1), kNotFound, "no sequence 1");
  says(h.guide(request, Mask(3, ~0u)), kInvalidArgument, "3 words; it must have 4");
  says(h.guide(request, Mask(5, ~0u)), kInvalidArgument, "5 words");
  says(h.guide(request, Mask(4, 0)), kInvalidArgument, "allows no token");
  says(h.guide(request, Mask{0, 0, 0, ~1u}), kInvalidArgument, "allows no token");  // token 96 is the last
  CHECK(h.guide(request, Mask{0, 0, 0, 1}).ok());
  const auto biased = [&](std::vector<std::pair<int32_t, float>> bias) { return h.engine->guide(request, {{}, bias}); };
  says(biased({{97, 1.0f}}), kInvalidArgument, "token 97");
  says(biased({{-1, 1.0f}}), kInvalidArgument, "token -1");
  says(biased({{3, 1.0f}, {3, 2.0f}}), kInvalidArgument, "twice");
  says(biased({{3, 1e5f}}), kInvalidArgument, "logit_bias of token 3");
  says(biased({{3, NAN}}), kInvalidArgument, "logit_bias of token 3");
  CHECK(biased({{3, 1.0f}}).ok());
  says(h.engine->propose(request, 0, tokens_from(1, 2)), kUnsupported, "is guided");
  Event done;
  says(h.engine->generate(h.session(), tokens_from(1, 3), guided(3), {}, done), kInvalidArgument, "submit one");
  REQUIRE(h.engine->cancel(request).ok());
  h.drain();
  says(h.guide(request, all_ones()), kNotFound, "no unfinished request");
}

TEST_CASE(
    "a guided request that waits may be suspended, resumed, cut, forked, cancelled and overtaken by its deadline") {
  for (const bool beside : {false, true}) {
    INFO("beside the host " << beside);
    Guided h(beside);
    const std::vector<int32_t> prompt = tokens_from(6, 90);
    const std::vector<int32_t> whole = h.reference_of(prompt, 40, random_masks(3));
    const RequestId request = h.submit_guided(h.session(), prompt, 40, random_masks(3));
    const RequestId other = h.submit(h.session(), tokens_from(7, 30), asking(500));
    const auto until = [&](size_t count) {
      while (h.replies[request].tokens.size() < count) h.give(request), h.step();
    };
    until(10);
    REQUIRE(h.engine->suspend(request).ok());
    h.step();
    h.step();
    h.give(request);  // kept for when it runs again
    for (int i = 0; i < 5; ++i) h.step();
    CHECK(h.replies[request].tokens.size() == 10);
    REQUIRE(h.engine->resume(request).ok());
    until(20);
    CHECK(h.replies[request].tokens == std::vector<int32_t>(whole.begin(), whole.begin() + 20));
    // A cut drops the guide that was given for the token after it.
    REQUIRE(h.guide(request, random_mask(77, 0)).ok());
    REQUIRE(h.engine->cut_sequence(request, 0, 90 + 15).ok());
    h.step();
    h.step();
    h.replies[request].tokens.resize(15);
    h.guides[request].given = 0;
    until(30);
    CHECK(h.replies[request].tokens == std::vector<int32_t>(whole.begin(), whole.begin() + 30));
    h.guides[request].given = 0;
    until(40);
    for (int i = 0; i < 3; ++i) h.step();
    CHECK(h.replies[request].done);
    CHECK(h.replies[request].tokens == whole);
    REQUIRE(h.engine->cancel(other).ok());
    h.drain();
  }
}

TEST_CASE("each sequence of a guided request has its own guides, and a fork begins without one") {
  Guided h;
  RequestOptions options = guided(6);
  options.sequence_count = 2;
  options.sampling.temperature = 1.0f;
  const std::vector<int32_t> prompt = tokens_from(8, 80);
  const RequestId request = h.submit(h.session(), prompt, options);
  std::map<int32_t, std::vector<int32_t>> tokens;
  const auto step = [&] {
    REQUIRE(h.engine->step().ok());
    h.check();
    for (Event event; h.engine->poll(event);)
      if (event.kind == EventKind::kToken) tokens[event.sequence].push_back(event.token);
  };
  step();
  REQUIRE(h.guide(request, random_mask(1, 0), 1).ok());
  step();
  CHECK(tokens[0].empty());
  CHECK(tokens[1].size() == 1);
  REQUIRE(h.guide(request, random_mask(1, 1), 1).ok());
  step();
  const int32_t child = h.engine->fork_sequence(request, 1, 5).value();
  for (size_t place = 0; place < 6; ++place) {
    if (place >= 2) REQUIRE(h.guide(request, random_mask(1, place), 1).ok());
    if (place >= 2) REQUIRE(h.guide(request, random_mask(2, place), child).ok());
    REQUIRE(h.guide(request, random_mask(3, place), 0).ok());
    step();
    step();
  }
  CHECK(h.engine->pending() == 0);
  const auto expected = [&](uint32_t stream, const Masks& masks, std::vector<int32_t> before = {}) {
    RequestOptions alone = options;
    alone.sampling.variant = stream;
    return h.reference_of(prompt + before, 6 - static_cast<int32_t>(before.size()), masks, alone);
  };
  CHECK(tokens[0] == expected(0, random_masks(3)));
  CHECK(tokens[1] == expected(1, random_masks(1)));
  const std::vector<int32_t> before(tokens[1].begin(), tokens[1].begin() + 2);
  CHECK(tokens[child] == expected(5, [](size_t place) { return random_mask(2, place + 2); }, before));
}

TEST_CASE("a deadline ends a guided request that waits, and a waiting host wakes for it") {
  Guided h;
  RequestOptions late = guided(5);
  late.deadline = h.engine->now() + Nanoseconds{30'000'000};
  const RequestId request = h.submit(h.session(), tokens_from(1, 40), late);
  h.step_while_awake();
  CHECK(h.engine->wait(Nanoseconds{10'000'000'000}));
  h.drain();
  CHECK(h.replies[request].reason == DoneReason::kDeadline);
}

// Everything at once: requests of both kinds in a cache too small for all, memory in small parts, guides that come
// late, suspensions and cancellations.
TEST_CASE("guided and unguided requests generate their own tokens under any schedule") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    ExecutorInfo info = small_facts();
    if (below(2)) info.block_count[0] = 24, info.block_count[1] = 20;
    EngineOptions options;
    if (below(2)) options.reserve_tokens = static_cast<int32_t>(1 + below(20));
    if (below(2)) options.chunk_tokens = static_cast<int32_t>(1 + below(60));
    if (below(3) == 0) options.step_tokens = static_cast<int32_t>(1 + below(5));
    Guided h(below(2) != 0, options, info);
    struct Asked {
      std::vector<int32_t> prompt;
      int32_t count = 0;
      bool is_guided = false, is_cancelled = false;
    };
    std::map<RequestId, Asked> asked;
    const std::vector<int32_t> shared = tokens_from(seed, 64 * (1 + below(3)));
    for (int round = 0; round < 150; ++round) {
      if (asked.size() < 14 && below(6) == 0) {
        Asked one{shared + tokens_from(random(), below(80)), static_cast<int32_t>(1 + below(40)), below(2) != 0};
        RequestOptions of = in_scope("wren", static_cast<int32_t>(below(shared.size() + 1)), "s", one.count);
        of.guided = one.is_guided;
        const RequestId request = h.submit(h.session(), one.prompt, of);
        if (one.is_guided) h.guides[request] = {random_masks(request), 0};
        asked[request] = std::move(one);
      }
      for (auto& [request, one] : asked) {
        if (one.is_guided && below(2)) h.give(request);
        if (below(25) == 0) REQUIRE(h.engine->suspend(request).ok());
        if (below(8) == 0) REQUIRE(h.engine->resume(request).ok());
        if (below(200) == 0) {
          REQUIRE(h.engine->cancel(request).ok());
          one.is_cancelled = true;
        }
      }
      h.step();
    }
    for (auto& [request, one] : asked) REQUIRE(h.engine->resume(request).ok());
    h.run_all();
    for (const auto& [request, one] : asked) {
      INFO("request " << request << ", guided " << one.is_guided);
      std::vector<int32_t> expected = one.is_guided ? h.reference_of(one.prompt, one.count, random_masks(request))
                                                    : h.reference(one.prompt, one.count);
      if (one.is_cancelled && h.replies[request].reason == DoneReason::kCancelled)
        expected.resize(h.replies[request].tokens.size());
      CHECK(h.replies[request].tokens == expected);
    }
  }
}
