// Beam search on the model itself, on every backend of this machine: it finds what a plain search finds that asks the
// model for each beginning alone.
#include <algorithm>
#include <cmath>
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

constexpr int32_t kVocab = 16;

using Tokens = std::vector<int32_t>;

struct Reply {
  Tokens tokens;
  std::vector<uint32_t> logprobs;  // bits
  DoneReason reason = DoneReason::kNone;
  bool operator==(const Reply&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Reply& reply) {
  for (const int32_t token : reply.tokens) out << token << ' ';
  return out << "(" << static_cast<int>(reply.reason) << ")";
}

// A model of a few tokens and two labels.
ModelConfig config_of(int32_t arithmetic) {
  ModelConfig config = test::small_config_of(arithmetic, "beams");
  config.vocab_size = kVocab;
  if (arithmetic == 1) config.labels = {"rude", "sad"};
  return config;
}

class Talk : public test::Talk {
 public:
  Talk(const std::string& backend, int32_t arithmetic, int32_t slots = 33)
      : test::Talk(config_of(arithmetic), 5, options(backend, slots)) {}

  std::vector<Reply> search(const Tokens& prompt, const RequestOptions& options) {
    const RequestId request = submit(prompt, options);
    drain();
    return replies[request];
  }

  // What follows a beginning: log-probabilities of all tokens, best first, and the classifier's scores of the text.
  struct Next {
    std::vector<TokenLogprob> top;
    std::vector<float> scores;
  };
  const Next& next(const Tokens& tokens) {
    const auto [found, fresh] = next_.try_emplace(tokens);
    if (!fresh) return found->second;
    RequestOptions options;
    options.max_tokens = 1;
    options.logprobs = kVocab;
    options.scores = engine().info().label_count > 0;
    submit(tokens, options);
    while (engine().pending() > 0) {
      REQUIRE(engine().step().ok());
      for (Event event; engine().poll(event);)
        if (event.kind == EventKind::kToken) found->second = {event.top, event.scores};
    }
    return found->second;
  }

  std::map<RequestId, std::vector<Reply>> replies;

 private:
  static RunOptions options(const std::string& backend, int32_t slots) {
    RunOptions options = options_of(backend, slots, 96);
    options.engine.stop_tokens = {2};
    return options;
  }
  void take(const Event& event) override {
    std::vector<Reply>& all = replies[event.request];
    if (all.size() <= static_cast<size_t>(event.sequence)) all.resize(static_cast<size_t>(event.sequence) + 1);
    Reply& reply = all[static_cast<size_t>(event.sequence)];
    if (event.kind == EventKind::kToken) {
      reply.tokens.push_back(event.token);
      reply.logprobs.push_back(arith::bits_of(event.logprob));
    } else if (event.kind == EventKind::kDone || event.kind == EventKind::kSequenceDone) {
      CHECK(event.counts.generated == static_cast<int32_t>(reply.tokens.size()));
      reply.reason = event.reason;
    }
  }

  std::map<Tokens, Next> next_;
};

double probability(float score) { return 1.0 / (1.0 + std::exp(-static_cast<double>(score))); }

// A beginning of the plain search.
struct Path {
  Reply reply;
  double logprob = 0.0, value = 0.0;
  size_t group = 0, order = 0;
};

// docs/beams.md, written down once more, without an engine's sequences: every beginning is asked for alone.
class PlainSearch {
 public:
  PlainSearch(Talk& talk, const Tokens& prompt, const RequestOptions& options)
      : talk_(talk), prompt_(prompt), options_(options), beams_(options.beams) {
    if (beams_.candidates == 0) beams_.candidates = 2 * beams_.width;
    ended_.resize(static_cast<size_t>(beams_.groups));
  }

  std::vector<Reply> run() {
    std::vector<Path> live = {{}};
    for (int32_t length = 1; length <= options_.max_tokens && !live.empty(); ++length) live = go_on(live, length);
    std::vector<Path> all;
    for (const auto& pool : ended_) all.insert(all.end(), pool.begin(), pool.end());
    std::stable_sort(all.begin(), all.end(), [](const Path& a, const Path& b) { return a.value > b.value; });
    std::vector<Reply> results;
    for (size_t i = 0; i < static_cast<size_t>(options_.sequence_count); ++i)
      results.push_back(i < all.size() ? all[i].reply : Reply{{}, {}, DoneReason::kRefused});
    return results;
  }

