// Inbox: the part of the engine that any thread may touch: commands for the next step, the sessions' histories, events
// to poll, metrics, which thread is in step, and the error that stopped the engine. One mutex guards it; it is held for
// moments and never during a step's work. EngineImpl checks calls before they come here and carries out the commands.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kaiju/base/detail/ring.hpp"
#include "kaiju/base/time.hpp"
#include "kaiju/cache/share_limits.hpp"
#include "kaiju/engine/detail/prefetch.hpp"
#include "kaiju/engine/detail/sequence.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/metrics.hpp"

namespace kaiju {

// What the host wants of an unfinished request. Only its latest call counts, so a request has at most one command in
// the inbox.
struct RequestControl {
  bool cancel = false;
  bool suspend = false;
  bool told = false;      // a command is on its way
  SessionId session = 0;  // whose request it is, for its last event
  void* user_data = nullptr;
  Ring<Event>* own_events = nullptr;  // generate's, where the request is generate's: its events go there, not to poll
  bool given_up = false;              // generate left before the end: the events are dropped
  int32_t prompt_count = 0;
  int32_t sequence_count = 1;  // sequences so far, forks that wait in the inbox included
  int32_t kept = 0;            // the sequence whose tokens become the session's history
  bool guided = false;
  bool hooked = false;  // it has a logits hook, a chain of samplers or banned phrases
  bool beams = false;
};

// What the host wants of one sequence of a request.
struct SequenceCall {
  enum class Kind { kFork, kCut, kEnd, kPropose, kGuide };
  Kind kind = Kind::kEnd;
  int32_t sequence = 0;
  int32_t child = 0;                             // kFork: the new sequence's index
  uint32_t stream = 0;                           // kFork: of its samples
  int32_t length = 0;                            // kCut
  std::vector<int32_t> tokens = {};              // kPropose
  std::shared_ptr<const TokenGuide> guide = {};  // kGuide
};

using ShareName = std::pair<ShareOf, std::string>;

// What waits for the next step, in order of arrival.
struct Command {
  enum class Kind { kSubmit, kControl, kSequence, kFork, kDestroy, kShare, kPrefetch };
  Kind kind = Kind::kSubmit;
  std::vector<std::unique_ptr<Sequence>> sequences;  // kSubmit: of one request
  RequestId request = 0;                             // kControl, kSequence; kDestroy: the session's unfinished one
  SequenceCall call;                                 // kSequence
  RequestControl control;                            // kControl
  SessionId session = 0;                             // kFork: the parent; kDestroy
  SessionId child = 0;                               // kFork
  ShareName share;                                   // kShare
  ShareLimits share_limits;                          // kShare
  Prefetch prefetch;                                 // kPrefetch
};

struct Destroyed {
  SessionId session = 0;
  RequestId request = 0;  // its unfinished one
};

// A session's tokens: the first `length` of a list that never changes, so that forks, cuts and requests need no copy.
struct History {
  SharedTokens tokens;
  size_t length = 0;
  RequestId request = 0;  // the unfinished one; 0: idle
  bool known = false;     // the scheduler may know it
  TurnClock turns;        // with EngineOptions::prefetch_usual

  std::span<const int32_t> view() const {
    return tokens ? std::span<const int32_t>(*tokens).first(length) : std::span<const int32_t>();
  }
  void set(SharedTokens to) {
    length = to->size();
    tokens = std::move(to);
  }
};

// How a request ended, for its session's history.
struct Ending {
  RequestId request = 0;
  SessionId session = 0;
  bool done = false;                    // else failed: the history stays as it was
  std::vector<SharedTokens> histories;  // done: the tokens of each sequence
};

inline TimePoint steady_now() { return std::chrono::steady_clock::now(); }

// Every member function is threadsafe.
class Inbox {
  using Clock = std::chrono::steady_clock;

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

  // Shares that Engine::set_share made, and what they have as of the last step.
  std::map<ShareName, ShareLimits> shares;
  std::map<ShareName, ShareUsage> share_usage;
  std::shared_ptr<const TierLimits> tiers;  // limits that Engine::set_limit gave; null: none

