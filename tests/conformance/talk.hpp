// Talk: an engine on one backend, for tests of requests: they say what becomes of its events.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "random_checkpoint.hpp"

namespace kaiju::test {

class Talk {
 public:
  virtual ~Talk() = default;

  Engine& engine() { return *engine_; }
  SessionId session() { return engine_->create_session().value(); }
  RequestId submit(SessionId session, std::span<const int32_t> prompt, const RequestOptions& options) {
    auto request = engine_->submit(session, prompt, options);
    INFO(request.status().message());
    REQUIRE(request.ok());
    return *request;
  }
  RequestId submit(std::span<const int32_t> prompt, const RequestOptions& options) {
    return submit(session(), prompt, options);
  }
  void step() {
    const Status status = engine_->step();
    INFO(status.message());
    REQUIRE(status.ok());
    for (Event event; engine_->poll(event);) take(event);
    end_step();
  }
  void drain() {
    for (int steps = 0; engine_->pending() > 0; ++steps) {
      REQUIRE(steps < 20000);
      step();
    }
  }

 protected:
  // Two threads, and a ledger that is checked after each step.
  static RunOptions options_of(const std::string& backend, int32_t slots, int32_t step_tokens = 0) {
    RunOptions options;
    options.executor.backend = backend;
    options.executor.threads = 2;
    options.executor.slot_count = slots;
    options.executor.step_tokens = step_tokens;
    options.engine.check_ledger = true;
    return options;
  }
  Talk(const Result<std::shared_ptr<const Model>>& model, const RunOptions& options) {
    INFO(model.status().message());
    REQUIRE(model.ok());
    auto engine = model.value()->create_engine(options);
    INFO(engine.status().message());
    REQUIRE(engine.ok());
    engine_ = std::move(engine).value();
  }
  // Of a model with random weights.
  Talk(const ModelConfig& config, uint64_t seed, const RunOptions& options)
      : Talk(Model::create(random_checkpoint(config, seed)), options) {}

  virtual void take(const Event& event) = 0;
  virtual void end_step() {}  // all events of a step have been taken

 private:
  std::shared_ptr<Engine> engine_;
};

}  // namespace kaiju::test
