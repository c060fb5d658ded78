// Weight updates: an engine that takes them while it serves computes what a file of the new weights gives.
#include <fmt/format.h>

#include <bit>

#include "catch.hpp"
#include "kaiju/backend/reference.hpp"
#include "kaiju/calibration.hpp"
#include "kaiju/format/weight_update.hpp"
#include "kaiju/kaiju.hpp"
#include "kaiju/run/executor_for.hpp"
#include "kaiju/run/executors.hpp"
#include "small_config.hpp"
#include "talk.hpp"
#include "tests/format/training_run.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;
using tiny::TrainingRun;

constexpr uint64_t kSeed = 39;

using Tokens = std::vector<std::pair<int32_t, float>>;  // with their log-probabilities

class Talk : public test::Talk {
 public:
  Talk(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& backend, bool skip_zeros = false)
      : test::Talk(Model::create(checkpoint), options(backend, skip_zeros)) {}

  static RunOptions options(const std::string& backend, bool skip_zeros) {
    RunOptions options = options_of(backend, 6, 128);
    options.executor.skip_zeros = skip_zeros;
    return options;
  }

  static std::vector<int32_t> prompt(int32_t first, int32_t length = 150) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < length; ++i) tokens.push_back((first + i * 7) % 250);
    return tokens;
  }
  static RequestOptions request(int32_t max_tokens) {
    RequestOptions options;
    options.max_tokens = max_tokens;
    options.stop_tokens = std::vector<int32_t>();
    options.sampling.temperature = 1.0f;
    options.sampling.seed = 7;
    options.scope.character = "somebody";
    options.scope.shared_tokens = 100;
    options.scope.salt = "salt";
    return options;
  }
  RequestId ask(int32_t first, int32_t max_tokens) { return submit(prompt(first), request(max_tokens)); }
  Tokens reply(std::span<const int32_t> prompt, int32_t max_tokens) {
    const RequestId id = submit(prompt, request(max_tokens));
    drain();
    return said[id];
  }
  void take_weights(const std::shared_ptr<const Checkpoint>& checkpoint) {
    const Status status = engine().set_weights(checkpoint);
    INFO(status.message());
    REQUIRE(status.ok());
  }

  std::unordered_map<RequestId, Tokens> said;
  int ended = 0;
  int32_t cached = 0;  // tokens of the last reply's prompt

 private:
  void take(const Event& event) override {
    if (event.kind == EventKind::kToken) said[event.request].emplace_back(event.token, event.logprob);
    if (event.kind == EventKind::kDone) ++ended, cached = event.counts.cached_tokens;
    CHECK(event.kind != EventKind::kFailed);
  }
};

std::shared_ptr<const Checkpoint> updated(const std::shared_ptr<const Checkpoint>& checkpoint,
                                          std::span<const std::byte> update) {
  auto made = with_update(checkpoint, update);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return *made;
}

// The reference, which remembers which matrices it was given to skip zeros of.
struct Spy : ReferenceBackend {
  std::vector<std::vector<const int8_t*>>* given = nullptr;
  Status skip_zeros_of(std::span<const Matrix> downs) {
    given->emplace_back();
    for (const Matrix& down : downs) given->back().push_back(down.weight);
    return {};
  }
};

bool skips_zeros(const std::string& backend) {
  return backend != "portable" && backend != "reference" && backend != "cuda";
}

}  // namespace

TEST_CASE("an engine that takes weight updates replies as one that was made with a file of the new weights") {
  for (const int32_t arithmetic : {1, 2})
    for (const std::string& isa : test::isas()) {
      INFO(isa << ", version " << arithmetic);
      TrainingRun run(test::small_config_of(arithmetic, "updates"), kSeed);
      auto checkpoint = run.now();
      Talk talk(checkpoint, isa, arithmetic == 1 && skips_zeros(isa));  // copies of weights follow the updates
      const Tokens before = talk.reply(Talk::prompt(1), 12);
      CHECK(talk.reply(Talk::prompt(1), 12) == before);
      CHECK(talk.cached > 100);
      for (int step = 0; step < 3; ++step) {
        checkpoint = updated(checkpoint, run.step({.scales = step == 1, .far = step == 2, .fitted = step != 1}));
        talk.take_weights(checkpoint);
        const Tokens after = talk.reply(Talk::prompt(1), 12);
        CHECK(talk.cached == 0);
        CHECK(after == Talk(run.now(), isa).reply(Talk::prompt(1), 12));
        CHECK(after != before);
        CHECK(talk.reply(Talk::prompt(1), 12) == after);
        CHECK(talk.cached > 100);
        CHECK(talk.engine().scrub(size_t{1} << 30).ok());
      }
    }
}

