// Engine's changes of the scales of keys and values, and its calibration, on the thread that steps. Part of
// engine_impl.hpp, and engine.hpp says what each promises.
#pragma once

#include "kaiju/engine/calibration.hpp"
#include "kaiju/engine/detail/engine_impl.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

inline Status EngineImpl::set_scales(const std::shared_ptr<const Checkpoint>& checkpoint) {
  if (!checkpoint) return invalid_argument("no checkpoint");
  if (!cache().identity().starts_with(checkpoint->digest()))
    return invalid_argument("the scales are of the model " + checkpoint->digest() + ", and not of this engine's");
  return between_steps<Status>([&]() -> Status {
    Status done;
    if (checkpoint->scale_epoch() != cache().epoch()) {
      if (scheduler_.has_started()) {
        scheduler_.hold_new(true);
        return {StatusCode::kBusy, "replies are under way: step, and call again when they have ended"};
      }
      done = executor_->set_scales(checkpoint);
      if (done.ok()) scheduler_.cache().set_epoch(checkpoint->scale_epoch());
    }
    scheduler_.hold_new(false);
    return done;
  });
}

inline Result<bool> EngineImpl::calibrate(Calibration& calibration) {
  return between_steps<Result<bool>>([&]() -> Result<bool> {
    if (!cache().identity().starts_with(calibration.model()) || cache().epoch() != calibration.epoch())
      return invalid_argument(
          "the calibration is of another model or of other scales than the engine has: make one of this engine");
    const auto& running = scheduler_.running();
    for (size_t looked = 0; looked < running.size(); ++looked) {
      Sequence& sequence = *running[++calibrated_ % running.size()];
      const int32_t index = sequence.lease.next() / kBlockTokens - 1;
      if (index <= sequence.calibrated_block) continue;
      KvCounts& counts = calibration.counts();
      for (const BlockKind kind : kBothKinds) {
        const std::vector<BlockId>& blocks = sequence.lease.blocks(kind);
        if (cache().uses(kind) && blocks[static_cast<size_t>(index)] != kNoBlock)
          KAIJU_TRY(executor_->count_kv(kind, blocks[static_cast<size_t>(index)], counts));
      }
      sequence.calibrated_block = index;
      const std::span<const int32_t> tokens(*sequence.tokens);
      calibration.add(tokens.subspan(static_cast<size_t>(index) * kBlockTokens, kBlockTokens),
                      sequence.request->scope.character, now());
      return true;
    }
    return false;
  });
}

}  // namespace kaiju
