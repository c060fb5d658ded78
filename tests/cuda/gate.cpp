// Gated values as the epilogue of a matmul finds them, held to the contract's. Needs no GPU and no CUDA: one source for
// both.
#include <algorithm>
#include <random>
#include <vector>

#include "catch.hpp"
#include "cuda/kernels/gate_steps.hpp"
#include "kaiju/arith/rows.hpp"

namespace kaiju::cuda {
namespace {

constexpr int kLanes = 4;  // that share a row

// A row of sums with everything that its outputs depend on.
struct Row {
  int32_t width;
  GateRows args;
  std::vector<int32_t> gate_sums, up_sums;
  std::vector<float> gate_scale, up_scale, gate_bias, up_bias;
  float row_scale;

  Row(std::mt19937_64& random, int32_t row_width) : width(row_width) {
    const auto below = [&](uint64_t n) { return static_cast<int32_t>(random() % n); };
    const auto pick = [&](std::initializer_list<float> values) { return values.begin()[below(values.size())]; };
    const auto scales = [&](float centre) {
      std::vector<float> out(static_cast<size_t>(width));
      for (float& scale : out) scale = centre * (0.25f + static_cast<float>(below(1 << 20)) * 0x1p-18f);
      return out;
    };
    const auto sums = [&] {
      const int32_t limit = below(3) == 0 ? 127 * 127 * 16'384 : 1 << below(28);
      std::vector<int32_t> out(static_cast<size_t>(width));
      for (int32_t& sum : out) sum = below(2 * static_cast<uint64_t>(limit) + 1) - limit;
      if (below(4) == 0) std::fill(out.begin(), out.begin() + width / 2, 0);
      return out;
    };
    args.gate = below(2) == 0 ? Gate::kSilu : Gate::kGelu;
    args.to.hadamard = static_cast<int32_t>(pick({1, 16, 32, 64}));
    args.to.bf16 = true;
    args.rows = 1;
    gate_sums = sums(), up_sums = sums();
    gate_scale = scales(pick({1e-5f, 1e-3f, 1e-38f, 1e3f})), up_scale = scales(pick({1e-5f, 1e-3f, 1e-30f, 1e3f}));
    row_scale = pick({1.0f, 0.01f, 1e-20f, 3e4f});
    gate_bias = scales(pick({-1.0f, 1e5f})), up_bias = scales(1.0f);
    const bool has_bias = below(2) == 0;
    for (Outputs* y : {&args.gates, &args.ups}) {
      y->width = width;
      y->scale = &row_scale;
      if (has_bias) y->bias = (y == &args.gates ? gate_bias : up_bias).data();
      if (below(3) == 0) y->step = pick({0.05f, 1e-6f, 1e6f}), y->inverse = arith::divide(1.0f, y->step);
    }
  }

  // The transformed values in bf16, by the contract.
  std::vector<float> expected() const {
    const auto floats = [](const std::vector<int32_t>& sums, const std::vector<float>& scale) {
      std::vector<float> out;
      for (size_t i = 0; i < sums.size(); ++i) out.push_back(arith::mul(static_cast<float>(sums[i]), scale[i]));
      return out;
    };
    std::vector<float> gates = floats(gate_sums, gate_scale), ups = floats(up_sums, up_scale), h;
    GateRows own = args;
    own.gates.sums = gates.data(), own.ups.sums = ups.data();
    for (int32_t n = 0; n < width; ++n) h.push_back(arith::gated(own, 0, n));
    arith::hadamard(h.data(), width, args.to.hadamard);
    for (float& x : h) x = arith::from_bf16(arith::to_bf16(x));
    return h;
  }

  // The same by four lanes, whose shuffles are copies here.
  std::vector<float> found() const {
    std::vector<float> out(static_cast<size_t>(width));
    for (int32_t first = 0; first < width; first += kGateBlock) {
      float h[kLanes][kGateEach];
      for (int lane = 0; lane < kLanes; ++lane) {
        float x[kGateEach], up[kGateEach];
        outputs_of_lane(args.gates, gate_sums, gate_scale, gate_bias, first, lane, x);
        outputs_of_lane(args.ups, up_sums, up_scale, up_bias, first, lane, up);
        gate_values(args.gate, x, up, h[lane]);
      }
      transform(h);
      for (int lane = 0; lane < kLanes; ++lane)
        for (int i = 0; i < kGateEach; ++i)
          out[static_cast<size_t>(first + place_in_block(lane, i))] = arith::from_bf16(arith::to_bf16(h[lane][i]));
    }
    return out;
  }

 private:
  void outputs_of_lane(const Outputs& y, const std::vector<int32_t>& sums, const std::vector<float>& scales,
                       const std::vector<float>& biases, int32_t first, int lane, float (&out)[kGateEach]) const {
    int32_t sum[kGateEach];
    float scale[kGateEach], bias[kGateEach];
    for (int i = 0; i < kGateEach; ++i) {
      const auto at = static_cast<size_t>(first + place_in_block(lane, i));
      sum[i] = sums[at], scale[i] = scales[at], bias[i] = biases[at];
    }
    outputs_of(y, sum, scale, row_scale, bias, out);
  }
  void transform(float (&h)[kLanes][kGateEach]) const {
    const int32_t block = args.to.hadamard;
    if (block == 1) return;
    for (auto& lane : h) transform_pairs<1>(lane), transform_pairs<2>(lane), transform_pairs<4>(lane);
    for (int distance = 1; distance <= 2 && block > 8 * distance; ++distance) {
      float before[kLanes][kGateEach];
      std::copy(&h[0][0], &h[0][0] + kLanes * kGateEach, &before[0][0]);
      for (int lane = 0; lane < kLanes; ++lane)
        for (int i = 0; i < kGateEach; ++i)
          h[lane][i] =
              transform_pair(before[lane][i], before[lane ^ distance][i], (lane & distance) != 0 ? -1.0f : 1.0f);
    }
    if (block == 64)
      for (auto& lane : h) transform_pairs<kGateRun>(lane);
  }
};

}  // namespace

TEST_CASE("sigmoids without a branch equal the contract's, for floats of every magnitude") {
  constexpr uint32_t kStride = 4 * 257, kInfinity = 0x7F800000u;
  for (const uint32_t sign : {0u, 0x80000000u}) {
    int32_t wrong = 0;
    for (uint32_t bits = 0; bits <= kInfinity; bits += kStride) {
      float x[kGateRun], y[kGateRun];
      for (uint32_t i = 0; i < kGateRun; ++i) x[i] = arith::float_of(sign | std::min(bits + 131 * i, kInfinity));
      sigmoids(x, y);
      for (int i = 0; i < kGateRun; ++i) wrong += arith::bits_of(y[i]) != arith::bits_of(arith::sigmoid(x[i]));
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE(
    "a row that four lanes gate and transform has the contract's bits, with biases and steps and at any magnitude") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 4000; ++i) {
    const Row row(random, 64 * (1 + static_cast<int32_t>(random() % 4)));
    const std::vector<float> expected = row.expected(), found = row.found();
    INFO("row " << i << ", gate " << static_cast<int32_t>(row.args.gate) << ", hadamard " << row.args.to.hadamard);
    REQUIRE(std::equal(expected.begin(), expected.end(), found.begin(),
                       [](float a, float b) { return arith::bits_of(a) == arith::bits_of(b); }));
  }
}

}  // namespace kaiju::cuda
