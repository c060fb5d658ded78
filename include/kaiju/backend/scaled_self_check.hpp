// The self-check's part on version 2 of the arithmetic: every operation of a ScaledBackend on small fixed inputs,
// compared with hashes that were recorded from ReferenceBackend. self_check.hpp says what the self-check is for.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kaiju/arith/rotary.hpp"
#include "kaiju/backend/backend.hpp"
#include "kaiju/backend/self_check_inputs.hpp"
#include "kaiju/base/float_state.hpp"

namespace kaiju::golden {

// If the version of the arithmetic changes, tests/conformance/self_check.cpp prints the new hashes.
inline constexpr Check kScaledExpected[] = {
    {"embed_rows", 0x939D73AA5F6D8025u},
    {"norm_rows", 0x5FC84D36910F315Fu},
    {"norm_rows, two bytes", 0x301F34687806BC25u},
    {"quantise_rows", 0xD2E6A33597588087u},
    {"gate_rows, SiLU", 0x3799D847ECE33A1Bu},
    {"gate_rows, GELU", 0x5FE6F9668BA38C6Bu},
    {"gate_rows, squared ReLU", 0x038EE262A7AAFEC3u},
    {"add_rows", 0x4D53326D121EBD26u},
    {"add_rows, normed", 0x2B0D2209F9C38025u},
    {"logit_rows", 0xEBF792B5E95A38C3u},
    {"logit_rows, two bytes", 0x3BBDDEEB35F57B5Au},
    {"query_rows", 0xF5269A5C29EDE366u},
    {"attention with scales, global", 0xE67D737C9B628BBFu},
    {"attention with scales, window", 0xD2E8D3DD72C5DAA5u},
    {"wide_linear", 0x4C7F983FA6406174u},
    {"query_rows, a tile of 64 channels", 0x65834ED925074698u},
    {"attention with scales, a tile of 64 channels", 0x8F911479D8AEA039u},
    {"query_rows, 128 channels", 0xA131DB7031F83EF7u},
    {"attention with scales, 128 channels", 0xBAE31751BFE4F3E8u},
    {"query_rows, a tile of 128 channels", 0x357DD9920228FB28u},
    {"attention with scales, a tile of 128 channels", 0xF12EE8B5A949D8ECu},
    {"query_rows, 256 channels", 0x9CC36B0F26A87260u},
    {"attention with scales, 256 channels", 0xEB673D3E3282B99Du},
    {"query_rows, a tile of 256 channels", 0xC2630C580D82E162u},
    {"attention with scales, a tile of 256 channels", 0x8F9942B643839FF0u},
    {"query_rows, 512 channels", 0xB2A91ED4C15C97BFu},
    {"attention with scales, 512 channels", 0x8253FEFB8DDCB06Du},
    {"query_rows, a tile of 512 channels", 0xD5235319C270A5BDu},
    {"attention with scales, a tile of 512 channels", 0xFCB3DECF3BDD08EDu},
    {"embed_rows, several rows a token", 0x7A4100F92E99A640u},
    {"quantise_rows, of rows that stay", 0x9948309F2007E77Eu},
    {"gate_rows, ups without scales", 0xC630F6DFDBE2F100u},
};
// The checks up to and including "wide_linear" are those of a CPU.
inline constexpr size_t kPlainScaledChecks = 15;

// Rows of floats, and the fields that the operations' arguments share.
class ScaledRows {
 public:
  static constexpr int32_t kRows = 5, kWidth = 320;

  explicit ScaledRows(Inputs& inputs) : inputs_(inputs) {}

  // [rows, width]; the values of the last row are so small that the hash would differ if subnormal floats were flushed
  // to zero.
  std::vector<float> floats(int32_t rows, int32_t width, float high) {
    std::vector<float> x = inputs_.floats(static_cast<size_t>(rows) * static_cast<size_t>(width), high);
    for (size_t i = x.size() - static_cast<size_t>(width); i < x.size(); ++i) x[i] = arith::mul(x[i], 0x1p-70f);
    return x;
  }
  Quantiser quantiser(int32_t hadamard, bool bf16 = false, bool wide = false) {
    bytes_.assign(size_t{2} * kRows * kWidth, 0);
    scale_.assign(kRows, 0.0f);
    Quantiser to;
    to.hadamard = hadamard;
    to.bf16 = bf16;
    to.wide = wide;
    to.bytes = bytes_.data();
    to.scale = scale_.data();
    return to;
  }
  uint64_t hash_of_quantised() const { return hash_of(std::vector<uint64_t>{hash_of(bytes_), hash_of(scale_)}); }

