// Engine: many conversations, one executor, one loop that the host drives.
//
//   auto engine = Engine::create(std::move(executor), pieces, {});
//   SessionId chat = *engine->create_session();
//   engine->submit(chat, prompt, options);
//   while (engine->pending() > 0) {
//     engine->step();
//     for (Event event; engine->poll(event);) ...
//   }
//
// Threads: everything may be called from any thread. step wants one thread at a time (a second one gets kBusy). Nothing but step waits for
// a running step; wait waits for work. No thread of its own, no output, no exception.
// Errors: kDeviceLost and kInternal stop the engine: all its requests fail, and every later call answers with that error at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/engine/desk.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/metrics.hpp"
#include "kaiju/engine/request.hpp"
#include "kaiju/engine/scheduler.hpp"
#include "kaiju/step/executor.hpp"
#include "kaiju/text/pieces.hpp"

namespace kaiju {

struct EngineOptions {
  int32_t step_tokens = 0;     // most tokens a step computes; 0: what the executor allows
  int32_t chunk_tokens = 0;    // most prompt tokens of one request in a step; 0: step_tokens
  int32_t max_running = 0;     // requests computed at once; 0: the executor's slot_count
  int32_t max_waiting = 4096;  // a submit beyond is refused with kBusy
  int32_t max_sessions = 65536;
  bool check_ledger = false;   // recount every block after every step (tests)
};

class Engine {
 public:
  // Owns the executor. `pieces` may be null: then events carry no text and stop strings are refused.
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Executor> executor, std::shared_ptr<const Pieces> pieces,
                                                const EngineOptions& options);

  // -- sessions: a token history whose KV is kept from turn to turn --
  // All but session_tokens and destroy_session want the session idle: kBusy while a request of it is unfinished. kNotFound for an unknown id.
  Result<SessionId> create_session();
  // A new session with the first `length` tokens of the parent; it shares their KV.
  Result<SessionId> fork_session(SessionId parent, size_t length);
  // Cuts the history. What is submitted next computes only what the cut made new.
  Status truncate_session(SessionId session, size_t length);
  // Replaces the history; the KV of the longest common prefix stays.
  Status set_session_tokens(SessionId session, std::span<const int32_t> tokens);
  // The history: after kDone the prompt and all generated tokens; while a request is unfinished, what it was before.
  Result<std::vector<int32_t>> session_tokens(SessionId session) const;
  // Gives the session up; an unfinished request of it is cancelled (its kDone still comes).
  Status destroy_session(SessionId session);

  // -- requests --
  // Appends tokens to the history (none: go on from it) and generates. One request per session at a time, else kBusy.
  // Refused here: bad options and token ids (kInvalidArgument, naming field and range), prompt + max_tokens beyond the context
  // (kInvalidArgument), more memory than the pools have (kOutOfMemory, with the numbers), too many waiting (kBusy).
  Result<RequestId> submit(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options);
  // Same, with the whole new history instead of what to append; the KV of the longest common prefix is used.
  Result<RequestId> submit_history(SessionId session, std::span<const int32_t> history, const RequestOptions& options);
  // Takes effect at the next step, whatever the request's state; unknown and finished ids are ignored.
  Status cancel(RequestId request);

  // -- the loop --
  // Admits, plans, runs and commits one step. Ok with nothing to do. An error that is not final (kOutOfMemory, kBusy, kIo of the executor)
  // leaves everything as it was: the next call tries the same step again.
  Status step();
  // Moves the oldest event out; false when there is none.
  bool poll(Event& event);
  // Blocks until there is something to step or poll, wake is called, the engine has stopped, or the time is over. True if there is work.
  bool wait(std::chrono::nanoseconds timeout);
  void wake();
  // Requests whose last event has not been polled.
  size_t pending() const;
  Metrics metrics() const;
  // The error that stopped the engine, or ok.
  Status status() const;
  const Facts& facts() const;  // of the executor; constant
  // Recounts every block against every table; kInternal with the ledger when they differ. On the thread that steps.
  Status check_ledger() const { return scheduler_.check_ledger(); }
  // The block books, for tests and tools. On the thread that steps.
  const Cache& cache() const { return scheduler_.cache(); }