TEST_CASE("zeros are skipped where there are some, and refused elsewhere with the reason") {
  const auto refused = [](const RunOptions& options, int32_t arithmetic) {
    TrainingRun run(test::small_config_of(arithmetic, "zeros"), kSeed);
    const auto engine = Model::create(run.now()).value()->create_engine(options);
    INFO(engine.status().message());
    CHECK(engine.status().code() == StatusCode::kUnsupported);
    return engine.status().message();
  };
  for (const std::string& isa : test::isas()) {
    INFO(isa);
    if (!skips_zeros(isa)) refused(Talk::options(isa, true), 1);
    if (isa != "cuda") CHECK(refused(Talk::options(isa, true), 2).find("zeros") != std::string::npos);
  }
  TrainingRun run(test::small_config("zeros", false), kSeed);
  const auto model = Model::create(run.now()).value();
  const RunOptions with = Talk::options("auto", true), without = Talk::options("auto", false);
  const ModelConfig& config = model->config();
  if (!model->create_engine(with).ok()) return;  // auto is a GPU
  CHECK(model->memory_need(with)->workspace - model->memory_need(without)->workspace ==
        int64_t{config.d_model} * config.d_ff * static_cast<int64_t>(config.layers.size()));
}

TEST_CASE("a backend that skips zeros is given the matrices of the new weights before they are used") {
  TrainingRun run(test::small_config("zeros", false), kSeed);
  std::vector<std::vector<const int8_t*>> given;
  auto spy = std::make_unique<Spy>();
  spy->given = &given;
  ExecutorSizes sizes;
  sizes.block_count[BlockKind::kGlobal] = sizes.block_count[BlockKind::kWindow] = 4;
  sizes.skip_zeros = true;
  auto executor = ExecutorFor<Spy>::create(std::move(spy), std::move(Weights::from(run.now())).value(), sizes);
  REQUIRE(executor.ok());
  REQUIRE(given.size() == 1);
  run.step();
  const std::shared_ptr<const Checkpoint> later = run.now();
  REQUIRE((*executor)->set_weights(later).ok());
  REQUIRE(given.size() == 2);
  for (size_t i = 0; i < given[1].size(); ++i)
    CHECK(given[1][i] == later->view<int8_t>(fmt::format("layers.{}.ffn.down.weight", i)).data());
  CHECK(given[1].size() == later->config().layers.size());
}

TEST_CASE("a reply under way goes on with what the new weights give for its tokens") {
  for (const std::string& isa : test::isas()) {
    INFO(isa);
    TrainingRun run(test::small_config("updates", false), kSeed);
    Talk talk(run.now(), isa);
    std::vector<RequestId> ids;
    for (int32_t i = 0; i < 3; ++i) ids.push_back(talk.ask(10 * i, 20));
    for (int steps = 0; talk.said[ids[2]].size() < 7; ++steps) {
      REQUIRE(steps < 100);
      talk.step();
    }
    run.step();
    talk.take_weights(run.now());
    std::vector<size_t> told;  // before the change, which may have brought the tokens of the step under way
    for (const RequestId id : ids) told.push_back(talk.said[id].size());
    for (Event event; talk.engine().poll(event);) {
      REQUIRE(event.kind == EventKind::kToken);
      talk.said[event.request].emplace_back(event.token, event.logprob);
      ++told[static_cast<size_t>(std::find(ids.begin(), ids.end(), event.request) - ids.begin())];
    }
    talk.drain();
    for (size_t i = 0; i < ids.size(); ++i) {
      const Tokens& reply = talk.said[ids[i]];
      REQUIRE(reply.size() == 20);
      std::vector<int32_t> so_far = Talk::prompt(10 * static_cast<int32_t>(i));
      for (size_t t = 0; t < told[i]; ++t) so_far.push_back(reply[t].first);
      const auto left = static_cast<int32_t>(20 - told[i]);
      const Tokens rest(reply.begin() + static_cast<std::ptrdiff_t>(told[i]), reply.end());
      CHECK(rest == Talk(run.now(), isa).reply(so_far, left));
    }
  }
}

TEST_CASE("after a thousand updates under load an engine is equal to a file of the weights") {
  INFO("seed " << kSeed);
  ModelConfig config = test::small_config("updates", false);
  config.vocab_size = 256;
  config.layers.resize(2);
  TrainingRun run(config, kSeed);
  auto checkpoint = run.now();
  Talk talk(checkpoint, "auto");
  std::mt19937_64 random(kSeed);
  int asked = 0;
  for (int step = 0; step < 1000; ++step) {
    for (; talk.engine().pending() < 3; ++asked) talk.ask(static_cast<int32_t>(random() % 50), 6);
    talk.step();
    checkpoint = updated(checkpoint, run.step());
    talk.take_weights(checkpoint);
  }
  talk.drain();
  CHECK(talk.ended == asked);
  CHECK(checkpoint->digest() == run.now()->digest());
  CHECK(talk.reply(Talk::prompt(3), 40) == Talk(run.now(), "auto").reply(Talk::prompt(3), 40));
}

