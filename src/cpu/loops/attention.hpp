// Attention of one chunk of 512 keys for up to 48 query rows, a few at a time (arithmetic.md, section 5).
//
// Layout of a block's keys: [head_dim / 4][64 tokens][4 bytes], with 128 added for instruction sets that need unsigned
// bytes (kUnsignedPanel). So a vector of scores is computed with 4 query bytes broadcast over it. Layout of a block's
// values: [64 / kValueKeys groups][head_dim][kValueKeys bytes], with the keys in the order in which vectors of weights
// are produced without a shuffle across lanes (value_place).
//
// Invisible keys, which may be uninitialised memory, get weight 0. Bound: dot products plus about 15 vector operations
// for each vector of weights.
#pragma once

#include "rounding.hpp"
#include "tile_matmul.hpp"

namespace kaiju::cpu {
namespace {

constexpr int kAcross = kLanes * kScoreVectors;    // keys of a tile of scores
constexpr int kChannels = kLanes * kValueVectors;  // channels of a tile of values
constexpr int32_t kWeightBytes = kDigits * kDigitBytes;
constexpr int kMostTileRows = kHasTiles ? kTileRows : kScoreRows;  // query rows whose scores are kept at a time
static_assert(kBlock % kAcross == 0 && 64 % kChannels == 0);

struct Scratch {
  alignas(64) int32_t score[kMostTileRows][kChunk];  // with scales: floats, once they are weighed
  alignas(64) uint8_t weight[kMostTileRows][kWeightBytes];
  alignas(64) float key_scale[kChunk], value_scale[kChunk];  // of the chunk's keys
  float largest_scale[kMostTileRows];                        // of the values that a row sees
};

struct Visible {
  int32_t from = 0, to = 0;  // within the chunk, `to` excluded; empty when to <= from
};

KAIJU_INLINE Visible visible_keys(const AttentionPiece& piece, int32_t query_row, int32_t chunk) {
  const int32_t position = piece.position + query_row / piece.head_count;
  const int32_t first = piece.window > 0 && position >= piece.window ? position - piece.window + 1 : 0;
  return {most(first - chunk, 0), least(position + 1 - chunk, kChunk)};
}

KAIJU_INLINE const uint8_t* half(const AttentionPiece& piece, int32_t block) {
  return reinterpret_cast<const uint8_t*>(piece.cache + int64_t{piece.table[block]} * piece.block_bytes);
}

// Brings the next block's keys and this block's values nearer; the hardware does not follow from block to block.
KAIJU_INLINE void prefetch_block(const AttentionPiece& piece, int32_t chunk, int32_t b, int32_t end) {
  const int32_t half_bytes = kBlock * piece.head_dim;
  const uint8_t* values = half(piece, chunk / kBlock + b) + half_bytes;
  const uint8_t* next = b + 1 < end ? half(piece, chunk / kBlock + b + 1) : values;
  for (int32_t i = 0; i < half_bytes; i += 64) {
    __builtin_prefetch(next + i, 0, 3);
    __builtin_prefetch(values + i, 0, 2);
  }
}

// Scores of kRows query rows with the keys of chunk blocks [first, end).
template <int kRows>
KAIJU_INLINE void score_tile(const AttentionPiece& piece, const uint8_t* query, const int32_t* start, int32_t chunk,
                             int32_t first, int32_t end, bool prefetch, Scratch& scratch) {
  for (int32_t b = first; b < end; ++b) {
    if (prefetch) prefetch_block(piece, chunk, b, end);
    for (int32_t part = 0; part < kBlock; part += kAcross) {
      const uint8_t* keys = half(piece, chunk / kBlock + b) + 4 * part;
      Ints acc[kRows][kScoreVectors];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < kScoreVectors; ++c) acc[r][c] = ints(start[r]);
      }
      for (int32_t i = 0; i < piece.head_dim; i += 4, keys += 4 * kBlock) {
        Panel panel[kScoreVectors];
#pragma GCC unroll 4
        for (int c = 0; c < kScoreVectors; ++c) panel[c] = load_panel(keys + 4 * kLanes * c);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const Ints q = spread<4>(query + r * kMaxHeadDim + i);
#pragma GCC unroll 4
          for (int c = 0; c < kScoreVectors; ++c) add_products(acc[r][c], panel[c], q);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < kScoreVectors; ++c) store(&scratch.score[r][kBlock * b + part + kLanes * c], acc[r][c]);
      }
    }
  }
}