 private:
  Inputs& inputs_;
  std::vector<int8_t> bytes_;
  std::vector<float> scale_;
};

// The outputs of a matmul, with biases.
class ScaledOutputs {
 public:
  ScaledOutputs(Inputs& inputs, int32_t rows, int32_t width, bool wide = false)
      : width_(width),
        wide_(wide),
        sums_(ScaledRows(inputs).floats(wide ? 2 * rows : rows, width, 4.0f)),
        scale_(inputs.scales(static_cast<size_t>(rows), 0.5f)),
        bias_(inputs.floats(static_cast<size_t>(width), 0.5f)) {}

  // An operation may overwrite the sums, so an object serves one operation.
  Outputs view() {
    Outputs y;
    y.sums = sums_.data();
    y.scale = scale_.data();
    y.bias = bias_.data();
    y.width = width_;
    y.wide = wide_;
    return y;
  }

 private:
  int32_t width_;
  bool wide_;
  std::vector<float> sums_, scale_, bias_;
};

template <ScaledBackend B>
void add_row_hashes(B& backend, Inputs& inputs, std::vector<uint64_t>& out) {
  constexpr int32_t kRows = ScaledRows::kRows, kWidth = ScaledRows::kWidth;
  constexpr float kEps = 0x1p-126f;
  ScaledRows rows(inputs);
  const std::vector<float> gain = inputs.floats(kWidth, 2.0f);
  {
    const std::vector<int8_t> table = inputs.bytes(size_t{40} * kWidth);
    const std::vector<float> factor = inputs.scales(40, 0x1p-8f);
    const int32_t tokens[kRows] = {0, 39, 7, 7, 20};
    std::vector<float> x(size_t{kRows} * kWidth);
    EmbedRows args;
    args.weight = table.data();
    args.factor = factor.data();
    args.tokens = tokens;
    args.rows = kRows;
    args.width = kWidth;
    args.hadamard = 64;
    args.bf16 = true;
    args.x = x.data();
    backend.embed_rows(args);
    out.push_back(hash_of(x));
  }
  for (const bool wide : {false, true}) {
    const std::vector<float> x = rows.floats(kRows, kWidth, 4.0f);
    std::vector<float> scratch(x.size());
    backend.norm_rows(
        {x.data(), kRows, kWidth, kEps, gain.data(), scratch.data(), rows.quantiser(wide ? 32 : 64, false, wide)});
    out.push_back(rows.hash_of_quantised());
  }
  {
    std::vector<float> values = rows.floats(kRows, kWidth, 4.0f);
    Quantiser to = rows.quantiser(1, true);
    to.inverse = 30.0f;
    backend.quantise_rows({values.data(), kRows, kWidth, to});
    out.push_back(rows.hash_of_quantised());
  }
  for (const Gate gate : {Gate::kSilu, Gate::kGelu, Gate::kSquaredRelu}) {
    ScaledOutputs gates(inputs, kRows, kWidth), ups(inputs, kRows, kWidth);
    backend.gate_rows(
        {gate, gate == Gate::kSquaredRelu ? Outputs() : gates.view(), ups.view(), kRows, rows.quantiser(16, true)});
    out.push_back(rows.hash_of_quantised());
  }
  for (const bool norms : {false, true}) {
    ScaledOutputs y(inputs, kRows, kWidth);
    std::vector<float> x = rows.floats(kRows, kWidth, 4.0f);
    backend.add_rows({y.view(), kRows, norms, gain.data(), kEps, 0.75f, norms, x.data()});
    out.push_back(hash_of(x));
  }
  for (const bool wide : {false, true}) {
    ScaledOutputs y(inputs, kRows, kWidth, wide);
    std::vector<float> logits(size_t{kRows} * kWidth);
    backend.logit_rows({y.view(), kRows, wide ? 0.0f : 3.0f, logits.data()});
    out.push_back(hash_of(logits));
  }
}

// What the layers' inputs need besides.
template <ScaledBackend B>
void add_input_hashes(B& backend, Inputs& inputs, std::vector<uint64_t>& out) {
  constexpr int32_t kRows = ScaledRows::kRows, kWidth = ScaledRows::kWidth, kEach = 3, kTokens = 13;
  ScaledRows rows(inputs);
  const std::vector<int8_t> table = inputs.bytes(size_t{kEach} * kTokens * kWidth);
  const std::vector<float> factor = inputs.scales(size_t{kEach} * kTokens, 0x1p-8f);
  const int32_t tokens[kRows] = {0, 12, 7, 7, 3};
  std::vector<float> x(size_t{kRows} * kWidth), scratch(x.size());
  EmbedRows args;
  args.weight = table.data() + kWidth;
  args.factor = factor.data() + 1;
  args.tokens = tokens;
  args.rows = kRows;
  args.width = kWidth;
  args.x = x.data();
  args.each = kEach;
  backend.embed_rows(args);
  out.push_back(hash_of(x));

  x = rows.floats(kRows, kWidth, 4.0f);
  backend.quantise_rows({x.data(), kRows, kWidth, rows.quantiser(32), scratch.data()});
  out.push_back(hash_of(std::vector<uint64_t>{hash_of(x), rows.hash_of_quantised()}));

  ScaledOutputs gates(inputs, kRows, kWidth), ups(inputs, kRows, kWidth);
  Outputs unscaled = ups.view();
  unscaled.scale = unscaled.bias = nullptr;
  backend.gate_rows({Gate::kGelu, gates.view(), unscaled, kRows, rows.quantiser(64, true)});
  out.push_back(rows.hash_of_quantised());
}

// Checks queries, and attention on one sequence that is longer than one chunk of 512 keys, whose keys and values are
// made from the same outputs five times in a row, each time with different rotary angles. Only the queries of the
// sequence's last rows are checked.
class ScaledAttention {
 public:
  ScaledAttention() : positions_(kLength), row_segment_(kLength, 0), no_tokens_(kLength, 0) {
    for (BlockId block = kBlocks - 1; block >= 0; --block) table_.push_back(block);
    for (int32_t position = 0; position < kLength; ++position) positions_[static_cast<size_t>(position)] = position;
  }

