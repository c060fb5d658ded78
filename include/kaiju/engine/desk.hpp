// Desk: what any thread may touch: the inbox, the sessions' histories, the events to poll, the figures, the error that
// stopped the engine. One mutex, held for moments and never during a step's work. Engine checks what comes in and does
// what is in the inbox.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kaiju/base/ring.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/metrics.hpp"
#include "kaiju/engine/sequence.hpp"

namespace kaiju {

// What the host wants of an unfinished request; its newest word counts, so there is never more than one command of a
// request in the inbox.
struct Wish {
  bool cancel = false;
  bool suspend = false;
  bool told = false;      // a command is on its way
  SessionId session = 0;  // whose request it is, for its last event
  void* user_data = nullptr;
};

// What waits for the next step, in order of arrival.
struct Command {
  enum class Kind { kSubmit, kWish, kFork, kDestroy };
  Kind kind = Kind::kSubmit;
  std::unique_ptr<Sequence> sequence;  // kSubmit
  RequestId request = 0;               // kWish; kDestroy: the session's unfinished one
  Wish wish;                           // kWish
  SessionId session = 0;               // kFork: the parent; kDestroy
  SessionId child = 0;                 // kFork
};

struct Destroyed {
  SessionId session = 0;
  RequestId request = 0;  // its unfinished one
};

struct History {
  std::vector<int32_t> tokens;
  RequestId request = 0;  // the unfinished one; 0: idle
  bool known = false;     // the scheduler may know it
};

// How a request ended, for the desk's books.
struct Ending {
  RequestId request = 0;
  SessionId session = 0;
  bool done = false;            // else failed: the history stays as it was
  std::vector<int32_t> tokens;  // done: the new history
};

// Every member function is threadsafe.
class Desk {
 public:
  // Runs `body(*this)` under the lock; Engine's public calls are such bodies, over the members below.
  template <class Body>
  auto locked(Body body) {
    const std::lock_guard lock(mutex_);
    return body(*this);
  }
  template <class Body>
  auto locked(Body body) const {
    const std::lock_guard lock(mutex_);
    return body(*this);
  }

  // Driving thread: everything that arrived, oldest first.
  void take_inbox(std::vector<Command>& commands) {
    const std::lock_guard lock(mutex_);
    commands.clear();
    inbox.reserve(inbox.size() + destroyed.size());
    for (const Destroyed& session : destroyed) {
      Command& command = inbox.emplace_back();
      command.kind = Command::Kind::kDestroy;
      command.session = session.session;
      command.request = session.request;
    }
    destroyed.clear();
    std::swap(commands, inbox);
    for (Command& command : commands) {
      if (command.kind != Command::Kind::kWish) continue;
      if (const auto found = unfinished.find(command.request); found != unfinished.end()) {
        found->second.told = false;
        command.wish = found->second;
      }
    }
  }
  // Driving thread: what a step brought about, all of it or, where memory runs short, nothing. Both lists are emptied.
  // `runs`: somebody does, be it one that has ended for the host.
  void publish(std::vector<Event>& new_events, std::vector<Ending>& endings, const Metrics& figures, bool runs) {
    Metrics now = figures;
    {
      const std::lock_guard lock(mutex_);
      events.reserve(events.size() + new_events.size());
      for (Event& event : new_events) events.push_back(std::move(event));
      for (Ending& ending : endings) {
        unfinished.erase(ending.request);
        if (History* const history = waits_for(ending.session, ending.request)) {
          history->request = 0;
          if (ending.done) history->tokens = std::move(ending.tokens);
        }
      }
      metrics = std::move(now);
      running = runs;
    }
    new_events.clear();
    endings.clear();
    changed_.notify_all();
  }

  // Driving thread: from here on nobody's call succeeds. Where memory runs short the message is lost, never the error.
  void stop(const Status& error) noexcept {
    Status short_error(error.code(), "no memory"), whole = guarded<Status>([&] { return error; });
    {
      const std::lock_guard lock(mutex_);
      stopped = std::move(whole.code() == error.code() ? whole : short_error);
    }
    changed_.notify_all();
  }
  // Driving thread, of an engine that stopped: the last event of every request that has none, wherever it was lost.
  // Whom memory does not suffice to tell stays for the next time.
  void fail_unfinished() {
    {
      const std::lock_guard lock(mutex_);
      while (!unfinished.empty()) {
        const auto& [request, wish] = *unfinished.begin();
        Event event;
        event.kind = EventKind::kFailed;
        event.request = request;
        event.session = wish.session;
        event.user_data = wish.user_data;
        event.status = stopped;
        events.push_back(std::move(event));
        if (History* const history = waits_for(wish.session, request)) history->request = 0;
        ++metrics.requests_failed;
        unfinished.erase(unfinished.begin());
      }
    }
    changed_.notify_all();
  }

  bool poll(Event& event) {
    const std::lock_guard lock(mutex_);
    if (events.empty()) return false;
    event = events.pop_front();
    if (event.kind == EventKind::kDone || event.kind == EventKind::kFailed) --pending;
    return true;
  }

  bool wait(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return woken || has_work() || !stopped.ok(); };
    // The clock must not overflow when a host says "forever" with a huge number.
    constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);
    changed_.wait_for(lock, std::clamp(timeout, std::chrono::nanoseconds(0), kLongest), ready);
    woken = false;
    return has_work();
  }
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      woken = true;
    }
    changed_.notify_all();
  }
  void notify() const { changed_.notify_all(); }

  // Guarded by the lock; use inside `locked`.
  // Those waiting and those suspended.
  size_t waiting_count() const {
    return unfinished.size() - std::min<size_t>(unfinished.size(), metrics.requests_running);
  }
  // Before a session is made: destroying it must not fail.
  void reserve_destroyed() {
    const size_t most = destroyed.size() + sessions.size() + 1;
    if (destroyed.capacity() < most) destroyed.reserve(2 * most);
  }
  std::vector<Command> inbox;
  std::vector<Destroyed> destroyed;  // come behind what is in the inbox
  std::unordered_map<SessionId, History> sessions;
  std::unordered_map<RequestId, Wish> unfinished;
  Ring<Event> events;  // bounded: step refuses while the host leaves too many
  size_t pending = 0;
  Metrics metrics;  // as of the last step
  bool running = false;
  Status stopped;
  bool woken = false;
  uint64_t last_session = 0;
  uint64_t last_request = 0;

 private:
  // The history of a session that waits for this request's end; null when the session is gone.
  History* waits_for(SessionId session, RequestId request) {
    const auto found = sessions.find(session);
    return found != sessions.end() && found->second.request == request ? &found->second : nullptr;
  }
  bool has_work() const {
    return !inbox.empty() || !destroyed.empty() || !events.empty() || metrics.requests_waiting > 0 || running;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

}  // namespace kaiju
