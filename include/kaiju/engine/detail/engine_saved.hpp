// Engine's pinning, saving and restoring of sessions, and its looks at the weights, on the thread that steps. Part of
// engine_impl.hpp, and engine.hpp says what each promises.
#pragma once

#include "kaiju/cache/known_path.hpp"
#include "kaiju/engine/detail/engine_impl.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

// Between two steps, with none under way and everything done that was asked for before.
template <class Answer, class Body>
inline Answer EngineImpl::between_steps(Body body) {
  KAIJU_TRY(check_process());
  if (!inbox_.enter_step())
    return Status(StatusCode::kBusy, "another thread is in step: save, restore and scrub between steps");
  Answer answer = guarded<Answer>([&]() -> Answer {
    KAIJU_TRY(status());
    if (plan_stage_ == PlanStage::kToRunAgain)
      return Status(StatusCode::kBusy, "a step waits to be run again: step first");
    const Status told = guarded<Status>([&]() -> Status {
      do_inbox();
      next_plan_.clear();
      const Status finished = plan_stage_ == PlanStage::kStarted ? finish() : Status();
      if (finished.ok() || plan_stage_ == PlanStage::kToRunAgain) publish();
      return finished;
    });
    if (!told.ok() && plan_stage_ != PlanStage::kToRunAgain)
      stop(told.code() == StatusCode::kOutOfMemory ? internal_error("no memory") : told);
    KAIJU_TRY(told);
    return body();
  });
  inbox_.leave_step();
  return answer;
}

inline Status EngineImpl::set_head(const std::shared_ptr<const Checkpoint>& checkpoint) {
  if (!checkpoint) return invalid_argument("no checkpoint");
  if (!has_weights_of(checkpoint->digest()))
    return invalid_argument("the head is one of the model " + checkpoint->digest() + ", and not of this engine's");
  if (checkpoint->config().labels != info().labels)
    return invalid_argument("the head has other labels than this engine's model: load the model with it anew");
  return between_steps<Status>([&] { return changed(executor_->set_head(checkpoint)); });
}

inline Result<Scrubbed> EngineImpl::scrub(size_t most_bytes) {
  return between_steps<Result<Scrubbed>>([&]() -> Result<Scrubbed> { return executor_->scrub(most_bytes); });
}

// Runs one transfer. Not ok: the executor's answer; a final one stops the engine.
inline Status EngineImpl::transfer(const BlockTransfer& transfer) {
  transfer_plan_.clear();
  scheduler_.write_downs(transfer_plan_);  // of blocks that made room for this one
  transfer_plan_.transfers.push_back(transfer);
  Status ran = executor_->run(transfer_plan_, result_);
  if (ran.code() == StatusCode::kDeviceLost || ran.code() == StatusCode::kInternal) stop(ran);
  if (!ran.ok()) return ran;
  scheduler_.commit_transfers(result_.failed_transfers);
  const auto own = static_cast<int32_t>(transfer_plan_.transfers.size()) - 1;
  if (std::count(result_.failed_transfers.begin(), result_.failed_transfers.end(), own) > 0)
    return {StatusCode::kIo, "a block of KV could not be copied between the device and the host"};
  return ran;
}

inline Result<int32_t> EngineImpl::pin_session(SessionId session) {
  return between_steps<Result<int32_t>>([&]() -> Result<int32_t> {
    std::vector<int32_t> tokens;
    KAIJU_TRY(inbox_.locked([&](Inbox& inbox) -> Status {
      Result<History*> history = idle_session(inbox, session);
      if (!history.ok()) return history.status();
      const std::span<const int32_t> view = (*history)->view();
      tokens.assign(view.begin(), view.end());
      return {};
    }));
    SessionBooks& books = scheduler_.books();
    const KnownPath path = books.known_path(session, tokens);
    if (path.nodes.empty())
      return Status(StatusCode::kNotFound, "no KV of the session's history is in the cache: compute it first");
    const NodeId before = books.pinned(session);
    if (before != kNoNode) scheduler_.cache().pin(before);  // stays until it is known whether the new pin can be had
    books.pin(session, path.nodes.back());
    const BlockNeed need = Lease::need_alone(info().context, info().step_tokens, info());
    const bool fits = scheduler_.cache().pool().could_hold_beside_pinned(need);
    if (!fits) books.pin(session, before);
    if (before != kNoNode) scheduler_.cache().unpin(before);
    if (!fits)
      return Status(
          StatusCode::kOutOfMemory,
          "the pinned KV would not leave room for a request of the whole context: give the cache more memory");
    return path.tokens;
  });
}

