// Mirostat 2 on the model itself: its state follows the tokens of a reply, however the reply came to them. On every
// backend of this machine, of a model of each version of the arithmetic.
#include <cmath>
#include <map>

#include "catch.hpp"
#include "kaiju/arith/chain.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/kaiju.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

using Tokens = std::vector<int32_t>;
constexpr int32_t kLength = 60;

class Talk {
 public:
  Talk(const std::string& backend, int32_t arithmetic, int32_t chunk_tokens = 0) {
    auto model = Model::create(test::random_checkpoint(test::small_config_of(arithmetic, "mirostat"), 21));
    REQUIRE(model.ok());
    RunOptions options;
    options.executor.backend = backend;
    options.executor.threads = 2;
    options.executor.step_tokens = 96;
    options.executor.slot_count = 4;
    options.engine.chunk_tokens = chunk_tokens;
    options.engine.check_ledger = true;
    auto engine = (*model)->create_engine(options);
    INFO(engine.status().message());
    REQUIRE(engine.ok());
    engine_ = std::move(engine).value();
  }
  Engine& engine() { return *engine_; }
  RequestId submit(const RequestOptions& options) {
    Tokens prompt;
    for (int32_t i = 0; i < 50; ++i) prompt.push_back((i * i * 5 + i * 11 + 3) % 272);
    auto request = engine_->submit(engine_->create_session().value(), prompt, options);
    INFO(request.status().message());
    REQUIRE(request.ok());
    return *request;
  }
  void step() {
    const Status status = engine_->step();
    INFO(status.message());
    REQUIRE(status.ok());
    for (Event event; engine_->poll(event);) {
      if (event.kind != EventKind::kToken) continue;
      Tokens& of = heard[event.request][event.sequence];
      of.resize(static_cast<size_t>(event.counts.generated) - 1);
      of.push_back(event.token);
    }
  }
  void drain() {
    while (engine_->pending() > 0) step();
  }
  Tokens run(const RequestOptions& options) {
    const RequestId request = submit(options);
    drain();
    return heard[request][0];
  }

  std::map<RequestId, std::map<int32_t, Tokens>> heard;

 private:
  std::shared_ptr<Engine> engine_;
};

// A large eta, so that a reply with a wrong state soon takes another way.
RequestOptions steered(double tau, uint64_t seed) {
  RequestOptions options;
  options.max_tokens = kLength;
  options.sampling.samplers = {{SamplerKind::kRepetitionPenalty, {1.1, 20}},
                               {SamplerKind::kTemperature, {1.5}},
                               {SamplerKind::kMirostat, {tau, 0.9}}};
  options.sampling.seed = seed;
  return options;
}

}  // namespace

TEST_CASE("a reply with mirostat is drawn by the state that its tokens leave, on every backend") {
  const FloatState float_state;
  const int32_t arithmetic = GENERATE(1, 2);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk talk(backend, arithmetic);
    RequestOptions options = steered(3, 12);
    std::vector<std::vector<float>> rows;
    std::vector<Tokens> before;
    options.logits_hook = [&](std::span<float> logits, std::span<const int32_t> tokens) {
      rows.emplace_back(logits.begin(), logits.end());
      before.emplace_back(tokens.begin(), tokens.end());
    };
    const Tokens reply = talk.run(options);
    REQUIRE(reply.size() == kLength);
    REQUIRE(rows.size() == kLength);
    float mu = 6.0f;
    double surprise_of_all = 0;
    for (size_t i = 0; i < reply.size(); ++i) {
      std::vector<arith::Candidate> left;
      for (size_t token = 0; token < rows[i].size(); ++token)
        left.push_back({rows[i][token], static_cast<int32_t>(token), 0});
      const arith::ChainInput input{options.sampling.samplers, {}, before[i], 12, 0, before[i].size(), mu};
      CHECK(arith::Chain(input, left).token() == reply[i]);
      double total = 0, own = 0;
      for (const arith::Candidate& c : left) {
        total += c.mass;
        if (c.token == reply[i]) own = c.mass;
      }
      const auto surprise = static_cast<float>(std::log2(total / own));
      surprise_of_all += static_cast<double>(surprise);
      const float exact = arith::next_mu(options.sampling.samplers.back(), mu, static_cast<uint64_t>(total),
                                         static_cast<uint64_t>(own));
      CHECK(exact == Approx(mu - 0.9f * (surprise - 3.0f)).margin(1e-4));
      mu = exact;
    }
    CHECK(surprise_of_all / kLength == Approx(3).margin(0.5));
  }
}

TEST_CASE("replies with mirostat are the same alone, in chunks, beside others and on every backend") {
  const int32_t arithmetic = GENERATE(1, 2);
  std::vector<Tokens> expected;
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    std::vector<Tokens> alone, together;
    std::vector<RequestId> at_once;
    Talk talk(backend, arithmetic, 16), beside(backend, arithmetic);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      alone.push_back(talk.run(steered(static_cast<double>(seed), seed)));
      at_once.push_back(beside.submit(steered(static_cast<double>(seed), seed)));
    }
    beside.drain();
    for (const RequestId request : at_once) together.push_back(beside.heard[request][0]);
    CHECK(together == alone);
    if (expected.empty()) expected = alone;
    CHECK(alone == expected);
  }
}

TEST_CASE("a reply with mirostat that is cut back, forked or suspended goes on as if it had not been") {
  const int32_t arithmetic = GENERATE(1, 2);
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    Talk talk(backend, arithmetic);
    const RequestOptions options = steered(2, 7);
    const Tokens expected = Talk(backend, arithmetic).run(options);
    const RequestId request = talk.submit(options);
    Tokens& heard = talk.heard[request][0];
    while (heard.size() < 20) talk.step();
    const int32_t twin = talk.engine().fork_sequence(request, 0, 0).value();  // of the same stream
    while (heard.size() < 40) talk.step();
    REQUIRE(talk.engine().cut_sequence(request, 0, 50 + 9).ok());
    while (heard.size() > 20) talk.step();
    const int32_t late = talk.engine().fork_sequence(request, 0, 0).value();
    REQUIRE(talk.engine().suspend(request).ok());
    talk.step();
    REQUIRE(talk.engine().resume(request).ok());
    talk.drain();
    CHECK(heard == expected);
    for (const int32_t child : {twin, late}) {
      const Tokens& forked = talk.heard[request][child];
      REQUIRE(forked.size() == expected.size());
      // What it had of its parent when it was forked is told of the parent alone.
      const auto own = std::find_if(forked.begin(), forked.end(), [](int32_t token) { return token != 0; });
      CHECK(forked.end() - own >= 20);
      CHECK(std::equal(own, forked.end(), expected.begin() + (own - forked.begin())));
    }
  }
}
