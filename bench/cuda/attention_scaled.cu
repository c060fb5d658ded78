// The part of kaiju-bench-attention (attention.cu) for version 2 of the arithmetic, where keys and values have scales:
// checks of both kernels against the reference, and times at the shapes of open models, checked before they are timed.
#include <cmath>
#include <cstring>

#include "attention.cuh"
#include "cuda/tiles/layout.cuh"
#include "kaiju/backend/reference.hpp"

namespace kaiju::cuda::bench {
namespace {

struct ScaledShape {
  int32_t head_dim, kv_heads, heads, window;
};

KvSlot slot_of(const ScaledShape& shape, std::byte* pool, int32_t copies) {
  const int64_t bytes = shape.kv_heads * KvSlot::head_bytes(shape.head_dim, true);
  const BlockKind kind = shape.window > 0 ? BlockKind::kWindow : BlockKind::kGlobal;
  return {pool, copies * bytes, 0, shape.kv_heads, shape.head_dim, kind, shape.window, true};
}

// The same random keys, values and scales in the layout of the reference and in that of the GPU.
void fill_pools(const KvSlot& slot, int32_t blocks, std::mt19937_64& random, std::vector<std::byte>& here,
                std::vector<std::byte>& there) {
  for (auto& b : here) b = static_cast<std::byte>(random());
  there = here;
  KvSlot of_here = slot, of_there = slot;
  of_here.pool = here.data(), of_there.pool = there.data();
  const int32_t spread = random() % 3 == 0 ? 60 : 1;  // now and then scales of all magnitudes
  for (int32_t b = 0; b < blocks; ++b)
    for (int32_t g = 0; g < slot.kv_heads; ++g)
      for (int32_t key = 0; key < kBlockTokens; ++key) {
        for (int32_t c = 0; c < slot.head_dim; ++c) {
          const auto k = static_cast<std::byte>(static_cast<int8_t>(random() % 255 - 127)),
                     v = static_cast<std::byte>(static_cast<int8_t>(random() % 255 - 127));
          const int32_t at = key * slot.head_dim + c;
          of_here.keys(b, g)[at] = k, of_there.keys(b, g)[key_byte(key, c)] = k;
          of_here.values(b, g)[at] = v, of_there.values(b, g)[value_byte(slot.head_dim, key, c)] = v;
        }
        const auto scale = [&] {
          const float x = 0.001f * static_cast<float>(1 + random() % 1000);
          return random() % 20 == 0 ? arith::to_bf16(0.0f)
                                    : arith::to_bf16(std::ldexp(x, static_cast<int>(random() % spread) - spread / 2));
        };
        of_there.key_scales(b, g)[key] = of_here.key_scales(b, g)[key] = scale();
        of_there.value_scales(b, g)[key] = of_here.value_scales(b, g)[key] = scale();
      }
}

size_t count_differences(const std::vector<float>& got, const std::vector<float>& expected, size_t& first) {
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &expected[i], sizeof(float)) != 0 && wrong++ == 0) first = i;
  return wrong;
}

