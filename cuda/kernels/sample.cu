// Samples tokens from rows of logits (docs/arithmetic.md, section 6), and reports the parts of the log-probability and
// the best alternatives. If the chip has clusters, a cluster of eight thread blocks processes a row; otherwise one
// block does. A block keeps its tokens' logits in shared memory if they fit. Bound: latency with few rows, instructions
// with many.
#include <type_traits>

#include "../tiles/dependent_launch.cuh"
#include "sample_row.cuh"

namespace kaiju::cuda {
namespace {

// The sample's alternatives: the best tokens by plain logits, in no order.
template <int kBlocks>
__device__ __forceinline__ void report_best(Row<kBlocks>& row, const float* plain, uint32_t most,
                                            const SampleRow& sample, int32_t vocab, Alternative* top) {
  const auto one = [](float) { return 1u; };
  const Kept kept = row.prefix(plain, 0, most, static_cast<uint64_t>(min(sample.top, vocab)), one);
  row.for_kept(
      plain, kept, one, [](const auto&, uint64_t own, uint64_t) { return own > 0; },
      [&](int32_t token, uint64_t weight, uint64_t before) {
        if (weight > 0) top[int64_t{sample.answer} * kMostTop + static_cast<int64_t>(before)] = {plain[token], token};
      });
}

// Five blocks of a team to a multiprocessor: as many as shared memory has room for.
template <int kBlocks>
__global__ void __launch_bounds__(kThreads<kBlocks>, kBlocks > 1 ? 5 : 1)
    sample_kernel(const float* plain_logits, const float* adjusted_logits, const SampleRow* samples, int32_t vocab,
                  bool holds, int32_t* last, Sampled* sampled, Alternative* top) {
  extern __shared__ float held[];
  __shared__ Shared<kBlocks> shared;
  let_next_start();
  team_sync<kBlocks>();  // all have begun: what is told arrives
  wait_for_inputs();
  const int32_t which = static_cast<int32_t>(blockIdx.x) / kBlocks, rank = static_cast<int32_t>(blockIdx.x) % kBlocks,
                warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t run = run_of<kBlocks>(vocab), block_first = rank * kWarps<kBlocks> * run,
                first = min(vocab, block_first + warp * run);
  Row<kBlocks> row{shared, rank, warp, static_cast<int32_t>(threadIdx.x) % 32, first, min(vocab, first + run)};
  const SampleRow sample = samples[which];
  if (sample.adjusted && !adjusted_logits) return;
  const int64_t at = int64_t{which} * vocab;
  const float* plain = plain_logits + at;
  const float* logits = sample.adjusted ? adjusted_logits + at : plain;

  // The largest logit of those that are sampled from, the first of them by id, and the largest plain one.
  float largest = -INFINITY, plain_largest = -INFINITY;
  uint32_t largest_token = 0;
  row.each(logits, [&](int32_t token, float logit) {
    if (logit > largest) largest = logit, largest_token = static_cast<uint32_t>(token);
    if (holds) held[token - block_first] = logit;
  });
  if (sample.adjusted) row.each(plain, [&](int32_t, float logit) { plain_largest = fmaxf(plain_largest, logit); });
  const Two best = row.combined({uint64_t{key_of(largest)} << 32 | static_cast<uint32_t>(~largest_token),
                                 key_of(sample.adjusted ? plain_largest : largest)},
                                Larger{});
  const auto most = static_cast<uint32_t>(best.a >> 32), plain_most = static_cast<uint32_t>(best.b);
  const float maximum = logit_of(most), plain_maximum = logit_of(plain_most);
  if (holds) logits = held - block_first;
  if (holds && !sample.adjusted) plain = logits;

  uint64_t plain_total = 0;
  row.each(plain, [&](int32_t, float logit) { plain_total += mass_of(logit, plain_maximum, arith::kLog2E); });
  plain_total = row.combined({plain_total, 0}, Sum{}).a;
  const auto answer = [&](uint32_t token) {
    last[sample.slot] = static_cast<int32_t>(token);
    sampled[sample.answer] = {plain_total, plain_maximum, static_cast<int32_t>(token), plain_logits[at + token],
                              min(sample.top, vocab)};
  };

  if (sample.greedy) {
    if (rank == 0 && threadIdx.x == 0) answer(~static_cast<uint32_t>(best.a));
  } else {
    // Step 4's filters: top_k's prefix; min_p as a condition on each token; top_p's prefix among those. All ties of
    // top_k weigh the same, so top_p's own ties count from the first.
    const auto mass = [&](float logit) {
      const uint32_t m = mass_of(logit, maximum, sample.factor);
      return m >= sample.least_mass ? m : 0;
    };
    Kept kept;
    if (sample.top_k > 0 && sample.top_k < vocab)
      kept = row.prefix(logits, 0, most, static_cast<uint64_t>(sample.top_k), [](float) { return 1u; });
    if (sample.cut) {
      const Two within = row.combined(row.around(logits, kept.threshold, mass), Sum{});
      const uint64_t total = within.a + mass(logit_of(kept.threshold)) * min(kept.ties, within.b);
      kept = row.prefix(logits, kept.threshold, most, mass_needed(sample.share, total), mass);
    }
    uint64_t target = 0;
    const auto holds_target = [&](uint64_t before, uint64_t weight) {
      return before <= target && target < before + weight;
    };
    row.for_kept(
        logits, kept, mass,
        [&](const auto& before, uint64_t own, uint64_t total) {
          target = __umul64hi(sample.random, total);
          return holds_target(before.weight, own);
        },
        [&](int32_t token, uint64_t weight, uint64_t before) {
          if (holds_target(before, weight)) answer(static_cast<uint32_t>(token));
        });
  }
  if (sample.top > 0) report_best(row, plain, plain_most, sample, vocab, top);
}

}  // namespace

cudaError_t sample(cudaStream_t stream, const Chip& chip, const float* logits, const float* adjusted,
                   const SampleRow* samples, int32_t rows, int32_t vocab, int32_t* last, Sampled* sampled,
                   Alternative* top) {
  const auto by = [&]<int kBlocks>(std::integral_constant<int, kBlocks>) {
    const int32_t held_bytes = kWarps<kBlocks> * run_of<kBlocks>(vocab) * static_cast<int32_t>(sizeof(float));
    const bool holds = held_bytes <= kMostHeld;
    return launch(stream, chip, sample_kernel<kBlocks>,
                  {int64_t{rows} * kBlocks, kThreads<kBlocks>, holds ? held_bytes : 0, kBlocks}, logits, adjusted,
                  samples, vocab, holds, last, sampled, top);
  };
  return chip.capability >= 90 && vocab <= kTeam * kMostTokens ? by(std::integral_constant<int, kTeam>())
                                                               : by(std::integral_constant<int, 1>());
}

}  // namespace kaiju::cuda
