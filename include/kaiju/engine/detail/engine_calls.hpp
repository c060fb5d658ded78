// Engine's calls from any thread: they check, then leave a command in the inbox. Part of engine_impl.hpp, and
// engine.hpp says what each promises.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

inline Result<std::unique_ptr<EngineImpl>> EngineImpl::create(std::unique_ptr<Executor> executor,
                                                              std::shared_ptr<const Pieces> pieces,
                                                              const EngineOptions& options) {
  using Answer = Result<std::unique_ptr<EngineImpl>>;
  return guarded<Answer>([&]() -> Answer {
    if (!executor) return invalid_argument("an engine needs an executor");
    const ExecutorInfo& info = executor->info();
    if (info.vocab_size < 1 || info.context < 1 || info.slot_count < 1 || info.step_tokens < 1 || info.window < 0 ||
        info.block_count[0] < 0 || info.block_count[1] < 0)
      return internal_error(
          "the executor's info makes no sense: vocabulary, context, slots and step tokens must be positive");
    Result<StepLimits> limits = resolve(options, info);
    if (!limits.ok()) return limits.status();
    KAIJU_TRY(check_in_range("max_waiting", options.max_waiting, 1, INT32_MAX));
    KAIJU_TRY(check_in_range("max_events", options.max_events, 1, INT32_MAX));
    KAIJU_TRY(check_in_range("max_sessions", options.max_sessions, 1, INT32_MAX));
    KAIJU_TRY(check_in_range("retention.turns", options.cache.retention.turns, 0, INT32_MAX));
    KAIJU_TRY(check_in_range("retention.every_tokens", options.cache.retention.every_tokens, 0, INT32_MAX));
    KAIJU_TRY(check_in_range("evicted_names", options.cache.evicted_names, 0, INT32_MAX));
    if (options.cache.host_bytes < 0 || options.cache.file_bytes < 0)
      return invalid_argument("host_bytes and file_bytes must be 0 or more");
    if ((options.cache.file || options.cache.file_bytes > 0) && options.cache.host_bytes == 0)
      return invalid_argument("file_bytes is " + std::to_string(options.cache.file_bytes) +
                              " and host_bytes 0: a file wants host memory before it");
    if (static_cast<bool>(options.cache.file) != (options.cache.file_bytes > 0))
      return invalid_argument(options.cache.file ? "there is a tier_file and file_bytes is 0: say how large it may be"
                                                 : "file_bytes is " + std::to_string(options.cache.file_bytes) +
                                                       " and there is no file of that size: give a tier_file");
    // `::`, so that a constructor that throws has its memory given back by the global operator delete.
    std::unique_ptr<EngineImpl> engine(::new EngineImpl(std::move(executor), std::move(pieces), options, *limits));
    if (options.cache.host_bytes > 0) {
      const auto host = [&](size_t bytes, const char* what) { return engine->executor_->host_memory(bytes, what); };
      KAIJU_TRY(engine->scheduler_.cache().add_tiers(engine->info(), host));
    }
    return engine;
  });
}

inline void EngineImpl::operator delete(EngineImpl* engine, std::destroying_delete_t) noexcept {
  if (!engine->process_.is_this()) return;
  engine->~EngineImpl();
  ::operator delete(engine);
}

// ---- sessions

inline Result<History*> EngineImpl::idle_session(Inbox& inbox, SessionId session) {
  if (!inbox.stopped.ok()) return inbox.stopped;
  const auto found = inbox.sessions.find(session);
  if (found == inbox.sessions.end())
    return Status(StatusCode::kNotFound, "there is no session " + std::to_string(session));
  if (found->second.request != 0)
    return Status(StatusCode::kBusy, "session " + std::to_string(session) + " is busy with request " +
                                         std::to_string(found->second.request) +
                                         ": wait for its last event or cancel it");
  return &found->second;
}

inline Result<SessionId> EngineImpl::create_session() {
  KAIJU_TRY(check_process());
  return guarded<Result<SessionId>>([&] {
    return inbox_.locked([&](Inbox& inbox) -> Result<SessionId> {
      if (!inbox.stopped.ok()) return inbox.stopped;
      if (inbox.sessions.size() >= static_cast<size_t>(options_.max_sessions))
        return Status(StatusCode::kBusy,
                      "all " + std::to_string(options_.max_sessions) + " sessions are in use: destroy one first");
      inbox.reserve_destroyed();
      inbox.sessions.try_emplace(inbox.last_session + 1);
      return ++inbox.last_session;
    });
  });
}

