// Verdicts of the classifier on replies, on every backend of this machine.
#include <cmath>
#include <map>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "talk.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

constexpr int32_t kVocab = 272;

using Tokens = std::vector<int32_t>;

double probability(float score) { return 1.0 / (1.0 + std::exp(-static_cast<double>(score))); }

// A reply, as its events tell it.
struct Reply {
  Tokens tokens;
  std::vector<std::vector<float>> scores;  // of each token
  struct Verdict {
    size_t told = 0;  // tokens before it
    int32_t label = -1;
    float probability = 0.0f;
  };
  std::vector<Verdict> verdicts;
  Event done;
};

ModelConfig config_of(bool labels) {
  ModelConfig config = test::small_config("verdicts", false);
  if (labels) config.labels = {"rude", "sad"};
  return config;
}

class Talk : public test::Talk {
 public:
  explicit Talk(const std::string& backend, bool labels = true)
      : test::Talk(config_of(labels), 5, options_of(backend, 4)) {}

  RequestId submit(const Tokens& prompt, const RequestOptions& options) {
    session_ = session();
    return test::Talk::submit(session_, prompt, options);
  }
  Reply reply(const Tokens& prompt, const RequestOptions& options) {
    const RequestId request = submit(prompt, options);
    drain();
    return replies[request];
  }
  Tokens history() { return engine().session_tokens(session_).value(); }

  std::map<RequestId, Reply> replies;

 private:
  void take(const Event& event) override {
    Reply& reply = replies[event.request];
    if (event.kind == EventKind::kToken) {
      reply.tokens.push_back(event.token);
      reply.scores.push_back(event.scores);
    } else if (event.kind == EventKind::kVerdict) {
      reply.verdicts.push_back({reply.tokens.size(), event.label, event.probability});
    } else {
      reply.done = event;
    }
  }

  SessionId session_ = 0;
};

Tokens prompt_of(int32_t count) {
  Tokens prompt;
  for (int32_t i = 0; i < count; ++i) prompt.push_back((i * i * 5 + i * 11 + 3) % kVocab);
  return prompt;
}

RequestOptions sampled() {
  RequestOptions options;
  options.max_tokens = 30;
  options.scores = true;
  options.sampling.temperature = 1.5;
  options.sampling.seed = 3;
  return options;
}

// A limit that the scores of "rude" first reach in row `at`, and the rows before do not.
double first_reached_at(const Reply& reply, size_t& at) {
  double highest = 0.0, second = 0.0;
  for (size_t i = 0; i + 2 < reply.scores.size(); ++i) {
    const double here = probability(reply.scores[i][0]);
    if (here <= highest) continue;
    second = highest;
    highest = here;
    at = i;
  }
  return (highest + second) / 2;
}

}  // namespace

TEST_CASE("a verdict ends a reply where a label's probability reaches its limit, on every backend") {
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    Talk talk(backend);
    const Tokens prompt = prompt_of(70);
    const Reply free = talk.reply(prompt, sampled());
    REQUIRE(free.tokens.size() == 30);
    size_t at = 0;
    const double limit = first_reached_at(free, at);
    RequestOptions limited = sampled();
    limited.safety.limits = {{"rude", limit}};
    const auto ends = [&](const Reply& reply, size_t told) {
      CHECK(reply.done.reason == DoneReason::kRefused);
      CHECK(reply.done.label == 0);
      CHECK(reply.done.probability == Approx(probability(free.scores[at][0])).epsilon(1e-5));
      REQUIRE(reply.verdicts.size() == 1);
      CHECK(reply.verdicts[0].label == 0);
      CHECK(reply.tokens == Tokens(free.tokens.begin(), free.tokens.begin() + static_cast<std::ptrdiff_t>(told)));
      CHECK(reply.done.counts.generated == static_cast<int32_t>(told));
      CHECK(talk.history().size() == prompt.size() + told);
    };
    ends(talk.reply(prompt, limited), at);

    limited.safety = {};
    limited.safety.tier = "adult";
    REQUIRE(talk.engine().set_limit("adult", "rude", limit).ok());
    ends(talk.reply(prompt, limited), at);
    for (const int32_t hold_back : {1, 2, 5, 40}) {
      limited.safety.hold_back = hold_back;
      ends(talk.reply(prompt, limited), at - std::min(at, static_cast<size_t>(hold_back)));
    }
    limited.safety.hold_back = 3;
    REQUIRE(talk.engine().set_limit("adult", "rude", std::nullopt).ok());
    const Reply untouched = talk.reply(prompt, limited);
    CHECK(untouched.tokens == free.tokens);
    CHECK(untouched.scores == free.scores);
    CHECK(untouched.done.reason == DoneReason::kLength);
  }
}