inline Result<int32_t> EngineImpl::cached_tokens(std::span<const int32_t> tokens, const Scope& scope) {
  return between_steps<Result<int32_t>>([&]() -> Result<int32_t> { return scheduler_.cached_tokens(tokens, scope); });
}

inline Status EngineImpl::save_session(SessionId session, const SaveOptions& options, const SessionSink& write) {
  return between_steps<Status>([&]() -> Status {
    SavedSession saved;
    KAIJU_TRY(inbox_.locked([&](Inbox& inbox) -> Status {
      Result<History*> history = idle_session(inbox, session);
      if (!history.ok()) return history.status();
      const std::span<const int32_t> tokens = (*history)->view();
      saved.tokens.assign(tokens.begin(), tokens.end());
      return {};
    }));
    const PrefixTree& tree = scheduler_.cache();
    saved.identity = tree.identity();
    saved.layout = info().kv_layout;
    saved.head.epoch = tree.epoch();
    for (const BlockKind kind : kBothKinds)
      saved.head.block_bytes[kind] = static_cast<uint64_t>(info().block_bytes[kind]);
    if (saved.identity.size() > kMostIdentity || saved.layout.size() > kMostLayout)
      return invalid_argument("the cache's identity or the KV layout's name is too long to save");
    KnownPath path;
    if (options.scope) (void)scheduler_.books().regions(session, *options.scope);
    if (options.kv && !saved.layout.empty()) path = scheduler_.books().known_path(session, saved.tokens);
    saved.head.kv_tokens = static_cast<uint32_t>(path.tokens);

    SessionWriter writer(options.key, options.before, write);
    KAIJU_TRY(writer.head(std::move(saved)));
    const int32_t first_window = tree.window() > 0 ? tree.first_kept(path.tokens) : INT32_MAX;
    for (size_t i = 0; i < path.nodes.size(); ++i) {
      const Node& node = tree.at(path.nodes[i]);
      const PerKind<bool> has = {
          {node.block[0] != kNoBlock,
           node.block[1] != kNoBlock && (static_cast<int32_t>(i) >= first_window || node.retainers > 0)}};
      size_t bytes = 0;
      for (const BlockKind kind : kBothKinds) bytes += has[kind] ? static_cast<size_t>(info().block_bytes[kind]) : 0;
      std::byte* to = writer.block(
          (has[0] ? kSavedGlobal : 0) | (has[1] ? kSavedWindow : 0) | (node.points > 0 ? kSavedPoint : 0), bytes);
      for (const BlockKind kind : kBothKinds) {
        if (!has[kind]) continue;
        KAIJU_TRY(transfer({BlockTransfer::Way::kDown, kind, node.block[kind], to, node.count}));
        to += info().block_bytes[kind];
      }
      KAIJU_TRY(writer.end());
    }
    return {};
  });
}

