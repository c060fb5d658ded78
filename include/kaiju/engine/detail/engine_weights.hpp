// Engine's changes of its weights and of the scales of keys and values, and its calibration, on the thread that steps.
// Part of engine_impl.hpp, and engine.hpp says what each promises.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>

#include "kaiju/engine/calibration.hpp"
#include "kaiju/engine/detail/engine_impl.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

inline bool EngineImpl::has_weights_of(const std::string& digest) const {
  return weights_digest_.empty() ? cache().identity().starts_with(digest) : weights_digest_ == digest;
}

// The epoch of KV that weights and scales compute. The cache's identity names the first weights, whose epoch is that of
// their scales; others have a part of their digest in it.
inline uint64_t EngineImpl::epoch_of(const std::string& digest, uint64_t scale_epoch) const {
  if (cache().identity().starts_with(digest)) return scale_epoch;
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;
  const uint64_t epoch = std::strtoull(digest.substr(0, 16).c_str(), nullptr, 16) ^ (scale_epoch * kSpread);
  return epoch == 0 ? 1 : epoch;  // 0 is that of the first weights
}

// The executor's answer to a change. A final error stops the engine, which would compute with parts of both.
inline Status EngineImpl::changed(Status answer) {
  if (answer.code() == StatusCode::kDeviceLost || answer.code() == StatusCode::kInternal) stop(answer);
  return answer;
}

// What runs gives up its place, and starts again from its tokens: no KV of the new epoch is there yet.
inline Status EngineImpl::set_weights(const std::shared_ptr<const Checkpoint>& checkpoint) {
  if (!checkpoint) return invalid_argument("no checkpoint");
  return between_steps<Status>([&]() -> Status {
    const uint64_t epoch = epoch_of(checkpoint->digest(), checkpoint->scale_epoch());
    std::string digest = checkpoint->digest();
    KAIJU_TRY(changed(executor_->set_weights(checkpoint)));
    const Status restarted = guarded<Status>([&]() -> Status {
      scheduler_.restart_running();
      scheduler_.hold_new(false);  // for scales of the weights before
      scheduler_.cache().set_epoch(epoch);
      weights_digest_ = std::move(digest);
      publish();
      return {};
    });
    return restarted.ok() ? restarted : changed(internal_error("no memory"));
  });
}

inline Status EngineImpl::set_scales(const std::shared_ptr<const Checkpoint>& checkpoint) {
  if (!checkpoint) return invalid_argument("no checkpoint");
  if (!has_weights_of(checkpoint->digest()))
    return invalid_argument("the scales are of the model " + checkpoint->digest() + ", and not of this engine's");
  return between_steps<Status>([&]() -> Status {
    Status done;
    const uint64_t epoch = epoch_of(checkpoint->digest(), checkpoint->scale_epoch());
    if (epoch != cache().epoch()) {
      if (scheduler_.has_started()) {
        scheduler_.hold_new(true);
        return {StatusCode::kBusy, "replies are under way: step, and call again when they have ended"};
      }
      done = changed(executor_->set_scales(checkpoint));
      if (done.ok()) scheduler_.cache().set_epoch(epoch);
    }
    scheduler_.hold_new(false);
    return done;
  });
}

inline Result<bool> EngineImpl::calibrate(Calibration& calibration) {
  return between_steps<Result<bool>>([&]() -> Result<bool> {
    if (!has_weights_of(calibration.model()) || cache().epoch() != epoch_of(calibration.model(), calibration.epoch()))
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
