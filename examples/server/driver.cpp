#include "driver.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace kaiju::server {

namespace {

bool is_last(const Event& event) {
  return event.kind == EventKind::kDone || event.kind == EventKind::kFailed || event.kind == EventKind::kPrefetched;
}

}  // namespace

Driver::Driver(std::shared_ptr<Engine> engine, boost::asio::io_context& io, std::shared_ptr<StepTurns> turns)
    : engine_(std::move(engine)), turns_(std::move(turns)), io_(io), thread_([this] { run(); }) {}

void Driver::stop() {
  stopping_ = true;
  engine_->wake();
  if (thread_.joinable()) thread_.join();
}

Result<RequestId> Driver::submit(std::span<const int32_t> prompt, const RequestOptions& options,
                                 std::shared_ptr<Sink> sink, std::unique_ptr<Guide> guide, Keep keep) {
  Result<SessionId> session = engine_->create_session();
  if (!session.ok()) return session.status();
  Result<RequestId> request = engine_->submit(*session, prompt, options);
  if (!request.ok()) {
    (void)engine_->destroy_session(*session);
    return request;
  }
  ongoing_.emplace(*request, Ongoing{*session, std::move(sink), std::move(keep)});
  if (guide) {
    const std::lock_guard lock(mutex_);
    for (int32_t sequence = 0; sequence < options.sequence_count; ++sequence)
      if (Status status = engine_->guide(*request, guide->next(sequence), sequence); !status.ok()) {
        cancel(*request);
        return status;
      }
    guides_.emplace(*request, std::move(guide));
  }
  return request;
}

Result<RequestId> Driver::prefetch(std::span<const int32_t> tokens, const Scope& scope, std::shared_ptr<Sink> sink) {
  Result<SessionId> session = engine_->create_session();
  if (!session.ok()) return session.status();
  Status status = engine_->set_session_tokens(*session, tokens);
  Result<RequestId> prefetch = status.ok() ? engine_->prefetch(*session, {.scope = scope}) : status;
  if (prefetch.ok())
    ongoing_.emplace(*prefetch, Ongoing{*session, std::move(sink), {}});
  else
    (void)engine_->destroy_session(*session);
  return prefetch;
}

boost::asio::awaitable<void> Driver::between_steps(std::function<void(Engine&)> call) {
  boost::asio::steady_timer signal(io_, boost::asio::steady_timer::time_point::max());
  bool done = false;
  const std::function<void()> tell = [&] {
    done = true;
    signal.cancel();
  };
  const std::function<void()> there = [&] {
    call(*engine_);
    boost::asio::post(io_, tell);
  };
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(there);
  }
  engine_->wake();
  while (!done) {
    boost::system::error_code ignored;  // cancelled: it is done
    co_await signal.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
  }
}

void Driver::beside_steps(Beside call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back([this, call = std::move(call)] { beside_.push_back(call); });
  }
  engine_->wake();
}

void Driver::after_steps(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back([this, call = std::move(call)] { after_ = call; });
  engine_->wake();
}

void Driver::run_calls() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const std::function<void()>& call : calls) call();
  more_beside_ = false;
  for (Beside& beside : beside_) more_beside_ |= beside(*engine_);
}

bool Driver::step() {
  std::unique_lock<StepTurns> turn;
  if (turns_) turn = std::unique_lock(*turns_);
  run_calls();
  return engine_->step().ok();
}

void Driver::run() {
  while (!stopping_) {
    engine_->wait(std::chrono::milliseconds(more_beside_ ? 0 : beside_.empty() ? 1000 : 100));
    // A step that failed for want of memory is tried again; a stopped engine answers at once, and waits for the host.
    const bool stepped = step();
    if (after_) after_();
    std::vector<Event> events;
    for (Event event; engine_->poll(event);) {
      guide(event);
      events.push_back(std::move(event));
    }
    if (!events.empty())
      boost::asio::post(
          io_, [this, events = std::move(events), now = std::chrono::steady_clock::now()] { deliver(events, now); });
    else if (!stepped)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void Driver::guide(const Event& event) {
  const std::lock_guard lock(mutex_);
  const auto found = guides_.find(event.request);
  if (found == guides_.end()) return;
  if (is_last(event)) {
    guides_.erase(found);
  } else if (event.kind == EventKind::kToken) {
    found->second->take(event.sequence, event.token);
    (void)engine_->guide(event.request, found->second->next(event.sequence), event.sequence);  // it may have ended
  }
}

void Driver::deliver(const std::vector<Event>& events, std::chrono::steady_clock::time_point polled) {
  for (const Event& event : events) {
    const auto found = ongoing_.find(event.request);
    if (found == ongoing_.end()) continue;
    const std::shared_ptr<Sink> sink = found->second.sink;
    if (is_last(event)) {
      if (found->second.keep && event.kind == EventKind::kDone)
        found->second.keep(found->second.session);
      else
        (void)engine_->destroy_session(found->second.session);
      ongoing_.erase(found);
    }
    sink->on_event(event, polled);
  }
}

}  // namespace kaiju::server