void check(uint64_t seed, const ScaledShape& shape, const Rows& rows, float z_most) {
  char name[256];
  std::snprintf(name, sizeof name,
                "scaled case %d: D %d, kv %d, heads %d, window %d, z %g, %zu segments, first %d + %d",
                static_cast<int>(seed), shape.head_dim, shape.kv_heads, shape.heads, shape.window,
                static_cast<double>(z_most), rows.size(), rows[0].first, rows[0].second);
  case_name = name;
  std::mt19937_64 random(seed);
  int32_t blocks = 0;
  const auto tables = scattered_tables(rows, random, blocks);
  KvSlot slot = slot_of(shape, nullptr, 1);
  std::vector<std::byte> pool(static_cast<size_t>(slot.block_bytes * blocks)), pool_of_gpu;
  fill_pools(slot, blocks, random, pool, pool_of_gpu);
  const Rowed batch(rows, tables, slot.kind);
  const size_t of_heads = batch.count() * static_cast<size_t>(shape.heads),
               elements = of_heads * static_cast<size_t>(shape.head_dim);
  std::vector<int8_t> queries(elements);
  for (int8_t& q : queries) q = static_cast<int8_t>(random() % 255 - 127);
  std::vector<float> z(of_heads), step(static_cast<size_t>(shape.kv_heads * shape.head_dim)), expected(elements);
  for (float& x : z) x = random() % 20 == 0 ? 0.0f : z_most * static_cast<float>(random() % 1000) * 0.001f;
  for (float& x : step) x = 0.5f + static_cast<float>(random() % 1000) * 0.001f;
  slot.pool = pool.data();
  ReferenceBackend().attend(ScaledAttentionArgs{queries.data(), shape.heads, z.data(), step.data(), expected.data()},
                            batch.host(), slot);
  const There<std::byte> pool_there(pool_of_gpu);
  const There<int8_t> queries_there(queries);
  const There<float> z_there(z), step_there(step), out(elements);
  slot.pool = pool_there.data;
  const ScaledAttentionArgs args{queries_there.data, shape.heads, z_there.data, step_there.data, out.data};
  Batch there = batch.there();
  if (rows.back().second == 1 && batch.count() > rows.size()) {  // segments of one row come last
    int32_t from = static_cast<int32_t>(rows.size());
    while (from > 0 && rows[static_cast<size_t>(from - 1)].second == 1) --from;
    there.single_from = from;
  }
  const auto holds = [&](const char* how, auto&& launch) {
    CHECKED(cudaMemset(out.data, 0xA5, elements * sizeof(float)));
    CHECKED(launch());
    CHECKED(cudaDeviceSynchronize());
    size_t first = 0;
    const size_t wrong = count_differences(out.back(), expected, first);
    if (wrong == 0) return;
    if (++failures <= 12)
      std::printf("\nWRONG %s, %s: %zu of %zu, first in row %zu, head %zu, channel %zu: %g, not %g\n", name, how, wrong,
                  elements, first / static_cast<size_t>(shape.heads * shape.head_dim),
                  first / static_cast<size_t>(shape.head_dim) % static_cast<size_t>(shape.heads),
                  first % static_cast<size_t>(shape.head_dim), static_cast<double>(out.back()[first]),
                  static_cast<double>(expected[first]));
  };
  const Chip chip = this_chip();
  for (const int32_t units : {0, 2048, 300}) {
    Scratch scratch(units, shape.head_dim);
    if (units == 300) scratch.view.head_dim = 1;        // as if there were memory for few chunks
    for (const char* how : {"chosen", "chosen again"})  // counters are as before
      holds(how, [&] { return attend_scaled(nullptr, chip, args, there, slot, scratch.view); });
  }
  if (chip.capability == 90 && shape.head_dim <= 256)
    holds("prefill", [&] { return prefill_scaled_sm90(nullptr, chip, args, there, slot); });
}

// ---- times ----

__global__ void fill_pool(uint4* to, int64_t count, uint32_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u ^ seed;
    uint32_t w[4];
    for (uint32_t& e : w) x ^= x << 13, x ^= x >> 17, x ^= x << 5, e = __vmaxs4(x, 0x81818181u);
    to[i] = {w[0], w[1], w[2], w[3]};
  }
}
// Scales from 2^-7 to 2^-5.
__global__ void fill_scales(uint32_t* pool, int64_t units, int64_t unit_bytes) {
  const int64_t words = 2 * kBlockTokens * sizeof(arith::bf16) / 4;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < units * words;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t& word = pool[((i / words + 1) * unit_bytes - words * 4) / 4 + i % words];
    word = (word & 0x00FF00FFu) | 0x3C003C00u;
  }
}
__global__ void count_wrong(const uint32_t* got, const uint32_t* expected, int64_t count, unsigned long long* wrong) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
    if (got[i] != expected[i]) atomicAdd(wrong, 1);
}

