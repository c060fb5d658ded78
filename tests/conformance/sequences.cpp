// Requests of several sequences on the model itself: four at once, forks, cuts and proposals give the bits of requests
// of their own, log-probabilities and alternatives included; and several rows of a segment that are drawn from give
// what one row at a time gives. On every backend of this machine, of a model of each version of the arithmetic.
#include <algorithm>
#include <map>

#include "catch.hpp"
#include "kaiju/arith/float32.hpp"
#include "kaiju/kaiju.hpp"
#include "kaiju/step/executor.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "talk.hpp"

namespace {

using namespace kaiju;

constexpr int32_t kCount = 4;

// Of each token: itself, its log-probability and its alternatives as bits.
using Words = std::vector<uint32_t>;

Words words_of(int32_t token, float logprob, const std::vector<TokenLogprob>& top) {
  Words words = {static_cast<uint32_t>(token), arith::bits_of(logprob)};
  for (const TokenLogprob& other : top) {
    words.push_back(static_cast<uint32_t>(other.token));
    words.push_back(arith::bits_of(other.logprob));
  }
  return words;
}

ModelConfig config_of(int32_t arithmetic) {
  ModelConfig config = test::small_config_of(arithmetic, "sequences");
  config.n_kv_heads = 2;
  return config;
}

class Talk : public test::Talk {
 public:
  Talk(const std::string& backend, int32_t arithmetic)
      : test::Talk(config_of(arithmetic), 11, options_of(backend, kCount, 96)) {}

  static RequestOptions options(int32_t sequences, uint32_t stream) {
    RequestOptions options;
    options.max_tokens = 70;
    options.logprobs = 3;
    options.sequence_count = sequences;
    options.sampling.temperature = 1.2f;
    options.sampling.repetition_penalty = 1.3f;
    options.sampling.seed = 5;
    options.sampling.variant = stream;
    return options;
  }

  std::vector<Words> run(const std::vector<int32_t>& prompt, const RequestOptions& options) {
    const RequestId request = submit(prompt, options);
    drain();
    return words[request][0];
  }

  std::map<RequestId, std::map<int32_t, std::vector<Words>>> words;

 private:
  void take(const Event& event) override {
    if (event.kind != EventKind::kToken) return;
    std::vector<Words>& of = words[event.request][event.sequence];
    of.resize(static_cast<size_t>(event.counts.generated) - 1);
    of.push_back(words_of(event.token, event.logprob, event.top));
  }
};

std::vector<int32_t> prompt_of(int32_t count) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < count; ++i) prompt.push_back((i * i * 7 + i * 13 + 5) % 272);
  return prompt;
}

}  // namespace

TEST_CASE("four sequences of a request have the bits of four requests, on every backend") {
  const int32_t arithmetic = GENERATE(1, 2);
  const std::vector<int32_t> prompt = prompt_of(150);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk together(backend, arithmetic);
    const RequestId request = together.submit(prompt, Talk::options(kCount, 20));
    together.drain();
    for (int32_t i = 0; i < kCount; ++i) {
      Talk alone(backend, arithmetic);
      CHECK(together.words[request][i] == alone.run(prompt, Talk::options(1, 20 + static_cast<uint32_t>(i))));
    }
  }
}

