// The producer thread of a Hopper matmul (sm90_matmul.cuh): fills the ring with rows and weights for all units of its
// block, loads residuals, and stores the results that replaced them.
#pragma once

#include "sm90_matmul_block.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace kaiju::cuda {
namespace sm90 {

// The producer thread. It keeps the ring full over all units of the block.
template <MatmulKind kKind, int kRows, int kOuts, int kSplit, int kShare>
class TileProducer {
  using Block = TileBlock<kKind, kRows, kOuts, kSplit, kShare>;
  using S = typename Block::S;

 public:
  // The first stage after those of begin(): a remainder, without a division where the ring is no constant.
  __device__ __forceinline__ explicit TileProducer(const Block& block)
      : b_(block),
        stage_(S::kFits ? (b_.ahead < b_.ring ? b_.ahead : 0) : b_.ahead % b_.ring),
        step_(b_.first_step + b_.ahead),
        parity_(stage_ == b_.ahead) {}  // an empty ring counts as released

  __device__ __forceinline__ void run() {
    if (b_.tid == S::kConsumers) {
      if (kShare > 1) b_.start_weights(0, b_.ahead);
      const int32_t begun = S::kBehindNorm ? min(b_.args.begun, b_.ahead) : b_.ahead;
      if (S::kFits) b_.start_weights(b_.early, begun);
      for (int32_t unit = b_.first_unit; unit < b_.units; unit += b_.stride) load_unit(unit, begun);
      if constexpr (S::kThroughRing) {
        while (left_ > 0) store_part();
        stores_done();
      }
      // The block stays until all its stages have been released by the other blocks of the cluster too: then what was
      // fetched for them has arrived, and none of their arrivals at its barriers is still on its way.
      if (kShare > 1)
        for (int32_t s = 0; s < b_.ring; ++s) {
          barrier_wait(b_.empty + 8 * stage_, parity_);
          next_stage();
        }
    }
    __syncwarp();
    if (kSplit > 1) announce_room_for_sums();
  }

 private:
  __device__ __forceinline__ void load_unit(int32_t unit, int32_t begun) {
    int32_t row, out;
    b_.corner(unit, row, out);
    if (unit == b_.first_unit) {
      wait_for_inputs();
      if (S::kBehindNorm) b_.start_weights(begun, b_.ahead);
      if (!S::kFits)  // else a consumer copies them
        for (int32_t s = 0; s < b_.ahead; ++s) b_.load_rows(s, row, b_.first_step + s);
    } else if (b_.scales_come) {
      take_stage();
      load_scales(out);
    }
    for (; step_ < b_.last_step; ++step_) {
      take_stage();
      barrier_expect(b_.full + 8 * stage_, b_.stage_bytes);
      b_.load_weights(stage_, out, step_);
      b_.load_rows(stage_, row, step_);
      next_stage();
    }
    step_ = b_.first_step;
    if constexpr (S::kThroughRing) load_residuals(row, out);
    if (kSplit > 1) {  // a share of the sums of every 16 rows that exist, from each of the other blocks
      const int32_t sixteens = min(kRows, b_.args.matmul.rows - row + 15) / 16;
      barrier_expect(b_.arrived, static_cast<uint32_t>(sixteens * (16 * kOuts * 4 / kSplit) * (kSplit - 1)));
    }
  }
  __device__ __forceinline__ void load_scales(int32_t out) {
    const uint32_t bytes = static_cast<uint32_t>(min(kOuts, b_.args.matmul.out - out)) * 4;
    barrier_expect_more(b_.full + 8 * stage_, bytes);
    b_.load_scales(b_.base + S::kScales + (scales_ ^= 1) * kOuts * 4, out, bytes, b_.full + 8 * stage_);
  }

  // Residuals of a unit, to the stages after its steps; results replace them there and are stored when their stage is
  // wanted again.
  __device__ __forceinline__ void load_residuals(int32_t row, int32_t out) {
    while (left_ > 0) store_part();  // where a unit has so few steps that the ring has not come round
    held_ = stage_, held_row_ = row, held_out_ = out, left_ = S::kParts, written_parity_ ^= 1;
    for (int32_t part = 0; part < S::kParts; ++part) {
      barrier_wait(b_.empty + 8 * stage_, parity_);
      uint32_t bytes = 0;
      each_box(part, row, [&](int32_t, uint32_t) { bytes += S::kBoxBytes; });
      barrier_expect(b_.full + 8 * stage_, bytes);
      each_box(part, row, [&](int32_t r, uint32_t at) {
        copy_box(b_.base + stage_ * S::kStageBytes + at, &b_.maps.residuals, b_.full + 8 * stage_, out, r);
      });
      next_stage();
    }
  }
  // Calls use(row, offset in the stage) for the boxes of a part that have rows.
  template <class Use>
  __device__ __forceinline__ void each_box(int32_t part, int32_t unit_row, const Use& use) const {
    for (int32_t r = part * S::kPartRows;
         r < min((part + 1) * S::kPartRows, kRows) && unit_row + r < b_.args.matmul.rows; r += 64)
      use(unit_row + r, static_cast<uint32_t>(r % S::kPartRows / 64 * S::kBoxBytes));
  }
  // Stores the oldest part that is not stored yet, and releases its stage.
  __device__ __forceinline__ void store_part() {
    const int32_t part = S::kParts - left_;
    barrier_wait(b_.written + 8 * part, written_parity_);
    each_box(part, held_row_, [&](int32_t r, uint32_t at) {
      store_box(&b_.maps.residuals, held_out_, r, b_.base + held_ * S::kStageBytes + at);
    });
    stores_read();
    for (uint32_t to = 0; to < kShare; ++to) barrier_arrive(b_.empty + 8 * held_, to, Block::kReleases);
    if (++held_ == b_.ring) held_ = 0;
    --left_;
  }

  __device__ __forceinline__ void take_stage() {
    if constexpr (S::kThroughRing)
      if (left_ > 0 && stage_ == held_) store_part();
    barrier_wait(b_.empty + 8 * stage_, parity_);
  }
  __device__ __forceinline__ void next_stage() {
    if (++stage_ == b_.ring) stage_ = 0, parity_ ^= 1;
  }

  // Tells all blocks of the cluster that the stages where sums will lie have been multiplied here.
  __device__ __forceinline__ void announce_room_for_sums() {
    cluster_wait();
    if (b_.tid == S::kConsumers) {
      for (int32_t s = b_.sum_stage; (s - b_.sum_stage) * Block::kWeightStride < S::kSumBytes; ++s)
        barrier_wait(b_.empty + 8 * s, s < stage_ ? parity_ ^ 1 : parity_);
      for (int32_t to = 0; to < kSplit; ++to) barrier_arrive(b_.ready, static_cast<uint32_t>(to));
    }
  }

  const Block& b_;
  int32_t stage_, step_;
  uint32_t parity_;
  int32_t scales_ = 0;  // which of the two places scales went to last
  // Parts of a unit that are not stored yet, the first of them in stage held_.
  int32_t left_ = 0, held_ = 0, held_row_ = 0, held_out_ = 0;
  uint32_t written_parity_ = 1;
};

}  // namespace sm90
}  // namespace kaiju::cuda

#endif
