// The self-check runs every operation of a backend on small fixed inputs and compares the results with hashes that were
// recorded from ReferenceBackend. The self-check runs when an executor is created and takes 2 ms on a CPU, and 2 ms
// more for a model of version 2 of the arithmetic, whose operations are checked in scaled_self_check.hpp. On a GPU the
// self-check covers more shapes, because some shapes have their own kernels. The self-check fails on a machine or a
// build whose results differ, for example because of contraction (a * b + c with one rounding), flushed subnormals or a
// broken kernel. The self-check uses host memory only. The tests in tests/conformance are more thorough than the
// self-check.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "kaiju/arith/rotary.hpp"
#include "kaiju/backend/backend.hpp"
#include "kaiju/backend/scaled_self_check.hpp"
#include "kaiju/backend/self_check_inputs.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/format/config.hpp"

namespace kaiju {
namespace golden {

// These hashes were recorded from ReferenceBackend. If the version of the arithmetic changes,
// tests/conformance/self_check.cpp prints the new hashes.
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
// kPlainChecks is the number of checks up to and including "sample".
inline constexpr size_t kPlainChecks = 14;

// All matmul operations of a layer, in the order in which they are checked.
inline constexpr Operation kProducts[] = {Operation::kLinear, Operation::kUp, Operation::kAddLinear,
                                          Operation::kAddDown};
static_assert([] {
  for (const MatmulRow& row : kMatmuls)
    if (row.when(LayerShape()) &&
        std::find(std::begin(kProducts), std::end(kProducts), row.operation) == std::end(kProducts))
      return false;
  return true;
}());

// A random int8 matrix and the scales of its rows. The constructor draws the matrix from `inputs` before it draws the
// scales.
class RandomMatrix {
 public:
  RandomMatrix(Inputs& inputs, int32_t out, int32_t in)
      : weight_(inputs.bytes(static_cast<size_t>(out) * static_cast<size_t>(in))),
        row_sum_(static_cast<size_t>(out), 0),
        scale_(inputs.scales(static_cast<size_t>(out), 0x1p-17f)) {
    for (size_t i = 0; i < weight_.size(); ++i) row_sum_[i / static_cast<size_t>(in)] += weight_[i];
  }

  Matrix matrix() const {
    return {weight_.data(), row_sum_.data(), static_cast<int32_t>(row_sum_.size()),
            static_cast<int32_t>(weight_.size() / row_sum_.size())};
  }
  const std::vector<float>& scale() const { return scale_; }  // [out]

 private:
  std::vector<int8_t> weight_;
  std::vector<int32_t> row_sum_;
  std::vector<float> scale_;
};

template <Backend B>
uint64_t hash_of_embed(B& backend, const RandomMatrix& embedding) {
  const Matrix matrix = embedding.matrix();
  const int32_t tokens[] = {0, matrix.out - 1, 33};
  std::vector<arith::bf16> x(std::size(tokens) * static_cast<size_t>(matrix.in));
  backend.embed(matrix, embedding.scale().data(), tokens, x.data());
  return hash_of(x);
}

// Returns the hash of a norm's results. The values of half of the rows are so small that the hash would differ if
// subnormal floats were flushed to zero.
template <Backend B>
uint64_t hash_of_norm(B& backend, Inputs& inputs, int32_t width) {
  constexpr int32_t kRows = 4;
  std::vector<arith::bf16> x = inputs.stream(size_t{kRows} * static_cast<size_t>(width), 4.0f);
  for (size_t i = x.size() / 2; i < x.size(); ++i) x[i] = arith::to_bf16(arith::mul(arith::from_bf16(x[i]), 0x1p-66f));
  std::vector<int8_t> a(x.size());
  backend.norm({x.data(), kRows, width, 0x1p-126f, 30.0f, a.data()});
  return hash_of(a);
}

template <Backend B>
uint64_t hash_of_product(B& backend, Inputs& inputs, Operation operation, const Matrix& matrix, int32_t rows,
                         const std::vector<float>& factor) {
  const size_t in = static_cast<size_t>(rows) * static_cast<size_t>(matrix.in),
               results = static_cast<size_t>(rows) * static_cast<size_t>(matrix.out);
  std::vector<int8_t> a;
  std::vector<uint8_t> h(results);
  std::vector<arith::bf16> x;
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
}

// Checks attention on one sequence that is longer than one chunk of 512 keys. The keys and values of the sequence are
// made from the same floats five times in a row, each time with different rotary angles. Only the queries of the
// sequence's last rows are checked. The sequence's blocks lie in reverse order in the KV cache.
class Attention {
 public:
  // The inputs of the attention checks: the floats of queries, keys and values before quantisation, and the inverse
  // scales that quantise them.
  struct Heads {
    std::vector<float> q, q_inverse, k_inverse, v_inverse, out_inverse, k, v;  // k, v: [kFilled, kv_heads, head_dim]
  };
  static Heads heads(Inputs& inputs, int32_t head_dim, int32_t rows) {
    const size_t channels = static_cast<size_t>(head_dim), kv_width = kKvHeads * channels;
    Heads heads;
    heads.q = inputs.floats(static_cast<size_t>(rows) * kHeads * channels, 2.0f);
    heads.q_inverse = inputs.scales(kv_width, 64.0f), heads.k_inverse = inputs.scales(kv_width, 64.0f),
    heads.v_inverse = inputs.scales(kv_width, 64.0f);
    heads.out_inverse = inputs.scales(kv_width, 1.0f);
    heads.k = inputs.floats(kFilled * kv_width, 2.0f), heads.v = inputs.floats(kFilled * kv_width, 2.0f);
    return heads;
  }

