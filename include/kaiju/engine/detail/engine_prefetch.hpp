// Engine's prefetches: sessions that are brought up before their requests. Part of engine_impl.hpp.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

inline Result<RequestId> EngineImpl::prefetch(SessionId session, const PrefetchOptions& options) {
  KAIJU_TRY(check_process());
  using Answer = Result<RequestId>;
  Answer answer = guarded<Answer>([&]() -> Answer {
    if (options.scope && options.scope->shared_tokens < 0)
      return invalid_argument("shared_tokens is " + std::to_string(options.scope->shared_tokens) +
                              "; it must be 0 or more");
    return inbox_.locked([&](Inbox& inbox) -> Answer {
      Result<History*> history = idle_session(inbox, session);
      if (!history.ok()) return history.status();
      if (inbox.prefetches >= static_cast<size_t>(options_.max_waiting))
        return Status(StatusCode::kBusy, std::to_string(inbox.prefetches) +
                                             " prefetches have not ended (max_waiting is " +
                                             std::to_string(options_.max_waiting) + "): step first");
      Prefetch prefetch;
      prefetch.scope = options.scope;
      prefetch.at = options.at;
      prefetch.user_data = options.user_data;
      return inbox.enqueue_prefetch(session, **history, std::move(prefetch));
    });
  });
  inbox_.notify();
  return answer;
}

inline void EngineImpl::take_prefetch(Prefetch prefetch) {
  if (prefetch.at)
    timed_prefetches_.add(std::move(prefetch));
  else
    scheduler_.add(std::move(prefetch));
}

inline void EngineImpl::take_due_prefetches(TimePoint now) {
  while (std::optional<Prefetch> due = timed_prefetches_.take_due(now)) {
    const bool awaited = inbox_.locked([&](const Inbox& inbox) {
      const auto found = inbox.sessions.find(due->session);
      return found != inbox.sessions.end() && found->second.request == 0 && found->second.tokens == due->tokens;
    });
    if (!awaited) due->length = 0;  // its request came before, or the session is gone
    scheduler_.add(std::move(*due));
  }
}

inline void EngineImpl::tell_prefetched() {
  std::vector<Prefetch> ended = scheduler_.take_prefetched();
  if (ended.empty()) return;
  for (const Prefetch& prefetch : ended) {
    Event event;
    event.kind = EventKind::kPrefetched;
    event.request = prefetch.id;
    event.session = prefetch.session;
    event.user_data = prefetch.user_data;
    event.counts.prompt_tokens = static_cast<int32_t>(prefetch.length);
    event.counts.cached_tokens = prefetch.resident_tokens;
    events_.push_back(std::move(event));
  }
  inbox_.locked([&](Inbox& inbox) { inbox.prefetches -= std::min(inbox.prefetches, ended.size()); });
}

// Of a deadline or of a prefetch.
inline std::optional<TimePoint> EngineImpl::earliest_time() const {
  const std::optional<TimePoint> deadline = deadlines_.earliest(), prefetch = timed_prefetches_.earliest();
  return deadline && prefetch ? std::min(*deadline, *prefetch) : deadline ? deadline : prefetch;
}

}  // namespace kaiju