 private:
  size_t width() const { return static_cast<size_t>(beams_.width / beams_.groups); }

  Tokens whole(const Reply& reply) const {
    Tokens tokens = prompt_;
    tokens.insert(tokens.end(), reply.tokens.begin(), reply.tokens.end());
    return tokens;
  }

  // Of each token of a text after the prompt, and of the prompt's end: the scores.
  std::vector<std::vector<float>> scores_of(const Reply& reply) {
    std::vector<std::vector<float>> all;
    for (size_t count = 0; count <= reply.tokens.size(); ++count) {
      Reply begin = reply;
      begin.tokens.resize(count);
      all.push_back(talk_.next(whole(begin)).scores);
    }
    return all;
  }
  double risk_of(const Reply& reply) {
    if (beams_.guidance.weight == 0.0) return 0.0;
    const auto scores = scores_of(reply);
    double risk = beams_.guidance.risk == Guidance::Risk::kLogOdds ? -HUGE_VAL : 0.0;
    for (size_t label = 0; label < scores[0].size(); ++label) {
      const double weight = beams_.guidance.label_weights.empty() ? 1.0 : beams_.guidance.label_weights[label].second;
      if (weight == 0.0) continue;
      double sum = 0.0, largest = 0.0;
      for (const auto& each : scores) {
        sum += probability(each[label]);
        largest = std::max(largest, probability(each[label]));
      }
      double value = largest;
      if (beams_.guidance.risk == Guidance::Risk::kMean) value = sum / static_cast<double>(scores.size());
      if (beams_.guidance.risk == Guidance::Risk::kLogOdds) value = std::log(largest / (1 - largest));
      risk = std::max(risk, weight * value);
    }
    return risk;
  }
  bool is_refused(const Reply& reply) {
    for (const auto& scores : scores_of(reply))
      for (size_t label = 0; label < options_.safety.limits.size(); ++label)
        if (probability(scores[label]) >= options_.safety.limits[label].second) return true;
    return false;
  }

  std::vector<Path> go_on(const std::vector<Path>& live, int32_t length) {
    std::vector<Path> next;
    std::map<int32_t, int> chosen;
    for (size_t group = 0; group < ended_.size(); ++group) {
      std::vector<Path> candidates;
      for (size_t i = 0; i < live.size(); ++i) {
        const Path& path = live[i];
        if ((length > 1 && path.group != group) || is_refused(path.reply)) continue;
        const auto& top = talk_.next(whole(path.reply)).top;
        const double penalty = beams_.guidance.weight * risk_of(path.reply);
        for (size_t rank = 0; rank < std::min(top.size(), static_cast<size_t>(beams_.candidates)); ++rank) {
          Path longer = path;
          longer.group = group;
          longer.logprob += static_cast<double>(top[rank].logprob);
          longer.value = longer.logprob - penalty - beams_.diversity * chosen[top[rank].token];
          longer.reply.tokens.push_back(top[rank].token);
          longer.reply.logprobs.push_back(arith::bits_of(top[rank].logprob));
          longer.order = i * 1000 + rank;
          const double per = std::pow(length, beams_.length_penalty);
          if (top[rank].token == 2 || length == options_.max_tokens) {
            longer.reply.reason = top[rank].token == 2 ? DoneReason::kStopToken : DoneReason::kLength;
          }
          candidates.push_back(longer);
          ended_value_[longer.reply.tokens] = longer.logprob / per - penalty;
        }
      }
      std::sort(candidates.begin(), candidates.end(), [](const Path& a, const Path& b) {
        return a.value != b.value ? a.value > b.value : a.order < b.order;
      });
      std::vector<Path> mine;
      auto& pool = ended_[group];
      for (size_t rank = 0; rank < candidates.size() && mine.size() < width(); ++rank) {
        Path& path = candidates[rank];
        if (path.reply.reason == DoneReason::kNone) {
          mine.push_back(path);
        } else if (rank < width()) {
          path.value = ended_value_[path.reply.tokens];
          pool.push_back(path);
          std::stable_sort(pool.begin(), pool.end(), [](const Path& a, const Path& b) { return a.value > b.value; });
          if (pool.size() > width()) pool.pop_back();
        }
        if (length == options_.max_tokens && rank + 1 == width()) break;
      }
      if (pool.size() == width() && beams_.early_stopping) mine.clear();
      for (const Path& path : mine) {
        ++chosen[path.reply.tokens.back()];
        next.push_back(path);
      }
    }
    return next;
  }