inline Result<SessionId> EngineImpl::fork_session(SessionId parent, size_t length) {
  KAIJU_TRY(check_process());
  Result<SessionId> answer = guarded<Result<SessionId>>([&] {
    return inbox_.locked([&](Inbox& inbox) -> Result<SessionId> {
      Result<History*> history = idle_session(inbox, parent);
      if (!history.ok()) return history.status();
      if (length > (*history)->length)
        return invalid_argument("a fork of " + std::to_string(length) + " tokens was asked of a session of " +
                                std::to_string((*history)->length));
      if (inbox.sessions.size() >= static_cast<size_t>(options_.max_sessions))
        return Status(StatusCode::kBusy,
                      "all " + std::to_string(options_.max_sessions) + " sessions are in use: destroy one first");
      if (inbox.commands.size() + inbox.destroyed.size() >
          static_cast<size_t>(options_.max_sessions))  // forks and destroys without a step in between
        return Status(StatusCode::kBusy, "too much waits for the next step: call step first");
      History child;
      child.known = true;
      child.tokens = (*history)->tokens;
      child.length = length;
      Command command;
      command.kind = Command::Kind::kFork;
      command.session = parent;
      command.child = inbox.last_session + 1;
      inbox.commands.reserve(inbox.commands.size() + 1);
      inbox.reserve_destroyed();
      inbox.sessions.emplace(command.child, std::move(child));
      inbox.commands.push_back(std::move(command));
      (*history)->known = true;
      return ++inbox.last_session;
    });
  });
  inbox_.notify();
  return answer;
}

inline Status EngineImpl::truncate_session(SessionId session, size_t length) {
  KAIJU_TRY(check_process());
  return guarded<Status>([&] {
    return inbox_.locked([&](Inbox& inbox) -> Status {
      Result<History*> history = idle_session(inbox, session);
      if (!history.ok()) return history.status();
      if (length > (*history)->length)
        return invalid_argument("a cut at " + std::to_string(length) + " was asked of a session of " +
                                std::to_string((*history)->length) + " tokens");
      (*history)->length = length;
      return {};
    });
  });
}

inline Status EngineImpl::set_session_tokens(SessionId session, std::span<const int32_t> tokens) {
  KAIJU_TRY(check_process());
  return guarded<Status>([&]() -> Status {
    KAIJU_TRY(check_tokens(tokens));
    if (tokens.size() > static_cast<size_t>(info().context))
      return invalid_argument("a history of " + std::to_string(tokens.size()) + " tokens exceeds the context of " +
                              std::to_string(info().context) + ": shorten it");
    auto copy = std::make_shared<const std::vector<int32_t>>(tokens.begin(), tokens.end());
    return inbox_.locked([&](Inbox& inbox) -> Status {
      Result<History*> history = idle_session(inbox, session);
      if (!history.ok()) return history.status();
      (*history)->set(std::move(copy));
      return {};
    });
  });
}

inline Result<std::vector<int32_t>> EngineImpl::session_tokens(SessionId session) const {
  KAIJU_TRY(check_process());
  using Answer = Result<std::vector<int32_t>>;
  return guarded<Answer>([&]() -> Answer {
    History history;  // copied from without the lock
    KAIJU_TRY(inbox_.locked([&](const Inbox& inbox) -> Status {
      const auto found = inbox.sessions.find(session);
      if (found == inbox.sessions.end())
        return {StatusCode::kNotFound, "there is no session " + std::to_string(session)};
      history = found->second;
      return {};
    }));
    const std::span<const int32_t> tokens = history.view();
    return std::vector<int32_t>(tokens.begin(), tokens.end());
  });
}

inline Result<RequestId> EngineImpl::unfinished_request(SessionId session) const {
  KAIJU_TRY(check_process());
  using Answer = Result<RequestId>;
  return guarded<Answer>([&] {
    return inbox_.locked([&](const Inbox& inbox) -> Answer {
      const auto found = inbox.sessions.find(session);
      if (found == inbox.sessions.end())
        return Status(StatusCode::kNotFound, "there is no session " + std::to_string(session));
      return found->second.request;
    });
  });
}

inline Status EngineImpl::destroy_session(SessionId session) {
  KAIJU_TRY(check_process());
  Status status = guarded<Status>([&] {
    return inbox_.locked([&](Inbox& inbox) -> Status {
      const auto found = inbox.sessions.find(session);
      if (found == inbox.sessions.end())
        return Status(StatusCode::kNotFound, "there is no session " + std::to_string(session));
      if (inbox.stopped.ok() && found->second.known) inbox.destroyed.push_back({session, found->second.request});
      inbox.sessions.erase(found);
      return {};
    });
  });
  inbox_.notify();
  return status;
}

