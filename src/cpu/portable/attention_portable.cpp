// Portable attention of one chunk of 512 keys, four query rows at a time (arithmetic.md, section 5).
//
// Both matrix products are dot products of 16-bit rows with bytes (portable.hpp). Keys are stored as [64
// tokens][head_dim] and values as [head_dim][64 tokens]; the two bytes of two rows' weights form the four rows of the
// second product. Invisible keys, which may be uninitialised memory, get weight 0. Bound: arithmetic; a third of it is
// the exponential, whose fused operations are emulated.
#include "kaiju/arith/rows.hpp"
#include "portable.hpp"

namespace kaiju::cpu {
namespace {

void rotate_quantise(const float* x, const Angle* angles, int32_t head_dim, const float* inverse, int8_t* out) {
  const int32_t middle = head_dim / 2;
  for (int32_t i = 0; i < middle; ++i) {
    out[i] = quantise(fma(x[i], angles[i].cos, -(x[middle + i] * angles[i].sin)), inverse[i]);
    out[middle + i] = quantise(fma(x[middle + i], angles[i].cos, x[i] * angles[i].sin), inverse[middle + i]);
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
  rotate_quantise(k, angles, head_dim, k_inverse, reinterpret_cast<int8_t*>(keys) + int64_t{token} * head_dim);
  auto* value = reinterpret_cast<int8_t*>(values) + token;
  for (int32_t i = 0; i < head_dim; ++i) value[i * kBlock] = quantise(v[i], v_inverse[i]);
}

constexpr int32_t kTile = 4;  // query rows that share the keys they widen

struct Scratch {
  int16_t query[kTile][kMaxHeadDim];
  int32_t score[kTile][kChunk];
  int16_t weight[2 * kTile][kChunk];  // high bytes of row r at 2 r, low bytes at 2 r + 1; 0 where nothing is visible
  int32_t sum[2 * kTile][kMaxHeadDim];
  float difference[kChunk];
  int32_t bits[kChunk];
  float scaled[kChunk];                          // scores times the scales of their keys
  float key_scale[kChunk], value_scale[kChunk];  // of the chunk's keys
  float largest_scale[kTile];                    // of the values that a tile row sees
};

struct Visible {
  int32_t from = 0, to = 0;  // within the chunk, `to` excluded; empty when to <= from
};

Visible visible_keys(const AttentionPiece& piece, int32_t query_row, int32_t chunk) {
  const int32_t position = piece.position + query_row / piece.head_count;
  const int32_t first = piece.window > 0 && position >= piece.window ? position - piece.window + 1 : 0;
  return {most(first - chunk, 0), least(position + 1 - chunk, kChunk)};
}

const int8_t* half(const AttentionPiece& piece, int32_t block) {
  return reinterpret_cast<const int8_t*>(piece.cache + int64_t{piece.table[block]} * piece.block_bytes);
}

template <int kRows>
void score_keys(const AttentionPiece& piece, int32_t chunk, int32_t from, int32_t to, Scratch& s) {
  for (int32_t j = from; j < to; ++j) {
    for (int r = 0; r < kRows; ++r) s.score[r][j] = 0;
    dot<kRows>(s.query[0], kMaxHeadDim, half(piece, (chunk + j) / kBlock) + int64_t{j % kBlock} * piece.head_dim,
               piece.head_dim, &s.score[0][j], kChunk);
  }
}

// z of a query row.
template <bool kScaled>
float z_of(const AttentionPiece& piece, int32_t query_row) {
  return kScaled ? piece.z[query_row / piece.head_count * piece.z_stride + query_row % piece.head_count] : *piece.z;
}

void take_scales(const AttentionPiece& piece, int32_t chunk, int32_t from, int32_t to, Scratch& s) {
  for (int32_t j = from; j < to; ++j) {
    const auto* scales =
        reinterpret_cast<const Bf16*>(half(piece, (chunk + j) / kBlock) + int64_t{2} * kBlock * piece.head_dim);
    s.key_scale[j] = arith::from_bf16(scales[j % kBlock]);
    s.value_scale[j] = arith::from_bf16(scales[kBlock + j % kBlock]);
  }
}

// Turns the scores of tile row r into the two bytes of their values' weights; returns the sum of the keys' weights, and
// the maximum.
template <bool kScaled>
int32_t weigh(Scratch& s, int r, Visible keys, float z, float& maximum) {
  const int32_t* score = s.score[r];
  for (int32_t j = keys.from; j < keys.to; ++j) {
    s.scaled[j] = static_cast<float>(score[j]);
    if constexpr (kScaled) s.scaled[j] *= s.key_scale[j];
  }
  maximum = kNothingSeen;
  for (int32_t j = keys.from; j < keys.to; ++j) maximum = at_least(s.scaled[j], maximum);
  const float least_difference = kLeastExponent / z;
  for (int32_t j = keys.from; j < keys.to; ++j) s.difference[j] = at_least(s.scaled[j] - maximum, least_difference);
  for (int32_t j = keys.from; j < keys.to; ++j)
    s.bits[j] = std::bit_cast<int32_t>(fma(65535.0f, exp2_product(s.difference[j], z), kRoundBias));
  int32_t total = 0;
  for (int32_t j = keys.from; j < keys.to; ++j) total += s.bits[j] & 0xFFFF;
  if constexpr (kScaled) {
    float largest = 0.0f;
    for (int32_t j = keys.from; j < keys.to; ++j) largest = at_least(s.value_scale[j], largest);
    const float inverse = largest > 0.0f ? 1.0f / largest : 0.0f;
    for (int32_t j = keys.from; j < keys.to; ++j)
      s.bits[j] =
          std::bit_cast<int32_t>(fma(static_cast<float>(s.bits[j] & 0xFFFF), s.value_scale[j] * inverse, kRoundBias));
    s.largest_scale[r] = largest;
  }
  for (int32_t j = keys.from; j < keys.to; ++j) {
    const int32_t weight = s.bits[j] & 0xFFFF;
    s.weight[2 * r][j] = static_cast<int16_t>(weight >> 8);
    s.weight[2 * r + 1][j] = static_cast<int16_t>(weight & 255);
  }
  return total;
}

template <int kByteRows>
void sum_values(const AttentionPiece& piece, int32_t chunk, int32_t first_block, int32_t end_block, int32_t byte_row,
                Scratch& s) {
  for (int32_t b = first_block; b < end_block; ++b) {
    const int8_t* values = half(piece, chunk / kBlock + b) + kBlock * piece.head_dim;
    for (int32_t i = 0; i < piece.head_dim; ++i)
      dot<kByteRows>(s.weight[byte_row] + kBlock * b, kChunk, values + kBlock * i, kBlock, &s.sum[byte_row][i],
                     kMaxHeadDim);
  }
}

template <bool kScaled>
void sum_chunk(const AttentionPiece& piece, int32_t chunk, const AttentionSums& sums, std::byte* memory) {
  Scratch& s = *reinterpret_cast<Scratch*>(memory);
  const int32_t rows = piece.row_count * piece.head_count, head_dim = piece.head_dim;
  for (int32_t tile = 0; tile < rows; tile += kTile) {
    const int32_t count = least(kTile, rows - tile);
    Visible keys[kTile];
    int32_t from = kChunk, to = 0;
    for (int32_t r = 0; r < count; ++r) {
      sums.maximum[tile + r] = kNothingSeen;
      keys[r] = visible_keys(piece, tile + r, chunk);
      if (keys[r].to <= keys[r].from) continue;
      from = least(from, keys[r].from);
      to = most(to, keys[r].to);
    }
    if (to <= from) continue;
    if constexpr (kScaled) take_scales(piece, chunk, from, to, s);
    for (int32_t r = 0; r < count; ++r) {
      const int8_t* query = piece.queries + (tile + r) / piece.head_count * piece.row_stride +
                            int64_t{(tile + r) % piece.head_count} * head_dim;
      for (int32_t i = 0; i < head_dim; ++i) s.query[r][i] = query[i];
    }
    switch (count) {
      case 4:
        score_keys<4>(piece, chunk, from, to, s);
        break;
      case 3:
        score_keys<3>(piece, chunk, from, to, s);
        break;
      case 2:
        score_keys<2>(piece, chunk, from, to, s);
        break;
      default:
        score_keys<1>(piece, chunk, from, to, s);
        break;
    }
    const int32_t first_block = from / kBlock, end_block = (to + kBlock - 1) / kBlock;
    for (int32_t r = 0; r < count; ++r) {
      for (int part = 0; part < 2; ++part) {
        for (int32_t j = kBlock * first_block; j < kBlock * end_block; ++j) s.weight[2 * r + part][j] = 0;
        for (int32_t i = 0; i < head_dim; ++i) s.sum[2 * r + part][i] = 0;
      }
      if (keys[r].from < keys[r].to)
        sums.total[tile + r] =
            static_cast<float>(weigh<kScaled>(s, r, keys[r], z_of<kScaled>(piece, tile + r), sums.maximum[tile + r]));
    }
    int32_t r = 0;
    for (; r + 2 <= count; r += 2) sum_values<4>(piece, chunk, first_block, end_block, 2 * r, s);
    if (r < count) sum_values<2>(piece, chunk, first_block, end_block, 2 * r, s);
    for (r = 0; r < count; ++r) {
      float* out = sums.out + int64_t{tile + r} * head_dim;
      for (int32_t i = 0; i < head_dim; ++i)
        out[i] = fma(256.0f, static_cast<float>(s.sum[2 * r][i]), static_cast<float>(s.sum[2 * r + 1][i]));
      if constexpr (kScaled)
        for (int32_t i = 0; i < head_dim; ++i) out[i] *= s.largest_scale[r];
    }
  }
}

template <bool kScaled>
void fold(const AttentionPiece& piece, const AttentionSums& total, const AttentionSums& later) {
  const int32_t head_dim = piece.head_dim;
  for (int32_t row = 0; row < piece.row_count * piece.head_count; ++row) {
    if (later.maximum[row] == kNothingSeen) continue;
    const float z = z_of<kScaled>(piece, row);
    float* sum = total.out + int64_t{row} * head_dim;
    const float* more = later.out + int64_t{row} * head_dim;
    if (total.maximum[row] == kNothingSeen) {
      total.maximum[row] = later.maximum[row];
      total.total[row] = later.total[row];
      for (int32_t i = 0; i < head_dim; ++i) sum[i] = more[i];
    } else if (total.maximum[row] <= later.maximum[row]) {
      const float factor = merge_factor(total.maximum[row] - later.maximum[row], z);
      total.maximum[row] = later.maximum[row];
      total.total[row] = fma(total.total[row], factor, later.total[row]);
      for (int32_t i = 0; i < head_dim; ++i) sum[i] = fma(sum[i], factor, more[i]);
    } else {
      const float factor = merge_factor(later.maximum[row] - total.maximum[row], z);
      total.total[row] = fma(later.total[row], factor, total.total[row]);
      for (int32_t i = 0; i < head_dim; ++i) sum[i] = fma(more[i], factor, sum[i]);
    }
  }
}

template <bool kScaled>
void finish(const AttentionPiece& piece, const AttentionSums& total) {
  for (int32_t row = 0; row < piece.row_count * piece.head_count; ++row) {
    const float inverse = 1.0f / total.total[row];
    const int64_t at = row / piece.head_count * piece.row_stride + int64_t{row % piece.head_count} * piece.head_dim;
    for (int32_t i = 0; i < piece.head_dim; ++i) {
      const float mean = total.out[int64_t{row} * piece.head_dim + i] * inverse;
      if constexpr (kScaled)
        static_cast<float*>(piece.out)[at + i] = mean * piece.out_factor[i];
      else
        static_cast<int8_t*>(piece.out)[at + i] = quantise(mean, piece.out_factor[i]);
    }
  }
}

// The row operations of version 2 are the scalar ones that define them.
void query_rows(const QueryRows& args, int32_t first, int32_t end) {
  for (int32_t row = first; row < end; ++row)
    for (int32_t h = 0; h < args.heads; ++h) arith::query_row(args, row, h);
}
void append_rows(const KeyValueRows& args, int32_t row, int32_t g, int32_t token, std::byte* keys, std::byte* values,
                 Bf16* key_scale, Bf16* value_scale) {
  int8_t value[kMaxHeadDim];
  *key_scale = arith::key_row(args, row, g, reinterpret_cast<int8_t*>(keys) + int64_t{token} * args.head_dim);
  *value_scale = arith::value_row(args, row, g, value);
  auto* to = reinterpret_cast<int8_t*>(values) + token;
  for (int32_t i = 0; i < args.head_dim; ++i) to[i * kBlock] = value[i];
}

}  // namespace

void add_attention_portable(Kernels& kernels) {
  kernels.queries = queries;
  kernels.append = append;
  kernels.attention_scratch_bytes = sizeof(Scratch);
  kernels.attention = {sum_chunk<false>, fold<false>, finish<false>};
  kernels.scaled_attention = {sum_chunk<true>, fold<true>, finish<true>};
  kernels.query_rows = query_rows;
  kernels.append_rows = append_rows;
}

}  // namespace kaiju::cpu