 private:
  Engine(std::unique_ptr<Executor> executor, std::shared_ptr<const Pieces> pieces, const EngineOptions& options,
         const SchedulerOptions& scheduling)
      : executor_(std::move(executor)), pieces_(std::move(pieces)), options_(options), scheduler_(executor_->facts(), scheduling) {
    metrics_from_scheduler();
    desk_.metrics = metrics_;
  }

  Result<RequestId> submit_tokens(SessionId session, std::span<const int32_t> tokens, bool whole, const RequestOptions& options);
  // A sequence checked but for its tokens.
  Result<std::unique_ptr<Sequence>> prepare(const RequestOptions& options) const;
  Status check_tokens(std::span<const int32_t> tokens) const;
  Status check_length(Sequence& sequence) const;

  Status step_once();
  void do_inbox();
  Status commit();
  void commit_token(Sequence& sequence, SampledToken& sampled, bool& done, DoneReason& reason);
  void end(std::unique_ptr<Sequence> sequence, DoneReason reason);
  void stop(const Status& error);
  Event event_of(const Sequence& sequence, EventKind kind) const;
  void metrics_from_scheduler();
  void publish(const Status& error = {}) {
    metrics_from_scheduler();
    desk_.publish(events_, endings_, metrics_, error);
  }

  // Runs a body that may allocate; shortage is an answer, not an exception.
  template <class Answer, class Body>
  static Answer guarded(Body body) noexcept {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return Answer(Status(StatusCode::kOutOfMemory, "out of memory"));  // short: no allocation
    } catch (...) {
      return Answer(Status(StatusCode::kInternal, "an exception"));
    }
  }
  // Finds an idle session under the desk's lock, or says why not.
  static Result<History*> idle_session(Desk& desk, SessionId session);

  std::unique_ptr<Executor> executor_;
  std::shared_ptr<const Pieces> pieces_;
  EngineOptions options_;
  Desk desk_;
  std::atomic<bool> stepping_{false};

  // Of the thread that steps.
  Scheduler scheduler_;
  StepPlan plan_;
  StepResult result_;
  bool plan_waits_ = false;  // planned, but the executor asked to try again
  std::vector<Command> commands_;
  std::vector<Event> events_;
  std::vector<Ending> endings_;
  Metrics metrics_;
};

inline Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<Executor> executor, std::shared_ptr<const Pieces> pieces,
                                                      const EngineOptions& options) {
  using Answer = Result<std::unique_ptr<Engine>>;
  return guarded<Answer>([&]() -> Answer {
    if (!executor) return invalid_argument("an engine needs an executor");
    const Facts& facts = executor->facts();
    if (facts.vocab_size < 1 || facts.context < 1 || facts.slot_count < 1 || facts.step_tokens < 1 || facts.window < 0 ||
        facts.block_count[0] < 0 || facts.block_count[1] < 0)
      return internal_error("the executor's facts make no sense: vocabulary, context, slots and step tokens must be positive");
    const auto in_range = [](const char* name, int32_t value, int32_t low, int32_t high) -> Status {
      if (value >= low && value <= high) return {};
      return invalid_argument(std::string(name) + " is " + std::to_string(value) + "; it must be from " + std::to_string(low) + " to " +
                              std::to_string(high));
    };
    KAIJU_TRY(in_range("step_tokens", options.step_tokens, 0, facts.step_tokens));
    KAIJU_TRY(in_range("chunk_tokens", options.chunk_tokens, 0, facts.step_tokens));
    KAIJU_TRY(in_range("max_running", options.max_running, 0, facts.slot_count));
    KAIJU_TRY(in_range("max_waiting", options.max_waiting, 1, INT32_MAX));
    KAIJU_TRY(in_range("max_sessions", options.max_sessions, 1, INT32_MAX));
    SchedulerOptions scheduling;
    scheduling.step_tokens = options.step_tokens > 0 ? options.step_tokens : facts.step_tokens;
    scheduling.chunk_tokens = options.chunk_tokens > 0 ? std::min(options.chunk_tokens, scheduling.step_tokens) : scheduling.step_tokens;
    scheduling.max_running = options.max_running > 0 ? options.max_running : facts.slot_count;
    return std::unique_ptr<Engine>(new Engine(std::move(executor), std::move(pieces), options, scheduling));
  });
}