// ---- requests

inline Status EngineImpl::check_tokens(std::span<const int32_t> tokens) const {
  const int32_t vocab = info().vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab)
      return invalid_argument("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) + "; tokens are 0 to " +
                              std::to_string(vocab - 1));
  return {};
}

inline Status EngineImpl::check_options(const RequestOptions& options) const {
  KAIJU_TRY(check_in_range("sequence_count", options.sequence_count, 1, std::min(kMaxSequences, info().slot_count)));
  KAIJU_TRY(check_beams(options));
  KAIJU_TRY(check_safety(options));
  KAIJU_TRY(check_banned(options));
  if (options.max_tokens < 0 && options.max_tokens != kToContextEnd)
    return invalid_argument("max_tokens is " + std::to_string(options.max_tokens) +
                            "; it must be 0 or more, or -1 for what fits the context");
  if (options.logprobs < 0 || options.logprobs > std::min(kMaxTopLogprobs, info().vocab_size))
    return invalid_argument("logprobs is " + std::to_string(options.logprobs) + "; it must be from 0 to " +
                            std::to_string(std::min(kMaxTopLogprobs, info().vocab_size)));
  if (options.scores && info().label_count == 0)
    return Status(StatusCode::kUnsupported, "the model has no classifier: ask for tokens without scores");
  for (const int32_t token : stop_tokens_of(options))
    if (token < 0 || token >= info().vocab_size)
      return invalid_argument("a stop token is " + std::to_string(token) + "; tokens are 0 to " +
                              std::to_string(info().vocab_size - 1));
  if ((!options.stop_strings.empty() || options.loop_guard) && !pieces_)
    return invalid_argument(std::string(options.loop_guard ? "the loop guard needs" : "stop strings need") +
                            " a tokenizer, and this engine has none");
  if (options.stop_strings.size() > kMaxStopStrings)
    return invalid_argument(std::to_string(options.stop_strings.size()) + " stop strings; at most " +
                            std::to_string(kMaxStopStrings));
  for (const std::string& stop : options.stop_strings)
    if (stop.empty() || stop.size() > kMaxStopStringBytes || !is_utf8(stop))
      return invalid_argument("a stop string must be UTF-8 of 1 to " + std::to_string(kMaxStopStringBytes) + " bytes");

  if (options.scope.shared_tokens < 0)
    return invalid_argument("shared_tokens is " + std::to_string(options.scope.shared_tokens) +
                            "; it must be 0 or more");
  return {};
}

// What of a reply its tokens do not tell cannot be taken over from another engine.
inline Status EngineImpl::check_begun(const RequestOptions& options, const SamplingSpec& sampling) const {
  if (options.begun_tokens < 0)
    return invalid_argument("begun_tokens is " + std::to_string(options.begun_tokens) + "; it must be 0 or more");
  if (options.begun_tokens == 0) return {};
  const char* what = options.beams.width > 0                                          ? "beams"
                     : options.safety.active() || options.safety.hold_back            ? "verdicts"
                     : !options.banned_phrases.empty()                                ? "banned phrases"
                     : sampling.chain && arith::mirostat_of(sampling.chain->samplers) ? "mirostat"
                                                                                      : nullptr;
  if (!what) return {};
  return {StatusCode::kUnsupported, std::string("a reply with ") + what +
                                        " cannot be continued from its tokens: generate it again from its beginning"};
}

// The text of what another engine generated of the reply.
inline Status EngineImpl::begin_reply(Sequence& sequence) const {
  const Request& request = *sequence.request;
  for (int32_t i = request.prompt_count - request.begun_count; i < request.prompt_count; ++i) {
    const int32_t token = (*sequence.tokens)[static_cast<size_t>(i)];
    const bool stops =
        std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) != request.stop_tokens.end();
    if (stops || (pieces_ && sequence.text.push(pieces_->piece(token), sequence.begun_text) != TextEnd::kNone))
      return invalid_argument("the reply has ended within its begun_tokens: there is nothing to continue");
  }
  return {};
}