TEST_CASE("a verdict that is only reported changes no token, and needs its run of tokens") {
  Talk talk("portable");
  const Tokens prompt = prompt_of(70);
  const Reply free = talk.reply(prompt, sampled());
  std::vector<double> all;
  for (const auto& scores : free.scores) all.push_back(probability(scores[1]));
  std::vector<double> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  const double limit = (sorted[9] + sorted[10]) / 2;
  for (const int32_t run : {1, 2, 3}) {
    RequestOptions watched = sampled();
    watched.safety.limits = {{"sad", limit}};
    watched.safety.reports = true;
    watched.safety.run = run;
    const Reply reply = talk.reply(prompt, watched);
    CHECK(reply.tokens == free.tokens);
    std::vector<size_t> expected, found;
    int32_t longest = 0;
    for (int32_t i = 0, in_a_row = 0; i < static_cast<int32_t>(all.size()); ++i) {
      in_a_row = all[static_cast<size_t>(i)] >= limit ? in_a_row + 1 : 0;
      longest = std::max(longest, in_a_row);
      if (in_a_row == run) expected.push_back(static_cast<size_t>(i));
    }
    for (const auto& verdict : reply.verdicts) found.push_back(verdict.told);
    CHECK(found == expected);
    REQUIRE(reply.done.statistics.size() == 2);
    CHECK(reply.done.statistics[1].longest_run == static_cast<float>(longest));
    CHECK(reply.done.statistics[1].maximum == Approx(sorted.back()).epsilon(1e-5));
    double sum = 0.0;
    for (const double each : all) sum += each;
    CHECK(reply.done.statistics[1].mean == Approx(sum / 30).epsilon(1e-5));
  }
}

TEST_CASE("a limit that is set while a reply is written counts from the next token on") {
  Talk talk("portable");
  RequestOptions options = sampled();
  options.safety.tier = "minor";
  REQUIRE(talk.engine().set_limit("minor", "sad", 1.0).ok());
  const RequestId request = talk.submit(prompt_of(70), options);
  while (talk.replies[request].tokens.size() < 5) talk.step();
  REQUIRE(talk.engine().set_limit("minor", "sad", 0.0).ok());
  talk.step();
  CHECK(talk.replies[request].done.reason == DoneReason::kRefused);
  CHECK(talk.replies[request].tokens.size() == 5);
}

TEST_CASE("the reply that a beam search finds has statistics too") {
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    Talk talk(backend);
    RequestOptions options;
    options.max_tokens = 12;
    options.scores = true;
    options.beams.width = 3;
    const Reply reply = talk.reply(prompt_of(40), options);
    REQUIRE(reply.scores.size() == reply.tokens.size());
    REQUIRE(reply.done.statistics.size() == 2);
    for (size_t label = 0; label < 2; ++label) {
      double most = 0.0, sum = 0.0;
      for (const std::vector<float>& scores : reply.scores) {
        most = std::max(most, probability(scores[label]));
        sum += probability(scores[label]);
      }
      CHECK(reply.done.statistics[label].maximum == Approx(most).epsilon(1e-5));
      CHECK(reply.done.statistics[label].mean == Approx(sum / static_cast<double>(reply.scores.size())).epsilon(1e-5));
      CHECK(reply.done.statistics[label].longest_run == 0.0f);
    }
    // With a limit that nothing reaches, and without reported scores.
    options.scores = false;
    options.safety.limits = {{"rude", 1.0}};
    const Reply limited = talk.reply(prompt_of(40), options);
    CHECK(limited.tokens == reply.tokens);
    REQUIRE(limited.done.statistics.size() == 2);
    CHECK(limited.done.statistics[0].maximum == reply.done.statistics[0].maximum);
    CHECK(limited.scores == std::vector<std::vector<float>>(limited.tokens.size()));
  }
}