// -- sessions ------------------------------------------------------------------------------------------------------------------------

inline Result<History*> Engine::idle_session(Desk& desk, SessionId session) {
  if (!desk.stopped.ok()) return desk.stopped;
  const auto found = desk.sessions.find(session);
  if (found == desk.sessions.end()) return Status(StatusCode::kNotFound, "there is no session " + std::to_string(session));
  if (found->second.request != 0)
    return Status(StatusCode::kBusy, "session " + std::to_string(session) + " is busy with request " +
                                         std::to_string(found->second.request) + ": wait for its last event or cancel it");
  return &found->second;
}

inline Result<SessionId> Engine::create_session() {
  return guarded<Result<SessionId>>([&] {
    return desk_.locked([&](Desk& desk) -> Result<SessionId> {
      if (!desk.stopped.ok()) return desk.stopped;
      if (desk.sessions.size() >= static_cast<size_t>(options_.max_sessions))
        return Status(StatusCode::kBusy, "all " + std::to_string(options_.max_sessions) + " sessions are in use: destroy one first");
      desk.sessions.try_emplace(desk.last_session + 1);
      return ++desk.last_session;
    });
  });
}

inline Result<SessionId> Engine::fork_session(SessionId parent, size_t length) {
  return guarded<Result<SessionId>>([&] {
    return desk_.locked([&](Desk& desk) -> Result<SessionId> {
      Result<History*> history = idle_session(desk, parent);
      if (!history.ok()) return history.status();
      const std::vector<int32_t>& tokens = (*history)->tokens;
      if (length > tokens.size())
        return invalid_argument("a fork of " + std::to_string(length) + " tokens was asked of a session of " + std::to_string(tokens.size()));
      if (desk.sessions.size() >= static_cast<size_t>(options_.max_sessions))
        return Status(StatusCode::kBusy, "all " + std::to_string(options_.max_sessions) + " sessions are in use: destroy one first");
      History child;
      child.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
      Command command;
      command.kind = Command::Kind::kFork;
      command.session = parent;
      command.child = desk.last_session + 1;
      command.length = static_cast<int32_t>(length);
      desk.inbox.reserve(desk.inbox.size() + 1);
      desk.sessions.emplace(command.child, std::move(child));
      desk.inbox.push_back(std::move(command));
      return ++desk.last_session;
    });
  });
}

inline Status Engine::truncate_session(SessionId session, size_t length) {
  return guarded<Status>([&] {
    return desk_.locked([&](Desk& desk) -> Status {
      Result<History*> history = idle_session(desk, session);
      if (!history.ok()) return history.status();
      if (length > (*history)->tokens.size())
        return invalid_argument("a cut at " + std::to_string(length) + " was asked of a session of " +
                                std::to_string((*history)->tokens.size()) + " tokens");
      (*history)->tokens.resize(length);
      return {};
    });
  });
}

