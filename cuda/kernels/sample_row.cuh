// A row of logits from the view of one thread, and the operations that sampling needs on a row: sums and maxima, the
// prefix that a filter keeps, and the position of a target within the kept tokens (docs/arithmetic.md, section 6). All
// sums are integers, so their order does not matter.
//
// A warp owns a run of neighbouring tokens. The warps' results go to all blocks of the team at once, with one barrier
// (tell()). The threshold of a filter is found by histograms: first of the distance to the largest logit, then of the
// 32-bit keys, which ascend with the logits, within the bin that contains the threshold, until that bin has one key.
// Among the tokens with that key, those with the lowest ids are kept.
#pragma once

#include "../kernels.hpp"
#include "kaiju/arith/sampling.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kTeam = 8;  // blocks of a row where there are clusters
template <int kBlocks>
constexpr int32_t kThreads = kBlocks > 1 ? 256 : 1024;
template <int kBlocks>
constexpr int32_t kWarps = kThreads<kBlocks> / 32;
constexpr int32_t kBins = 256;            // no more than threads
constexpr int32_t kMostHeld = 32 << 10;   // bytes of logits that a block keeps
constexpr int32_t kMostTokens = 1 << 16;  // of a block of a team
constexpr uint32_t kAll = 0xFFFFFFFFu;

__device__ __forceinline__ uint32_t key_of(float logit) {
  const uint32_t bits = arith::bits_of(arith::add(logit, 0.0f));  // -0 becomes 0: they are equal
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(uint32_t key) {
  return arith::float_of(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

// arith::mass() with one conversion instead of four: a sum with 1.5 * 2^23 holds the rounded integer in its last bits.
__device__ __forceinline__ uint32_t mass_of(float logit, float maximum, float factor) {
  constexpr float kRound = 12582912.0f;
  const float t = arith::mul(arith::add(logit, -maximum), factor), rounded = arith::add(t, kRound),
              power = arith::pow2(0, arith::add(t, -arith::add(rounded, -kRound)));
  const float scaled = arith::float_of(arith::bits_of(power) + (arith::bits_of(rounded) << 23) + (30u << 23));
  return t < -31.0f ? 0u : __float2uint_rn(scaled);
}

// Until all threads of the team are here; what they wrote to shared memory can be read.
template <int kBlocks>
__device__ __forceinline__ void team_sync() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    return;
  }
#endif
  __syncthreads();
}
// The same place in the shared memory of block `rank` of the team.
template <int kBlocks, class T>
__device__ __forceinline__ T* of_block(T* mine, int32_t rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    T* there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(mine), "r"(rank));
    return there;
  }
#endif
  return mine;
}

// The sum over a warp's lanes up to this one.
__device__ __forceinline__ uint64_t sum_up_to(uint64_t value) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t distance = 1; distance < 32; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAll, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}
struct Larger {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};
struct Sum {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};
template <class Combine>
__device__ __forceinline__ uint64_t over_warp(uint64_t value, Combine combine) {
  for (int distance = 16; distance > 0; distance /= 2) value = combine(value, __shfl_xor_sync(kAll, value, distance));
  return value;
}

struct Two {
  uint64_t a, b;
};
// Tokens by bins: the sum of their weights, in two parts, and the keys there are.
template <int kBlocks>
struct Bins {
  // Of up to kMostTokens both parts of the weights are added up apart; of any number, the upper part counts how often
  // the lower ran over, for which an addition must be waited for.
  static constexpr int32_t kLowBits = kBlocks > 1 ? 16 : 32;
  uint32_t low[kBins], high[kBins];
  uint32_t least[kBins], most[kBins];

  __device__ void clear(int32_t bin) { low[bin] = high[bin] = most[bin] = 0, least[bin] = kAll; }
  __device__ void add(uint32_t bin, uint32_t weight, uint32_t key) {
    if constexpr (kBlocks > 1) {
      atomicAdd(&low[bin], weight % (1u << kLowBits));
      atomicAdd(&high[bin], weight >> kLowBits);
    } else if (atomicAdd(&low[bin], weight) + weight < weight) {
      atomicAdd(&high[bin], 1u);
    }
    atomicMin(&least[bin], key);
    atomicMax(&most[bin], key);
  }
  __device__ uint64_t weight(int32_t bin) const { return (uint64_t{high[bin]} << kLowBits) + low[bin]; }
};
template <int kBlocks>
struct Shared {
  Two told[2][kBlocks * kWarps<kBlocks>];  // by all warps of the team; one is read while the next is written
  Bins<kBlocks> bins[2];
  uint64_t merged[kBins];
};

// What is kept of a row: tokens whose key is above the threshold, and the first `ties` by id of those at it.
struct Kept {
  uint32_t threshold = 0;
  uint64_t ties = ~uint64_t{0};
};