TEST_CASE("forks in flight, cuts and proposals change no bit, on every backend") {
  const int32_t arithmetic = GENERATE(1, 2);
  const std::vector<int32_t> prompt = prompt_of(100);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk alone(backend, arithmetic);
    const std::vector<Words> expected = alone.run(prompt, Talk::options(1, 3));
    Talk talk(backend, arithmetic);
    const RequestId request = talk.submit(prompt, Talk::options(1, 3));
    std::vector<Words>& heard = talk.words[request][0];
    while (heard.size() < 30) talk.step();
    const int32_t child = talk.engine().fork_sequence(request, 0, 77).value();
    while (heard.size() < 50) talk.step();
    REQUIRE(talk.engine().cut_sequence(request, 0, 100 + 12).ok());
    int proposed = 0;
    while (talk.engine().pending() > 0) {
      std::vector<int32_t> drafts;  // right ones and a wrong one
      for (size_t i = heard.size(); i < std::min(heard.size() + 4, expected.size()); ++i)
        drafts.push_back((static_cast<int32_t>(expected[i][0]) + (i % 3 == 0 ? 1 : 0)) % 272);
      const Status status = talk.engine().propose(request, 0, drafts);
      proposed += status.ok();
      REQUIRE((status.ok() || status.code() == StatusCode::kNotFound || status.code() == StatusCode::kUnsupported));
      talk.step();
    }
    CHECK(heard == expected);
    if (backend != "cuda") CHECK(proposed > 10);

    // The fork goes on from its parent's tokens, by its own stream.
    const std::vector<Words>& forked = talk.words[request][child];
    const auto own = static_cast<size_t>(
        std::find_if(forked.begin(), forked.end(), [](const Words& words) { return !words.empty(); }) - forked.begin());
    REQUIRE(own >= 30);
    std::vector<int32_t> begun = prompt;
    for (size_t i = 0; i < own; ++i) begun.push_back(static_cast<int32_t>(expected[i][0]));
    RequestOptions rest = Talk::options(1, 77);
    rest.max_tokens = 70 - static_cast<int32_t>(own);
    Talk fresh(backend, arithmetic);
    const std::vector<Words> after = fresh.run(begun, rest);
    CHECK(std::vector<Words>(forked.begin() + static_cast<std::ptrdiff_t>(own), forked.end()) == after);
  }
}

TEST_CASE("several rows of a segment that are drawn from give what one row at a time gives, penalties included") {
  const int32_t arithmetic = GENERATE(1, 2);
  const std::vector<int32_t> tokens = prompt_of(60);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    ExecutorOptions options;
    options.backend = backend;
    options.threads = 1;
    options.slot_count = 2;
    options.step_tokens = 64;
    const auto checkpoint = test::random_checkpoint(test::small_config_of(arithmetic, "draws"), 3);
    const auto draw = [&](int32_t at_once) {
      auto executor = make_executor(checkpoint, options);
      REQUIRE(executor.ok());
      const ExecutorInfo& info = (*executor)->info();
      std::vector<Words> drawn;
      for (int32_t position = 0; position < static_cast<int32_t>(tokens.size());) {
        const int32_t count = std::min(at_once, static_cast<int32_t>(tokens.size()) - position);
        StepPlan plan;
        if (position == 0) {
          SamplingSpec sampling;
          sampling.temperature = 0.9f;
          sampling.repetition_penalty = 1.5f;
          sampling.seed = 8;
          plan.starts.push_back({0, sampling, {}});
          for (const BlockKind kind : kBothKinds)
            if (info.block_bytes[kind] > 0) plan.table_edits.push_back({0, kind, 0, 0});
        }
        Segment segment;
        segment.position = position;
        segment.token_count = count;
        segment.sample_count = count;
        segment.top_logprobs = 2;
        plan.segments.push_back(segment);
        plan.tokens.assign(tokens.begin() + position, tokens.begin() + position + count);
        StepResult result;
        const Status ran = (*executor)->run(plan, result);
        if (count > info.most_samples) {
          CHECK(ran.message().find("samples from") != std::string::npos);
          return std::vector<Words>();
        }
        INFO(ran.message());
        REQUIRE(ran.ok());
        REQUIRE(result.sampled.size() == static_cast<size_t>(count));
        for (const SampledToken& token : result.sampled)
          drawn.push_back(words_of(token.token, token.logprob, token.top));
        position += count;
      }
      return drawn;
    };
    const std::vector<Words> one_by_one = draw(1);
    CHECK(one_by_one.size() == tokens.size());
    for (const int32_t at_once : {2, 7, 60})
      if (const std::vector<Words> many = draw(at_once); !many.empty() || backend != "cuda") CHECK(many == one_by_one);
  }
}
