// From rows of logits to tokens (docs/arithmetic.md, section 6): one block of threads a row. Everything is counted in integers, so no order of summation matters.
//
// Logits are ordered by a 32-bit key that ascends with them. What a filter keeps of the row is found digit by digit: eight bits of the key at a time, a histogram of the tokens
// whose higher digits are the threshold's so far, until the threshold key is known; of the tokens with that very key the first by id are kept.
#include "../kernels.hpp"
#include "kaiju/arith/sampling.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 1024;
constexpr int32_t kWarps = kThreads / 32;
constexpr uint32_t kAll = 0xFFFFFFFFu;

struct Shared {
  uint64_t histogram[256];
  uint64_t warp[kWarps];
  uint64_t result;
  int32_t answer;
};

__device__ __forceinline__ uint32_t key_of(float logit) {
  const uint32_t bits = arith::bits_of(arith::add(logit, 0.0f));  // -0 becomes 0: they are equal
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

template <class T, class Combine>
__device__ T reduce(Shared& shared, T value, Combine combine) {
  for (int distance = 16; distance > 0; distance /= 2) value = combine(value, __shfl_xor_sync(kAll, value, distance));
  __syncthreads();  // earlier readers are done
  if (threadIdx.x % 32 == 0) shared.warp[threadIdx.x / 32] = static_cast<uint64_t>(value);
  __syncthreads();
  value = static_cast<T>(shared.warp[0]);
  for (int w = 1; w < kWarps; ++w) value = combine(value, static_cast<T>(shared.warp[w]));
  return value;
}
__device__ uint64_t sum_of(Shared& shared, uint64_t value) {
  return reduce(shared, value, [](uint64_t a, uint64_t b) { return a + b; });
}
__device__ uint32_t largest(Shared& shared, uint32_t value) {
  return reduce(shared, value, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}

// The sum of the values of all threads before this one.
__device__ uint64_t sum_before(Shared& shared, uint64_t value) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t running = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAll, running, distance);
    if (lane >= static_cast<uint32_t>(distance)) running += other;
  }
  __syncthreads();
  if (lane == 31) shared.warp[warp] = running;
  __syncthreads();
  uint64_t before = running - value;
  for (uint32_t w = 0; w < warp; ++w) before += shared.warp[w];
  return before;
}

// What is kept of a row: tokens whose key is above the threshold, and the first `ties` by id of those at it.
struct Kept {
  uint32_t threshold = 0;
  uint64_t ties = ~uint64_t{0};
};

// The shortest prefix, by descending key and ascending id, whose weights sum to at least `need` (1 or more, and no more than their total). All tokens of one key weigh the same.
template <class Weight>
__device__ Kept prefix(Shared& shared, const float* logits, int32_t vocab, uint64_t need, Weight weight) {
  uint32_t threshold = 0;
  uint64_t above = 0;  // weight of the keys above the threshold's digits so far
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < 256; i += kThreads) shared.histogram[i] = 0;
    __syncthreads();
    for (int32_t token = static_cast<int32_t>(threadIdx.x); token < vocab; token += kThreads) {
      const uint32_t key = key_of(logits[token]);
      if (shift < 24 && (key ^ threshold) >> (shift + 8) != 0) continue;
      const uint64_t w = weight(token, logits[token]);
      if (w > 0) atomicAdd(reinterpret_cast<unsigned long long*>(&shared.histogram[key >> shift & 255]), static_cast<unsigned long long>(w));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint64_t sum = above;
      int32_t digit = 255;
      while (digit > 0 && sum + shared.histogram[digit] < need) sum += shared.histogram[digit--];
      shared.result = sum;
      shared.answer = digit;
    }
    __syncthreads();
    above = shared.result;
    threshold |= static_cast<uint32_t>(shared.answer) << shift;
  }
  // Of the tokens at the threshold: as many as still count, each of the same weight.
  uint64_t each = 0;
  for (int32_t token = static_cast<int32_t>(threadIdx.x); token < vocab; token += kThreads)
    if (key_of(logits[token]) == threshold) {
      const uint64_t w = weight(token, logits[token]);
      each = w > each ? w : each;
    }
  each = reduce(shared, each, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  return {threshold, each > 0 ? (need - above + each - 1) / each : 0};
}

