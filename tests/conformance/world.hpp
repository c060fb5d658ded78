// What the conformance tests share: the backends under test, random inputs from a printed seed, and a small paged
// cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "any_backend.hpp"
#include "catch.hpp"
#include "kaiju/arith/rotary.hpp"
#include "kaiju/backend/cpu.hpp"
#include "kaiju/backend/reference.hpp"
#if KAIJU_STAND_IN_AMX
#include "tests/cpu/stand_in/amx.hpp"
#endif
#if KAIJU_CUDA
#include "cuda/cuda.hpp"
#include "cuda/staged_backend.hpp"
#endif

namespace kaiju::test {

// Backends under test: the instruction sets and the GPU of this machine, or exactly those KAIJU_TEST_ISAS names
// ("avx512,portable,cuda"); one that is missing then fails.
inline std::vector<std::string> isas() {
  const char* named = std::getenv("KAIJU_TEST_ISAS");
  if (!named) {
    std::vector<std::string> names = CpuBackend::isas();
#if KAIJU_CUDA
    if (cuda::present()) names.push_back("cuda");
#endif
    return names;
  }
  std::vector<std::string> names;
  for (const char* p = named; *p;) {
    const char* end = p;
    while (*end && *end != ',') ++end;
    if (end > p) names.emplace_back(p, end);
    p = *end ? end + 1 : end;
  }
  return names;
}

#if KAIJU_CUDA
// KAIJU_TEST_CAPABILITY=80: the GPU is taken for one of compute capability 8.0, whose kernels then serve everything.
inline const bool older_chip = [] {
  const char* capability = std::getenv("KAIJU_TEST_CAPABILITY");
  if (capability) cuda::Device::limit_capability(std::atoi(capability));
  return capability != nullptr;
}();
#endif

inline void add_cuda([[maybe_unused]] std::vector<std::unique_ptr<AnyBackend>>& list) {
#if KAIJU_CUDA
  auto device = cuda::Device::open();
  INFO(device.status().message());
  REQUIRE(device.ok());
  list.push_back(
      std::make_unique<Held<cuda::StagedBackend>>(std::make_unique<cuda::StagedBackend>(device.value()), "cuda"));
#else
  FAIL("this build has no CUDA backend: configure with -DKAIJU_CUDA=ON");
#endif
}

// The kernels for AMX with tiles that AVX512 computes, where the machine has that.
inline void add_stand_in_amx([[maybe_unused]] std::vector<std::unique_ptr<AnyBackend>>& list) {
#if KAIJU_STAND_IN_AMX
  const std::vector<std::string> names = isas();
  if (std::find(names.begin(), names.end(), "avx512") == names.end()) return;
  auto backend = CpuBackend::with_kernels(stand_in_amx(), 2);
  REQUIRE(backend.ok());
  list.push_back(std::make_unique<Held<CpuBackend>>(std::move(backend).value(), "amx with stand-in tiles"));
#endif
}

// Every instruction set with 1, 2 and 3 threads, AMX with stand-in tiles, and the GPU; made once.
inline const std::vector<std::unique_ptr<AnyBackend>>& backends() {
  static const auto made = [] {
    std::vector<std::unique_ptr<AnyBackend>> list;
    for (const std::string& isa : isas()) {
      if (isa == "cuda") {
        add_cuda(list);
        continue;
      }
      for (int32_t threads = 1; threads <= 3; ++threads) {
        auto backend = CpuBackend::create(isa, threads);
        INFO(isa << ": " << backend.status().message());
        REQUIRE(backend.ok());
        list.push_back(std::make_unique<Held<CpuBackend>>(std::move(backend).value(),
                                                          isa + " with " + std::to_string(threads) + " threads"));
      }
    }
    add_stand_in_amx(list);
    return list;
  }();
  return made;
}

// Those of them that have version 2 of the arithmetic.
inline const std::vector<AnyBackend*>& scaled_backends() {
  static const auto made = [] {
    std::vector<AnyBackend*> list;
    for (const auto& backend : backends())
      if (backend->is_scaled()) list.push_back(backend.get());
    return list;
  }();
  return made;
}

inline std::string name_of(const AnyBackend& backend) { return backend.name(); }

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int32_t below(int32_t n) { return static_cast<int32_t>(engine_() % static_cast<uint64_t>(n)); }
  int32_t between(int32_t low, int32_t high) { return low + below(high - low + 1); }
  bool chance(int32_t percent) { return below(100) < percent; }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(engine_() >> 40) * 0x1p-24f; }
  float normal() { return std::normal_distribution<float>()(engine_); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int32_t>(values.size()))];
  }

  // Never -128; now and then all at the limits.
  std::vector<int8_t> bytes(size_t count) {
    std::vector<int8_t> out(count);
    const int32_t limit = pick({127, 127, 127, 20, 2});
    const bool extreme = chance(15);
    for (int8_t& b : out) b = static_cast<int8_t>(extreme ? (chance(50) ? 127 : -127) : between(-limit, limit));
    return out;
  }
  std::vector<float> scales(size_t count, float centre) {
    std::vector<float> out(count);
    for (float& s : out) s = centre * uniform(0.25f, 4.0f);
    return out;
  }
  std::vector<float> normals(size_t count, float deviation) {
    std::vector<float> out(count);
    for (float& x : out) x = deviation * normal();
    return out;
  }
  std::vector<arith::bf16> stream(size_t count, float deviation) {
    std::vector<arith::bf16> out(count);
    for (arith::bf16& x : out) x = arith::to_bf16(deviation * normal());
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

inline uint64_t seed_of_run() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("KAIJU_TEST_SEED");
    return given ? std::strtoull(given, nullptr, 10) : 20260707ull;
  }();
  return seed;
}