// A row, as one thread of its team sees it.
template <int kBlocks>
struct Row {
  static constexpr int32_t kTellers = kBlocks * kWarps<kBlocks>;

  Shared<kBlocks>& shared;
  int32_t rank, warp, lane;  // the block's in the team, the warp's in the block
  int32_t first, end;        // the warp's tokens; a lane has every 32nd
  int32_t tellings = 0, searches = 0;

  // Calls use(token, logit) for the lane's tokens.
  template <class Use>
  __device__ __forceinline__ void each(const float* logits, Use use) const {
    constexpr int32_t kBatch = 8;  // loads on the way at once
#pragma unroll 1
    for (int32_t from = first + lane; from < end; from += 32 * kBatch) {
      float batch[kBatch];
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) batch[i] = from + 32 * i < end ? logits[from + 32 * i] : 0.0f;
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i)
        if (from + 32 * i < end) use(from + 32 * i, batch[i]);
    }
  }

  // Gives what a warp found, the same in all its lanes, to all blocks: the answer is [kTellers], by ascending tokens.
  __device__ const Two* tell(const Two& found) {
    Two* const told = shared.told[tellings++ % 2];
    if (lane < kBlocks) *of_block<kBlocks>(told + rank * kWarps<kBlocks> + warp, lane) = found;
    team_sync<kBlocks>();
    return told;
  }
  template <class Combine>
  __device__ uint64_t over_told(const Two* told, uint64_t Two::* part, Combine combine) const {
    uint64_t all = 0;
    for (int32_t i = lane; i < kTellers; i += 32) all = combine(all, told[i].*part);
    return over_warp(all, combine);
  }
  template <class Combine>
  __device__ Two combined(const Two& mine, Combine combine) {
    const Two* const told = tell({over_warp(mine.a, combine), over_warp(mine.b, combine)});
    return {over_told(told, &Two::a, combine), over_told(told, &Two::b, combine)};
  }

  // The shortest prefix, by descending key and ascending id, whose weights sum to at least `need` (1 or more, and no
  // more than their total). All tokens of one key weigh the same. Keys below `least` do not count, `most` is the
  // largest.
  template <class Weight>
  __device__ Kept prefix(const float* logits, uint32_t least, uint32_t most, uint64_t need, Weight weight) {
    constexpr float kScale = kBins / 32.0f;  // what is further than 32 from the largest logit shares a bin
    const float maximum = logit_of(most);
    uint64_t above = 0;  // weight of the keys above `most`
    for (bool by_distance = true; least < most; by_distance = false) {
      Bins<kBlocks>& bins = shared.bins[searches++ % 2];
      if (threadIdx.x < kBins) bins.clear(static_cast<int32_t>(threadIdx.x));
      __syncthreads();
      const int32_t shift = max(0, 24 - __clz(static_cast<int>(most - least)));
      each(logits, [&](int32_t, float logit) {
        const uint32_t key = key_of(logit), w = key >= least && key <= most ? weight(logit) : 0;
        if (w == 0) return;
        const uint32_t digit =
            by_distance
                ? kBins - 1 - min(kBins - 1, static_cast<int32_t>(arith::mul(arith::add(maximum, -logit), kScale)))
                : (key - least) >> shift;
        bins.add(digit, w, key);
      });
      team_sync<kBlocks>();
      if (threadIdx.x < kBins) {
        uint64_t sum = 0;
#pragma unroll
        for (int32_t r = 0; r < kBlocks; ++r)
          sum += of_block<kBlocks>(&bins, r)->weight(static_cast<int32_t>(threadIdx.x));
        shared.merged[threadIdx.x] = sum;
      }
      __syncthreads();
      // Every warp looks for the bin where the sum from above reaches what is needed; a lane has eight.
      constexpr int32_t kOwn = kBins / 32;
      int32_t digit = kBins - 1 - kOwn * lane;
      uint64_t own = 0;
      for (int32_t i = 0; i < kOwn; ++i) own += shared.merged[digit - i];
      const uint64_t up_to = above + sum_up_to(own);
      const int32_t finder = (__ffs(static_cast<int>(__ballot_sync(kAll, up_to >= need))) - 1) &
                             31;  // the last where there is none: only infinite logits come to that
      above = up_to - own;
      for (int32_t i = 1; i < kOwn && above + shared.merged[digit] < need; ++i) above += shared.merged[digit--];
      above = __shfl_sync(kAll, above, finder);
      digit = __shfl_sync(kAll, digit, finder);
      const Bins<kBlocks>* const theirs = of_block<kBlocks>(&bins, lane % kBlocks);
      least = __reduce_min_sync(kAll, theirs->least[digit]);
      most = __reduce_max_sync(kAll, theirs->most[digit]);
    }
    const uint64_t each_weighs = weight(logit_of(least));
    return {least, each_weighs > 0 ? (need - above + each_weighs - 1) / each_weighs : 0};
  }

  // Of the lane's tokens: the weight of those above a threshold, and how many are at it.
  template <class Weight>
  __device__ Two around(const float* logits, uint32_t threshold, Weight weight) const {
    Two found{0, 0};
    each(logits, [&](int32_t, float logit) {
      const uint32_t key = key_of(logit);
      if (key > threshold) found.a += weight(logit);
      found.b += key == threshold;
    });
    return found;
  }

  // What is kept of the row's first tokens: their weight, and the ties at the threshold among them.
  struct Before {
    uint64_t weight, ties;
  };
  // What is kept before each lane, if lanes come after `front` and have `ours` of what is above the threshold
  // and at it; and of the lane's own.
  __device__ static Before before_lane(const Before& front, const Two& ours, const Kept& kept, uint64_t tie,
                                       uint64_t& own) {
    const uint64_t ties = front.ties + sum_up_to(ours.b) - ours.b;
    own = ours.a + tie * (ties < kept.ties ? min(kept.ties - ties, ours.b) : 0);
    return {front.weight + sum_up_to(own) - own, ties};
  }
  __device__ static Before of_lane(const Before& mine, int32_t lane) {
    return {__shfl_sync(kAll, mine.weight, lane), __shfl_sync(kAll, mine.ties, lane)};
  }

  // Calls use(token, weight, before) for tokens, 32 neighbours at a time and with a weight of 0 where one is not kept;
  // `before` is what is kept in front of it in the whole row. Left out are those of which wanted(before, own, total)
  // says no: what is kept in front of them, of them, and in all.
  template <class Weight, class Wanted, class Use>
  __device__ void for_kept(const float* logits, const Kept& kept, Weight weight, Wanted wanted, Use use) {
    const Two mine = around(logits, kept.threshold, weight);
    const Two* const told = tell({over_warp(mine.a, Sum{}), over_warp(mine.b, Sum{})});
    const uint64_t tie = weight(logit_of(kept.threshold));
    const int32_t teller = rank * kWarps<kBlocks> + warp;
    Before front{0, 0}, before{0, 0};
    uint64_t own = 0, kept_here = 0;
    for (int32_t from = 0; from < kTellers; from += 32) {
      const Before here = before_lane(front, from + lane < kTellers ? told[from + lane] : Two{0, 0}, kept, tie, own);
      if (teller / 32 == from / 32)
        before = of_lane(here, teller % 32), kept_here = __shfl_sync(kAll, own, teller % 32);
      front = of_lane({here.weight + own, here.ties + (from + lane < kTellers ? told[from + lane].b : 0)}, 31);
    }
    const uint64_t total = front.weight;
    if (!wanted(before, kept_here, total)) return;
    for (int32_t from = first; from < end; from += 32 * 32) {
      // A lane counts 32 neighbours, beginning where no other lane reads the same bank.
      Two ours{0, 0};
      for (int32_t i = 0; i < 32; ++i) {
        const int32_t token = from + 32 * lane + (i + lane) % 32;
        const float logit = token < end ? logits[token] : 0.0f;
        const uint32_t key = key_of(logit);
        if (token < end && key > kept.threshold) ours.a += weight(logit);
        ours.b += token < end && key == kept.threshold;
      }
      const Before here = before_lane(before, ours, kept, tie, own);
      for (uint32_t left = __ballot_sync(kAll, wanted(here, own, total)); left != 0; left &= left - 1) {
        const int32_t group = __ffs(static_cast<int>(left)) - 1, token = from + 32 * group + lane;
        const float logit = token < end ? logits[token] : 0.0f;
        const uint32_t key = key_of(logit);
        const bool above = token < end && key > kept.threshold, at = token < end && key == kept.threshold;
        const Before in_front =
            before_lane(of_lane(here, group), {above ? weight(logit) : 0, at ? 1u : 0u}, kept, tie, kept_here);
        use(token, kept_here, in_front.weight);
      }
      before = of_lane({here.weight + own, here.ties + ours.b}, 31);
    }
  }
};

// ceil(share * total / 2^32), at least 1.
__device__ uint64_t mass_needed(uint64_t share, uint64_t total) {
  const uint64_t high = __umul64hi(share, total), low = share * total;
  const uint64_t need = (high << 32 | low >> 32) + ((low & 0xFFFFFFFFu) != 0);
  return need > 0 ? need : 1;
}

// Tokens of a warp.
template <int kBlocks>
__host__ __device__ constexpr int32_t run_of(int32_t vocab) {
  constexpr int32_t kAtOnce = 32 * kBlocks * kWarps<kBlocks>;
  return (vocab + kAtOnce - 1) / kAtOnce * 32;
}

}  // namespace
}  // namespace kaiju::cuda
