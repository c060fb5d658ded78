// Squinch on a GPU: the bytes of squinch.py, bit for bit. A thread has one block of 8 values: it reads 32 bytes and
// writes 6, or the reverse. Bound by memory: about 100 integer instructions a block are less than the time of its 38
// bytes.
#include <cstdint>

namespace {

constexpr int kOrigin = 193, kMost = 254, kNotFinite = 255, kLast = 15, kThreads = 256;

// floor(4 log2 |x|) of the bits without sign.
__device__ int quarter_octave(uint32_t size) {
  const uint32_t mantissa = size & 0x7fffff;
  return (static_cast<int>(size >> 23) - 127) * 4 + (mantissa >= 0x1837f1) + (mantissa >= 0x3504f4) +
         (mantissa >= 0x5744fd);
}

// The nearest integer to 4 log2 |x|.
__device__ int nearest_quarter(uint32_t size) {
  const uint32_t mantissa = size & 0x7fffff;
  return (static_cast<int>(size >> 23) - 127) * 4 + (mantissa >= 0xb95c2) + (mantissa >= 0x25fed7) +
         (mantissa >= 0x45672b) + (mantissa >= 0x6ac0c7);
}

__device__ float value_of(int code, int level, uint32_t negative) {
  if (code == 0) return 0.0f;
  if (code == kNotFinite) return __uint_as_float(0x7fc00000u | negative << 31);
  const int quarters = code - kOrigin - 2 * level;
  const int part = quarters & 3;
  const uint32_t mantissa = part == 0 ? 0 : part == 1 ? 0x1837f0 : part == 2 ? 0x3504f3 : 0x5744fd;
  return __uint_as_float((static_cast<uint32_t>((quarters >> 2) + 127) << 23 | mantissa) | negative << 31);
}

struct Block {
  uint32_t levels, signs, code;
};

__device__ Block encoded(const float (&x)[8]) {
  uint32_t largest = 0;
#pragma unroll
  for (float value : x) largest = max(largest, __float_as_uint(value) & 0x7fffffff);
  Block block{0, 0, 0};
  const int code = min(max(nearest_quarter(largest) + kOrigin, 0), kMost);
  if (code == 0) return block;
  block.code = largest >= 0x7f800000 ? kNotFinite : code;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t bits = __float_as_uint(x[i]);
    const int below = (code - kOrigin - quarter_octave(bits & 0x7fffffff)) >> 1;
    block.levels |= static_cast<uint32_t>(min(max(below, 0), kLast)) << (4 * i);
    block.signs |= (bits >> 31) << i;
  }
  return block;
}

__device__ void read(const float* from, int64_t block, float (&x)[8]) {
  const float4 a = reinterpret_cast<const float4*>(from)[2 * block],
               b = reinterpret_cast<const float4*>(from)[2 * block + 1];
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

__device__ void write(const float (&x)[8], float* to, int64_t block) {
  reinterpret_cast<float4*>(to)[2 * block] = make_float4(x[0], x[1], x[2], x[3]);
  reinterpret_cast<float4*>(to)[2 * block + 1] = make_float4(x[4], x[5], x[6], x[7]);
}

// Values of `parts` messages of `blocks` blocks each, the messages one after the other. With `error`, what was lost in
// the step before is added first, and what is lost now is kept there: nothing of a block that was not finite.
template <bool kFeedback>
__global__ void encode(const float* from, float* error, uint8_t* to, int64_t blocks, int parts) {
  const int64_t all = int64_t{parts} * blocks, at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= all) return;
  float x[8];
  read(from, at, x);
  if constexpr (kFeedback) {
    float lost[8];
    read(error, at, lost);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] += lost[i];
  }
  const Block block = encoded(x);
  uint8_t* const message = to + at / blocks * blocks * 6;
  const int64_t own = at % blocks;
  reinterpret_cast<uint32_t*>(message)[own] = block.levels;
  message[4 * blocks + own] = static_cast<uint8_t>(block.signs);
  message[5 * blocks + own] = static_cast<uint8_t>(block.code);
  if constexpr (kFeedback) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int level = static_cast<int>(block.levels >> (4 * i) & 15);
      const bool is_finite = block.code != kNotFinite;
      x[i] = is_finite ? x[i] - value_of(static_cast<int>(block.code), level, block.signs >> i & 1) : 0.0f;
    }
    write(x, error, at);
  }
}

// The sum of `parts` messages of `blocks` blocks, in their order, times `factor`.
__global__ void decode(const uint8_t* from, float* to, int64_t blocks, int parts, float factor) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= blocks) return;
  float sum[8] = {};
  for (int part = 0; part < parts; ++part) {
    const uint8_t* const message = from + part * blocks * 6;
    const uint32_t levels = reinterpret_cast<const uint32_t*>(message)[at];
    const uint32_t signs = message[4 * blocks + at];
    const int code = message[5 * blocks + at];
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += value_of(code, static_cast<int>(levels >> (4 * i) & 15), signs >> i & 1);
  }
#pragma unroll
  for (float& value : sum) value *= factor;
  write(sum, to, at);
}

unsigned grid(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

}  // namespace

extern "C" {

// Messages of a multiple of 2 blocks, 16-byte aligned. `error` may be null. Returns the launch's error.
int squinch_encode(const float* from, float* error, uint8_t* to, int64_t blocks, int64_t parts, cudaStream_t stream) {
  if (error)
    encode<true><<<grid(parts * blocks), kThreads, 0, stream>>>(from, error, to, blocks, static_cast<int>(parts));
  else
    encode<false><<<grid(parts * blocks), kThreads, 0, stream>>>(from, error, to, blocks, static_cast<int>(parts));
  return cudaGetLastError();
}

int squinch_decode(const uint8_t* from, float* to, int64_t blocks, int64_t parts, float factor, cudaStream_t stream) {
  decode<<<grid(blocks), kThreads, 0, stream>>>(from, to, blocks, static_cast<int>(parts), factor);
  return cudaGetLastError();
}

}  // extern "C"