  Attention() : positions_(kLength), row_segment_(kLength, 0), no_tokens_(kLength, 0) {
    for (BlockId block = kBlocks - 1; block >= 0; --block) table_.push_back(block);
    for (int32_t position = 0; position < kLength; ++position) {
      positions_[static_cast<size_t>(position)] = position;
      for (int32_t i = 0; i < kHalf; ++i)
        angles_.push_back(arith::cos_sin(static_cast<uint64_t>(position), 0x28BE60DB9391054Au >> i));
    }
  }

  // Appends the hash of the quantised queries and, for each window size in `windows`, the hash of the attention output
  // to `out`. `heads` must have been made for at least `head_dim` channels and `rows` rows. If head_dim is larger than
  // 64, each position uses more of the same array of rotary angles, so the array covers fewer positions.
  template <Backend B>
  void add_hashes(B& backend, const Heads& heads, int32_t head_dim, int32_t rows,
                  std::initializer_list<int32_t> windows, std::vector<uint64_t>& out) const {
    const int32_t half = head_dim / 2;
    const BatchSegment asking = segment(kLength - rows, rows);
    std::vector<int8_t> queries(static_cast<size_t>(rows) * kHeads * static_cast<size_t>(head_dim));
    backend.queries(heads.q.data(), batch_of(asking), angles_from(angle_rows(half) - rows, half), kHeads, kKvHeads,
                    head_dim, heads.q_inverse.data(), queries.data());
    out.push_back(hash_of(queries));
    const int64_t block_bytes = int64_t{2} * kBlockTokens * kKvHeads * head_dim;
    for (const int32_t window : windows) {
      std::vector<std::byte> pool(static_cast<size_t>(kBlocks * block_bytes), std::byte{0x80});
      const KvSlot slot{pool.data(), block_bytes, 0,
                        kKvHeads,    head_dim,    window > 0 ? BlockKind::kWindow : BlockKind::kGlobal,
                        window};
      fill(backend, heads, slot);
      std::vector<int8_t> attended(queries.size());
      backend.attend({queries.data(), kHeads, 0x1.5p-12f, heads.out_inverse.data(), attended.data()}, batch_of(asking),
                     slot);
      out.push_back(hash_of(attended));
    }
  }

 private:
  static constexpr int32_t kHeads = 4, kKvHeads = 2, kHalf = 32;  // angles of a position
  static constexpr int32_t kFills = 5, kFilled = 118, kLength = kFills * kFilled, kBlocks = kLength / kBlockTokens + 1;

  // Returns the number of positions that the array of angles covers if each position uses `half` angles.
  static constexpr int32_t angle_rows(int32_t half) { return kLength * kHalf / half; }
  const arith::CosSin* angles_from(int32_t row, int32_t half) const { return angles_.data() + int64_t{row} * half; }

  BatchSegment segment(int32_t position, int32_t rows) const {
    return {0, rows, position, 0, {table_.data(), table_.data()}};
  }
  Batch batch_of(const BatchSegment& segment) const {
    const auto count = static_cast<size_t>(segment.row_count);
    return {segment.row_count,
            {no_tokens_.data(), count},
            {positions_.data() + segment.position, count},
            {&segment, 1},
            {row_segment_.data(), count}};
  }
  template <Backend B>
  void fill(B& backend, const Heads& heads, const KvSlot& slot) const {
    const int32_t half = slot.head_dim / 2;
    for (int32_t i = 0; i < kFills; ++i) {
      const BatchSegment filling = segment(i * kFilled, kFilled);
      const int32_t angle_row = i * (angle_rows(half) - kFilled) / (kFills - 1);
      backend.append(heads.k.data(), heads.v.data(), batch_of(filling), angles_from(angle_row, half),
                     heads.k_inverse.data(), heads.v_inverse.data(), slot);
    }
  }