  // Driving thread: everything that arrived, oldest first.
  void take_commands(std::vector<Command>& taken) {
    const std::lock_guard lock(mutex_);
    taken.clear();
    commands.reserve(commands.size() + destroyed.size());
    for (const Destroyed& session : destroyed) {
      Command& command = commands.emplace_back();
      command.kind = Command::Kind::kDestroy;
      command.session = session.session;
      command.request = session.request;
    }
    destroyed.clear();
    std::swap(taken, commands);
    sequence_calls = 0;
    for (Command& command : taken) {
      if (command.kind != Command::Kind::kControl) continue;
      if (const auto found = unfinished.find(command.request); found != unfinished.end()) {
        found->second.told = false;
        command.control = found->second;
      }
    }
  }
  // Driving thread: what a step brought about, all of it or, where memory runs short, nothing. Both lists are emptied.
  // `has_work`: there may be something to step, though no further call comes. `deadline`: the earliest of all
  // unfinished requests, suspended ones included, and of prefetches. `time`: now, if sessions that have had a reply are
  // to be prefetched when their users usually come back.
  void publish(std::vector<Event>& new_events, std::vector<Ending>& endings, const Metrics& figures, bool has_work,
               std::optional<TimePoint> deadline, std::optional<TimePoint> time) {
    Metrics now = figures;
    {
      const std::lock_guard lock(mutex_);
      for (const Event& event : new_events)
        if (Ring<Event>* const queue = queue_of(event.request)) queue->reserve(queue->size() + new_events.size());
      if (time) commands.reserve(commands.size() + endings.size());
      for (Event& event : new_events) deliver(std::move(event));
      for (Ending& ending : endings) {
        const auto ended = unfinished.find(ending.request);
        const size_t kept = ended != unfinished.end() ? static_cast<size_t>(ended->second.kept) : 0;
        if (History* const history = waits_for(ending.session, ending.request)) {
          history->request = 0;
          if (ending.done) history->set(std::move(ending.histories[kept < ending.histories.size() ? kept : 0]));
          if (ending.done && time) expect_next_turn(ending.session, *history, *time);
        }
        if (ended != unfinished.end()) unfinished.erase(ended);
      }
      metrics = std::move(now);
      has_work_ = has_work;
      next_deadline_ = deadline;
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
        const auto& [request, control] = *unfinished.begin();
        Event event;
        event.kind = EventKind::kFailed;
        event.request = request;
        event.session = control.session;
        event.user_data = control.user_data;
        event.status = stopped;
        deliver(std::move(event));
        if (History* const history = waits_for(control.session, request)) history->request = 0;
        ++metrics.requests_failed;
        unfinished.erase(unfinished.begin());
      }
    }
    changed_.notify_all();
  }

  bool poll(Event& event) {
    const std::lock_guard lock(mutex_);
    return take(events, event);
  }
  // The same for a request of generate.
  bool poll(Ring<Event>& own_events, Event& event) {
    const std::lock_guard lock(mutex_);
    return take(own_events, event);
  }
  // generate leaves: what is and will be told of its request is dropped.
  void give_up(RequestId request, Ring<Event>& own_events) {
    const std::lock_guard lock(mutex_);
    for (Event event; take(own_events, event);) continue;
    const auto found = unfinished.find(request);
    if (found == unfinished.end()) return;
    found->second.own_events = nullptr;
    found->second.given_up = true;
  }

  // -- whose step it is: one thread at a time --
  // False where a thread is in step already.
  bool enter_step() {
    const std::lock_guard lock(mutex_);
    if (stepping()) return false;
    stepper_ = std::this_thread::get_id();
    return true;
  }
  // For generate, which shares the stepping with others: sleeps until its request has events, and answers false, or
  // until there is something to step and no thread in step, and enters.
  template <class Now>
  bool enter_step_unless_told(const Ring<Event>& own_events, const Now& now) {
    std::unique_lock lock(mutex_);
    bool overdue = false;
    const auto ready = [&] {
      return !own_events.empty() || (!stepping() && (has_steps() || overdue || !stopped.ok()));
    };
    while (!ready()) sleep(lock, Clock::now() + kLongestSleep, now, overdue, ready);
    if (!own_events.empty()) return false;
    stepper_ = std::this_thread::get_id();
    return true;
  }
  void leave_step() {
    {
      const std::lock_guard lock(mutex_);
      stepper_ = {};
    }
    changed_.notify_all();
  }
  // The calling thread is in step, or in a save or a restore.
  bool in_step() const {
    const std::lock_guard lock(mutex_);
    return stepper_ == std::this_thread::get_id();
  }

