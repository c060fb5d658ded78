// Products of two rows by two outputs (Arm's smmla): a vector of a panel has 8 bytes of K of two rows, and is
// multiplied with 8 bytes of each of two outputs, read in place. A vector of sums is [row][output]; it is stored as
// those of two outputs that the other loops would leave, each of two sums a row, one of them 0. So the epilogue is the
// same.
#pragma once

namespace kaiju::cpu {
namespace {

constexpr int kPairVectors = 4;  // of two rows each, at most
constexpr int kPairOuts = 8;     // 16 sums, 4 vectors of the panel and the weights of two outputs fill the registers

// sums [kOuts][kVectors] of groups of two rows; kOuts is even.
template <int kVectors, int kOuts>
KAIJU_INLINE void multiply_pairs(const uint8_t* panel, const int8_t* weight, int64_t in, Ints* sums) {
  Ints acc[kOuts / 2][kVectors] = {};
  for (int64_t k = 0; k < in; k += 16, panel += 2 * sizeof(Ints) * kVectors) {
    Ints low[kVectors], high[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      low[v] = load<Ints>(panel + sizeof(Ints) * v);
      high[v] = load<Ints>(panel + sizeof(Ints) * (kVectors + v));
    }
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; o += 2) {
      const int8_t* at = weight + o * in + k;
      const OutPairs outs = load_pairs(at, at + in);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        add_pair_products(acc[o / 2][v], low[v], outs.low);
        add_pair_products(acc[o / 2][v], high[v], outs.high);
      }
    }
  }
  Ints first{};
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanes; lane += 2) first[lane] = -1;
#pragma GCC unroll 8
  for (int o = 0; o < kOuts; o += 2) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[o * kVectors + v] = acc[o / 2][v] & first;
      sums[(o + 1) * kVectors + v] = acc[o / 2][v] & ~first;
    }
  }
}

}  // namespace
}  // namespace kaiju::cpu