inline Status Engine::set_session_tokens(SessionId session, std::span<const int32_t> tokens) {
  return guarded<Status>([&]() -> Status {
    KAIJU_TRY(check_tokens(tokens));
    if (tokens.size() > static_cast<size_t>(facts().context))
      return invalid_argument("a history of " + std::to_string(tokens.size()) + " tokens exceeds the context of " +
                              std::to_string(facts().context));
    std::vector<int32_t> copy(tokens.begin(), tokens.end());
    return desk_.locked([&](Desk& desk) -> Status {
      Result<History*> history = idle_session(desk, session);
      if (!history.ok()) return history.status();
      (*history)->tokens = std::move(copy);
      return {};
    });
  });
}

inline Result<std::vector<int32_t>> Engine::session_tokens(SessionId session) const {
  using Answer = Result<std::vector<int32_t>>;
  return guarded<Answer>([&] {
    return desk_.locked([&](const Desk& desk) -> Answer {
      const auto found = desk.sessions.find(session);
      if (found == desk.sessions.end()) return Status(StatusCode::kNotFound, "there is no session " + std::to_string(session));
      return found->second.tokens;
    });
  });
}

inline Status Engine::destroy_session(SessionId session) {
  const Status status = guarded<Status>([&] {
    return desk_.locked([&](Desk& desk) -> Status {
      const auto found = desk.sessions.find(session);
      if (found == desk.sessions.end()) return Status(StatusCode::kNotFound, "there is no session " + std::to_string(session));
      if (desk.stopped.ok()) {
        Command command;
        command.kind = Command::Kind::kDestroy;
        command.session = session;
        command.request = found->second.request;
        desk.inbox.push_back(std::move(command));
      }
      desk.sessions.erase(found);
      return {};
    });
  });
  desk_.notify();
  return status;
}

// -- requests ------------------------------------------------------------------------------------------------------------------------

inline Status Engine::check_tokens(std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= facts().vocab_size)
      return invalid_argument("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) + "; tokens are 0 to " +
                              std::to_string(facts().vocab_size - 1));
  return {};
}

inline Result<std::unique_ptr<Sequence>> Engine::prepare(const RequestOptions& options) const {
  Result<SamplingSpec> sampling = check_sampling(options.sampling, facts().vocab_size);
  if (!sampling.ok()) return sampling.status();
  if (options.max_tokens < 0 && options.max_tokens != kToContextEnd)
    return invalid_argument("max_tokens is " + std::to_string(options.max_tokens) + "; it must be 0 or more, or -1 for what fits the context");
  if (options.logprobs < 0 || options.logprobs > std::min(kMaxTopLogprobs, facts().vocab_size))
    return invalid_argument("logprobs is " + std::to_string(options.logprobs) + "; it must be from 0 to " +
                            std::to_string(std::min(kMaxTopLogprobs, facts().vocab_size)));
  for (const int32_t token : options.stop_tokens)
    if (token < 0 || token >= facts().vocab_size)
      return invalid_argument("a stop token is " + std::to_string(token) + "; tokens are 0 to " + std::to_string(facts().vocab_size - 1));
  if (!options.stop_strings.empty() && !pieces_) return invalid_argument("stop strings need a tokenizer, and this engine has none");
  if (options.stop_strings.size() > kMaxStopStrings)
    return invalid_argument(std::to_string(options.stop_strings.size()) + " stop strings; at most " + std::to_string(kMaxStopStrings));
  for (const std::string& stop : options.stop_strings)
    if (stop.empty() || stop.size() > kMaxStopStringBytes || !is_utf8(stop))
      return invalid_argument("a stop string must be UTF-8 of 1 to " + std::to_string(kMaxStopStringBytes) + " bytes");

  auto sequence = std::make_unique<Sequence>();
  sequence->user_data = options.user_data;
  sequence->sampling = std::move(*sampling);
  sequence->max_tokens = options.max_tokens;
  sequence->top_logprobs = options.logprobs;
  sequence->stop_tokens = options.stop_tokens;
  sequence->text = ReplyText(options.stop_strings);
  sequence->submitted = Clock::now();
  return sequence;
}