  Talk& talk_;
  Tokens prompt_;
  RequestOptions options_;
  BeamOptions beams_;
  std::vector<std::vector<Path>> ended_;
  std::map<Tokens, double> ended_value_;
};

Tokens prompt_of(int32_t count) {
  Tokens prompt;
  for (int32_t i = 0; i < count; ++i) prompt.push_back((i * i * 5 + i * 11 + 3) % kVocab);
  return prompt;
}

RequestOptions beams_of(int32_t width, int32_t max_tokens, int32_t results = 1) {
  RequestOptions options;
  options.beams.width = width;
  options.max_tokens = max_tokens;
  options.sequence_count = results;
  return options;
}

}  // namespace

TEST_CASE("beams as wide as the tree find what an exhaustive search finds, on every backend") {
  const int32_t arithmetic = GENERATE(1, 2);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk talk(backend, arithmetic);
    const Tokens prompt = prompt_of(GENERATE(1, 62, 63, 64, 100));
    RequestOptions options = beams_of(kVocab, 2, kVocab);
    options.beams.length_penalty = 0.0;
    options.stop_tokens = Tokens{};
    const std::vector<Reply> found = talk.search(prompt, options);
    std::vector<std::pair<double, Tokens>> all;
    for (const TokenLogprob& first : talk.next(prompt).top) {
      Tokens tokens = prompt;
      tokens.push_back(first.token);
      for (const TokenLogprob& second : talk.next(tokens).top)
        all.emplace_back(-static_cast<double>(first.logprob) - static_cast<double>(second.logprob),
                         Tokens{first.token, second.token});
    }
    CHECK(all.size() == kVocab * kVocab);
    std::sort(all.begin(), all.end());
    REQUIRE(found.size() == kVocab);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].tokens == all[i].second);
  }
}

TEST_CASE("beams of any width, guided and diverse, are those of a plain search, on every backend") {
  const int32_t arithmetic = GENERATE(1, 2);
  const uint64_t seed = test::seed_of_run();
  INFO("seed " << seed);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk talk(backend, arithmetic);
    test::Random random(seed);
    for (int trial = 0; trial < 12; ++trial) {
      const Tokens prompt = prompt_of(random.between(1, 130));
      RequestOptions options = beams_of(random.pick({1, 2, 3, 4, 6, 12}), random.between(1, 8));
      BeamOptions& beams = options.beams;
      options.sequence_count = random.between(1, beams.width);
      if (random.chance(50)) beams.candidates = random.between(beams.width, kVocab);
      beams.length_penalty = random.pick({0, 1, 2}) * 0.6;
      beams.early_stopping = random.chance(50);
      if (random.chance(40)) beams.groups = beams.width % 3 == 0 ? 3 : beams.width % 2 == 0 ? 2 : 1;
      if (beams.groups > 1) beams.diversity = 0.7;
      if (arithmetic == 1 && random.chance(60)) {
        beams.guidance.weight = random.pick({1, 5, 30});
        beams.guidance.risk = static_cast<Guidance::Risk>(random.below(3));
        if (random.chance(50)) beams.guidance.label_weights = {{"rude", 0.0}, {"sad", 2.0}};
      }
      INFO("trial " << trial << ": width " << beams.width << ", candidates " << beams.candidates << ", results "
                    << options.sequence_count << ", tokens " << options.max_tokens << ", groups " << beams.groups
                    << ", early " << beams.early_stopping << ", penalty " << beams.length_penalty << ", guidance "
                    << beams.guidance.weight << " " << static_cast<int>(beams.guidance.risk));
      const std::vector<Reply> found = talk.search(prompt, options);
      CHECK(found == PlainSearch(talk, prompt, options).run());
    }
  }
}