// Below every score, and far enough from the smallest int32 to subtract from.
constexpr int32_t kUnseenScore = -(1 << 30);

// x where keys.from <= key + lane < keys.to, else 0.
KAIJU_INLINE Ints keep_visible(Ints x, int32_t key, Visible keys) {
  Ints lane;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return x & (lane >= ints(keys.from - key)) & (lane < ints(keys.to - key));
}

// z of a query row.
template <bool kScaled>
KAIJU_INLINE float z_of(const AttentionPiece& piece, int32_t query_row) {
  return kScaled ? piece.z[query_row / piece.head_count * piece.z_stride + query_row % piece.head_count] : *piece.z;
}

KAIJU_INLINE void take_scales(const AttentionPiece& piece, int32_t chunk, int32_t first, int32_t end,
                              Scratch& scratch) {
  for (int32_t b = first; b < end; ++b) {
    const auto* scales =
        reinterpret_cast<const Bf16*>(half(piece, chunk / kBlock + b) + int64_t{2} * kBlock * piece.head_dim);
    for (int32_t i = 0; i < kBlock; i += kLanes) {
      store(&scratch.key_scale[kBlock * b + i], from_bf16(load<Words>(scales + i)));
      store(&scratch.value_scale[kBlock * b + i], from_bf16(load<Words>(scales + kBlock + i)));
    }
  }
}

// The largest scale of the values that a row sees.
KAIJU_INLINE float largest_scale(const Scratch& scratch, Visible keys, int32_t begin, int32_t stop) {
  Floats best{};
  for (int32_t j = begin; j < stop; j += kLanes) {
    Ints scales = load<Ints>(&scratch.value_scale[j]);
    if (j < keys.from || j + kLanes > keys.to) scales = keep_visible(scales, j, keys);
    best = most(best, (Floats)scales);
  }
  float largest = 0.0f;
  for (int lane = 0; lane < kLanes; ++lane) largest = best[lane] > largest ? best[lane] : largest;
  return largest;
}

// The largest of the visible scores of row r, which are made floats, times the scales of their keys; the others become
// the least float.
KAIJU_INLINE float scale_scores(Scratch& scratch, int r, Visible keys, int32_t begin, int32_t stop) {
  constexpr float kLeastScore = -0x1p120f;
  Floats best = floats(kLeastScore);
  for (int32_t j = begin; j < stop; j += kLanes) {
    Floats scaled = to_floats(load<Ints>(scratch.score[r] + j)) * load<Floats>(&scratch.key_scale[j]);
    if (j < keys.from || j + kLanes > keys.to) {
      const Ints seen = keep_visible(ints(-1), j, keys);
      scaled = (Floats)(((Ints)scaled & seen) | ((Ints)floats(kLeastScore) & ~seen));
    }
    store(scratch.score[r] + j, scaled);
    best = most(best, scaled);
  }
  float largest = kLeastScore;
  for (int lane = 0; lane < kLanes; ++lane) largest = best[lane] > largest ? best[lane] : largest;
  return largest;
}

// The largest of the visible scores of row r; the others become kUnseenScore.
KAIJU_INLINE int32_t largest_score(Scratch& scratch, int r, Visible keys, int32_t begin, int32_t stop) {
  int32_t* score = scratch.score[r];
  for (int32_t j = begin; j < keys.from; ++j) score[j] = kUnseenScore;
  for (int32_t j = keys.to; j < stop; ++j) score[j] = kUnseenScore;
  Ints best[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) best[c] = ints(kUnseenScore);
  for (int32_t j = begin; j < stop; j += 4 * kLanes) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) best[c] = most(best[c], load<Ints>(score + j + kLanes * c));
  }
  return most_of(most(most(best[0], best[1]), most(best[2], best[3])));
}