TEST_CASE("a reply that is cut back has the statistics of what it keeps") {
  Talk talk("portable");
  RequestOptions options = sampled();
  options.safety.limits = {{"sad", 0.0}};
  options.safety.reports = true;
  const Reply free = talk.reply(prompt_of(70), options);
  const RequestId request = talk.submit(prompt_of(70), options);
  while (talk.replies[request].tokens.size() < 15) talk.step();
  REQUIRE(talk.engine().cut_sequence(request, 0, 70 + 6).ok());
  talk.drain();
  const Event& done = talk.replies[request].done;
  CHECK(done.counts.generated == free.done.counts.generated);
  REQUIRE(done.statistics.size() == 2);
  CHECK(done.statistics[1].longest_run == 30.0f);
  for (size_t label = 0; label < 2; ++label) {
    CHECK(done.statistics[label].mean == free.done.statistics[label].mean);
    CHECK(done.statistics[label].maximum == free.done.statistics[label].maximum);
  }
}

TEST_CASE("a prompt is scored without a token, and has the same scores cached and cold") {
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    Talk talk(backend);
    RequestOptions options = sampled();
    const std::vector<float> expected = talk.reply(prompt_of(130), options).scores[0];
    options.max_tokens = 0;
    for (int i = 0; i < 2; ++i) {
      const Reply scored = talk.reply(prompt_of(130), options);
      CHECK(scored.tokens.empty());
      CHECK(scored.done.scores == expected);
      CHECK(scored.done.reason == DoneReason::kLength);
    }
    options.safety.limits = {{"rude", 0.0}};
    CHECK(talk.reply(prompt_of(130), options).done.reason == DoneReason::kRefused);
  }
}

TEST_CASE("limits that cannot be are refused by name") {
  Talk talk("portable");
  const auto says = [&](auto change, StatusCode code, const char* words) {
    RequestOptions options = sampled();
    change(options.safety);
    const Status refused = talk.engine().submit(talk.engine().create_session().value(), prompt_of(5), options).status();
    INFO(refused.message());
    CHECK(refused.code() == code);
    CHECK(refused.message().find(words) != std::string::npos);
  };
  constexpr StatusCode kBad = StatusCode::kInvalidArgument;
  says([](SafetyOptions& s) { s.tier = "none"; }, StatusCode::kNotFound, "no tier \"none\"");
  says([](SafetyOptions& s) { s.hold_back = 1; }, kBad, "need a tier");
  says([](SafetyOptions& s) { s.limits = {{"dull", 0.5}}; }, kBad, "it has rude, sad");
  says([](SafetyOptions& s) { s.limits = {{"sad", 1.5}}; }, kBad, "from 0 to 1");
  says([](SafetyOptions& s) { s.limits = {{"sad", NAN}}; }, kBad, "from 0 to 1");
  says([](SafetyOptions& s) { s.limits = {{"sad", 0.5}}, s.run = 0; }, kBad, "run");
  says([](SafetyOptions& s) { s.limits = {{"sad", 0.5}}, s.hold_back = 65; }, kBad, "hold_back");
  CHECK(talk.engine().set_limit("", "sad", 0.5).code() == kBad);
  CHECK(talk.engine().set_limit("adult", "dull", 0.5).code() == kBad);
  CHECK(talk.engine().set_limit("adult", "sad", -0.1).code() == kBad);
  Talk without("portable", false);
  RequestOptions options = sampled();
  options.scores = false;
  options.safety.limits = {{"sad", 0.5}};
  CHECK(without.engine().submit(without.engine().create_session().value(), prompt_of(5), options).status().code() ==
        StatusCode::kUnsupported);
}