  // `now` is the engine's clock, which is the host's: it is called without the lock.
  template <class Now>
  bool wait(Nanoseconds timeout, const Now& now) {
    // The clock must not overflow when a host says "forever" with a huge number.
    const Clock::time_point end =
        Clock::now() + std::clamp(std::chrono::nanoseconds(timeout.count), std::chrono::nanoseconds(0), kLongestSleep);
    std::unique_lock lock(mutex_);
    bool overdue = false;
    sleep(lock, end, now, overdue,
          [&] { return woken || !stopped.ok() || !events.empty() || (!stepping() && (has_steps() || overdue)); });
    woken = false;
    return has_steps() || overdue || !events.empty();
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
  std::vector<Command> commands;     // for the next step, in order of arrival
  std::vector<Destroyed> destroyed;  // after them
  size_t sequence_calls = 0;         // of the commands, those of kind kSequence and kShare
  size_t prefetches = 0;             // that have not ended
  std::unordered_map<SessionId, History> sessions;
  std::unordered_map<RequestId, RequestControl> unfinished;
  Ring<Event> events;  // bounded: step refuses while the host leaves too many
  size_t pending = 0;
  Metrics metrics;  // as of the last step
  Status stopped;
  bool woken = false;
  uint64_t last_session = 0;
  uint64_t last_request = 0;

  // Leaves a prefetch of the session's history for the next step.
  RequestId enqueue_prefetch(SessionId session, History& history, Prefetch prefetch) {
    prefetch.session = session;
    prefetch.tokens = history.tokens;
    prefetch.length = history.length;
    prefetch.id = ++last_request;
    Command& command = commands.emplace_back();
    command.kind = Command::Kind::kPrefetch;
    command.prefetch = std::move(prefetch);
    history.known = true;
    ++prefetches;
    return last_request;
  }

 private:
  // A session's reply has ended: it is prefetched when its user usually comes back.
  void expect_next_turn(SessionId session, History& history, TimePoint now) {
    history.turns.reply_ended(now);
    Prefetch prefetch;
    prefetch.at = history.turns.expected();
    if (prefetch.at) enqueue_prefetch(session, history, std::move(prefetch));
  }
  // The history of a session that waits for this request's end; null when the session is gone.
  History* waits_for(SessionId session, RequestId request) {
    const auto found = sessions.find(session);
    return found != sessions.end() && found->second.request == request ? &found->second : nullptr;
  }
  // Where the events of this request go; null: nowhere.
  Ring<Event>* queue_of(RequestId request) {
    const auto found = unfinished.find(request);
    if (found == unfinished.end()) return &events;
    return found->second.given_up ? nullptr : found->second.own_events ? found->second.own_events : &events;
  }
  void deliver(Event&& event) {
    if (Ring<Event>* const queue = queue_of(event.request))
      queue->push_back(std::move(event));
    else if (is_last(event))
      --pending;
  }
  bool take(Ring<Event>& queue, Event& event) {
    if (queue.empty()) return false;
    event = queue.pop_front();
    if (is_last(event)) --pending;
    return true;
  }
  static bool is_last(const Event& event) { return event.kind == EventKind::kDone || event.kind == EventKind::kFailed; }

  bool stepping() const { return stepper_ != std::thread::id(); }
  // Without deadlines: those need the engine's clock.
  bool has_steps() const { return !commands.empty() || !destroyed.empty() || has_work_; }
  // Sleeps until `ready` or `end`; `overdue` becomes whether the earliest deadline has passed.
  template <class Now, class Ready>
  void sleep(std::unique_lock<std::mutex>& lock, Clock::time_point end, const Now& now, bool& overdue,
             const Ready& ready) {
    while (!ready()) {
      Clock::time_point until = end;
      if (next_deadline_) {
        lock.unlock();
        const TimePoint time = now();
        lock.lock();
        overdue = next_deadline_ && *next_deadline_ <= time;
        if (ready()) return;
        // A host's clock may go at a pace of its own: looked at again when the deadline should have come, and where it
        // has not, a little later.
        if (next_deadline_ && !overdue && *next_deadline_ < time + kLongestSleep)
          until = std::min(
              end, Clock::now() + std::max(std::chrono::nanoseconds((*next_deadline_ - time).count), kShortestSleep));
      }
      if (changed_.wait_until(lock, until) == std::cv_status::timeout && until == end) return;
      overdue = false;  // unless it still is: the step that another thread ran may have ended it
    }
  }
  static constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::hours(24 * 365);
  static constexpr std::chrono::nanoseconds kShortestSleep = std::chrono::milliseconds(1);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool has_work_ = false;                   // as of the last step, like the deadline
  std::optional<TimePoint> next_deadline_;  // the earliest
  std::thread::id stepper_;                 // the thread in step
};

}  // namespace kaiju
