// Driver: steps the engine on a thread of its own, and brings every event to the I/O thread.
//
// The I/O thread submits and cancels; neither call waits for a step. The events of one step reach the I/O thread
// together, by one post to its io_context, and there the Sink of their request. A request has its own engine session,
// which ends with it: its KV stays in the cache under the salt of its scope.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kaiju/kaiju.hpp"
#include "step_turns.hpp"

namespace kaiju::server {

// Where the events of a request go, on the I/O thread. The last event is kDone, kFailed or kPrefetched.
class Sink {
 public:
  virtual ~Sink() = default;
  // `polled`: when the thread that steps got the event from the engine.
  virtual void on_event(const Event& event, std::chrono::steady_clock::time_point polled) = 0;
};

// Says what the next token of each sequence of a request may be. Called on the thread that steps.
class Guide {
 public:
  virtual ~Guide() = default;
  // Fills in what the next token of the sequence may be. The spans stay valid until the next call.
  virtual kaiju::Guide next(int32_t sequence) = 0;
  // Follows a token that the sequence got.
  virtual void take(int32_t sequence, int32_t token) = 0;
};

class Driver {
 public:
  // `turns`: with other drivers, whose engines compute on the same cores; null: none.
  Driver(std::shared_ptr<Engine> engine, boost::asio::io_context& io, std::shared_ptr<StepTurns> turns = nullptr);
  ~Driver() { stop(); }
  Driver(const Driver&) = delete;

  // I/O thread. With a guide, the options must ask for one (RequestOptions::guided). `keep` is given the session when
  // the request is done; without, the session is destroyed.
  using Keep = std::function<void(SessionId)>;
  Result<RequestId> submit(std::span<const int32_t> prompt, const RequestOptions& options, std::shared_ptr<Sink> sink,
                           std::unique_ptr<Guide> guide = nullptr, Keep keep = {});
  // Brings up what lower tiers have of a prompt's beginning, before there is a request. A kPrefetched event ends it.
  Result<RequestId> prefetch(std::span<const int32_t> tokens, const Scope& scope, std::shared_ptr<Sink> sink);
  void cancel(RequestId request) { (void)engine_->cancel(request); }
  // What there is of their replies comes as usual, and their end.
  void cancel_all() {
    for (const auto& [request, ongoing] : ongoing_) cancel(request);
  }
  // Runs a call on the thread that steps, when no step runs, and continues on the I/O thread. The call must not throw.
  boost::asio::awaitable<void> between_steps(std::function<void(Engine&)> call);
  // From now on the thread makes this call too between steps, many times a second, and at once again where it answers
  // that it has more to do. The call must not throw.
  using Beside = std::function<bool(Engine&)>;
  void beside_steps(Beside call);
  // From now on the thread makes this call after each step. The call must not throw.
  void after_steps(std::function<void()> call);
  // Ends the thread. Unfinished requests get no more events.
  void stop();
  size_t unfinished() const { return ongoing_.size(); }
  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }

 private:
  struct Ongoing {
    SessionId session;
    std::shared_ptr<Sink> sink;
    Keep keep;
  };

  void run();
  bool step();
  void run_calls();
  void guide(const Event& event);
  void deliver(const std::vector<Event>& events, std::chrono::steady_clock::time_point polled);

  std::shared_ptr<Engine> engine_;
  const std::shared_ptr<StepTurns> turns_;
  boost::asio::io_context& io_;
  std::unordered_map<RequestId, Ongoing> ongoing_;  // I/O thread
  std::mutex mutex_;                                // of the next two
  std::unordered_map<RequestId, std::unique_ptr<Guide>> guides_;
  std::vector<std::function<void()>> calls_;
  std::vector<Beside> beside_;   // of the thread that steps
  bool more_beside_ = false;     // likewise: one of them has more to do
  std::function<void()> after_;  // likewise
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace kaiju::server