TEST_CASE("limits refuse a beam whose score reaches them, and a search without any left is refused") {
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    Talk talk(backend, 1);
    RequestOptions options = beams_of(4, 6, 4);
    const Tokens prompt = prompt_of(30);
    const std::vector<Reply> free = talk.search(prompt, options);
    const double of_prompt = probability(talk.next(prompt).scores[0]);
    options.safety.limits = {{"rude", of_prompt - 1e-4}};  // the prompt alone reaches it
    for (const Reply& reply : talk.search(prompt, options)) {
      CHECK(reply.reason == DoneReason::kRefused);
      CHECK(reply.tokens.empty());
    }
    options.safety.limits = {{"rude", 1.0}};
    CHECK(talk.search(prompt, options) == free);
    // Some beams are refused on the way, others not.
    std::vector<double> seen;
    for (const Reply& reply : free)
      for (size_t count = 1; count < reply.tokens.size(); ++count) {
        Tokens text = prompt;
        text.insert(text.end(), reply.tokens.begin(), reply.tokens.begin() + static_cast<std::ptrdiff_t>(count));
        seen.push_back(probability(talk.next(text).scores[0]));
      }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    const double between = (seen[seen.size() / 2] + seen[seen.size() / 2 - 1]) / 2;
    options.safety.limits = {{"rude", std::max(between, of_prompt + 1e-4)}};
    CHECK(talk.search(prompt, options) == PlainSearch(talk, prompt, options).run());
  }
}

TEST_CASE("beams give the same replies beside other requests, after a suspension and with little memory") {
  const int32_t arithmetic = GENERATE(1, 2);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    const RequestOptions options = beams_of(4, 20, 4);
    RequestOptions plain;
    plain.max_tokens = 25;
    Talk alone(backend, arithmetic);
    const std::vector<Reply> expected = alone.search(prompt_of(70), options);
    const std::vector<Reply> expected_plain = alone.search(prompt_of(50), plain);

    Talk busy(backend, arithmetic, 6);  // not all at once
    std::vector<RequestId> searches, others;
    for (int i = 0; i < 3; ++i) {
      searches.push_back(busy.submit(prompt_of(70), options));
      others.push_back(busy.submit(prompt_of(50), plain));
    }
    for (int i = 0; i < 6; ++i) busy.step();
    REQUIRE(busy.engine().suspend(searches[0]).ok());
    for (int i = 0; i < 5; ++i) busy.step();
    REQUIRE(busy.engine().resume(searches[0]).ok());
    busy.drain();
    for (const RequestId search : searches) CHECK(busy.replies[search] == expected);
    for (const RequestId other : others) CHECK(busy.replies[other] == expected_plain);
  }
}

TEST_CASE("a fork of a search copies one block and computes one token") {
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    Talk talk(backend, 1);
    const uint64_t before = talk.engine().metrics().tokens_prefilled;
    talk.search(prompt_of(100), beams_of(4, 20, 4));
    CHECK(talk.engine().metrics().tokens_prefilled - before == 100);  // the prompt, once
    CHECK(talk.engine().metrics().tokens_decoded <= 1 + 19 * 4);
  }
}

TEST_CASE("what every beam begins with is told before the search ends, and a cancelled search keeps that") {
  Talk talk("portable", 1);
  RequestOptions options = beams_of(3, 40);
  const std::vector<Reply> whole = talk.search(prompt_of(40), options);
  const RequestId request = talk.submit(prompt_of(40), options);
  size_t told = 0;
  for (int i = 0; i < 30; ++i) {
    talk.step();
    if (!talk.replies[request].empty()) told = talk.replies[request][0].tokens.size();
  }
  CHECK(told > 0);
  CHECK(told < 40);
  REQUIRE(talk.engine().cancel(request).ok());
  talk.drain();
  const Reply& cut = talk.replies[request][0];
  CHECK(cut.reason == DoneReason::kCancelled);
  CHECK(cut.tokens.size() >= told);
  CHECK(std::equal(cut.tokens.begin(), cut.tokens.end(), whole[0].tokens.begin()));
}

