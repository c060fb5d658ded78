// Ternary steps on a GPU: the bytes of weight_stream.pack, bit for bit. A thread has 20 weights, which are 4 bytes of
// steps. Bound by memory: a step reads a float32 master and an int8 weight, and writes the weight and a fifth of a
// byte.
#include <cstdint>

namespace {

constexpr int kThreads = 256, kEach = 20;

// Reads or writes `count` values of a thread, in pieces of 4 where they are whole. Addresses are multiples of 4 values.
__device__ void read(const float* from, int count, float (&x)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; i += 4) {
    if (i + 4 <= count) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    } else {
      for (int k = i; k < i + 4; ++k) x[k] = k < count ? from[k] : 0.0f;
    }
  }
}

__device__ void read(const int8_t* from, int count, int (&w)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; i += 4) {
    if (i + 4 <= count) {
      const char4 four = *reinterpret_cast<const char4*>(from + i);
      w[i] = four.x, w[i + 1] = four.y, w[i + 2] = four.z, w[i + 3] = four.w;
    } else {
      for (int k = i; k < i + 4; ++k) w[k] = k < count ? from[k] : 0;
    }
  }
}

__device__ void write(const int (&w)[kEach], int count, int8_t* to) {
#pragma unroll
  for (int i = 0; i < kEach; i += 4) {
    if (i + 4 <= count)
      *reinterpret_cast<char4*>(to + i) = make_char4(w[i], w[i + 1], w[i + 2], w[i + 3]);
    else
      for (int k = i; k < i + 4 && k < count; ++k) to[k] = static_cast<int8_t>(w[k]);
  }
}

// Moves each weight towards rint(master / scale) by at most 1. `behind`: how many lack more than that.
__global__ void advance(const float* master, const float* scale, int8_t* weight, uint8_t* steps, int64_t count,
                        int64_t width, unsigned long long* behind) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x, first = thread * kEach;
  int lack = 0;
  if (first < count) {
    const int own = static_cast<int>(min(int64_t{kEach}, count - first));
    float x[kEach];
    int w[kEach];
    read(master + first, own, x);
    read(weight + first, own, w);
    int64_t row = first / width;
    int64_t left = (row + 1) * width - first;  // values until the next row
    float unit = scale[row];
    uint32_t packed = 0;
#pragma unroll
    for (int b = 0; b < kEach / 5; ++b) {
      int byte = 0, power = 1;
#pragma unroll
      for (int k = 0; k < 5; ++k) {
        const int i = 5 * b + k;
        int step = 0;
        if (i < own) {
          if (left == 0) unit = scale[++row], left = width;
          --left;
          const int missing = static_cast<int>(fminf(fmaxf(rintf(__fdiv_rn(x[i], unit)), -127.0f), 127.0f)) - w[i];
          step = min(max(missing, -1), 1);
          lack += missing != step;
          w[i] += step;
        }
        byte += (step + 1) * power;
        power *= 3;
      }
      packed |= static_cast<uint32_t>(byte) << (8 * b);
    }
    write(w, own, weight + first);
    const int bytes = (own + 4) / 5;
    if (bytes == 4)
      reinterpret_cast<uint32_t*>(steps)[thread] = packed;
    else
      for (int b = 0; b < bytes; ++b) steps[4 * thread + b] = static_cast<uint8_t>(packed >> (8 * b));
  }
  const int all = __reduce_add_sync(0xffffffff, lack);
  if (threadIdx.x % 32 == 0 && all > 0) atomicAdd(behind, static_cast<unsigned long long>(all));
}

__global__ void add(const uint8_t* steps, int8_t* weight, int64_t count) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x, first = thread * kEach;
  if (first >= count) return;
  const int own = static_cast<int>(min(int64_t{kEach}, count - first));
  int w[kEach];
  read(weight + first, own, w);
#pragma unroll
  for (int b = 0; b < kEach / 5; ++b) {
    int rest = 5 * b < own ? steps[4 * thread + b] : 121;  // five zeros
#pragma unroll
    for (int k = 0; k < 5; ++k) w[5 * b + k] += rest % 3 - 1, rest /= 3;
  }
  write(w, own, weight + first);
}

unsigned grid(int64_t count) { return static_cast<unsigned>((count + kThreads * kEach - 1) / (kThreads * kEach)); }

}  // namespace

extern "C" {

// `count` weights in rows of `width`, which share a scale. `steps`: ceil(count / 5) bytes, 4-byte aligned. *behind must
// be 0. Returns the launch's error.
int ternary_advance(const float* master, const float* scale, int8_t* weight, uint8_t* steps, int64_t count,
                    int64_t width, unsigned long long* behind, cudaStream_t stream) {
  advance<<<grid(count), kThreads, 0, stream>>>(master, scale, weight, steps, count, width, behind);
  return cudaGetLastError();
}

int ternary_add(const uint8_t* steps, int8_t* weight, int64_t count, cudaStream_t stream) {
  add<<<grid(count), kThreads, 0, stream>>>(steps, weight, count);
  return cudaGetLastError();
}

}  // extern "C"
