// Ceilings: measures how fast this machine reads memory and multiplies bytes and floats. Results are given as a share
// of these.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "bench.hpp"
#include "kaiju/base/buffer.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include "src/cpu/isa/tiles.hpp"
#define KAIJU_HAS_X86 1
#endif

namespace kaiju::bench {
namespace {

std::atomic<uint64_t> sink{0};  // keeps results alive

#if KAIJU_HAS_X86
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

constexpr int64_t kPeakRounds =
    200000;                  // about half a millisecond: long enough for the clock to settle under wide vectors
constexpr int kChains = 16;  // independent accumulators: latency times two issue ports, and some

__attribute__((target("avx512f,avx512vnni"))) void multiply_bytes(int64_t rounds) {
  __m512i acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_epi32(i);
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) acc[0] = _mm512_add_epi32(acc[0], acc[i]);
  sink += static_cast<uint64_t>(_mm512_reduce_add_epi32(acc[0]));
}

// As many accumulators as a product's latency needs.
void multiply_tiles(int64_t rounds) {
  const cpu::TileUse tiles(true);
  for (int64_t r = 0; r < rounds; ++r) {
    cpu::tile_dot_su<0, 4, 6>();
    cpu::tile_dot_su<1, 4, 7>();
    cpu::tile_dot_su<2, 5, 6>();
    cpu::tile_dot_su<3, 5, 7>();
  }
}

__attribute__((target("avx512f"))) void multiply_floats(int64_t rounds) {
  __m512 acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
  sink += static_cast<uint64_t>(_mm512_reduce_add_ps(acc[0]));
}

__attribute__((target("avx512f"))) void read_wide(const std::byte* from, int64_t bytes) {
  __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int64_t at = 0; at + 256 <= bytes; at += 256)
    for (int64_t i = 0; i < 4; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_loadu_si512(from + at + 64 * i));
  sink += static_cast<uint64_t>(
      _mm512_reduce_add_epi64(_mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]))));
}
#pragma GCC diagnostic pop
#endif

void read_plain(const std::byte* from, int64_t bytes) {
  uint64_t sum[8] = {};
  for (int64_t at = 0; at + 64 <= bytes; at += 64) {
    uint64_t words[8];
    std::memcpy(words, from + at, 64);
    for (int i = 0; i < 8; ++i) sum[i] ^= words[i];
  }
  sink += sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

bool has_vnni() {
#if KAIJU_HAS_X86
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

void read(const std::byte* from, int64_t bytes) {
#if KAIJU_HAS_X86
  if (has_vnni()) return read_wide(from, bytes);
#endif
  read_plain(from, bytes);
}

// Best rate over slices of the buffer that all threads share, each too short for the scheduler to step in, and so long
// that what it takes to begin and to end is little of it: 4 MiB for each thread.
double read_rate(ThreadPool& pool, const std::byte* buffer, int64_t bytes, double seconds) {
  constexpr int64_t kPart = 128 << 10;
  const int64_t slice = std::min(int64_t{4 << 20} * pool.threads(), bytes) / kPart * kPart;
  int64_t at = 0;
  const double best = best_seconds(seconds, [&] {
    pool.parallel_for(static_cast<int32_t>(slice / kPart),
                      [&](int32_t part, int32_t) { read(buffer + at + part * kPart, kPart); });
    at = at + 2 * slice <= bytes ? at + slice : 0;
  });
  return static_cast<double>(slice) / best * 1e-9;
}

}  // namespace

Ceilings measure_ceilings(ThreadPool& pool, int64_t buffer_bytes, bool tiles) {
  Ceilings found;
  found.threads = pool.threads();
  auto buffer = Buffer<std::byte>::make(static_cast<size_t>(buffer_bytes), "the bandwidth buffer");
  if (buffer.ok()) {
    std::memset(buffer->data(), 1, buffer->bytes());
    found.read_gb_per_s = read_rate(pool, buffer->data(), buffer_bytes, 0.4);
    found.cached_gb_per_s = read_rate(pool, buffer->data(), std::min<int64_t>(buffer_bytes, 32 << 20), 0.2);
  }
#if KAIJU_HAS_X86
  if (has_vnni()) {
    const auto rate = [&](void (*work)(int64_t), double operations, int64_t rounds) {
      const double seconds =
          best_seconds(0.2, [&] { pool.parallel_for(pool.threads(), [&](int32_t, int32_t) { work(rounds); }); });
      return operations * static_cast<double>(rounds) * pool.threads() / seconds * 1e-9;
    };
    found.int8_gops = tiles ? rate(multiply_tiles, 4 * 2 * 16 * 16 * 64, kPeakRounds / 8)
                            : rate(multiply_bytes, kChains * 128, kPeakRounds);
    found.fp32_gflops = rate(multiply_floats, kChains * 32, kPeakRounds);
  }
#endif
  return found;
}

}  // namespace kaiju::bench