  template <ScaledBackend B>
  void add_hashes(B& backend, Inputs& inputs, int32_t head_dim, int32_t rows, std::initializer_list<int32_t> windows,
                  std::vector<uint64_t>& out) const {
    const size_t kv_width = size_t{kKvHeads} * static_cast<size_t>(head_dim);
    const std::vector<float> step = inputs.scales(kv_width, 0.5f),
                             gain = inputs.floats(static_cast<size_t>(head_dim), 2.0f);
    const std::vector<arith::CosSin> angles = angles_of(head_dim);
    std::vector<int8_t> queries(static_cast<size_t>(rows) * kHeads * static_cast<size_t>(head_dim));
    std::vector<float> z(static_cast<size_t>(rows) * kHeads);
    ScaledOutputs q(inputs, rows, kHeads * head_dim);
    QueryRows args;
    args.q = q.view();
    args.rows = rows;
    args.heads = kHeads;
    args.kv_heads = kKvHeads;
    args.head_dim = head_dim;
    args.norms = true;
    args.gain = gain.data();
    args.eps = 0x1p-126f;
    args.angles = angles.data() + int64_t{kLength - rows} * (head_dim / 2);
    args.key_step = step.data();
    args.hadamard = 64;
    args.factor = 0x1.5p-11f;
    args.bytes = queries.data();
    args.z = z.data();
    backend.query_rows(args);
    out.push_back(hash_of(std::vector<uint64_t>{hash_of(queries), hash_of(z)}));

    ScaledOutputs k(inputs, kFilled, kKvHeads * head_dim), v(inputs, kFilled, kKvHeads * head_dim);
    KeyValueRows kept;
    kept.k = k.view();
    kept.v = v.view();
    kept.kv_heads = kKvHeads;
    kept.head_dim = head_dim;
    kept.key_norms = true;
    kept.key_gain = gain.data();
    kept.eps = 0x1p-126f;
    kept.key_inverse = kept.value_inverse = step.data();
    kept.hadamard = 64;
    const int64_t block_bytes = kKvHeads * KvSlot::head_bytes(head_dim, true);
    std::vector<std::byte> pool(static_cast<size_t>(kBlocks * block_bytes), std::byte{0x3C});
    KvSlot slot{pool.data(), block_bytes, 0, kKvHeads, head_dim, BlockKind::kWindow, kLength, true};
    for (int32_t i = 0; i < kFills; ++i) {
      const BatchSegment filling = segment(i * kFilled, kFilled);
      kept.angles = angles.data() + int64_t{i} * kFilled * (head_dim / 2);
      backend.append_rows(kept, batch_of(filling), slot);
    }
    for (const int32_t window : windows) {  // both kinds of block have the same table
      slot.kind = window > 0 ? BlockKind::kWindow : BlockKind::kGlobal;
      slot.window = window;
      const BatchSegment asking = segment(kLength - rows, rows);
      std::vector<float> attended(queries.size());
      backend.attend(ScaledAttentionArgs{queries.data(), kHeads, z.data(), step.data(), attended.data()},
                     batch_of(asking), slot);
      out.push_back(hash_of(attended));
    }
  }

