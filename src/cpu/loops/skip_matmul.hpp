// The product `down` for few rows whose activations are mostly zero: reads the transposed weights [in, out] of the
// channels alone that some row needs. Square ReLU makes such zeros.
//
// The sums of some outputs stay in registers while the channels pass. Where the instruction set has dot products of
// four bytes, four channels go at a time: the bytes of an output are brought side by side, which costs two shuffles a
// product. Bound: reading the channels' bytes, which lie `out` apart. Limits: outputs come in multiples of kSkipOuts,
// rows up to kMostSkipRows. The integer sums are those of matmul.hpp, and so are the results.
#pragma once

#include "matmul.hpp"

namespace kaiju::cpu {
namespace {

constexpr int32_t kSkipAhead = 16;  // channels that are prefetched before they are multiplied

// The lines of the channels that follow, at the outputs of `weight`.
template <int kBytes>
KAIJU_INLINE void prefetch_channels(const SkipArgs& args, const int8_t* weight, int32_t at) {
  const int32_t* const ahead = args.channels + least(at + kSkipAhead, args.count - kSkipGroup);
  for (int j = 0; j < kSkipGroup; ++j)
    for (int i = 0; i < kBytes; i += kLine) __builtin_prefetch(weight + int64_t{ahead[j]} * args.out + i);
}

// Stores the sums of kRows rows of kVectors vectors of outputs.
template <int kRows, int kVectors>
KAIJU_INLINE void store_skipped(const SkipArgs& args, int32_t n, const int32_t (&sums)[kRows][kVectors * kLanes]) {
  for (int32_t r = 0; r < least(kRows, args.rows); ++r)
    for (int32_t i = 0; i < kVectors * kLanes; i += kLanes)
      store_outputs<MatmulKind::kAddDown>(args, r, n + i, load<Ints>(sums[r] + i), load<Floats>(args.scale + n + i),
                                          kLanes);
}

// 4 * kLanes * kColumns outputs from n on, by dot products.
template <int kRows, int kColumns>
void skip_by_dots(const SkipArgs& args, int32_t n) {
  constexpr int kOuts = 4 * kLanes;
  Ints acc[kRows][kColumns][4] = {};
  const int8_t* const weight = args.weight + n;
  for (int32_t at = 0; at < args.count; at += kSkipGroup) {
    prefetch_channels<kOuts * kColumns>(args, weight, at);
    Ints h[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) h[r] = spread<4>(args.packed + at * kRows + 4 * r);
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      Ints channels[4], outputs[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        channels[j] = load<Ints>(weight + int64_t{args.channels[at + j]} * args.out + kOuts * c);
      side_by_side(channels, outputs);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) add_products(acc[r][c][j], h[r], outputs[j]);
      }
    }
  }
  // Lane e of the 128-bit part l of sum j belongs to output 16 l + 4 j + e.
  int32_t sums[kRows][kOuts * kColumns];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c)
      for (int j = 0; j < 4; ++j)
        for (int l = 0; l < kLanes / 4; ++l)
          __builtin_memcpy(sums[r] + kOuts * c + 16 * l + 4 * j, reinterpret_cast<const char*>(&acc[r][c][j]) + 16 * l,
                           16);
  store_skipped<kRows, 4 * kColumns>(args, n, sums);
}

// kLanes * kVectors outputs from n on, one channel at a time.
template <int kRows, int kVectors>
void skip_by_channels(const SkipArgs& args, int32_t n) {
  Ints acc[kRows][kVectors] = {};
  const int8_t* const weight = args.weight + n;
  for (int32_t at = 0; at < args.count; at += kSkipGroup) {
    prefetch_channels<kLanes * kVectors>(args, weight, at);
    for (int j = 0; j < kSkipGroup; ++j) {
      const int8_t* const channel = weight + int64_t{args.channels[at + j]} * args.out;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Ints w = to_ints(load<Bytes>(channel + kLanes * v));
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) acc[r][v] += w * ints(args.packed[at * kRows + 4 * r + j]);
      }
    }
  }
  int32_t sums[kRows][kLanes * kVectors];
  __builtin_memcpy(sums, acc, sizeof sums);
  store_skipped<kRows, kVectors>(args, n, sums);
}

template <int kRows>
void multiply_skipping_rows(const SkipArgs& args, int32_t first_out, int32_t end_out) {
  int32_t n = first_out;
  if constexpr (kSkipColumns > 0) {
    constexpr int32_t kColumns = kSkipColumns > kRows ? kSkipColumns / kRows : 1, kOuts = 4 * kLanes;
    for (; n + kOuts * kColumns <= end_out; n += kOuts * kColumns) skip_by_dots<kRows, kColumns>(args, n);
    for (; n < end_out; n += kOuts) skip_by_dots<kRows, 1>(args, n);
  } else {
    constexpr int kVectors = 8 / kRows;
    for (; n < end_out; n += kLanes * kVectors) skip_by_channels<kRows, kVectors>(args, n);
  }
}

void multiply_skipping(const SkipArgs& args, int32_t first_out, int32_t end_out) {
  if (args.packed_rows == 1)
    multiply_skipping_rows<1>(args, first_out, end_out);
  else if (args.packed_rows == 2)
    multiply_skipping_rows<2>(args, first_out, end_out);
  else
    multiply_skipping_rows<4>(args, first_out, end_out);
}

}  // namespace
}  // namespace kaiju::cpu