inline Status Engine::check_length(Sequence& sequence) const {
  const int64_t prompt = static_cast<int64_t>(sequence.tokens.size()), context = facts().context;
  if (prompt == 0) return invalid_argument("the prompt is empty: a session without history needs at least one token");
  const int64_t room = std::max<int64_t>(0, context - prompt);
  if (sequence.max_tokens == kToContextEnd && room > 0) sequence.max_tokens = static_cast<int32_t>(room);
  if (prompt > context || sequence.max_tokens == kToContextEnd || sequence.max_tokens > room)
    return invalid_argument("a prompt of " + std::to_string(prompt) + " tokens and " +
                            (sequence.max_tokens == kToContextEnd ? "at least 1" : std::to_string(sequence.max_tokens)) +
                            " to generate exceed the context of " + std::to_string(context) + ": shorten the prompt or ask for at most " +
                            std::to_string(room));
  sequence.prompt_count = static_cast<int32_t>(prompt);
  sequence.tokens.reserve(sequence.tokens.size() + static_cast<size_t>(std::min(sequence.max_tokens, 1024)));
  return scheduler_.check_fits(sequence.prompt_count, sequence.max_tokens);
}

inline Result<RequestId> Engine::submit_tokens(SessionId session, std::span<const int32_t> tokens, bool whole, const RequestOptions& options) {
  Result<RequestId> answer = guarded<Result<RequestId>>([&]() -> Result<RequestId> {
    KAIJU_TRY(status());
    KAIJU_TRY(check_tokens(tokens));
    if (tokens.size() > static_cast<size_t>(facts().context))
      return invalid_argument(std::to_string(tokens.size()) + " tokens exceed the context of " + std::to_string(facts().context));
    Result<std::unique_ptr<Sequence>> prepared = prepare(options);
    if (!prepared.ok()) return prepared.status();
    return desk_.locked([&](Desk& desk) -> Result<RequestId> {
      Result<History*> found = idle_session(desk, session);
      if (!found.ok()) return found.status();
      History& history = **found;
      if (desk.metrics.requests_waiting + desk.submits_in_inbox >= static_cast<uint64_t>(options_.max_waiting))
        return Status(StatusCode::kBusy, std::to_string(options_.max_waiting) + " requests are waiting already: try again later");
      Sequence& sequence = **prepared;
      if (!whole) sequence.tokens = history.tokens;
      sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
      KAIJU_TRY(check_length(sequence));
      sequence.session = session;
      sequence.request = desk.last_request + 1;
      Command command;
      command.sequence = std::move(*prepared);
      desk.inbox.push_back(std::move(command));
      // Nothing below fails.
      ++desk.submits_in_inbox;
      ++desk.pending;
      history.request = ++desk.last_request;
      return history.request;
    });
  });
  desk_.notify();
  return answer;
}

inline Result<RequestId> Engine::submit(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options) {
  return submit_tokens(session, tokens, false, options);
}
inline Result<RequestId> Engine::submit_history(SessionId session, std::span<const int32_t> history, const RequestOptions& options) {
  return submit_tokens(session, history, true, options);
}

inline Status Engine::cancel(RequestId request) {
  const Status status = guarded<Status>([&] {
    return desk_.locked([&](Desk& desk) -> Status {
      if (!desk.stopped.ok()) return desk.stopped;
      Command command;
      command.kind = Command::Kind::kCancel;
      command.request = request;
      desk.inbox.push_back(std::move(command));
      return {};
    });
  });
  desk_.notify();
  return status;
}

// -- the loop ------------------------------------------------------------------------------------------------------------------------

inline bool Engine::poll(Event& event) { return desk_.poll(event); }
inline bool Engine::wait(std::chrono::nanoseconds timeout) { return desk_.wait(timeout); }
inline void Engine::wake() { desk_.wake(); }
inline size_t Engine::pending() const {
  return desk_.locked([](const Desk& desk) { return desk.pending; });
}
inline Status Engine::status() const {
  return desk_.locked([](const Desk& desk) { return desk.stopped; });
}
inline const Facts& Engine::facts() const { return executor_->facts(); }