inline std::shared_ptr<Request> EngineImpl::make_request(const RequestOptions& options) const {
  auto request = std::make_shared<Request>();
  request->scope = options.scope;
  request->user_data = options.user_data;
  request->max_tokens = options.max_tokens;
  request->begun_count = options.begun_tokens;
  request->top_logprobs = options.logprobs;
  request->scores = options.scores || options.safety.active();
  request->reports_scores = options.scores;
  request->safety = options.safety;
  if (!options.safety.limits.empty()) request->limits = by_label(options.safety.limits, "limit", 1.0, kNoLimit).value();
  request->guided = options.guided;
  if (options.record) request->recorded = std::make_shared<const RequestOptions>(options);
  request->hook = options.logits_hook;
  request->stop_tokens = stop_tokens_of(options);
  request->priority = options.priority;
  request->deadline = options.deadline;
  request->submitted = now();
  return request;
}

inline Status EngineImpl::check_length(Request& request, size_t prompt_tokens) const {
  const int64_t prompt = static_cast<int64_t>(prompt_tokens), context = info().context;
  if (prompt == 0) return invalid_argument("the prompt is empty: a session without history needs at least one token");
  const int64_t room = context - prompt;
  if (room < 0 || (room == 0 && request.max_tokens != 0))
    return invalid_argument("a prompt of " + std::to_string(prompt) + " tokens, its history included, " +
                            (room < 0 ? "exceeds" : "fills") + " the context of " + std::to_string(context) +
                            ": shorten it");
  if (request.max_tokens == kToContextEnd) request.max_tokens = static_cast<int32_t>(room);
  if (request.max_tokens > room)
    return invalid_argument("a prompt of " + std::to_string(prompt) + " tokens and " +
                            std::to_string(request.max_tokens) + " to generate exceed the context of " +
                            std::to_string(context) + ": shorten the prompt or ask for at most " +
                            std::to_string(room));
  if (request.scope.shared_tokens > prompt)
    return invalid_argument("shared_tokens is " + std::to_string(request.scope.shared_tokens) + "; the prompt has " +
                            std::to_string(prompt) + " tokens");
  if (request.begun_count >= prompt)
    return invalid_argument("begun_tokens is " + std::to_string(request.begun_count) + "; the prompt has " +
                            std::to_string(prompt) + " tokens, and the reply begins behind at least one");
  request.prompt_count = static_cast<int32_t>(prompt);
  return scheduler_.check_fits(request.prompt_count, request.max_tokens);
}

// The checked parameters, with the tokens that the strings of the chain's breakers mean.
inline Result<SamplingSpec> EngineImpl::sampling_of(const SamplingParams& params) const {
  Result<SamplingSpec> spec = check_sampling(params, info().vocab_size);
  if (!spec.ok() || !spec->chain) return spec;
  if (params.breakers.empty()) return spec;
  if (!pieces_) return invalid_argument("breakers need a tokenizer, and this engine has none");
  SamplerChain chain = *spec->chain;
  chain.breakers.resize(static_cast<size_t>(info().vocab_size));
  for (int32_t token = 0; token < info().vocab_size; ++token) {
    const std::string_view text = pieces_->piece(token);
    chain.breakers[static_cast<size_t>(token)] =
        std::any_of(params.breakers.begin(), params.breakers.end(),
                    [text](const std::string& breaker) { return text.find(breaker) != std::string_view::npos; });
  }
  spec->chain = std::make_shared<const SamplerChain>(std::move(chain));
  return spec;
}

// The sequences of a request that begin with `history` and `tokens`; each samples with a stream of its own.
inline std::vector<std::unique_ptr<Sequence>> EngineImpl::make_sequences(const std::shared_ptr<Request>& request,
                                                                         const RequestOptions& options,
                                                                         const SamplingSpec& sampling,
                                                                         std::span<const int32_t> history,
                                                                         std::span<const int32_t> tokens) const {
  const auto count = static_cast<size_t>(std::max(options.sequence_count, options.beams.width));
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (size_t i = 0; i < count; ++i) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = request;
    sequence->index = static_cast<int32_t>(i);
    sequence->sampling = sampling;
    sequence->sampling.stream += static_cast<uint32_t>(i);
    sequence->text = ReplyText(options.stop_strings, options.loop_guard);
    sequence->banned = BannedPhrases(options.banned_phrases);
    std::vector<int32_t>& own = *sequence->tokens;
    own.reserve(history.size() + tokens.size() + static_cast<size_t>(std::min(request->max_tokens, 1024)));
    own.insert(own.end(), history.begin(), history.end());
    own.insert(own.end(), tokens.begin(), tokens.end());
    sequences.push_back(std::move(sequence));
  }
  request->sequences.assign(count, nullptr);
  request->histories.resize(count);
  request->unended = options.sequence_count;
  if (options.beams.width > 0) make_beams(*request, options, sampling, sequences);
  return sequences;
}