// Turns the scores of query row r into the weights of their values over blocks [first, end); returns the sum of the
// weights of the keys, and the maximum.
template <bool kScaled>
KAIJU_INLINE int32_t weigh(Scratch& scratch, int r, Visible keys, int32_t first, int32_t end, float z, float& maximum) {
  const int32_t* score = scratch.score[r];
  const int32_t begin = kBlock * first, stop = kBlock * end;
  int32_t largest = 0;
  Floats ratio{};  // 1 over the largest scale of the values
  if constexpr (kScaled) {
    maximum = scale_scores(scratch, r, keys, begin, stop);
    const float scale = largest_scale(scratch, keys, begin, stop);
    scratch.largest_scale[r] = scale;
    ratio = floats(scale > 0.0f ? 1.0f / scale : 0.0f);
  } else {
    largest = largest_score(scratch, r, keys, begin, stop);
    maximum = static_cast<float>(largest);
  }

  const Floats zs = floats(z), lowest = floats(-100.0f / z);  // 65535 * 2^-100 rounds to 0
  WeightSum sum;
  Ints key_sum{};
  for (int32_t j = begin; j < stop; j += 4 * kLanes) {
    Ints p[4];  // weights in the low 16 bits
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      Floats d;
      if constexpr (kScaled)
        d = load<Floats>(score + j + kLanes * c) - floats(maximum);
      else
        d = to_floats(load<Ints>(score + j + kLanes * c) - largest);
      if constexpr (kScaled || !kScalesByAny) d = most(d, lowest);
      p[c] = (Ints)fma(floats(65535.0f), exp2_product(d, zs), floats(kRoundBias));
    }
    if (j < keys.from || j + 4 * kLanes > keys.to) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) p[c] = keep_visible(p[c], j + kLanes * c, keys);
    }
    if constexpr (kScaled) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        const Ints weight = p[c] & 0xFFFF;
        key_sum += weight;
        const Floats share = load<Floats>(&scratch.value_scale[j + kLanes * c]) * ratio;
        p[c] = (Ints)fma(to_floats(weight), share, floats(kRoundBias));
      }
      if (j < keys.from || j + 4 * kLanes > keys.to) {
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) p[c] = keep_visible(p[c], j + kLanes * c, keys);
      }
    }
    store_weights(p, scratch.weight[r], j, sum);
  }
  return kScaled ? sum_of(key_sum) : total_of(sum, stop - begin);
}

// out[row] for kRows query rows: sums over blocks [first, end).
template <int kRows>
KAIJU_INLINE void value_tile(const AttentionPiece& piece, const uint8_t* weights, int32_t chunk, int32_t first,
                             int32_t end, float* out) {
  constexpr int kItems = kDigits * kRows;
  for (int32_t channel = 0; channel < piece.head_dim; channel += kChannels) {
    Ints acc[kItems][kValueVectors] = {}, value_sum[kValueVectors] = {};
    for (int32_t b = first; b < end; ++b) {
      const uint8_t* values = half(piece, chunk / kBlock + b) + kBlock * piece.head_dim + kValueKeys * channel;
      const uint8_t* weight = weights + kDigitBytes / kChunk * kBlock * b;
      for (int32_t g = 0; g < kBlock / kValueKeys; ++g, values += kValueKeys * piece.head_dim, weight += 4) {
        Ints v[kValueVectors];
#pragma GCC unroll 4
        for (int c = 0; c < kValueVectors; ++c) {
          v[c] = load_values(values + kValueKeys * kLanes * c);
          if constexpr (kSumsValues) add_values(value_sum[c], v[c], ints(kOnes));
        }
#pragma GCC unroll 8
        for (int i = 0; i < kItems; ++i) {
          const Ints w = spread<4>(weight + i * kDigitBytes);
#pragma GCC unroll 4
          for (int c = 0; c < kValueVectors; ++c) add_values(acc[i][c], v[c], w);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kValueVectors; ++c)
        store(out + int64_t{r} * piece.head_dim + channel + kLanes * c,
              weighted(&acc[kDigits * r][c], kValueVectors, value_sum[c]));
    }
  }
}

KAIJU_INLINE const int8_t* query_of(const AttentionPiece& piece, int32_t query_row) {
  return piece.queries + query_row / piece.head_count * piece.row_stride +
         int64_t{query_row % piece.head_count} * piece.head_dim;
}

// Copies a query and returns what its scores start from.
KAIJU_INLINE int32_t take_query(const int8_t* query, int32_t head_dim, uint8_t* to) {
  Ints sum{};
  for (int32_t i = 0; i < head_dim; i += kLanes) {
    const Bytes bytes = load<Bytes>(query + i);
    store(to + i, bytes);
    if constexpr (kUnsignedPanel) sum += to_ints(bytes);
  }
  return -128 * sum_of(sum);
}

template <int kRows = kScoreRows>
KAIJU_INLINE void score_tiles(int32_t rows, const AttentionPiece& piece, const uint8_t* query, const int32_t* start,
                              int32_t chunk, int32_t first, int32_t end, bool prefetch, Scratch& scratch) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return score_tiles<kRows - 1>(rows, piece, query, start, chunk, first, end, prefetch, scratch);
  }
  score_tile<kRows>(piece, query, start, chunk, first, end, prefetch, scratch);
}