// Of several launches, each over another copy of the cache, so that the L2 cache holds none of them.
template <class Launch>
float microseconds(int launches, Launch&& launch) {
  cudaEvent_t start, stop;
  CHECKED(cudaEventCreate(&start));
  CHECKED(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int turn = 0; turn < 6; ++turn) {
    CHECKED(cudaEventRecord(start));
    for (int i = 0; i < launches; ++i) launch(i);
    CHECKED(cudaEventRecord(stop));
    CHECKED(cudaEventSynchronize(stop));
    float ms = 0;
    CHECKED(cudaEventElapsedTime(&ms, start, stop));
    times.push_back(1e3f * ms / static_cast<float>(launches));
  }
  cudaEventDestroy(start), cudaEventDestroy(stop);
  std::sort(times.begin() + 1, times.end());
  return times[3];
}

void time_shape(const char* what, const ScaledShape& shape, const Rows& rows) {
  constexpr int32_t kCopies = 4;
  std::mt19937_64 random(5);
  int32_t blocks = 0;
  const auto tables = scattered_tables(rows, random, blocks);
  KvSlot slot = slot_of(shape, nullptr, kCopies);
  const int64_t slot_bytes = slot.block_bytes / kCopies;
  const There<std::byte> pool(static_cast<size_t>(slot.block_bytes * blocks));
  slot.pool = pool.data;
  const Rowed batch(rows, tables, slot.kind);
  const size_t of_heads = batch.count() * static_cast<size_t>(shape.heads),
               elements = of_heads * static_cast<size_t>(shape.head_dim);
  const There<int8_t> queries(elements);
  fill_pool<<<1024, 256>>>(reinterpret_cast<uint4*>(pool.data), static_cast<int64_t>(pool.count / 16), 1);
  const int64_t unit = KvSlot::head_bytes(shape.head_dim, true);
  fill_scales<<<1024, 256>>>(reinterpret_cast<uint32_t*>(pool.data), static_cast<int64_t>(pool.count) / unit, unit);
  fill_pool<<<1024, 256>>>(reinterpret_cast<uint4*>(queries.data), static_cast<int64_t>(elements / 16), 2);
  const There<float> z(std::vector<float>(of_heads, 1.5e-3f)),
      step(std::vector<float>(static_cast<size_t>(shape.kv_heads * shape.head_dim), 1.0f)), out(elements),
      expected(elements);
  const There<unsigned long long> wrong(1);
  const Scratch scratch(2048, shape.head_dim);
  const Batch there = batch.there();
  ScaledAttentionArgs args{queries.data, shape.heads, z.data, step.data, expected.data};
  CHECKED(attend_scaled_sm80(nullptr, this_chip(), args, there, slot, Scratch(0, shape.head_dim).view));
  CHECKED(cudaDeviceSynchronize());
  args.out = out.data;
  double keys = 0, seen = 0;
  for (const auto& [position, count] : rows) {
    for (int32_t p = position; p < position + count; ++p) keys += p + 1 - slot.first_visible(p);
    seen += position + count - slot.first_visible(position);
  }
  const double operations = 4.0 * keys * shape.heads * shape.head_dim,
               bytes = 2.0 * seen * shape.kv_heads * (shape.head_dim + 2);
  const auto one = [&](const char* how, auto&& launch) {
    slot.slot_offset = 0;
    CHECKED(cudaMemset(out.data, 0xA5, elements * sizeof(float)));
    CHECKED(cudaMemset(wrong.data, 0, sizeof(unsigned long long)));
    CHECKED(launch());
    count_wrong<<<1024, 256>>>(reinterpret_cast<uint32_t*>(out.data), reinterpret_cast<uint32_t*>(expected.data),
                               static_cast<int64_t>(elements), wrong.data);
    const auto found = wrong.back()[0];
    if (found > 0) {
      ++failures;
      std::printf("WRONG %s %s: %llu of %zu results; not timed\n", what, how, found, elements);
      return;
    }
    const bool decode = rows[0].second == 1;
    const float us = microseconds(decode ? 16 : 1, [&](int i) {
      slot.slot_offset = slot_bytes * (i % kCopies);
      CHECKED(launch());
    });
    std::printf("%-38s %-9s %9.1f us  %6.1f TOP/s  %6.3f TB/s, %3.0f%% of 4.40\n", what, how, static_cast<double>(us),
                operations / us * 1e-6, bytes / us * 1e-6, 100 * bytes / us * 1e-6 / 4.4);
    std::fflush(stdout);
  };
  one("mma.sync", [&] { return attend_scaled_sm80(nullptr, this_chip(), args, there, slot, scratch.view); });
  one("chosen", [&] { return attend_scaled(nullptr, this_chip(), args, there, slot, scratch.view); });
}

}  // namespace

