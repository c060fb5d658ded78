// The self-check: runs every operation of a backend on small fixed inputs and compares the results with hashes recorded
// from ReferenceBackend. It runs when an executor is created and takes 2 ms on a CPU. On a GPU it checks more shapes,
// because some shapes have their own kernels. It refuses a machine or a build whose results differ, for example because
// of contraction, flushed subnormals or a broken kernel. It uses host memory only. The conformance tests are more
// thorough.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "kaiju/arith/rotary.hpp"
#include "kaiju/backend/backend.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/base/random.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/format/layer_shape.hpp"

namespace kaiju {
namespace golden {

struct Check {
  const char* operation;
  uint64_t hash;
};

// Hashes recorded from ReferenceBackend. If the arithmetic version changes, tests/conformance/self_check.cpp prints the
// new ones.
inline constexpr Check kExpected[] = {
    {"embed", 0x34DD48A9AC7FAA26u},
    {"norm", 0x6B70DAEF8D6A8047u},
    {"linear, few rows", 0x50D86A2106E13A1Fu},
    {"linear, many rows", 0xF6CFAF36F2FD0F19u},
    {"up, few rows", 0xA172B1B0E0C2BC50u},
    {"up, many rows", 0xBC3009B718A717F9u},
    {"add_linear, few rows", 0x8310F8467AD5A1FDu},
    {"add_linear, many rows", 0x71E885DCB6955F50u},
    {"add_down, few rows", 0x1CEEBEE0F6E8F255u},
    {"add_down, many rows", 0x74CE7DAD863EF086u},
    {"queries", 0xAD2E70090ED4CEF5u},
    {"attention, global", 0x1E57D6A60DE0875Eu},
    {"attention, window", 0xC155F4973E7B1F7Au},
    {"sample", 0x9D145893570FAEE5u},
    {"linear, one row", 0x5427BE67B0295C91u},
    {"add_down, one row", 0xAAC6B577580367F8u},
    {"linear, a tile of rows", 0x1EA3397225C3104Bu},
    {"add_down, a tile of rows", 0xBF04AE542BB52A08u},
    {"queries, a tile of 64 channels", 0x37A418C340FE0E05u},
    {"attention, a tile of 64 channels", 0xA16D04ADE780E259u},
    {"queries, 128 channels", 0x7B532DAAA01D4035u},
    {"attention, 128 channels", 0x5437FADD3505DE55u},
    {"queries, a tile of 128 channels", 0xB4F99FC83E07D934u},
    {"attention, a tile of 128 channels", 0x915ECCA312241801u},
    {"queries, 256 channels", 0x1FCDB186D107E9EBu},
    {"attention, 256 channels", 0x005C9DAB66E1ADF7u},
    {"queries, a tile of 256 channels", 0x000CE80057B826A0u},
    {"attention, a tile of 256 channels", 0xBE47A3486EC31753u},
};
// kPlainChecks counts the checks up to "sample".
inline constexpr size_t kChecks = std::size(kExpected), kPlainChecks = 14;

// All matmul operations of a layer, in the order of their checks.
inline constexpr Operation kProducts[] = {Operation::kLinear, Operation::kUp, Operation::kAddLinear,
                                          Operation::kAddDown};
static_assert([] {
  for (const MatmulRow& row : kMatmuls)
    if (row.when(LayerShape()) &&
        std::find(std::begin(kProducts), std::end(kProducts), row.operation) == std::end(kProducts))
      return false;
  return true;
}());

enum class Shapes {
  kPlain,
  kAll
};  // kAll: also the shapes of a GPU's kernels for one row, for tiles of rows and for other head_dims

// Inputs: pseudo-random values, made from Philox words with a fixed key by exact operations.
class Inputs {
 public:
  uint32_t word() {
    if (next_ % 4 == 0) words_ = philox4x32({next_ / 4, 0, 0, 0}, {0x6B61696A, 0x75});
    return words_[next_++ % 4];
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(word() % static_cast<uint32_t>(n)); }
  std::vector<int8_t> bytes(size_t count) {
    return fill<int8_t>(count, [this] { return static_cast<int8_t>(below(255) - 127); });
  }
  std::vector<uint8_t> unsigned_bytes(size_t count) {
    return fill<uint8_t>(count, [this] { return static_cast<uint8_t>(below(256)); });
  }
  // Positive floats with full mantissas, in [low, 2 * low). `low` is a power of two.
  std::vector<float> scales(size_t count, float low) {
    return fill<float>(
        count, [=, this] { return arith::mul(low, static_cast<float>((1 << 23) + below(1 << 23)) * 0x1p-23f); });
  }
  // A float of either sign whose magnitude is spread over eight powers of two below `high`.
  float spread(float high) {
    const uint32_t bits = word();
    const float magnitude =
        static_cast<float>((1u << 23) + (bits & 0x7FFFFF)) * 0x1p-24f / static_cast<float>(1u << (bits >> 23 & 7));
    return (bits >> 31 ? -high : high) * magnitude;
  }
  std::vector<float> floats(size_t count, float high) {
    return fill<float>(count, [=, this] { return spread(high); });
  }
  std::vector<arith::bf16> stream(size_t count, float high) {
    return fill<arith::bf16>(count, [=, this] { return arith::to_bf16(spread(high)); });
  }