// Calls use(token) for what `kept` keeps among the tokens that `counts`, in no order; threads own runs of neighbouring tokens.
template <class Counts, class Use>
__device__ void for_kept(Shared& shared, const float* logits, int32_t vocab, const Kept& kept, Counts counts, Use use) {
  const int32_t run = (vocab + kThreads - 1) / kThreads;
  const int32_t first = min(vocab, static_cast<int32_t>(threadIdx.x) * run), end = min(vocab, first + run);
  uint64_t at_threshold = 0;
  for (int32_t token = first; token < end; ++token) at_threshold += key_of(logits[token]) == kept.threshold && counts(token, logits[token]);
  uint64_t before = sum_before(shared, at_threshold);
  for (int32_t token = first; token < end; ++token) {
    const uint32_t key = key_of(logits[token]);
    if (key < kept.threshold || !counts(token, logits[token])) continue;
    if (key == kept.threshold && before++ >= kept.ties) continue;
    use(token);
  }
}

// ceil(share * total / 2^32), at least 1.
__device__ uint64_t mass_needed(uint64_t share, uint64_t total) {
  const uint64_t high = __umul64hi(share, total), low = share * total;
  const uint64_t need = (high << 32 | low >> 32) + ((low & 0xFFFFFFFFu) != 0);
  return need > 0 ? need : 1;
}

__global__ void __launch_bounds__(kThreads) sample_kernel(const float* plain_logits, const float* adjusted_logits, const Draw* draws, int32_t vocab, Drawn* drawn, Alternative* top) {
  __shared__ Shared shared;
  __shared__ uint32_t picked;
  const Draw draw = draws[blockIdx.x];
  const int64_t at = int64_t{blockIdx.x} * vocab;
  const float* plain = plain_logits + at;
  const float* logits = draw.adjusted ? adjusted_logits + at : plain;
  Drawn& out = drawn[blockIdx.x];
  const int32_t run = (vocab + kThreads - 1) / kThreads;
  const int32_t first = min(vocab, static_cast<int32_t>(threadIdx.x) * run), end = min(vocab, first + run);
  const auto maximum_of = [&](const float* row) {
    uint32_t key = 0;
    for (int32_t token = static_cast<int32_t>(threadIdx.x); token < vocab; token += kThreads) key = max(key, key_of(row[token]));
    key = largest(shared, key);
    return arith::float_of(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
  };
  const float plain_maximum = maximum_of(plain);
  const float maximum = draw.adjusted ? maximum_of(logits) : plain_maximum;

  uint64_t total = 0;
  for (int32_t token = static_cast<int32_t>(threadIdx.x); token < vocab; token += kThreads) total += arith::mass(plain[token], plain_maximum, arith::kLog2E);
  total = sum_of(shared, total);

  int32_t chosen = 0;
  if (draw.greedy) {
    uint32_t best = kAll;  // the smallest id of the largest logit
    for (int32_t token = static_cast<int32_t>(threadIdx.x); token < vocab; token += kThreads)
      if (logits[token] == maximum) best = min(best, static_cast<uint32_t>(token));
    chosen = static_cast<int32_t>(~largest(shared, ~best));
  } else {
    const auto mass = [&](int32_t, float logit) { return static_cast<uint64_t>(arith::mass(logit, maximum, draw.factor)); };
    // Step 4's filters. `within` is what top_k keeps; min_p is a condition on each token; top_p cuts among those.
    Kept within;
    if (draw.top_k > 0 && draw.top_k < vocab) within = prefix(shared, logits, vocab, static_cast<uint64_t>(draw.top_k), [](int32_t, float) { return uint64_t{1}; });
    const auto any = [](int32_t, float) { return true; };
    uint64_t kept_total = 0;
    for_kept(shared, logits, vocab, within, any, [&](int32_t token) {
      const uint64_t m = mass(token, logits[token]);
      if (m >= draw.least_mass) kept_total += m;
    });
    kept_total = sum_of(shared, kept_total);
    // A token's mass within the first two filters, ties of top_k included: all of them weigh the same, so top_p's own ties count from the first.
    const auto counted = [&](int32_t token, float logit) {
      if (key_of(logit) < within.threshold) return uint64_t{0};
      const uint64_t m = mass(token, logit);
      return m >= draw.least_mass ? m : uint64_t{0};
    };
    Kept kept = within;
    if (draw.cut) kept = prefix(shared, logits, vocab, mass_needed(draw.share, kept_total), counted);
    const auto counts = [&](int32_t token, float logit) { return mass(token, logit) >= draw.least_mass; };

    uint64_t own = 0;
    for_kept(shared, logits, vocab, kept, counts, [&](int32_t token) { own += mass(token, logits[token]); });
    const uint64_t before = sum_before(shared, own), all = sum_of(shared, own), target = __umul64hi(draw.random, all);
    if (threadIdx.x == 0) picked = 0;
    __syncthreads();
    uint64_t sum = before;
    // Threads own ascending runs, so exactly one of them crosses the target.
    for_kept(shared, logits, vocab, kept, counts, [&](int32_t token) {
      const uint64_t m = mass(token, logits[token]);
      if (sum <= target && target < sum + m) picked = static_cast<uint32_t>(token);
      sum += m;
    });
    __syncthreads();
    chosen = static_cast<int32_t>(picked);
  }
  if (threadIdx.x == 0) {
    out.total = total;
    out.maximum = plain_maximum;
    out.token = chosen;
    out.logit = plain[chosen];
    out.top_count = min(draw.top, vocab);
  }
  if (draw.top > 0) {
    const uint64_t wanted = static_cast<uint64_t>(min(draw.top, vocab));
    const Kept best = prefix(shared, plain, vocab, wanted, [](int32_t, float) { return uint64_t{1}; });
    __syncthreads();
    if (threadIdx.x == 0) picked = 0;
    __syncthreads();
    for_kept(shared, plain, vocab, best, [](int32_t, float) { return true; }, [&](int32_t token) { top[int64_t{blockIdx.x} * kMostTop + atomicAdd(&picked, 1u)] = {plain[token], token}; });
  }
}

__global__ void mark_seen_kernel(const TokenMark* marks, int32_t count, int32_t vocab, uint8_t* seen) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) seen[int64_t{marks[i].slot} * vocab + marks[i].token] = 1;
}

