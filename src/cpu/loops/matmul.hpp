// Matmuls that read the weights in place.
//
// Each lane of a vector has four bytes of the inner dimension K of one row of activations. Four bytes of an output's
// weights are broadcast and multiplied with it. With fewer rows than lanes, a vector has 2, 4, ... times as many bytes
// of K for each row, and as many bytes of weights are broadcast, so lanes are idle only in the last group. So weights
// are read in place, once for a group of rows, and only the activations are rearranged:
//
//   group of kRows x kVectors rows: [K / kStep][kVectors][kRows][kStep bytes],  kStep = 4 * kLanes / kRows
//
// A tile is some outputs of one group, with its sums in registers. The sums of 16 outputs are stored in memory for the
// epilogue, which adds the lanes of each row and transposes the sums into vectors of outputs. Bound: memory below about
// 8 rows; above, the dot-product units, with a load of weights for every 2 to 4 products.
//
// Some instruction sets multiply unsigned by signed bytes (kUnsignedPanel): then 128 is added to, or subtracted from,
// the activations of a panel, and 128 * row_sum[n] corrects the sum. Limits: K is a multiple of 64; any number of
// outputs and rows.
#pragma once

#include "pair_matmul.hpp"
#include "rounding.hpp"
#include "tile_matmul.hpp"