void scaled_checks(int from, int to) {
  next_case = 0;
  const auto one = [&](const ScaledShape& shape, const Rows& rows, float z = 1e-2f) {
    const int mine = next_case++;
    if (mine < from || mine >= to) return;
    std::printf(".");
    std::fflush(stdout);
    check(static_cast<uint64_t>(mine), shape, rows, z);
  };
  for (const int32_t head_dim : {64, 128, 256})
    for (const int32_t heads : {1, 2, 3, 4, 6, 8}) {
      one({head_dim, 2, 2 * heads, 0}, {{0, 1}, {63, 1}, {64, 1}, {511, 1}, {512, 1}, {1700, 1}});
      one({head_dim, 1, heads, 1024}, {{1022, 1}, {1023, 1}, {1024, 1}, {1600, 1}, {5, 1}});
    }
  one({64, 4, 16, 65}, {{700, 20}, {1200, 1}, {1300, 16}, {1301, 17}});
  one({128, 8, 32, 0}, {{700, 20}, {10, 3}, {1200, 1}, {1300, 1}});
  one({256, 8, 16, 200}, {{300, 200}, {10, 3}, {1200, 1}, {1300, 1}});
  one({512, 1, 8, 0}, {{300, 20}, {10, 1}, {1200, 1}});
  {
    Rows rows;
    for (int32_t i = 0; i < 40; ++i) rows.push_back({530 + 37 * i, 1});
    one({128, 8, 32, 0}, rows, 1e-3f);
    one({64, 1, 5, 512}, rows, 1e-1f);
    one({256, 4, 8, 1000}, rows);
  }
  one({128, 1, 4, 0}, {{9000, 1}, {300, 1}, {8191, 1}, {8192, 1}}, 1e-3f);
  for (const int32_t head_dim : {64, 128, 256})
    for (const int32_t window : {0, 300}) {
      one({head_dim, 2, 8, window}, {{0, 200}, {1000, 33}, {77, 64}});
      one({head_dim, 2, 14, window}, {{500, 70}});
      one({head_dim, 1, 2, window}, {{0, 700}});
    }
  std::printf("\nscaled: %d cases from %d, %d wrong\n", next_case, from, failures);
}

void scaled_times(const char* wanted) {
  const auto each = [](int32_t count, int32_t position) { return Rows(static_cast<size_t>(count), {position, 1}); };
  const auto shape = [&](const char* what, const ScaledShape& s, const Rows& rows) {
    if (std::strstr(what, wanted)) time_shape(what, s, rows);
  };
  const ScaledShape llama{128, 8, 32, 0}, gemma{256, 8, 16, 0}, window{256, 8, 16, 1024}, small{64, 8, 32, 0};
  for (const int32_t count : {1, 16, 64}) {
    const std::string of = " decode 4k x " + std::to_string(count);
    shape(("llama" + of).c_str(), llama, each(count, 4095));
    shape(("gemma" + of).c_str(), gemma, each(count, 4095));
    shape(("gemma window" + of).c_str(), window, each(count, 4095));
    shape(("64 channels" + of).c_str(), small, each(count, 4095));
  }
  shape("8 heads a KV head decode 4k x 64", {128, 8, 64, 0}, each(64, 4095));
  shape("3 heads a KV head decode 4k x 64", {64, 3, 9, 0}, each(64, 4095));
  shape("llama decode 1k x 64", llama, each(64, 1023));
  shape("llama decode 131k x 1", llama, each(1, 131071));
  shape("llama prefill 8k", llama, {{0, 8192}});
  shape("gemma prefill 8k", gemma, {{0, 8192}});
  shape("gemma window prefill 8k", window, {{0, 8192}});
  shape("64 channels prefill 8k", small, {{0, 8192}});
}

}  // namespace kaiju::cuda::bench