__global__ void mark_rows_kernel(const int32_t* tokens, const int32_t* row_segment, const int32_t* segment_slot, int32_t rows, int32_t vocab, uint8_t* seen) {
  const int32_t row = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row < rows) seen[int64_t{segment_slot[row_segment[row]]} * vocab + tokens[row]] = 1;
}

__global__ void penalise_kernel(const float* logits, const Draw* draws, int32_t vocab, const uint8_t* seen, float* adjusted) {
  const Draw& draw = draws[blockIdx.y];
  if (!draw.adjusted) return;
  const int32_t token = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (token >= vocab) return;
  const int64_t at = int64_t{blockIdx.y} * vocab + token;
  const bool penalised = draw.penalty != 1.0f && seen[int64_t{draw.slot} * vocab + token];
  adjusted[at] = penalised ? arith::penalise(logits[at], draw.penalty) : logits[at];
}

__global__ void add_biases_kernel(const Bias* biases, int32_t count, int32_t vocab, float* adjusted) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  float& logit = adjusted[int64_t{biases[i].row} * vocab + biases[i].token];
  logit = arith::add(logit, biases[i].bias);
}

constexpr int32_t kSmall = 256;
int32_t blocks_for(int32_t items) { return (items + kSmall - 1) / kSmall; }

}  // namespace

cudaError_t mark_seen(cudaStream_t stream, const TokenMark* marks, int32_t count, int32_t vocab, uint8_t* seen) {
  mark_seen_kernel<<<blocks_for(count), kSmall, 0, stream>>>(marks, count, vocab, seen);
  return cudaGetLastError();
}

cudaError_t mark_rows(cudaStream_t stream, const int32_t* tokens, const int32_t* row_segment, const int32_t* segment_slot, int32_t rows, int32_t vocab, uint8_t* seen) {
  mark_rows_kernel<<<blocks_for(rows), kSmall, 0, stream>>>(tokens, row_segment, segment_slot, rows, vocab, seen);
  return cudaGetLastError();
}

cudaError_t penalise(cudaStream_t stream, const float* logits, const Draw* draws, int32_t rows, int32_t vocab, const uint8_t* seen, float* adjusted) {
  penalise_kernel<<<dim3(static_cast<unsigned>(blocks_for(vocab)), static_cast<unsigned>(rows)), kSmall, 0, stream>>>(logits, draws, vocab, seen, adjusted);
  return cudaGetLastError();
}

cudaError_t add_biases(cudaStream_t stream, const Bias* biases, int32_t count, int32_t vocab, float* adjusted) {
  add_biases_kernel<<<blocks_for(count), kSmall, 0, stream>>>(biases, count, vocab, adjusted);
  return cudaGetLastError();
}

cudaError_t sample(cudaStream_t stream, const float* logits, const float* adjusted, const Draw* draws, int32_t rows, int32_t vocab, Drawn* drawn, Alternative* top) {
  sample_kernel<<<rows, kThreads, 0, stream>>>(logits, adjusted, draws, vocab, drawn, top);
  return cudaGetLastError();
}

}  // namespace kaiju::cuda