TEST_CASE("suspended requests, beams and several replies at once go on after a change of weights") {
  for (uint32_t which = 1; which < 8; ++which) {
    INFO("which " << which);
    TrainingRun run(test::small_config("updates", false), kSeed);
    Talk talk(run.now(), "auto");
    RequestOptions beams = Talk::request(10), two = Talk::request(10);
    beams.sampling = {};
    beams.beams.width = 3;
    two.sequence_count = 2;
    RequestId suspended = 0;
    if (which & 1) suspended = talk.ask(1, 10);
    if (which & 2) talk.submit(Talk::prompt(2), beams);
    if (which & 4) talk.submit(Talk::prompt(3), two);
    for (int i = 0; i < 5; ++i) talk.step();
    if (suspended) REQUIRE(talk.engine().suspend(suspended).ok());
    for (int i = 0; i < 3; ++i) {
      run.step();
      talk.take_weights(run.now());
      talk.step();
      talk.step();
    }
    if (suspended) REQUIRE(talk.engine().resume(suspended).ok());
    talk.drain();
    if (suspended) CHECK(talk.said[suspended].size() == 10);
    CHECK(talk.ended == std::popcount(which));
    CHECK(talk.engine().check_ledger().ok());
  }
}

TEST_CASE("weights may be changed and changed back, with heads and scales of the weights that are there") {
  ModelConfig config = test::small_config("updates", false);
  config.labels = {"rude", "sad"};
  TrainingRun run(config, kSeed);
  const auto first = run.now();
  Talk talk(first, "auto");
  const Tokens before = talk.reply(Talk::prompt(1), 12);
  auto calibration = Calibration::create(*first);
  REQUIRE(calibration.ok());
  run.step();
  talk.take_weights(run.now());
  CHECK(talk.engine().set_head(first).code() == StatusCode::kInvalidArgument);
  CHECK(talk.engine().set_scales(first).code() == StatusCode::kInvalidArgument);
  CHECK(talk.engine().calibrate(*calibration).status().code() == StatusCode::kInvalidArgument);
  CHECK(talk.engine().set_head(run.now()).ok());
  CHECK(talk.engine().set_scales(run.now()).ok());
  CHECK(talk.reply(Talk::prompt(1), 12) != before);
  talk.take_weights(first);
  CHECK(talk.reply(Talk::prompt(1), 12) == before);
  CHECK(talk.engine().set_head(first).ok());
  CHECK(talk.engine().calibrate(*calibration).ok());
}

// An executor whose changes end with an error.
struct Halfway final : Executor {
  Halfway(std::unique_ptr<Executor> executor, const Status& error) : whole(std::move(executor)), answer(error) {}
  const ExecutorInfo& info() const override { return whole->info(); }
  Status run(const StepPlan& plan, StepResult& result) override { return whole->run(plan, result); }
  Status set_head(const std::shared_ptr<const Checkpoint>&) override { return answer; }
  Status set_scales(const std::shared_ptr<const Checkpoint>&) override { return answer; }
  Status set_weights(const std::shared_ptr<const Checkpoint>&) override { return answer; }

  std::unique_ptr<Executor> whole;
  Status answer;
};

TEST_CASE(
    "a change of weights, scales or head that fails half done stops the engine; one that changed nothing does not") {
  ModelConfig config = test::small_config("updates", false);
  config.labels = {"rude", "sad"};
  const auto checkpoint = TrainingRun(config, kSeed).now();
  for (const StatusCode code :
       {StatusCode::kOutOfMemory, StatusCode::kIo, StatusCode::kInternal, StatusCode::kDeviceLost})
    for (int32_t call = 0; call < 3; ++call) {
      CAPTURE(static_cast<int32_t>(code), call);
      ExecutorOptions options;
      options.backend = "portable";
      options.slot_count = 2;
      auto executor = make_executor(checkpoint, options);
      REQUIRE(executor.ok());
      EngineOptions settings;
      settings.cache.identity = checkpoint->digest() + " arithmetic 1";
      settings.cache.epoch = call == 1 ? 1 : 0;  // so that the checkpoint's scales are others
      auto engine = Engine::create(std::make_unique<Halfway>(std::move(executor).value(), Status(code, "a reason")),
                                   nullptr, settings);
      REQUIRE(engine.ok());
      const Status done = call == 0   ? (*engine)->set_weights(checkpoint)
                          : call == 1 ? (*engine)->set_scales(checkpoint)
                                      : (*engine)->set_head(checkpoint);
      CHECK(done.code() == code);
      const bool is_final = code == StatusCode::kInternal || code == StatusCode::kDeviceLost;
      CHECK((*engine)->status().ok() != is_final);
      CHECK((*engine)->step().ok() != is_final);
    }
}

TEST_CASE("weights of another shape are refused, and the engine goes on") {
  Talk talk(TrainingRun(test::small_config("updates", false), kSeed).now(), "auto");
  const Tokens before = talk.reply(Talk::prompt(1), 12);
  ModelConfig config = test::small_config("updates", false);
  config.d_ff = 256;
  CHECK(talk.engine().set_weights(TrainingRun(config, kSeed).now()).code() == StatusCode::kInvalidArgument);
  CHECK(talk.engine().set_weights(nullptr).code() == StatusCode::kInvalidArgument);
  CHECK(talk.reply(Talk::prompt(1), 12) == before);
}