namespace kaiju::cpu {
namespace {

constexpr int32_t kBlockOuts = kHasTiles ? 2 * kTileRows : 16;
constexpr int32_t kLine = 64;              // bytes of K a tile takes at a time
constexpr int64_t kRowsBytes = 384 << 10;  // of activations that stay in the second-level cache while the weights pass
constexpr int32_t kMostRows = kLanes * kMostVectors;
static_assert(kMostRows % 2 == 0);  // kWide: no piece begins between the two bytes of a row

// Vectors of a group with so many rows in each, at most.
constexpr int most_vectors(int rows) { return rows < kLanes ? kMostVectorsOfFew : kMostVectors; }

// Rows that are multiplied together: kRows in each of some vectors.
struct Group {
  int32_t rows = 1, vectors = 1;
  int32_t size() const { return rows * vectors; }
};

// The group that the next rows make, of so many that are left.
KAIJU_INLINE Group group_of(int32_t left) {
  if constexpr (kHasTiles) {
    if (left >= kFewestTileRows) return {kLanes, least((left + kLanes - 1) / kLanes, kMostVectors)};
  }
  if constexpr (kHasPairs) {
    if (left >= 2) return {2, least((left + 1) / 2, kPairVectors)};
  }
  Group group;
  while (group.rows < kLanes && group.rows * most_vectors(group.rows) < left) group.rows *= 2;
  group.vectors = least((left + group.rows - 1) / group.rows, most_vectors(group.rows));
  return group;
}

// Calls work with the group's rows of a vector as a constant.
template <int kRows>
struct Rows {
  static constexpr int value = kRows;
};
template <int kRows = 1, class Work>
KAIJU_INLINE void with_rows(const Group& group, const Work& work) {
  if constexpr (kRows < kLanes) {
    if (group.rows > kRows) return with_rows<2 * kRows>(group, work);
  }
  work(Rows<kRows>{});
}

// ---- transposition ----

// Transposition in steps, each of which tells the lanes apart by one bit of their number. `parts` lanes belong to one
// row: a step by a lower bit adds the two sides, one by a higher bit keeps both, as rows. v holds [rows told apart so
// far][outputs, and then vectors of outputs].
constexpr int kSteps = kLanes == 16 ? 4 : kLanes == 8 ? 3 : 2;
constexpr int bit_of(int step) { return 1 << (step == 0 ? 1 : step == 1 ? 0 : step); }

template <int kParts, int kStep = 0, int kStreams = 1>
KAIJU_INLINE void transpose(Ints* v) {
  if constexpr (kStep < kSteps) {
    constexpr bool kAdds = bit_of(kStep) < kParts;
    constexpr int kCount = kLanes >> (kStep + 1);
    Ints next[kLanes];
#pragma GCC unroll 16
    for (int s = 0; s < kStreams; ++s) {
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) {
        Ints clear, set;
        split<kStep>(v[2 * (s * kCount + i)], v[2 * (s * kCount + i) + 1], clear, set);
        if constexpr (kAdds)
          next[s * kCount + i] = clear + set;
        else
          next[2 * s * kCount + i] = clear, next[(2 * s + 1) * kCount + i] = set;
      }
    }
    transpose<kParts, kStep + 1, kAdds ? kStreams : 2 * kStreams>(next);
#pragma GCC unroll 16
    for (int r = 0; r < kLanes / kParts; ++r) v[r] = next[r];
  }
}

// The row that ends up as the given one of transpose()'s results: its bits were taken in the order of the steps.
constexpr int row_of(int result, int parts) {
  int row = 0;
  for (int step = kSteps - 1; step >= 0; --step) {
    if (bit_of(step) < parts) continue;
    row += result % 2 * bit_of(step) / parts;
    result /= 2;
  }
  return row;
}

// In: kLanes outputs' sums, lanes [kRows][kLanes / kRows]. Out: lane o of out[r] is the sum of output o's lanes of row
// r.
template <int kRows>
KAIJU_INLINE void collect(const Ints* sums, int stride, Ints* out) {
  Ints v[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = sums[i * stride];
  transpose<kLanes / kRows>(v);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) out[row_of(r, kLanes / kRows)] = v[r];
}

// ---- activations ----

constexpr bool flipped(MatmulKind kind) { return (kind == MatmulKind::kAddDown) != kUnsignedPanel; }

size_t prepared_bytes(int32_t rows, int32_t in) {
  return static_cast<size_t>(rows + kMostRows) * static_cast<size_t>(in);
}

// Writes 64 bytes of one row, from column k on, into its group.
template <int kStep>
KAIJU_INLINE void place(const uint8_t* bytes, uint8_t flip, int32_t step_bytes, uint8_t* to) {
  uint8_t line[kLine];
  for (int i = 0; i < kLine; ++i) line[i] = bytes[i] ^ flip;
#pragma GCC unroll 16
  for (int i = 0; i < kLine; i += kStep) __builtin_memcpy(to + i / kStep * step_bytes, line + i, kStep);
}

// Some columns of a whole group. Rows past the last one repeat it: their sums are not looked at.
template <int kRows>
void prepare_group(const MatmulArgs& args, const PreparePiece& piece, int32_t start, int32_t vectors, uint8_t flip) {
  constexpr int kStep = 4 * kLanes / kRows;
  const int32_t step_bytes = 4 * kLanes * vectors;
  auto* to = static_cast<uint8_t*>(args.prepared) + int64_t{start} * args.in + piece.first_in * kRows * vectors;
  const auto row_at = [&](int32_t row) {
    return static_cast<const uint8_t*>(args.bytes) + int64_t{least(start + row, args.rows - 1)} * args.in;
  };
  for (int32_t k = piece.first_in; k < piece.end_in; k += kLine, to += kLine * kRows * vectors)
    for (int32_t v = 0; v < vectors; ++v) {
      uint8_t* const at = to + 4 * kLanes * v;
      if constexpr (kRows < kLanes) {
        for (int32_t r = 0; r < kRows; ++r) place<kStep>(row_at(v * kRows + r) + k, flip, step_bytes, at + r * kStep);
      } else {
        for (int32_t part = 0; part < kLine; part += 4 * kLanes) {
          Ints rows[kLanes], columns[kLanes];
#pragma GCC unroll 16
          for (int r = 0; r < kLanes; ++r)
            rows[r] = load<Ints>(row_at(v * kRows + r) + k + part) ^ ints(static_cast<int32_t>(flip * 0x01010101u));
          collect<kLanes>(rows, 1, columns);
#pragma GCC unroll 16
          for (int i = 0; i < kLanes; ++i) store(at + (part / 4 + i) * step_bytes, columns[i]);
        }
      }
    }
}

void prepare(const MatmulArgs& args, const PreparePiece& piece) {
  const auto flip = static_cast<uint8_t>(flipped(args.kind) ? 0x80 : 0);
  Group group;
  for (int32_t row = piece.first_row; row < piece.end_row; row += group.size()) {
    group = group_of(args.rows - row);
    with_rows(group, [&](auto rows) __attribute__((always_inline)) {
      prepare_group<rows.value>(args, piece, row, group.vectors, flip);
    });
  }
}

// ---- sums ----

// sums [kOuts][kVectors]
template <int kRows, int kVectors, int kOuts>
KAIJU_INLINE void dot_tile(const uint8_t* panel, const int8_t* weights, int64_t in, Ahead& ahead, Ints* sums) {
  constexpr int kStep = 4 * kLanes / kRows;
  constexpr int kUnrolled = kStep < 16 ? 16 / kStep : 1;
  // Lines of the weights ahead are asked for between the products, kAsked in every kEvery steps (a tile of one output,
  // at the end of a matrix, asks for its line more than once). All at once would hold up the loads that products wait
  // for.
  constexpr int kLineSteps = kLine / kStep, kEvery = most(kLineSteps / kOuts, 1), kAsked = most(kOuts / kLineSteps, 1);
  Ints acc[kOuts][kVectors] = {};
  for (int64_t k = 0; k < in; k += kLine) {
    const int8_t* weight[(kOuts + 3) / 4];  // every fourth output's: the others are within reach of an addressing mode
#pragma GCC unroll 4
    for (int o = 0; o < kOuts; o += 4) weight[o / 4] = weights + o * in + k;
    const int8_t* next = ahead.at;
    if (next < ahead.end)
      ahead.at += kLine * kOuts;
    else
      next = weight[0];  // of this or the next tile: so the loop has no branch
    for (int i = 0; i < kLine; i += kStep * kUnrolled) {
#pragma GCC unroll 4
      for (int u = 0; u < kUnrolled; ++u, panel += 4 * kLanes * kVectors) {
        if (u % kEvery == 0) {
#pragma GCC unroll 16
          for (int j = 0; j < kAsked; ++j) __builtin_prefetch(next + kLine * j, 0, 2);
          next += kLine * kAsked;
        }
        Panel a[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) a[v] = load_panel(panel + 4 * kLanes * v);
#pragma GCC unroll 16
        for (int o = 0; o < kOuts; ++o) {
          const Ints w = spread<kStep>(weight[o / 4] + o % 4 * in + i + u * kStep);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) add_products(acc[o][v], a[v], w);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int o = 0; o < kOuts; ++o) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[o * kVectors + v] = acc[o][v];
  }
}

// The sums of `outs` outputs, 16 or, at the end of a matrix, fewer: then the others are 0.
using BlockSums = void (*)(const TileBlock& block, int32_t outs, Ints* sums);
template <int kRows, int kVectors>
void block_sums(const TileBlock& block, int32_t outs, Ints* sums) {
  constexpr int kOuts = tile_outs(kVectors);
  const auto [panel, weight, in, given, backward] = block;
  Ahead ahead = given;
  int32_t o = 0;
  for (; o + kOuts <= outs; o += kOuts)
    dot_tile<kRows, kVectors, kOuts>(panel, weight + o * in, in, ahead, sums + o * kVectors);
  for (; o < outs; ++o) dot_tile<kRows, kVectors, 1>(panel, weight + o * in, in, ahead, sums + o * kVectors);
  for (int32_t s = outs * kVectors; s < kBlockOuts * kVectors; ++s) sums[s] = Ints{};
}

template <int kRows, int kVectors>
BlockSums block_sums_of(int32_t vectors) {
  if constexpr (kVectors > 1 &&
                (kRows == 1 ||
                 2 * (kVectors - 1) > most_vectors(kRows / 2))) {  // fewer vectors would be a group of half the rows
    if (vectors < kVectors) return block_sums_of<kRows, kVectors - 1>(vectors);
  }
  return block_sums<kRows, kVectors>;
}

template <int kRows = 1>
BlockSums block_sums_of(const Group& group) {
  if constexpr (kRows < kLanes) {
    if (group.rows > kRows) return block_sums_of<2 * kRows>(group);
  }
  return block_sums_of<kRows, most_vectors(kRows)>(group.vectors);
}

// The same by tiles, for a group of 16 rows in each vector. Outputs that fill no tile go by vectors.
template <int kVectors>
void tile_sums(const TileBlock& block, int32_t outs, Ints* sums) {
  int32_t o = 0;
  if (outs >= 2 * kTileRows) {
    multiply_tiles<2, kVectors>(block, sums);
    o = 2 * kTileRows;
  } else if (outs >= kTileRows) {
    multiply_tiles<1, kVectors>(block, sums);
    o = kTileRows;
  }
  Ahead nothing;
  for (; o < outs; ++o)
    dot_tile<kTileRows, kVectors, 1>(block.panel, block.weight + o * block.in, block.in, nothing, sums + o * kVectors);
  for (int32_t s = outs * kVectors; s < kBlockOuts * kVectors; ++s) sums[s] = Ints{};
}

// The same for groups of two rows in each vector, by products of pairs.
template <int kVectors = kPairVectors>
void pair_sums(const Group& group, const TileBlock& block, int32_t outs, Ints* sums) {
  if constexpr (kVectors > 1) {
    if (group.vectors < kVectors) return pair_sums<kVectors - 1>(group, block, outs, sums);
  }
  int32_t o = 0;
  for (; o + kPairOuts <= outs; o += kPairOuts)
    multiply_pairs<kVectors, kPairOuts>(block.panel, block.weight + o * block.in, block.in, sums + o * kVectors);
  Ahead nothing;
  for (; o < outs; ++o)
    dot_tile<2, kVectors, 1>(block.panel, block.weight + o * block.in, block.in, nothing, sums + o * kVectors);
  for (int32_t s = outs * kVectors; s < kBlockOuts * kVectors; ++s) sums[s] = Ints{};
}

// The sums of one group by the instruction set's best way.
template <bool kTiles = kHasTiles, bool kPairs = kHasPairs>
KAIJU_INLINE void sum_group(const Group& group, const TileBlock& block, int32_t outs, Ints* sums) {
  static_assert(!kTiles || kMostVectors == 2);
  if constexpr (kTiles) {
    if (group.rows == kTileRows)
      return group.vectors == 2 ? tile_sums<2>(block, outs, sums) : tile_sums<1>(block, outs, sums);
  }
  if constexpr (kPairs) {
    if (group.rows == 2) return pair_sums(group, block, outs, sums);
  }
  block_sums_of(group)(block, outs, sums);
}

// ---- epilogue ----

// Stores `count` outputs of one row, kLanes or fewer.
template <MatmulKind P>
KAIJU_INLINE void store_outputs(const MatmulArgs& args, int32_t row, int32_t n, Ints acc, Floats scale, int32_t count) {
  const int64_t at = int64_t{row} * args.out + n;
  const Floats sum = to_floats(acc);
  if constexpr (P == MatmulKind::kLinear) {
    store_some(static_cast<float*>(args.result) + at, sum * scale, count);
  } else if constexpr (P == MatmulKind::kUp) {
    const Floats shifted = sum * scale + floats(-128.0f);
    const Floats u = to_floats(round_saturate(shifted, -128.0f, 127.0f) + 128);
    // rint(u * u / 255): no quotient lies within 1/510 of a tie, so this float form gives the integers of
    // arith::square_byte for all 256 bytes (tests/conformance).
    store_some(static_cast<uint8_t*>(args.result) + at, to_bytes(nearest((u * u) * floats(1.0f / 255.0f))), count);
  } else {
    Bf16* x = static_cast<Bf16*>(args.result) + at;
    store_some(x, to_bf16(fma(sum, scale, from_bf16(load_some<Words>(x, count)))), count);
  }
}

// The same of a row's high and low bytes.
KAIJU_INLINE void store_wide(const MatmulArgs& args, int32_t row, int32_t n, Ints high, Ints low, Floats scale,
                             int32_t count) {
  const Floats value = fma(floats(256.0f), to_floats(high) * scale, to_floats(low) * scale);
  store_some(static_cast<float*>(args.result) + int64_t{row} * args.out + n, value, count);
}

// What a tile's sums still need: rows [row, end) of a group, up to 16 outputs from n on.
template <MatmulKind P, int kRows>
void finish_block(const MatmulArgs& args, int32_t row, int32_t end, int32_t vectors, int32_t n, const Ints* sums) {
  constexpr int kSumRows = P == MatmulKind::kWide ? 2 : 1;  // that make a row of results
  constexpr int kAtOnce =
      kRows < kSumRows ? kSumRows : 1;  // vectors; a group of one row in each has an even number then
  for (int32_t c = 0; c < kBlockOuts && n + c < args.out; c += kLanes) {
    const int32_t count = args.out - n - c;
    const Floats scale = load_some<Floats>(args.scale + n + c, count);
    Ints repair{};
    if constexpr (flipped(P)) repair = load_some<Ints>(args.row_sum + n + c, count) * (kUnsignedPanel ? -128 : 128);
    for (int32_t v = 0; v < vectors; v += kAtOnce) {
      Ints out[kRows * kAtOnce];
      for (int i = 0; i < kAtOnce; ++i) collect<kRows>(sums + c * vectors + v + i, vectors, out + i * kRows);
      for (int r = 0; r < kRows * kAtOnce; r += kSumRows) {
        const int32_t at = row + v * kRows + r;
        if (at >= end) continue;
        if constexpr (P == MatmulKind::kWide)
          store_wide(args, at / 2, n + c, out[r] + repair, out[r + 1] + repair, scale, count);
        else
          store_outputs<P>(args, at, n + c, out[r] + repair, scale, count);
      }
    }
  }
}

// Asks for the lines of a group's results while its sums are computed.
template <MatmulKind P>
KAIJU_INLINE void prefetch_results(const MatmulArgs& args, int32_t row, int32_t end, int32_t n) {
  constexpr int32_t kSumRows = P == MatmulKind::kWide ? 2 : 1;
  constexpr int64_t kBytes = P == MatmulKind::kLinear || P == MatmulKind::kWide ? 4 : P == MatmulKind::kUp ? 1 : 2;
  for (int32_t at = row / kSumRows; at < end / kSumRows; ++at)
    __builtin_prefetch(static_cast<const char*>(args.result) + kBytes * (int64_t{at} * args.out + n), 1, 3);
}

// What group `index` of `count` brings nearer of the block of weights after that of outputs [n, n + kBlockOuts). Where
// the piece ends, the thread's next piece begins.
KAIJU_INLINE Ahead share_of_next(const MatmulArgs& args, const MatmulPiece& piece, int32_t n, int32_t index,
                                 int32_t count) {
  const bool within = n + kBlockOuts < piece.end_out;
  const int32_t outs = within ? piece.end_out - n - kBlockOuts : piece.next_outs;
  const int8_t* const weight = within ? args.weight + int64_t{n + kBlockOuts} * args.in : piece.next_weight;
  const int64_t lines = int64_t{least(kBlockOuts, outs)} * args.in / kLine;
  return {weight + lines * index / count * kLine, weight + lines * (index + 1) / count * kLine};
}

template <MatmulKind P>
void multiply(const MatmulArgs& args, const MatmulPiece& piece) {
  alignas(64) Ints sums[kBlockOuts * most(kMostVectors, kMostVectorsOfFew)];
  const TileUse tiles(kHasTiles && args.rows >= kFewestTileRows);
  const int32_t at_once = most(static_cast<int32_t>(kRowsBytes / args.in) / kMostRows, 1) * kMostRows;
  for (int32_t first = piece.first_row; first < piece.end_row; first += at_once) {
    const int32_t end = least(first + at_once, piece.end_row);
    for (int32_t n = piece.first_out; n < piece.end_out; n += kBlockOuts) {
      const int32_t outs = least(kBlockOuts, args.out - n);
      const int8_t* weight = args.weight + int64_t{n} * args.in;
      Group group;
      for (int32_t row = first; row < end; row += group.size()) {
        group = group_of(args.rows - row);
        const uint8_t* panel = static_cast<const uint8_t*>(args.prepared) + int64_t{row} * args.in;
        prefetch_results<P>(args, row, least(row + group.size(), end), n);
        const int32_t index = (row - first) / kMostRows, count = (end - first + kMostRows - 1) / kMostRows;
        sum_group(group, {panel, weight, args.in, share_of_next(args, piece, n, index, count), index % 2 == 1}, outs,
                  sums);
        with_rows(group, [&](auto rows) __attribute__((always_inline)) {
          finish_block<P, rows.value>(args, row, least(row + group.size(), end), group.vectors, n, sums);
        });
      }
    }
  }
}

}  // namespace
}  // namespace kaiju::cpu