TEST_CASE("a stochastic search samples without replacement") {
  Talk talk("portable", 1);
  const Tokens prompt = prompt_of(33);
  // Exactly: the chance that a reply of one token is in a sample of two.
  const auto& top = talk.next(prompt).top;
  std::vector<double> chance(kVocab), once(kVocab);
  for (const TokenLogprob& each : top) once[static_cast<size_t>(each.token)] = std::exp(double(each.logprob));
  for (int32_t a = 0; a < kVocab; ++a)
    for (int32_t b = 0; b < kVocab; ++b)
      if (a != b) {
        const double both =
            once[static_cast<size_t>(a)] * once[static_cast<size_t>(b)] / (1 - once[static_cast<size_t>(a)]);
        chance[static_cast<size_t>(a)] += both;
        chance[static_cast<size_t>(b)] += both;
      }
  constexpr int kRuns = 4000;
  std::vector<int> counts(kVocab);
  RequestOptions options = beams_of(2, 1, 2);
  options.beams.stochastic = true;
  options.beams.candidates = kVocab;
  for (int run = 0; run < kRuns; ++run) {
    options.sampling.seed = static_cast<uint64_t>(run);
    const std::vector<Reply> found = talk.search(prompt, options);
    REQUIRE(found.size() == 2);
    CHECK(found[0].tokens != found[1].tokens);
    for (const Reply& reply : found) ++counts[static_cast<size_t>(reply.tokens[0])];
  }
  for (int32_t token = 0; token < kVocab; ++token) {
    const double expected = kRuns * chance[static_cast<size_t>(token)],
                 deviation = std::sqrt(expected * (1 - chance[static_cast<size_t>(token)]));
    INFO("token " << token << ": " << counts[static_cast<size_t>(token)] << " times, expected " << expected);
    CHECK(std::abs(counts[static_cast<size_t>(token)] - expected) < 4.5 * deviation + 1);
  }
}

TEST_CASE("options of beams that do not fit are refused by name") {
  Talk talk("portable", 1);
  const auto says = [&](auto change, StatusCode code, const char* words) {
    RequestOptions options = beams_of(4, 5);
    change(options);
    const Status refused = talk.engine().submit(talk.engine().create_session().value(), prompt_of(5), options).status();
    INFO(refused.message());
    CHECK(refused.code() == code);
    CHECK(refused.message().find(words) != std::string::npos);
  };
  constexpr StatusCode kBad = StatusCode::kInvalidArgument, kNo = StatusCode::kUnsupported;
  says([](RequestOptions& o) { o.beams.width = 33; }, kBad, "beam width");
  says([](RequestOptions& o) { o.beams.width = -1; }, kBad, "beam width");
  says([](RequestOptions& o) { o.sequence_count = 5; }, kBad, "at most as many");
  says([](RequestOptions& o) { o.beams.candidates = 3; }, kBad, "at least the width");
  says([](RequestOptions& o) { o.beams.groups = 3; }, kBad, "groups");
  says([](RequestOptions& o) { o.beams.length_penalty = NAN; }, kBad, "length_penalty");
  says([](RequestOptions& o) { o.beams.diversity = -1; }, kBad, "diversity");
  says([](RequestOptions& o) { o.beams.groups = 2, o.beams.stochastic = true; }, kBad, "one group");
  says([](RequestOptions& o) { o.max_tokens = 0; }, kBad, "max_tokens");
  says([](RequestOptions& o) { o.sampling.temperature = 0.5; }, kBad, "sampling parameters");
  says([](RequestOptions& o) { o.guided = true; }, kNo, "guided");
  says([](RequestOptions& o) { o.logprobs = 1; }, kNo, "logprobs");
  says([](RequestOptions& o) { o.beams.guidance.weight = NAN; }, kBad, "guidance weight");
  says([](RequestOptions& o) { o.safety.limits = {{"mild", 0.5}}; }, kBad, "it has rude, sad");
  says([](RequestOptions& o) { o.safety.limits.assign(2, {"sad", 0.5}); }, kBad, "two values");
  says([](RequestOptions& o) { o.safety.limits.assign(1, {"sad", 0.5}), o.safety.hold_back = 1; }, kNo, "hold_back");
  says([](RequestOptions& o) { o.beams.guidance.weight = 1, o.beams.guidance.label_weights.assign(1, {"sad", -1}); },
       kBad, "weight");
  Talk without("portable", 2);
  RequestOptions guided = beams_of(2, 5);
  guided.beams.guidance.weight = 1;
  CHECK(without.engine().submit(without.engine().create_session().value(), prompt_of(5), guided).status().code() ==
        kNo);

  const RequestId request = talk.submit(prompt_of(5), beams_of(2, 5));
  CHECK(talk.engine().fork_sequence(request, 0, 1).status().code() == kNo);
  CHECK(talk.engine().cut_sequence(request, 0, 5).code() == kNo);
  talk.drain();
}