// How many random cases a test of `cases` makes: no more than KAIJU_TEST_CASES, for tools under which each takes long.
inline int32_t cases_of_run(int32_t cases) {
  const char* most = std::getenv("KAIJU_TEST_CASES");
  return most ? std::min(cases, std::atoi(most)) : cases;
}

// Runs `body(random)` for a row of seeds, each of which is printed on failure.
template <class Body>
void repeat(int32_t cases, Body body) {
  for (int32_t i = 0; i < cases_of_run(cases); ++i) {
    const uint64_t seed = seed_of_run() + static_cast<uint64_t>(i);
    INFO("KAIJU_TEST_SEED=" << seed);
    Random random(seed);
    body(random);
  }
}

// A weight matrix that owns its bytes.
struct OwnedMatrix {
  std::vector<int8_t> weight;
  std::vector<int32_t> row_sum;
  int32_t out, in;
  OwnedMatrix(Random& random, int32_t out_count, int32_t in_count)
      : weight(random.bytes(static_cast<size_t>(out_count) * in_count)), out(out_count), in(in_count) {
    for (int32_t n = 0; n < out; ++n) {
      int32_t sum = 0;
      for (int32_t k = 0; k < in; ++k) sum += weight[static_cast<size_t>(n) * in + k];
      row_sum.push_back(sum);
    }
  }
  Matrix view() const { return {weight.data(), row_sum.data(), out, in}; }
};

// Sequences in one KV slot, their blocks scattered over a pool that starts as garbage.
class Cache {
 public:
  Cache(uint64_t seed, int32_t kv_heads, int32_t head_dim, int32_t window, const std::vector<int32_t>& lengths,
        bool is_scaled = false) {
    int32_t blocks = 3;
    for (const int32_t length : lengths) blocks += length / kBlockTokens + 1;
    const int64_t slot_bytes = kv_heads * KvSlot::head_bytes(head_dim, is_scaled);
    block_bytes_ = 3 * slot_bytes;  // the slot under test is the middle one of three
    pool_.resize(static_cast<size_t>(blocks * block_bytes_));
    std::mt19937_64 garbage(seed);
    for (size_t i = 0; i < pool_.size(); i += sizeof(uint64_t)) {
      const uint64_t word = garbage();
      std::memcpy(&pool_[i], &word, std::min(sizeof word, pool_.size() - i));
    }
    std::vector<BlockId> free(static_cast<size_t>(blocks));
    for (int32_t i = 0; i < blocks; ++i) free[i] = i;
    std::shuffle(free.begin(), free.end(), std::mt19937_64(seed));
    for (const int32_t length : lengths) {
      std::vector<BlockId> table(static_cast<size_t>(length / kBlockTokens + 1));
      for (BlockId& block : table) block = free.back(), free.pop_back();
      tables_.push_back(std::move(table));
    }
    kind_ = window > 0 ? BlockKind::kWindow : BlockKind::kGlobal;
    slot_ = {pool_.data(), block_bytes_, slot_bytes, kv_heads, head_dim, kind_, window, is_scaled};
  }
  const KvSlot& slot() const { return slot_; }
  const BlockId* table(size_t sequence) const { return tables_[sequence].data(); }
  BlockKind kind() const { return kind_; }

 private:
  std::vector<std::byte> pool_;
  std::vector<std::vector<BlockId>> tables_;
  int64_t block_bytes_ = 0;
  BlockKind kind_ = BlockKind::kGlobal;
  KvSlot slot_;
};

// A batch that owns its rows: some rows of each sequence, of a cache.
struct OwnedBatch {
  std::vector<int32_t> tokens, positions, row_segment;
  std::vector<BatchSegment> segments;
  void add(const Cache& cache, size_t sequence, int32_t position, int32_t count, int32_t write_from = 0) {
    BatchSegment segment{static_cast<int32_t>(positions.size()), count, position, write_from, {nullptr, nullptr}};
    segment.table[static_cast<int32_t>(cache.kind())] = cache.table(sequence);
    for (int32_t r = 0; r < count; ++r) {
      positions.push_back(position + r);
      row_segment.push_back(static_cast<int32_t>(segments.size()));
      tokens.push_back(0);
    }
    segments.push_back(segment);
  }
  int32_t rows() const { return static_cast<int32_t>(positions.size()); }
  Batch view() const { return {rows(), tokens, positions, segments, row_segment}; }
  std::vector<arith::CosSin> angles(int32_t head_dim) const {
    std::vector<arith::CosSin> out;
    for (const int32_t position : positions)
      for (int32_t i = 0; i < head_dim / 2; ++i)
        out.push_back(arith::cos_sin(static_cast<uint64_t>(position), 0x28BE60DB9391054Aull >> (i * 40 / head_dim)));
    return out;
  }
};

template <class T>
size_t differences(const std::vector<T>& a, const std::vector<T>& b) {
  REQUIRE(a.size() == b.size());
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if constexpr (std::is_same_v<T, float>)
      count += arith::bits_of(a[i]) != arith::bits_of(b[i]);
    else
      count += a[i] != b[i];
  }
  return count;
}

}  // namespace kaiju::test