template <int kRows = kValueRows>
KAIJU_INLINE void value_tiles(int32_t rows, const AttentionPiece& piece, const uint8_t* weights, int32_t chunk,
                              int32_t first, int32_t end, float* out) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return value_tiles<kRows - 1>(rows, piece, weights, chunk, first, end, out);
  }
  value_tile<kRows>(piece, weights, chunk, first, end, out);
}

// Rows of each of as few parts as `most_rows` allows: 4 + 4 rows load less than 6 + 2.
KAIJU_INLINE int32_t even_part(int32_t rows, int32_t most_rows) {
  const int32_t parts = (rows + most_rows - 1) / most_rows;
  return (rows + parts - 1) / parts;
}

// ---- by tiles ----
//
// 16 query rows are tile A. Keys and values are tile B where they lie: four channels of 16 keys beside each other, and
// four keys of 16 channels.

constexpr int32_t kFewestTileQueries = 5;  // fewer query rows go by vectors

template <int kRows>
void score_by_tiles(const AttentionPiece& piece, const uint8_t* queries, const int32_t* start, int32_t chunk,
                    int32_t first, int32_t end, bool prefetch, Scratch& scratch) {
  Ints starts[kRows];
  for (int r = 0; r < kRows; ++r) starts[r] = ints(start[r]);
  for (int32_t b = first; b < end; ++b) {
    if (prefetch) prefetch_block(piece, chunk, b, end);
    const uint8_t* keys = half(piece, chunk / kBlock + b);
    tile_load<0>(starts, sizeof(Ints));
    tile_load<1>(starts, sizeof(Ints));
    tile_load<2>(starts, sizeof(Ints));
    tile_load<3>(starts, sizeof(Ints));
    for (int32_t i = 0; i < piece.head_dim; i += kTileBytes, keys += kTileBytes * kBlock) {
      tile_load<4>(queries + i, kMaxHeadDim);
      tile_load<5>(keys, 4 * kBlock);
      tile_dot_su<0, 4, 5>();
      tile_load<6>(keys + 64, 4 * kBlock);
      tile_dot_su<1, 4, 6>();
      tile_load<7>(keys + 128, 4 * kBlock);
      tile_dot_su<2, 4, 7>();
      tile_load<5>(keys + 192, 4 * kBlock);
      tile_dot_su<3, 4, 5>();
    }
    int32_t* const score = scratch.score[0] + kBlock * b;
    tile_store<0>(score, sizeof scratch.score[0]);
    tile_store<1>(score + 16, sizeof scratch.score[0]);
    tile_store<2>(score + 32, sizeof scratch.score[0]);
    tile_store<3>(score + 48, sizeof scratch.score[0]);
  }
}

// Both bytes of the weights of 16 query rows times 32 channels at a time.
template <int kRows>
void value_by_tiles(int32_t rows, const AttentionPiece& piece, const uint8_t* weights, int32_t chunk, int32_t first,
                    int32_t end, float* out) {
  constexpr int kVectors = 2;
  Ints digits[2 * kRows][kVectors];
  for (int32_t channel = 0; channel < piece.head_dim; channel += kVectors * kLanes) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    for (int32_t b = first; b < end; ++b) {
      const uint8_t* values = half(piece, chunk / kBlock + b) + kBlock * piece.head_dim + kValueKeys * channel;
      const uint8_t* weight = weights + kBlock * b;
      tile_load<4>(weight, kWeightBytes);
      tile_load<6>(values, kValueKeys * piece.head_dim);
      tile_dot_us<0, 4, 6>();
      tile_load<7>(values + 64, kValueKeys * piece.head_dim);
      tile_dot_us<1, 4, 7>();
      tile_load<5>(weight + kDigitBytes, kWeightBytes);
      tile_dot_us<2, 5, 6>();
      tile_dot_us<3, 5, 7>();
    }
    tile_store<0>(digits[0], sizeof digits[0]);
    tile_store<1>(&digits[0][1], sizeof digits[0]);
    tile_store<2>(digits[kRows], sizeof digits[0]);
    tile_store<3>(&digits[kRows][1], sizeof digits[0]);
    for (int32_t r = 0; r < rows; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kVectors; ++c)
        store(out + int64_t{r} * piece.head_dim + channel + kLanes * c,
              weighted(&digits[r][c], kVectors * kRows, Ints{}));
    }
  }
}

