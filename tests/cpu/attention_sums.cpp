// The sums inside attention, before they are rounded to bytes: a weight that is off by one in 65535 shows here and
// hardly ever in attention's output.
#include <random>

#include "catch.hpp"
#include "kaiju/arith/softmax.hpp"
#include "kaiju/backend/cpu.hpp"
#include "src/cpu/instruction_sets.hpp"

namespace kaiju {
namespace {

const cpu::Kernels& kernels_of(const std::string& isa) {
  for (const cpu::InstructionSet& set : cpu::instruction_sets())
    if (set.name == isa) return set.kernels();
  FAIL("no kernels for " << isa);
  throw 0;
}

struct Sequence {
  int32_t head_dim, length;
  std::vector<int8_t> keys, values;  // [length, head_dim]
};

// Writes the sequence through the kernel's own append: an unturned rotation and a scale of 1 store the bytes as they
// are.
std::vector<std::byte> cache_of(const cpu::Kernels& kernels, const Sequence& s) {
  const auto width = static_cast<size_t>(s.head_dim);
  std::vector<std::byte> cache((static_cast<size_t>(s.length) / cpu::kBlock + 1) * 2 * cpu::kBlock * width,
                               std::byte{0x55});
  const std::vector<cpu::Angle> unturned(width / 2, cpu::Angle{1.0f, 0.0f});
  const std::vector<float> one(width, 1.0f);
  for (int32_t p = 0; p < s.length; ++p) {
    std::vector<float> k(width), v(width);
    for (size_t i = 0; i < width; ++i)
      k[i] = s.keys[static_cast<size_t>(p) * width + i], v[i] = s.values[static_cast<size_t>(p) * width + i];
    std::byte* half = cache.data() + static_cast<size_t>(p / cpu::kBlock) * 2 * cpu::kBlock * width;
    kernels.append(k.data(), v.data(), unturned.data(), s.head_dim, one.data(), one.data(), p % cpu::kBlock, half,
                   half + cpu::kBlock * width);
  }
  return cache;
}

}  // namespace

TEST_CASE("the sums of every chunk equal the contract's") {
  for (const std::string& isa : CpuBackend::isas())
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      INFO(isa << ", seed " << seed);
      std::mt19937_64 random(seed);
      const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
      const int32_t head_dims[] = {64, 128, 256};
      Sequence s{head_dims[seed % 3], 513 + below(300), {}, {}};
      const auto width = static_cast<size_t>(s.head_dim);
      for (size_t i = 0; i < static_cast<size_t>(s.length) * width; ++i)
        s.keys.push_back(static_cast<int8_t>(below(255) - 127)),
            s.values.push_back(static_cast<int8_t>(below(255) - 127));
      const cpu::Kernels& kernels = kernels_of(isa);
      const std::vector<std::byte> cache = cache_of(kernels, s);

      const int32_t rows = 1 + below(4), heads = 1 + below(5), query_rows = rows * heads,
                    window = below(2) ? 0 : 100 + below(600);
      std::vector<int8_t> queries(static_cast<size_t>(query_rows) * width);
      for (int8_t& q : queries) q = static_cast<int8_t>(below(255) - 127);
      std::vector<int32_t> table;
      for (int32_t b = 0; b <= s.length / cpu::kBlock; ++b) table.push_back(b);
      cpu::AttentionPiece piece;
      piece.queries = queries.data();
      piece.row_stride = int64_t{heads} * s.head_dim;
      piece.row_count = rows, piece.head_count = heads, piece.head_dim = s.head_dim;
      piece.position = s.length - rows, piece.window = window;
      piece.table = table.data(), piece.cache = cache.data(), piece.block_bytes = int64_t{2} * cpu::kBlock * s.head_dim;
      // Exponents up to some tens, so that weights of every size occur.
      const float z = std::ldexp(1.0f + static_cast<float>(below(1 << 23)) * 0x1p-23f, -10 - below(8));
      piece.z = &z;

      std::vector<std::byte> scratch(kernels.attention_scratch_bytes + 64);
      void* aligned = scratch.data();
      size_t space = scratch.size();
      std::align(64, kernels.attention_scratch_bytes, aligned, space);
      std::vector<float> maximum(static_cast<size_t>(query_rows));
      std::vector<float> total(maximum.size()), out(maximum.size() * width);
      for (int32_t chunk = 0; chunk < s.length; chunk += cpu::kChunk) {
        kernels.attention.sum_chunk(piece, chunk, {maximum.data(), total.data(), out.data()},
                                    static_cast<std::byte*>(aligned));
        for (int32_t row = 0; row < query_rows; ++row) {
          const int32_t position = piece.position + row / heads;
          const int32_t from = std::max(chunk, window > 0 ? position - window + 1 : 0),
                        to = std::min(chunk + cpu::kChunk - 1, position);
          if (from > to) {
            REQUIRE(maximum[row] == cpu::kNothingSeen);
            continue;
          }
          std::vector<int32_t> score;
          for (int32_t j = from; j <= to; ++j) {
            int32_t dot = 0;
            for (size_t i = 0; i < width; ++i)
              dot += queries[static_cast<size_t>(row) * width + i] * s.keys[static_cast<size_t>(j) * width + i];
            score.push_back(dot);
          }
          const int32_t best = *std::max_element(score.begin(), score.end());
          int64_t sum = 0;
          std::vector<int64_t> sums(width, 0);
          for (int32_t j = from; j <= to; ++j) {
            const int64_t weight = arith::key_weight(score[static_cast<size_t>(j - from)] - best, z);
            sum += weight;
            for (size_t i = 0; i < width; ++i) sums[i] += weight * s.values[static_cast<size_t>(j) * width + i];
          }
          REQUIRE(maximum[row] == static_cast<float>(best));
          REQUIRE(arith::bits_of(total[row]) == arith::bits_of(static_cast<float>(sum)));
          size_t wrong = 0;
          for (size_t i = 0; i < width; ++i)
            wrong += arith::bits_of(out[static_cast<size_t>(row) * width + i]) !=
                     arith::bits_of(static_cast<float>(sums[i]));
          REQUIRE(wrong == 0);
        }
      }
    }
}

}  // namespace kaiju