  std::vector<BlockId> table_;
  std::vector<int32_t> positions_, row_segment_, no_tokens_;
  std::vector<arith::CosSin> angles_;
};

// Returns the hash of eight draws from the same logits with different seeds.
template <Backend B>
uint64_t hash_of_sample(B& backend, Inputs& inputs) {
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
  return hash_of(drawn);
}

// Appends the hashes of matmuls with a single row and with 65 rows, because GPUs have different kernels for a single
// row and for tiles of rows. The inner dimension of 512 is a multiple of the step of the GPU's tile kernels.
template <Backend B>
void add_tile_hashes(B& backend, Inputs& inputs, std::vector<uint64_t>& out) {
  constexpr int32_t kIn = 512, kOut = 80, kTileRows = 65;
  const RandomMatrix random(inputs, kOut, kIn);
  const Matrix matrix = random.matrix();
  const std::vector<uint8_t> h = inputs.unsigned_bytes(size_t{kTileRows} * kIn);
  std::vector<int8_t> a(h.size());
  std::transform(h.begin(), h.end(), a.begin(), [](uint8_t byte) { return static_cast<int8_t>(byte / 2 - 64); });
  for (const int32_t rows : {1, kTileRows}) {
    std::vector<float> y(static_cast<size_t>(rows) * kOut);
    backend.linear(matrix, a.data(), rows, random.scale().data(), y.data());
    out.push_back(hash_of(y));
    std::vector<arith::bf16> x = inputs.stream(static_cast<size_t>(rows) * kOut, 2.0f);
    backend.add_down(matrix, h.data(), rows, random.scale().data(), x.data());
    out.push_back(hash_of(x));
  }
}

// Computes one hash for each entry of kExpected, or only for the first kPlainChecks entries if `shapes` is kPlain. The
// inputs are drawn in the order of the checks, so a change of this order changes the hashes.
template <Backend B>
std::vector<uint64_t> hashes(B& backend, Shapes shapes) {
  const FloatState float_state;
  Inputs inputs;
  std::vector<uint64_t> out;

  constexpr int32_t kIn = 320, kOut = 72;
  const RandomMatrix random(inputs, kOut, kIn);
  out.push_back(hash_of_embed(backend, random));
  out.push_back(hash_of_norm(backend, inputs, kIn));
  for (const Operation operation : kProducts) {
    const std::vector<float> factor = operation == Operation::kUp ? inputs.scales(kOut, 0x1p-10f) : random.scale();
    for (const int32_t rows : {3, 19})
      out.push_back(hash_of_product(backend, inputs, operation, random.matrix(), rows, factor));
  }
  const Attention attention;
  attention.add_hashes(backend, Attention::heads(inputs, 64, 3), 64, 3, {0, 100}, out);
  out.push_back(hash_of_sample(backend, inputs));
  if (shapes == Shapes::kPlain) return out;

  add_tile_hashes(backend, inputs, out);
  constexpr int32_t kManyRows = 24;
  const Attention::Heads heads = Attention::heads(inputs, 256, kManyRows);
  attention.add_hashes(backend, heads, 64, kManyRows, {0}, out);
  for (const int32_t head_dim : {128, 256})
    for (const int32_t rows : {3, kManyRows}) attention.add_hashes(backend, heads, head_dim, rows, {0}, out);
  return out;
}

}  // namespace golden

// Runs the self-check of a backend. `arithmetic` is the version that the model needs: version 2 adds operations to
// those of version 1, for backends that have them. Returns kUnsupported if results differ from the recorded hashes; the
// message names the operations.
template <Backend B>
Status self_check(B& backend, golden::Shapes shapes = golden::Shapes::kPlain,
                  int32_t arithmetic = kArithmeticVersions) {
  std::string wrong;
  const auto compare = [&](const std::vector<uint64_t>& found, const golden::Check* expected) {
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i] != expected[i].hash) wrong += (wrong.empty() ? "" : "; ") + std::string(expected[i].operation);
  };
  compare(golden::hashes(backend, shapes), golden::kExpected);
  if constexpr (ScaledBackend<B>)
    if (arithmetic == 2) compare(golden::scaled_hashes(backend, shapes), golden::kScaledExpected);
  if (wrong.empty()) return {};
  return {StatusCode::kUnsupported, "this build or machine does not compute the arithmetic contract: " + wrong +
                                        " differ. Build without -ffast-math and report the compiler and processor"};
}

}  // namespace kaiju