 private:
  template <class T, class Make>
  static std::vector<T> fill(size_t count, Make make) {
    std::vector<T> out(count);
    for (T& x : out) x = make();
    return out;
  }
  uint32_t next_ = 0;
  std::array<uint32_t, 4> words_{};
};

// FNV-1a over 8-byte words: a hash of the values, independent of their addresses.
template <class T>
uint64_t hash_of(const std::vector<T>& values) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const T& value : values) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    hash = (hash ^ word) * 0x100000001B3u;
  }
  return hash;
}

// Computes one hash for each entry of kExpected, or for the first kPlainChecks entries.
template <Backend B>
std::vector<uint64_t> hashes(B& backend, Shapes shapes) {
  const FloatState float_state;
  Inputs inputs;
  std::vector<uint64_t> out;

  constexpr int32_t kIn = 320, kOut = 72, kHeads = 4, kKvHeads = 2, kRows[] = {3, 19};
  const std::vector<int8_t> weight = inputs.bytes(size_t{kOut} * kIn);
  std::vector<int32_t> row_sum(kOut, 0);
  for (size_t i = 0; i < weight.size(); ++i) row_sum[i / kIn] += weight[i];
  const Matrix matrix{weight.data(), row_sum.data(), kOut, kIn};
  const std::vector<float> scale = inputs.scales(kOut, 0x1p-17f);

  const int32_t tokens[] = {0, 71, 33};
  std::vector<arith::bf16> x(size_t{3} * kIn);
  backend.embed(matrix, scale.data(), tokens, x.data());
  out.push_back(hash_of(x));

  // Half of the rows are so small that flushing subnormals would change the result.
  x = inputs.stream(size_t{4} * kIn, 4.0f);
  for (size_t i = size_t{2} * kIn; i < x.size(); ++i)
    x[i] = arith::to_bf16(arith::mul(arith::from_bf16(x[i]), 0x1p-66f));
  std::vector<int8_t> a(x.size());
  backend.norm({x.data(), 4, kIn, 0x1p-126f, 30.0f, a.data()});
  out.push_back(hash_of(a));

  const auto hash_of_product = [&](Operation operation, int32_t rows, const std::vector<float>& factor) -> uint64_t {
    const size_t in = static_cast<size_t>(rows) * kIn, results = static_cast<size_t>(rows) * kOut;
    std::vector<uint8_t> h(results);
    std::vector<float> y(results);
    if (operation == Operation::kAddDown)
      h = inputs.unsigned_bytes(in);
    else
      a = inputs.bytes(in);
    if (adds_to_residual(operation)) x = inputs.stream(results, 2.0f);
    switch (operation) {
      case Operation::kLinear:
        backend.linear(matrix, a.data(), rows, factor.data(), y.data());
        return hash_of(y);
      case Operation::kUp:
        backend.up(matrix, a.data(), rows, factor.data(), h.data());
        return hash_of(h);
      case Operation::kAddLinear:
        backend.add_linear(matrix, a.data(), rows, factor.data(), x.data());
        return hash_of(x);
      case Operation::kAddDown:
        backend.add_down(matrix, h.data(), rows, factor.data(), x.data());
        return hash_of(x);
    }
    return 0;
  };
  for (const Operation operation : kProducts) {
    const std::vector<float> factor = operation == Operation::kUp ? inputs.scales(kOut, 0x1p-10f) : scale;
    for (const int32_t rows : kRows) out.push_back(hash_of_product(operation, rows, factor));
  }

  // One sequence of more than a chunk. It is filled with the same floats five times, with different angles, and its
  // last rows attend to it. Its blocks are in reverse order.
  constexpr int32_t kFilled = 118, kLength = 5 * kFilled, kBlocks = kLength / kBlockTokens + 1, kHalf = 32;
  std::vector<BlockId> table;
  for (BlockId block = kBlocks - 1; block >= 0; --block) table.push_back(block);
  std::vector<int32_t> positions(kLength), row_segment(kLength, 0), no_tokens(kLength, 0);
  std::vector<arith::CosSin> angles;
  for (int32_t position = 0; position < kLength; ++position) {
    positions[position] = position;
    for (int32_t i = 0; i < kHalf; ++i)
      angles.push_back(arith::cos_sin(static_cast<uint64_t>(position), 0x28BE60DB9391054Au >> i));
  }
  const auto batch_of = [&](const BatchSegment& segment, int32_t rows) {
    const auto count = static_cast<size_t>(rows);
    return Batch{rows,
                 {no_tokens.data(), count},
                 {positions.data() + segment.position, count},
                 {&segment, 1},
                 {row_segment.data(), count}};
  };
  struct Heads {
    std::vector<float> q, q_inverse, k_inverse, v_inverse, out_inverse, k, v;
  };
  const auto heads_of = [&](int32_t head_dim, int32_t rows) {
    const auto kv_width = static_cast<size_t>(kKvHeads * head_dim);
    Heads heads;
    heads.q = inputs.floats(static_cast<size_t>(rows * kHeads * head_dim), 2.0f);
    heads.q_inverse = inputs.scales(kv_width, 64.0f), heads.k_inverse = inputs.scales(kv_width, 64.0f),
    heads.v_inverse = inputs.scales(kv_width, 64.0f);
    heads.out_inverse = inputs.scales(kv_width, 1.0f);
    heads.k = inputs.floats(kFilled * kv_width, 2.0f), heads.v = inputs.floats(kFilled * kv_width, 2.0f);
    return heads;
  };
  // `heads` must have at least this many channels and rows. With more than 64 channels the same angles serve fewer
  // positions.
  const auto attend = [&](const Heads& heads, int32_t head_dim, int32_t rows, std::initializer_list<int32_t> windows) {
    const int32_t half = head_dim / 2, angle_rows = kLength * kHalf / half;
    const BatchSegment asking{0, rows, kLength - rows, 0, {table.data(), table.data()}};
    std::vector<int8_t> queries(static_cast<size_t>(rows * kHeads * head_dim));
    backend.queries(heads.q.data(), batch_of(asking, rows), angles.data() + (angle_rows - rows) * half, kHeads,
                    kKvHeads, head_dim, heads.q_inverse.data(), queries.data());
    out.push_back(hash_of(queries));
    const int64_t block_bytes = int64_t{2} * kBlockTokens * kKvHeads * head_dim;
    for (const int32_t window : windows) {
      std::vector<std::byte> pool(static_cast<size_t>(kBlocks * block_bytes), std::byte{0x80});
      const KvSlot slot{pool.data(), block_bytes, 0,
                        kKvHeads,    head_dim,    window > 0 ? BlockKind::kWindow : BlockKind::kGlobal,
                        window};
      std::vector<int8_t> attended(queries.size());
      for (int32_t i = 0; i < kLength / kFilled; ++i) {
        const BatchSegment filling{0, kFilled, i * kFilled, 0, {table.data(), table.data()}};
        const int32_t angle_row = i * (angle_rows - kFilled) / (kLength / kFilled - 1);
        backend.append(heads.k.data(), heads.v.data(), batch_of(filling, kFilled), angles.data() + angle_row * half,
                       heads.k_inverse.data(), heads.v_inverse.data(), slot);
      }
      backend.attend({queries.data(), kHeads, 0x1.5p-12f, heads.out_inverse.data(), attended.data()},
                     batch_of(asking, rows), slot);
      out.push_back(hash_of(attended));
    }
  };
  attend(heads_of(64, 3), 64, 3, {0, 100});

  const std::vector<float> logits = inputs.floats(512, 16.0f);
  std::vector<uint8_t> seen(logits.size());
  for (uint8_t& s : seen) s = static_cast<uint8_t>(inputs.below(2));
  SamplingSpec spec;
  spec.temperature = 0.75f;
  spec.top_p = 0.875f;
  spec.repetition_penalty = 1.25f;
  std::vector<uint32_t> drawn;
  for (spec.seed = 0; spec.seed < 8; ++spec.seed) {
    SampledToken token;
    backend.sample({logits.data(), static_cast<int32_t>(logits.size()), &spec, seen.data(), 5, 3}, token);
    drawn.push_back(static_cast<uint32_t>(token.token));
    drawn.push_back(arith::bits_of(token.logprob));
    for (const TokenLogprob& other : token.top) drawn.push_back(arith::bits_of(other.logprob));
  }
  out.push_back(hash_of(drawn));

  if (shapes == Shapes::kPlain) return out;

  // One row, and tiles of rows, with a number of inputs that fills whole steps of the kernels.
  constexpr int32_t kTileIn = 512, kTileOut = 80, kTileRows = 65;
  const std::vector<int8_t> tile_weight = inputs.bytes(size_t{kTileOut} * kTileIn);
  std::vector<int32_t> tile_sum(kTileOut, 0);
  for (size_t i = 0; i < tile_weight.size(); ++i) tile_sum[i / kTileIn] += tile_weight[i];
  const Matrix tile_matrix{tile_weight.data(), tile_sum.data(), kTileOut, kTileIn};
  const std::vector<float> tile_scale = inputs.scales(kTileOut, 0x1p-17f);
  const std::vector<uint8_t> h = inputs.unsigned_bytes(size_t{kTileRows} * kTileIn);
  a.clear();
  for (const uint8_t byte : h) a.push_back(static_cast<int8_t>(byte / 2 - 64));
  for (const int32_t rows : {1, kTileRows}) {
    std::vector<float> y(static_cast<size_t>(rows) * kTileOut);
    backend.linear(tile_matrix, a.data(), rows, tile_scale.data(), y.data());
    out.push_back(hash_of(y));
    x = inputs.stream(static_cast<size_t>(rows) * kTileOut, 2.0f);
    backend.add_down(tile_matrix, h.data(), rows, tile_scale.data(), x.data());
    out.push_back(hash_of(x));
  }
  constexpr int32_t kManyRows = 24;
  const Heads heads = heads_of(256, kManyRows);
  attend(heads, 64, kManyRows, {0});
  for (const int32_t head_dim : {128, 256})
    for (const int32_t rows : {3, kManyRows}) attend(heads, head_dim, rows, {0});
  return out;
}

}  // namespace golden

// Runs the self-check. kUnsupported if results differ; the message names the operations.
template <Backend B>
Status self_check(B& backend, golden::Shapes shapes = golden::Shapes::kPlain) {
  const std::vector<uint64_t> found = golden::hashes(backend, shapes);
  std::string wrong;
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i] != golden::kExpected[i].hash)
      wrong += (wrong.empty() ? "" : "; ") + std::string(golden::kExpected[i].operation);
  if (wrong.empty()) return {};
  return {StatusCode::kUnsupported, "this build or machine does not compute the arithmetic contract: " + wrong +
                                        " differ. Build without -ffast-math and report the compiler and processor"};
}

}  // namespace kaiju