template <bool kScaled>
void sum_chunk(const AttentionPiece& piece, int32_t chunk, const AttentionSums& sums, std::byte* memory) {
  Scratch& scratch = *reinterpret_cast<Scratch*>(memory);
  alignas(64) uint8_t queries[kMostTileRows][kMaxHeadDim];
  const int32_t rows = piece.row_count * piece.head_count;
  const bool by_tiles = kHasTiles && rows >= kFewestTileQueries;
  const TileUse tiles(by_tiles);
  const int32_t tile_rows = by_tiles ? kTileRows : even_part(rows, kScoreRows);
  for (int32_t tile = 0; tile < rows; tile += tile_rows) {
    const int32_t count = least(tile_rows, rows - tile);
    Visible keys[kMostTileRows];
    int32_t start[kMostTileRows] = {}, from = kChunk, to = 0;
    for (int32_t r = 0; r < count; ++r) {
      sums.maximum[tile + r] = kNothingSeen;
      keys[r] = visible_keys(piece, tile + r, chunk);
      if (keys[r].to <= keys[r].from) continue;
      from = least(from, keys[r].from);
      to = most(to, keys[r].to);
    }
    if (to <= from) continue;
    for (int32_t r = 0; r < count; ++r) start[r] = take_query(query_of(piece, tile + r), piece.head_dim, queries[r]);

    const int32_t first = from / kBlock, end = (to + kBlock - 1) / kBlock;
    if constexpr (kScaled) take_scales(piece, chunk, first, end, scratch);
    if constexpr (kHasTiles)
      if (by_tiles) score_by_tiles<kTileRows>(piece, queries[0], start, chunk, first, end, tile == 0, scratch);
    if (!by_tiles) score_tiles(count, piece, queries[0], start, chunk, first, end, tile == 0, scratch);
    for (int32_t r = 0; r < count; ++r) {
      if (keys[r].to <=
          keys[r].from) {  // its sums are computed but never looked at: bytes left from before would do as well
        __builtin_memset(scratch.weight[r], 0, kWeightBytes);
        scratch.largest_scale[r] = 0.0f;
        continue;
      }
      sums.total[tile + r] = static_cast<float>(
          weigh<kScaled>(scratch, r, keys[r], first, end, z_of<kScaled>(piece, tile + r), sums.maximum[tile + r]));
    }
    float* const out = sums.out + int64_t{tile} * piece.head_dim;
    if constexpr (kHasTiles)
      if (by_tiles) value_by_tiles<kTileRows>(count, piece, scratch.weight[0], chunk, first, end, out);
    if (!by_tiles) {
      const int32_t step = even_part(count, kValueRows);
      for (int32_t r = 0; r < count; r += step)
        value_tiles(least(step, count - r), piece, scratch.weight[r], chunk, first, end,
                    out + int64_t{r} * piece.head_dim);
    }
    if constexpr (kScaled)
      for (int32_t r = 0; r < count; ++r) {
        float* row = out + int64_t{r} * piece.head_dim;
        const Floats scale = floats(scratch.largest_scale[r]);
        for (int32_t i = 0; i < piece.head_dim; i += kLanes) store(row + i, load<Floats>(row + i) * scale);
      }
  }
}

template <bool kScaled>
void fold(const AttentionPiece& piece, const AttentionSums& total, const AttentionSums& later) {
  const int32_t head_dim = piece.head_dim;
  for (int32_t row = 0; row < piece.row_count * piece.head_count; ++row) {
    if (later.maximum[row] == kNothingSeen) continue;
    float* sum = total.out + int64_t{row} * head_dim;
    const float* add = later.out + int64_t{row} * head_dim;
    if (total.maximum[row] == kNothingSeen) {
      total.maximum[row] = later.maximum[row];
      total.total[row] = later.total[row];
      __builtin_memcpy(sum, add, sizeof(float) * static_cast<size_t>(head_dim));
      continue;
    }
    const float difference = total.maximum[row] - later.maximum[row];
    const bool scale_total = difference <= 0.0f;
    const Floats factor = merge_factor(scale_total ? difference : -difference, z_of<kScaled>(piece, row));
    const Floats a = floats(total.total[row]), b = floats(later.total[row]);
    total.total[row] = (scale_total ? fma(a, factor, b) : fma(b, factor, a))[0];
    if (scale_total) {
      total.maximum[row] = later.maximum[row];
      for (int32_t i = 0; i < head_dim; i += kLanes)
        store(sum + i, fma(load<Floats>(sum + i), factor, load<Floats>(add + i)));
    } else {
      for (int32_t i = 0; i < head_dim; i += kLanes)
        store(sum + i, fma(load<Floats>(add + i), factor, load<Floats>(sum + i)));
    }
  }
}