inline Result<SessionId> EngineImpl::restore_session(const RestoreOptions& options, const SessionSource& read) {
  return between_steps<Result<SessionId>>([&]() -> Result<SessionId> {
    SessionReader reader(options.key, options.before, read);
    SavedSession saved;
    KAIJU_TRY(reader.head(scheduler_.cache().identity(), static_cast<size_t>(info().context), saved));
    KAIJU_TRY(check_saved(saved, options.scope));
    const Result<SessionId> session = inbox_.locked([&](Inbox& inbox) -> Result<SessionId> {
      if (inbox.sessions.size() >= static_cast<size_t>(options_.max_sessions))
        return Status(StatusCode::kBusy,
                      "all " + std::to_string(options_.max_sessions) + " sessions are in use: destroy one first");
      return ++inbox.last_session;
    });
    if (!session.ok()) return session.status();
    // Until it is told of, the session is the scheduler's alone; what was restored of one that is refused goes with it.
    const Status status = guarded<Status>([&]() -> Status {
      PathBuilder path(scheduler_.cache(), scheduler_.books().regions(session.value(), options.scope),
                       static_cast<bool>(options.key), saved.tokens, session.value());
      KAIJU_TRY(restore_kv(session.value(), path, saved, reader));
      inbox_.locked([&](Inbox& inbox) {
        History history;
        history.known = true;
        history.set(std::make_shared<const std::vector<int32_t>>(std::move(saved.tokens)));
        inbox.reserve_destroyed();
        inbox.sessions.emplace(session.value(), std::move(history));
      });
      path.keep();
      return {};
    });
    if (!status.ok()) scheduler_.close(session.value());
    publish();
    if (!status.ok()) return status;
    return session.value();
  });
}

inline Status EngineImpl::check_saved(const SavedSession& saved, const Scope& scope) const {
  const PrefixTree& tree = scheduler_.cache();
  if (saved.head.epoch != tree.epoch())
    return {StatusCode::kUnsupported, "the session was saved at scale epoch " + std::to_string(saved.head.epoch) +
                                          "; this engine is at " + std::to_string(tree.epoch())};
  for (const BlockKind kind : kBothKinds)
    if (saved.head.block_bytes[kind] != static_cast<uint64_t>(info().block_bytes[kind]))
      return SessionReader::damaged("its blocks have another size than the model's");
  if (const Status tokens = check_tokens(saved.tokens); !tokens.ok()) return SessionReader::damaged(tokens.message());
  if (scope.shared_tokens < 0 || static_cast<size_t>(scope.shared_tokens) > saved.tokens.size())
    return invalid_argument("shared_tokens is " + std::to_string(scope.shared_tokens) + "; the saved session has " +
                            std::to_string(saved.tokens.size()) + " tokens");
  return {};
}

// Reads all blocks; puts those to use that can be.
inline Status EngineImpl::restore_kv(SessionId session, PathBuilder& path, const SavedSession& saved,
                                     SessionReader& reader) {
  PrefixTree& tree = scheduler_.cache();
  const auto kv_tokens = static_cast<int32_t>(saved.head.kv_tokens);
  bool usable = saved.layout == info().kv_layout && !saved.layout.empty();
  const uint32_t must = tree.uses(BlockKind::kGlobal) ? kSavedGlobal : 0;
  const uint32_t may = must | kSavedPoint | (tree.uses(BlockKind::kWindow) ? kSavedWindow : 0);
  std::vector<NodeRef> points;
  for (int32_t first = 0; first < kv_tokens; first += kBlockTokens) {
    uint32_t flags = 0;
    std::byte* bytes = nullptr;
    KAIJU_TRY(reader.block(saved.head, must, may, flags, bytes));
    const auto fill = [&](BlockKind kind, BlockId block) {
      const bool after_global = kind == BlockKind::kWindow && (flags & kSavedGlobal);
      return transfer({BlockTransfer::Way::kUp, kind, block, bytes + (after_global ? info().block_bytes[0] : 0)}).ok();
    };
    usable = usable && path.add(std::min(kBlockTokens, kv_tokens - first), flags & kSavedWindow, fill);
    KAIJU_TRY(status());
    if (usable && ((flags & kSavedPoint) || first + kBlockTokens >= kv_tokens)) points.push_back(tree.ref(path.tip()));
  }
  if (tree.retention().turns > 0) {
    for (const NodeRef& point : points) tree.add_point(point.node);
    scheduler_.books().turn_ended(session, std::move(points));
  }
  return {};
}

}  // namespace kaiju