inline Metrics Engine::metrics() const {
  return desk_.locked([](const Desk& desk) {
    Metrics metrics = desk.metrics;
    metrics.requests_waiting += desk.submits_in_inbox;
    metrics.sessions = desk.sessions.size();
    return metrics;
  });
}

inline void Engine::metrics_from_scheduler() {
  metrics_.requests_waiting = scheduler_.waiting().size();
  metrics_.requests_running = scheduler_.running().size();
  metrics_.sessions_dropped = scheduler_.sessions_dropped();
  metrics_.tokens_from_cache = scheduler_.tokens_from_cache();
  for (const BlockKind kind : kBothKinds) {
    const BlockPool& pool = scheduler_.cache().pool(kind);
    metrics_.blocks[static_cast<int>(kind)] = {pool.total(), pool.free_count(), pool.reserved()};
  }
}

inline Status Engine::step() {
  if (stepping_.exchange(true)) return {StatusCode::kBusy, "another thread is in step: one thread drives an engine"};
  Status answer = guarded<Status>([&] { return status(); });
  if (answer.ok()) {
    answer = guarded<Status>([&] { return step_once(); });
    if (!answer.ok() && !plan_waits_) {
      // A shortage of host memory half-way through the books leaves them unknown; one that the executor reports does not.
      if (answer.code() == StatusCode::kOutOfMemory) answer = internal_error("no memory");
      stop(answer);
    }
  }
  stepping_ = false;
  return answer;
}

inline Status Engine::step_once() {
  if (!plan_waits_) {
    do_inbox();
    KAIJU_TRY(scheduler_.plan(plan_, Clock::now()));
    if (plan_.segments.empty()) {
      if (!scheduler_.waiting().empty())
        return internal_error("cache ledger: request " + std::to_string(scheduler_.waiting().front()->request) +
                              " does not fit though nothing else is here");
      publish();
      return {};
    }
  }
  plan_waits_ = false;
  const Clock::time_point before = Clock::now();
  Status ran = executor_->run(plan_, result_);
  metrics_.step_ns += static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - before).count());
  if (!ran.ok()) {
    plan_waits_ = ran.code() == StatusCode::kOutOfMemory || ran.code() == StatusCode::kBusy || ran.code() == StatusCode::kIo;
    if (plan_waits_) publish();  // cancelled ones, at least
    return ran;
  }
  ++metrics_.steps;
  KAIJU_TRY(commit());
  if (options_.check_ledger) KAIJU_TRY(scheduler_.check_ledger());
  publish();
  return {};
}

inline void Engine::do_inbox() {
  desk_.take_inbox(commands_);
  for (Command& command : commands_) {
    switch (command.kind) {
      case Command::Kind::kSubmit:
        scheduler_.add(std::move(command.sequence));
        break;
      case Command::Kind::kFork:
        scheduler_.fork(command.session, command.child, command.length);
        break;
      case Command::Kind::kCancel:
      case Command::Kind::kDestroy:
        if (std::unique_ptr<Sequence> sequence = scheduler_.remove(command.request)) end(std::move(sequence), DoneReason::kCancelled);
        if (command.kind == Command::Kind::kDestroy) scheduler_.drop(command.session);
        break;
    }
  }
  commands_.clear();
}