inline Result<RequestId> EngineImpl::submit_tokens(SessionId session, std::span<const int32_t> tokens, bool whole,
                                                   const RequestOptions& options, Ring<Event>* own_events) {
  KAIJU_TRY(check_process());
  Result<RequestId> answer = guarded<Result<RequestId>>([&]() -> Result<RequestId> {
    KAIJU_TRY(status());
    KAIJU_TRY(check_tokens(tokens));
    if (tokens.size() > static_cast<size_t>(info().context))
      return invalid_argument(std::to_string(tokens.size()) + " tokens exceed the context of " +
                              std::to_string(info().context) + ": shorten the prompt");
    Result<SamplingSpec> sampling = sampling_of(options.sampling);
    if (!sampling.ok()) return sampling.status();
    KAIJU_TRY(check_options(options));
    KAIJU_TRY(check_begun(options, *sampling));
    const std::shared_ptr<Request> request = make_request(options);
    request->session = session;
    request->shows_tokens = options.logits_hook || sampling->chain;
    request->goes_back = !options.banned_phrases.empty();
    // The history is copied without the lock. When it has changed meanwhile, which another thread did, once more.
    for (History history;;) {
      KAIJU_TRY(inbox_.locked([&](Inbox& inbox) -> Status {
        Result<History*> found = ready_to_submit(inbox, session);
        if (!found.ok()) return found.status();
        history = **found;
        return {};
      }));
      const std::span<const int32_t> before = whole ? std::span<const int32_t>() : history.view();
      request->max_tokens = options.max_tokens;
      KAIJU_TRY(check_length(*request, before.size() + tokens.size()));
      Command command;
      command.sequences = make_sequences(request, options, *sampling, before, tokens);
      for (const auto& sequence : command.sequences) KAIJU_TRY(begin_reply(*sequence));
      Result<RequestId> submitted = inbox_.locked([&](Inbox& inbox) -> Result<RequestId> {
        Result<History*> found = ready_to_submit(inbox, session);
        if (!found.ok()) return found.status();
        if ((*found)->tokens != history.tokens || (*found)->length != history.length) return RequestId{0};
        return enqueue(inbox, **found, std::move(command), own_events);
      });
      if (!submitted.ok() || *submitted != 0) return submitted;
    }
  });
  inbox_.notify();
  return answer;
}

// The session's history, if it may be submitted to now.
inline Result<History*> EngineImpl::ready_to_submit(Inbox& inbox, SessionId session) const {
  Result<History*> found = idle_session(inbox, session);
  if (found.ok() && inbox.waiting_count() >= static_cast<size_t>(options_.max_waiting))
    return Status(StatusCode::kBusy,
                  std::to_string(inbox.waiting_count()) + " requests are waiting or suspended (max_waiting is " +
                      std::to_string(options_.max_waiting) + ") and " + std::to_string(inbox.metrics.requests_running) +
                      " are running: try again later");
  return found;
}

inline RequestId EngineImpl::enqueue(Inbox& inbox, History& history, Command command, Ring<Event>* own_events) {
  Request& request = *command.sequences.front()->request;
  request.id = inbox.last_request + 1;
  if (inbox.commands.size() == inbox.commands.capacity()) inbox.commands.reserve(2 * inbox.commands.size() + 1);
  inbox.unfinished.try_emplace(request.id, RequestControl{.session = request.session,
                                                          .user_data = request.user_data,
                                                          .own_events = own_events,
                                                          .prompt_count = request.prompt_count,
                                                          .sequence_count = request.unended,
                                                          .guided = request.guided,
                                                          .hooked = request.shows_tokens || request.goes_back,
                                                          .beams = request.beams != nullptr});
  // Nothing below fails.
  inbox.commands.push_back(std::move(command));
  history.known = true;
  history.turns.request_came(request.submitted);
  ++inbox.pending;
  history.request = ++inbox.last_request;
  return history.request;
}

inline Result<RequestId> EngineImpl::submit(SessionId session, std::span<const int32_t> tokens,
                                            const RequestOptions& options) {
  return submit_tokens(session, tokens, false, options);
}
inline Result<RequestId> EngineImpl::submit_history(SessionId session, std::span<const int32_t> history,
                                                    const RequestOptions& options) {
  return submit_tokens(session, history, true, options);
}

