// The golden self-check: every operation of a backend on small fixed inputs, against hashes recorded from ReferenceBackend. It runs when an executor is
// made (a few milliseconds) and refuses a machine or a build that computes otherwise: contraction, flushed subnormals, a broken kernel.
// Host memory only; the conformance tests are the thorough ones.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kaiju/arith/rotary.hpp"
#include "kaiju/backend/backend.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/base/random.hpp"
#include "kaiju/base/status.hpp"

namespace kaiju {
namespace golden {

struct Check {
  const char* operation;
  uint64_t hash;
};

// Recorded from ReferenceBackend; tests/conformance/self_check.cpp prints them anew when the contract's version changes.
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
};
inline constexpr size_t kChecks = std::size(kExpected);

// Inputs: the stream of Philox words under a fixed key, shaped by exact operations.
class Inputs {
 public:
  uint32_t word() {
    if (next_ % 4 == 0) words_ = philox4x32({next_ / 4, 0, 0, 0}, {0x6B61696A, 0x75});
    return words_[next_++ % 4];
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(word() % static_cast<uint32_t>(n)); }
  std::vector<int8_t> bytes(size_t count) { return fill<int8_t>(count, [this] { return static_cast<int8_t>(below(255) - 127); }); }
  std::vector<uint8_t> unsigned_bytes(size_t count) { return fill<uint8_t>(count, [this] { return static_cast<uint8_t>(below(256)); }); }
  // Positive, full mantissas, within a factor of two above `low`, a power of two.
  std::vector<float> scales(size_t count, float low) { return fill<float>(count, [=, this] { return arith::mul(low, static_cast<float>((1 << 23) + below(1 << 23)) * 0x1p-23f); }); }
  // Either sign, spread over eight powers of two below `high`.
  float spread(float high) {
    const uint32_t bits = word();
    const float magnitude = static_cast<float>((1u << 23) + (bits & 0x7FFFFF)) * 0x1p-24f / static_cast<float>(1u << (bits >> 23 & 7));
    return (bits >> 31 ? -high : high) * magnitude;
  }
  std::vector<float> floats(size_t count, float high) { return fill<float>(count, [=, this] { return spread(high); }); }
  std::vector<arith::bf16> stream(size_t count, float high) { return fill<arith::bf16>(count, [=, this] { return arith::to_bf16(spread(high)); }); }

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

// FNV-1a over 8-byte words; the values, not where they lie.
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

template <Backend B>
std::array<uint64_t, kChecks> hashes(B& backend) {
  const FloatState float_state;
  Inputs inputs;
  std::array<uint64_t, kChecks> out{};
  size_t at = 0;

  constexpr int32_t kIn = 320, kOut = 72, kHeadDim = 64, kHeads = 4, kKvHeads = 2, kRows[] = {3, 19};
  const std::vector<int8_t> weight = inputs.bytes(size_t{kOut} * kIn);
  std::vector<int32_t> row_sum(kOut, 0);
  for (size_t i = 0; i < weight.size(); ++i) row_sum[i / kIn] += weight[i];
  const Matrix matrix{weight.data(), row_sum.data(), kOut, kIn};
  const std::vector<float> scale = inputs.scales(kOut, 0x1p-17f);

  const int32_t tokens[] = {0, 71, 33};
  std::vector<arith::bf16> x(size_t{3} * kIn);
  backend.embed(matrix, scale.data(), tokens, x.data());
  out[at++] = hash_of(x);

  // Half of the rows so small that flushing subnormals would show.
  x = inputs.stream(size_t{4} * kIn, 4.0f);
  for (size_t i = size_t{2} * kIn; i < x.size(); ++i) x[i] = arith::to_bf16(arith::mul(arith::from_bf16(x[i]), 0x1p-66f));
  std::vector<int8_t> a(x.size());
  backend.norm(x.data(), 4, kIn, 0x1p-126f, 30.0f, a.data());
  out[at++] = hash_of(a);

  for (const int32_t rows : kRows) {
    a = inputs.bytes(static_cast<size_t>(rows) * kIn);
    std::vector<float> y(static_cast<size_t>(rows) * kOut);
    backend.linear(matrix, a.data(), rows, scale.data(), y.data());
    out[at++] = hash_of(y);
  }
  const std::vector<float> alpha = inputs.scales(kOut, 0x1p-10f);
  for (const int32_t rows : kRows) {
    a = inputs.bytes(static_cast<size_t>(rows) * kIn);
    std::vector<uint8_t> h(static_cast<size_t>(rows) * kOut);
    backend.up(matrix, a.data(), rows, alpha.data(), h.data());
    out[at++] = hash_of(h);
  }
  for (const int32_t rows : kRows) {
    a = inputs.bytes(static_cast<size_t>(rows) * kIn);
    x = inputs.stream(static_cast<size_t>(rows) * kOut, 2.0f);
    backend.add_linear(matrix, a.data(), rows, scale.data(), x.data());
    out[at++] = hash_of(x);
  }
  for (const int32_t rows : kRows) {
    const std::vector<uint8_t> h = inputs.unsigned_bytes(static_cast<size_t>(rows) * kIn);
    x = inputs.stream(static_cast<size_t>(rows) * kOut, 2.0f);
    backend.add_down(matrix, h.data(), rows, scale.data(), x.data());
    out[at++] = hash_of(x);
  }

  // One sequence of more than a chunk, filled by five times the same floats at different positions; its last rows attend. Blocks lie in reverse order.
  constexpr int32_t kFilled = 118, kLength = 5 * kFilled, kQueryRows = 3, kBlocks = kLength / kBlockTokens + 1, kKvWidth = kKvHeads * kHeadDim;
  std::vector<BlockId> table;
  for (BlockId block = kBlocks - 1; block >= 0; --block) table.push_back(block);
  std::vector<int32_t> positions(kLength), row_segment(kLength, 0), no_tokens(kLength, 0);
  std::vector<arith::CosSin> angles;
  for (int32_t position = 0; position < kLength; ++position) {
    positions[position] = position;
    for (int32_t i = 0; i < kHeadDim / 2; ++i) angles.push_back(arith::cos_sin(static_cast<uint64_t>(position), 0x28BE60DB9391054Au >> i));
  }
  const auto batch_of = [&](const BatchSegment& segment, int32_t rows) {
    const auto count = static_cast<size_t>(rows);
    return Batch{rows, {no_tokens.data(), count}, {positions.data() + segment.position, count}, {&segment, 1}, {row_segment.data(), count}};
  };
  const BatchSegment asking{0, kQueryRows, kLength - kQueryRows, 0, {table.data(), table.data()}};

  const std::vector<float> q = inputs.floats(size_t{kQueryRows} * kHeads * kHeadDim, 2.0f);
  const std::vector<float> q_inverse = inputs.scales(kKvWidth, 64.0f), k_inverse = inputs.scales(kKvWidth, 64.0f), v_inverse = inputs.scales(kKvWidth, 64.0f);
  const std::vector<float> out_inverse = inputs.scales(kKvWidth, 1.0f);
  std::vector<int8_t> queries(q.size());
  backend.queries(q.data(), batch_of(asking, kQueryRows), angles.data() + size_t{kLength - kQueryRows} * (kHeadDim / 2), kHeads, kKvHeads, kHeadDim, q_inverse.data(), queries.data());
  out[at++] = hash_of(queries);

  const std::vector<float> k = inputs.floats(size_t{kFilled} * kKvWidth, 2.0f), v = inputs.floats(size_t{kFilled} * kKvWidth, 2.0f);
  constexpr int64_t kBlockBytes = int64_t{2} * kBlockTokens * kKvWidth;
  for (const int32_t window : {0, 100}) {
    std::vector<std::byte> pool(kBlocks * kBlockBytes, std::byte{0x80});
    const KvSlot slot{pool.data(), kBlockBytes, 0, kKvHeads, kHeadDim, window > 0 ? BlockKind::kWindow : BlockKind::kGlobal, window};
    std::vector<int8_t> attended(queries.size());
    for (int32_t position = 0; position < kLength; position += kFilled) {
      const BatchSegment filling{0, kFilled, position, 0, {table.data(), table.data()}};
      backend.append(k.data(), v.data(), batch_of(filling, kFilled), angles.data() + static_cast<size_t>(position) * (kHeadDim / 2), k_inverse.data(), v_inverse.data(), slot);
    }
    backend.attend({queries.data(), kHeads, 0x1.5p-12f, out_inverse.data(), attended.data()}, batch_of(asking, kQueryRows), slot);
    out[at++] = hash_of(attended);
  }

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
  out[at++] = hash_of(drawn);
  return out;
}

}  // namespace golden

// kUnsupported names the operations that differ.
template <Backend B>
Status self_check(B& backend) {
  const std::array<uint64_t, golden::kChecks> found = golden::hashes(backend);
  std::string wrong;
  for (size_t i = 0; i < golden::kChecks; ++i)
    if (found[i] != golden::kExpected[i].hash) wrong += (wrong.empty() ? "" : "; ") + std::string(golden::kExpected[i].operation);
  if (wrong.empty()) return {};
  return {StatusCode::kUnsupported, "this build or machine does not compute the arithmetic contract: " + wrong + " differ. Build without -ffast-math and report the compiler and processor"};
}

}  // namespace kaiju