 private:
  static constexpr int32_t kHeads = 4, kKvHeads = 2, kFills = 5, kFilled = 118, kLength = kFills * kFilled,
                           kBlocks = kLength / kBlockTokens + 1;

  static std::vector<arith::CosSin> angles_of(int32_t head_dim) {
    std::vector<arith::CosSin> angles;
    for (int32_t position = 0; position < kLength; ++position)
      for (int32_t i = 0; i < head_dim / 2; ++i) {
        const arith::CosSin angle = arith::cos_sin(static_cast<uint64_t>(position), 0x28BE60DB9391054Au >> (i % 32));
        angles.push_back({angle.cos, angle.sin});
      }
    return angles;
  }
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

  std::vector<BlockId> table_;
  std::vector<int32_t> positions_, row_segment_, no_tokens_;
};

// Rows of two bytes a value, on inputs of its own. Of a backend without wide_linear it is the sums of each byte.
template <ScaledBackend B>
uint64_t hash_of_wide_linear(B& backend) {
  constexpr int32_t kIn = 320, kOut = 72;
  Inputs inputs;
  const std::vector<int8_t> weight = inputs.bytes(size_t{kOut} * kIn);
  const std::vector<float> scale = inputs.scales(kOut, 0x1p-17f);
  std::vector<int32_t> row_sum(kOut, 0);
  for (size_t i = 0; i < weight.size(); ++i) row_sum[i / kIn] += weight[i];
  const Matrix matrix{weight.data(), row_sum.data(), kOut, kIn};
  std::vector<uint64_t> found;
  for (const int32_t rows : {1, 2, 19}) {
    const std::vector<int8_t> a = inputs.bytes(size_t{2} * static_cast<size_t>(rows) * kIn);
    std::vector<float> y(static_cast<size_t>(rows) * kOut);
    if constexpr (MultipliesWideRows<B>) {
      backend.wide_linear(matrix, a.data(), rows, scale.data(), y.data());
    } else {
      std::vector<float> sums(2 * y.size());
      backend.linear(matrix, a.data(), 2 * rows, scale.data(), sums.data());
      for (size_t i = 0; i < y.size(); ++i) {
        const float* high = sums.data() + i / kOut * 2 * kOut + i % kOut;
        y[i] = arith::fma(256.0f, high[0], high[kOut]);
      }
    }
    found.push_back(hash_of(y));
  }
  return hash_of(found);
}

// Computes one hash for each entry of kScaledExpected, or only for the first kPlainScaledChecks entries if `shapes` is
// kPlain.
template <ScaledBackend B>
std::vector<uint64_t> scaled_hashes(B& backend, Shapes shapes) {
  const FloatState float_state;
  Inputs inputs;
  std::vector<uint64_t> out;
  add_row_hashes(backend, inputs, out);
  const ScaledAttention attention;
  attention.add_hashes(backend, inputs, 64, 3, {0, 100}, out);
  out.push_back(hash_of_wide_linear(backend));
  if (shapes == Shapes::kPlain) return out;
  constexpr int32_t kManyRows = 24;
  attention.add_hashes(backend, inputs, 64, kManyRows, {0}, out);
  for (const int32_t head_dim : {128, 256, 512})
    for (const int32_t rows : {3, kManyRows}) attention.add_hashes(backend, inputs, head_dim, rows, {0}, out);
  add_input_hashes(backend, inputs, out);
  return out;
}

}  // namespace kaiju::golden