template <class Change>
Status EngineImpl::change_control(RequestId request, Change change) {
  KAIJU_TRY(check_process());
  Status status = guarded<Status>([&] {
    return inbox_.locked([&](Inbox& inbox) -> Status {
      if (!inbox.stopped.ok()) return inbox.stopped;
      const auto found = inbox.unfinished.find(request);
      if (found == inbox.unfinished.end()) return {};
      RequestControl& control = found->second;
      if (!control.told) {
        Command command;
        command.kind = Command::Kind::kControl;
        command.request = request;
        inbox.commands.push_back(std::move(command));
        control.told = true;
      }
      change(control);
      return {};
    });
  });
  inbox_.notify();
  return status;
}

inline Status EngineImpl::cancel(RequestId request) {
  return change_control(request, [](RequestControl& control) { control.cancel = true; });
}
inline Status EngineImpl::suspend(RequestId request) {
  return change_control(request, [](RequestControl& control) { control.suspend = true; });
}
inline Status EngineImpl::resume(RequestId request) {
  return change_control(request, [](RequestControl& control) { control.suspend = false; });
}

inline Status EngineImpl::generate(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options,
                                   const Function<bool(std::string_view text)>& on_text, Event& done) {
  KAIJU_TRY(check_process());
  if (options.sequence_count != 1)
    return invalid_argument("generate takes requests of one sequence: submit one of " +
                            std::to_string(options.sequence_count) + ", and poll its events");
  if (options.guided)
    return invalid_argument(
        "generate takes no guided requests, for nobody could guide them: submit one, and call guide");
  if (inbox_.in_step())
    return {StatusCode::kBusy, "generate is called by a callback of a save or a restore: call it when that is through"};
  // However this is left, nobody waits for the request's events any more.
  struct Own {
    EngineImpl& engine;
    RequestId request = 0;
    Ring<Event> events = {};
    ~Own() {
      if (request == 0) return;
      (void)engine.cancel(request);  // fails only with the engine, and then the request has failed with it
      engine.inbox_.give_up(request, events);
    }
  } own{*this};
  Result<RequestId> request = submit_tokens(session, tokens, false, options, &own.events);
  if (!request.ok()) return request.status();
  own.request = request.value();
  bool stopped = false;
  Status failed;  // a step that failed once may succeed again without this request; one that fails twice will not
  while (true) {
    Status stepped;
    if (inbox_.enter_step_unless_told(own.events, [this] { return now(); })) stepped = step_entered();
    for (Event event; inbox_.poll(own.events, event);) {
      if (event.kind == EventKind::kDone || event.kind == EventKind::kFailed) own.request = 0;
      if (event.kind == EventKind::kFailed) return failed.ok() ? event.status : failed;
      if (!event.text.empty() && on_text && !stopped && !on_text(event.text)) {
        stopped = true;
        (void)cancel(own.request);  // fails only with the engine, and then the next step says so
      }
      if (event.kind != EventKind::kDone) continue;
      done = std::move(event);
      return failed;
    }
    if (stepped.ok()) continue;
    if (!failed.ok()) return failed;
    failed = stepped;
    (void)cancel(own.request);
  }
}

// ---- the loop, seen from outside

inline bool EngineImpl::poll(Event& event) { return process_.is_this() && inbox_.poll(event); }
inline bool EngineImpl::wait(Nanoseconds timeout) {
  return process_.is_this() && inbox_.wait(timeout, [this] { return now(); });
}
inline void EngineImpl::wake() {
  if (process_.is_this()) inbox_.wake();
}
inline size_t EngineImpl::pending() const {
  if (!process_.is_this()) return 0;
  return inbox_.locked([](const Inbox& inbox) { return inbox.pending; });
}
inline Status EngineImpl::status() const {
  KAIJU_TRY(check_process());
  return inbox_.locked([](const Inbox& inbox) { return inbox.stopped; });
}
inline const ExecutorInfo& EngineImpl::info() const { return executor_->info(); }

inline Metrics EngineImpl::metrics() const {
  if (!process_.is_this()) return {};
  return inbox_.locked([](const Inbox& inbox) {
    Metrics metrics = inbox.metrics;
    metrics.requests_waiting =
        inbox.waiting_count() - std::min<size_t>(inbox.waiting_count(), metrics.requests_suspended);
    metrics.sessions = inbox.sessions.size();
    return metrics;
  });
}

}  // namespace kaiju