template <bool kScaled>
void finish_attention(const AttentionPiece& piece, const AttentionSums& total) {
  for (int32_t row = 0; row < piece.row_count * piece.head_count; ++row) {
    const Floats inverse = floats(1.0f / total.total[row]);
    const float* sum = total.out + int64_t{row} * piece.head_dim;
    const int64_t at = row / piece.head_count * piece.row_stride + int64_t{row % piece.head_count} * piece.head_dim;
    for (int32_t i = 0; i < piece.head_dim; i += kLanes) {
      const Floats mean = load<Floats>(sum + i) * inverse, factor = load<Floats>(piece.out_factor + i);
      if constexpr (kScaled)
        store(static_cast<float*>(piece.out) + at + i, mean * factor);
      else
        store(static_cast<int8_t*>(piece.out) + at + i, quantise(mean, factor));
    }
  }
}

// ---- into the cache ----

// Where the first channel of a token's value stands within its half; the next ones follow kValueKeys bytes apart.
KAIJU_INLINE int32_t value_place(int32_t token, int32_t head_dim) {
  const int32_t run = token / (kValueKeys * kLanes), part = token / kLanes % kValueKeys;
  const int32_t byte = kValueKeys == 4 ? (part & 1) * 2 + part / 2 : part;
  return (kLanes * run + token % kLanes) * kValueKeys * head_dim + byte;
}

void store_token(const int8_t* key, const int8_t* value, int32_t head_dim, int32_t token, std::byte* keys,
                 std::byte* values) {
  for (int32_t i = 0; i < head_dim; i += 4) {
    uint32_t four;
    __builtin_memcpy(&four, key + i, 4);
    if constexpr (kUnsignedPanel) four ^= 0x80808080u;
    __builtin_memcpy(keys + i * kBlock + 4 * token, &four, 4);
  }
  std::byte* to = values + value_place(token, head_dim);
  for (int32_t i = 0; i < head_dim; ++i) to[kValueKeys * i] = static_cast<std::byte>(value[i]);
}

KAIJU_INLINE void rotate_quantise(const float* x, const Angle* angles, int32_t head_dim, const float* inverse,
                                  int8_t* out) {
  const int32_t middle = head_dim / 2;
  for (int32_t i = 0; i < middle; i += kLanes) {
    const Floats low = load<Floats>(x + i), high = load<Floats>(x + middle + i);
    Floats cos, sin;
    load_angles(angles + i, cos, sin);
    store(out + i, quantise(fms(low, cos, high * sin), load<Floats>(inverse + i)));
    store(out + middle + i, quantise(fma(high, cos, low * sin), load<Floats>(inverse + middle + i)));
  }
}

void queries(const float* q, int32_t rows, const Angle* angles, int32_t heads, int32_t kv_heads, int32_t head_dim,
             const float* inverse, int8_t* out) {
  for (int32_t row = 0; row < rows; ++row)
    for (int32_t h = 0; h < heads; ++h) {
      const int64_t at = (int64_t{row} * heads + h) * head_dim;
      rotate_quantise(q + at, angles + int64_t{row} * (head_dim / 2), head_dim,
                      inverse + int64_t{h} * kv_heads / heads * head_dim, out + at);
    }
}

void append(const float* k, const float* v, const Angle* angles, int32_t head_dim, const float* k_inverse,
            const float* v_inverse, int32_t token, std::byte* keys, std::byte* values) {
  alignas(64) int8_t key[kMaxHeadDim], value[kMaxHeadDim];
  rotate_quantise(k, angles, head_dim, k_inverse, key);
  for (int32_t i = 0; i < head_dim; i += kLanes)
    store(value + i, quantise(load<Floats>(v + i), load<Floats>(v_inverse + i)));
  store_token(key, value, head_dim, token, keys, values);
}

}  // namespace
}  // namespace kaiju::cpu
