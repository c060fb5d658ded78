// Engine's calls, each handed to what it is made of. Compiled once into the library, or, with KAIJU_HEADER_ONLY, inline
// in every file that includes engine.hpp.
#pragma once

#include <utility>

#include "kaiju/base/detail/inline.hpp"
#include "kaiju/engine/detail/engine_impl.hpp"
#include "kaiju/engine/engine.hpp"

namespace kaiju {

KAIJU_INLINE Engine::Engine(std::unique_ptr<EngineImpl> impl) : impl_(std::move(impl)) {}
KAIJU_INLINE Engine::~Engine() = default;

KAIJU_INLINE Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<Executor> executor,
                                                            std::shared_ptr<const Pieces> pieces,
                                                            const EngineOptions& options) {
  using Answer = Result<std::unique_ptr<Engine>>;
  return guarded<Answer>([&]() -> Answer {
    Result<std::unique_ptr<EngineImpl>> impl = EngineImpl::create(std::move(executor), std::move(pieces), options);
    if (!impl.ok()) return impl.status();
    return std::unique_ptr<Engine>(new Engine(std::move(impl).value()));
  });
}

KAIJU_INLINE Status Engine::check_process() const { return impl_->check_process(); }
KAIJU_INLINE Result<SessionId> Engine::create_session() { return impl_->create_session(); }
KAIJU_INLINE Result<SessionId> Engine::fork_session(SessionId parent, size_t length) {
  return impl_->fork_session(parent, length);
}
KAIJU_INLINE Status Engine::truncate_session(SessionId session, size_t length) {
  return impl_->truncate_session(session, length);
}
KAIJU_INLINE Status Engine::set_session_tokens(SessionId session, std::span<const int32_t> tokens) {
  return impl_->set_session_tokens(session, tokens);
}
KAIJU_INLINE Result<std::vector<int32_t>> Engine::session_tokens(SessionId session) const {
  return impl_->session_tokens(session);
}
KAIJU_INLINE Result<RequestId> Engine::unfinished_request(SessionId session) const {
  return impl_->unfinished_request(session);
}
KAIJU_INLINE Status Engine::destroy_session(SessionId session) { return impl_->destroy_session(session); }
KAIJU_INLINE Status Engine::save_session(SessionId session, const SaveOptions& options, const SessionSink& write) {
  return impl_->save_session(session, options, write);
}
KAIJU_INLINE Result<int32_t> Engine::pin_session(SessionId session) { return impl_->pin_session(session); }
KAIJU_INLINE Result<int32_t> Engine::cached_tokens(std::span<const int32_t> tokens, const Scope& scope) {
  return impl_->cached_tokens(tokens, scope);
}
KAIJU_INLINE Result<SessionId> Engine::restore_session(const RestoreOptions& options, const SessionSource& read) {
  return impl_->restore_session(options, read);
}
KAIJU_INLINE Result<RequestId> Engine::submit(SessionId session, std::span<const int32_t> tokens,
                                              const RequestOptions& options) {
  return impl_->submit(session, tokens, options);
}
KAIJU_INLINE Result<RequestId> Engine::submit_history(SessionId session, std::span<const int32_t> history,
                                                      const RequestOptions& options) {
  return impl_->submit_history(session, history, options);
}
KAIJU_INLINE Status Engine::cancel(RequestId request) { return impl_->cancel(request); }
KAIJU_INLINE Status Engine::suspend(RequestId request) { return impl_->suspend(request); }
KAIJU_INLINE Status Engine::resume(RequestId request) { return impl_->resume(request); }
KAIJU_INLINE Result<int32_t> Engine::fork_sequence(RequestId request, int32_t sequence, uint32_t variant) {
  return impl_->fork_sequence(request, sequence, variant);
}
KAIJU_INLINE Status Engine::cut_sequence(RequestId request, int32_t sequence, int32_t length) {
  return impl_->cut_sequence(request, sequence, length);
}
KAIJU_INLINE Status Engine::end_sequence(RequestId request, int32_t sequence) {
  return impl_->end_sequence(request, sequence);
}
KAIJU_INLINE Status Engine::keep_sequence(RequestId request, int32_t sequence) {
  return impl_->keep_sequence(request, sequence);
}
KAIJU_INLINE Status Engine::propose(RequestId request, int32_t sequence, std::span<const int32_t> tokens) {
  return impl_->propose(request, sequence, tokens);
}
KAIJU_INLINE Result<RequestId> Engine::prefetch(SessionId session, const PrefetchOptions& options) {
  return impl_->prefetch(session, options);
}
KAIJU_INLINE Status Engine::set_share(ShareOf of, const std::string& name, const ShareLimits& limits) {
  return impl_->set_share(of, name, limits);
}
KAIJU_INLINE Result<ShareUsage> Engine::share_usage(ShareOf of, const std::string& name) const {
  return impl_->share_usage(of, name);
}
KAIJU_INLINE Status Engine::set_limit(const std::string& tier, const std::string& label, std::optional<double> limit) {
  return impl_->set_limit(tier, label, limit);
}
KAIJU_INLINE Status Engine::guide(RequestId request, const Guide& guide, int32_t sequence) {
  return impl_->guide(request, guide, sequence);
}
KAIJU_INLINE Status Engine::step() { return impl_->step(); }
KAIJU_INLINE bool Engine::poll(Event& event) { return impl_->poll(event); }
KAIJU_INLINE bool Engine::wait(Nanoseconds timeout) { return impl_->wait(timeout); }
KAIJU_INLINE void Engine::wake() { impl_->wake(); }
KAIJU_INLINE size_t Engine::pending() const { return impl_->pending(); }
KAIJU_INLINE Status Engine::generate(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options,
                                     const Function<bool(std::string_view text)>& on_text, Event& done) {
  return impl_->generate(session, tokens, options, on_text, done);
}
KAIJU_INLINE Metrics Engine::metrics() const { return impl_->metrics(); }
KAIJU_INLINE Status Engine::status() const { return impl_->status(); }
KAIJU_INLINE const ExecutorInfo& Engine::info() const { return impl_->info(); }
KAIJU_INLINE const EngineOptions& Engine::options() const { return impl_->options(); }
KAIJU_INLINE const Pieces* Engine::pieces() const { return impl_->pieces(); }
KAIJU_INLINE TimePoint Engine::now() const { return impl_->now(); }
KAIJU_INLINE Status Engine::check_ledger() const { return impl_->check_ledger(); }
KAIJU_INLINE Status Engine::set_scales(const std::shared_ptr<const Checkpoint>& checkpoint) {
  return impl_->set_scales(checkpoint);
}
KAIJU_INLINE Result<bool> Engine::calibrate(Calibration& calibration) { return impl_->calibrate(calibration); }
KAIJU_INLINE Status Engine::set_weights(const std::shared_ptr<const Checkpoint>& checkpoint) {
  return impl_->set_weights(checkpoint);
}

KAIJU_INLINE Status Engine::set_head(const std::shared_ptr<const Checkpoint>& checkpoint) {
  return impl_->set_head(checkpoint);
}
KAIJU_INLINE Result<Scrubbed> Engine::scrub(size_t most_bytes) { return impl_->scrub(most_bytes); }
KAIJU_INLINE Status Engine::poll_cache(std::vector<CacheEvent>& events, size_t most) {
  return impl_->poll_cache(events, most);
}
KAIJU_INLINE Result<std::vector<CacheEvent>> Engine::cached_blocks() const { return impl_->cached_blocks(); }
KAIJU_INLINE const PrefixTree& Engine::cache() const { return impl_->cache(); }

}  // namespace kaiju