inline Status Engine::commit() {
  size_t sampled = 0;
  size_t segment = 0;
  const auto& running = scheduler_.running();
  for (size_t i = 0; i < running.size();) {
    Sequence& sequence = *running[i];
    if (sequence.granted == 0) {
      ++i;
      continue;
    }
    const Segment& ran = plan_.segments[segment++];
    if (!sequence.decoding()) metrics_.tokens_prefilled += static_cast<uint64_t>(sequence.granted);
    Scheduler::commit(sequence);
    bool done = sequence.max_tokens == 0 && sequence.remaining() == 0;
    DoneReason reason = DoneReason::kLength;
    if (ran.sample) {
      if (sampled >= result_.sampled.size() || result_.sampled[sampled].slot != ran.slot || result_.sampled[sampled].token < 0 ||
          result_.sampled[sampled].token >= facts().vocab_size)
        return internal_error("the executor's answer does not fit the plan: row " + std::to_string(sampled) + " of " +
                              std::to_string(result_.sampled.size()));
      commit_token(sequence, result_.sampled[sampled++], done, reason);
    }
    if (done)
      end(scheduler_.finish(i), reason);
    else
      ++i;
  }
  return {};
}

inline void Engine::commit_token(Sequence& sequence, SampledToken& sampled, bool& done, DoneReason& reason) {
  const Clock::time_point now = Clock::now();
  if (sequence.counts.generated == 0) sequence.first_token = now;
  sequence.last_token = now;
  sequence.tokens.push_back(sampled.token);
  ++sequence.counts.generated;
  ++metrics_.tokens_decoded;
  const bool stop_token = std::find(sequence.stop_tokens.begin(), sequence.stop_tokens.end(), sampled.token) != sequence.stop_tokens.end();
  Event event = event_of(sequence, EventKind::kToken);
  event.token = sampled.token;
  event.logprob = sampled.logprob;
  event.top = std::move(sampled.top);
  bool stop_string = false;
  if (pieces_ && !stop_token) stop_string = sequence.text.push(pieces_->piece(sampled.token), event.text);
  events_.push_back(std::move(event));
  if (stop_token || stop_string) {
    done = true;
    reason = DoneReason::kStop;
  } else if (sequence.counts.generated >= sequence.max_tokens) {
    done = true;
    reason = DoneReason::kLength;
  }
}

inline Event Engine::event_of(const Sequence& sequence, EventKind kind) const {
  const auto ns = [](Clock::time_point from, Clock::time_point to) -> int64_t {
    if (from == Clock::time_point() || to == Clock::time_point()) return 0;
    return std::chrono::nanoseconds(to - from).count();
  };
  Event event;
  event.kind = kind;
  event.request = sequence.request;
  event.session = sequence.session;
  event.user_data = sequence.user_data;
  event.counts = sequence.counts;
  event.timing = {ns(sequence.submitted, sequence.admitted), ns(sequence.admitted, sequence.first_token),
                  ns(sequence.first_token, sequence.last_token)};
  return event;
}

inline void Engine::end(std::unique_ptr<Sequence> sequence, DoneReason reason) {
  Event event = event_of(*sequence, EventKind::kDone);
  event.reason = reason;
  event.counts.prompt_tokens = sequence->prompt_count;
  sequence->text.finish(event.text);
  events_.push_back(std::move(event));
  endings_.push_back({sequence->request, sequence->session, true, std::move(sequence->tokens)});
  ++metrics_.requests_done;
}

// Fails everything that is here or still arrives, and latches the error.
inline void Engine::stop(const Status& error) {
  const Status stopped = guarded<Status>([&]() -> Status {
    publish(error);  // from here on submit refuses, so the inbox is the last
    desk_.take_inbox(commands_);
    const auto fail = [&](const Sequence& sequence) {
      Event event = event_of(sequence, EventKind::kFailed);
      event.status = error;
      events_.push_back(std::move(event));
      endings_.push_back({sequence.request, sequence.session, false, {}});
      ++metrics_.requests_failed;
    };
    for (const auto& sequence : scheduler_.running()) fail(*sequence);
    for (const auto& sequence : scheduler_.waiting()) fail(*sequence);
    for (const Command& command : commands_)
      if (command.sequence) fail(*command.sequence);
    commands_.clear();
    scheduler_.abandon();
    publish(error);
    return {};
  });
  (void)stopped;
}

}  // namespace kaiju
