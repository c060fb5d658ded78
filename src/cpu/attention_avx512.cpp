// Attention of one chunk of 512 keys for up to 48 query rows, in tiles of 6 (arithmetic.md, section 5).
//
// Layout of a cache half. Keys: biased to unsigned (+128), [head_dim / 4][64 tokens][4 bytes], so 16 scores come in one vector with 4 query bytes broadcast, and
// 128 * sum(q) is taken off the start value. Values: [16 groups][head_dim][4 bytes]; group i holds tokens i, 32 + i, 16 + i, 48 + i, the order in which the
// weights' bytes come out of their vectors without a shuffle across lanes.
//
// Both products are the tile of the matrix products (accumulate_tile): the keys are its panel for the scores; for the output the values are, and each query row
// brings two rows of bytes, the high and the low halves of its weights. Invisible keys, which may be uninitialised memory, get weight 0.
// Bound: dot products (3 / 16 head_dim instructions a key and query row) plus some 15 vector operations per 16 weights.
#include "avx512.hpp"

namespace kaiju::cpu {
namespace {

constexpr int32_t kTile = 6;         // query rows
constexpr int32_t kValueTile = 3;    // query rows of one value tile: two byte rows each

struct Scratch {
  alignas(64) int32_t score[kTile][kChunk];
  alignas(64) uint8_t weight[2 * kTile][kChunk];  // high bytes of row r at 2 r, low bytes at 2 r + 1
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
    _mm_prefetch(reinterpret_cast<const char*>(next + i), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(values + i), _MM_HINT_T1);
  }
}

// Scores of kRows query rows with the keys of chunk blocks [first, end).
template <int kRows>
KAIJU_INLINE void score_tile(const AttentionPiece& piece, const uint8_t* query, int64_t stride, const int32_t* start, int32_t chunk, int32_t first, int32_t end, bool prefetch,
                             Scratch& scratch) {
  for (int32_t b = first; b < end; ++b) {
    if (prefetch) prefetch_block(piece, chunk, b, end);
    Ints acc[kRows][4];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) acc[r][c] = _mm512_set1_epi32(start[r]);
    }
    accumulate_tile<kRows, true>(half(piece, chunk / kBlock + b), 4 * kBlock, query, stride, piece.head_dim / 4, acc);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) _mm512_store_si512(&scratch.score[r][kBlock * b + 16 * c], acc[r][c]);
    }
  }
}

// Which of the 64 keys of chunk block b are visible.
KAIJU_INLINE uint64_t visible_in_block(Visible keys, int32_t b) {
  const int32_t from = most(keys.from - kBlock * b, 0), to = keys.to - kBlock * b;
  const uint64_t below_to = to >= kBlock ? ~uint64_t{0} : (uint64_t{1} << most(to, 0)) - 1;
  return from >= kBlock ? 0 : below_to & (~uint64_t{0} << from);
}

// Turns the scores of query row r into weight bytes over blocks [first, end); returns their sum, and the maximum.
KAIJU_INLINE int32_t weigh(Scratch& scratch, int r, Visible keys, int32_t first, int32_t end, float z, int32_t& maximum) {
  const int32_t* score = scratch.score[r];
  Ints best[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) best[c] = _mm512_set1_epi32(INT32_MIN);
  for (int32_t b = first; b < end; ++b) {
    const uint64_t seen = visible_in_block(keys, b);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c)
      best[c] = _mm512_mask_max_epi32(best[c], static_cast<__mmask16>(seen >> (16 * c)), best[c], _mm512_load_si512(score + kBlock * b + 16 * c));
  }
  maximum = _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_max_epi32(best[0], best[1]), _mm512_max_epi32(best[2], best[3])));

  const Ints top = _mm512_set1_epi32(maximum);
  const Floats zs = _mm512_set1_ps(z);
  Ints high_sum = _mm512_setzero_si512(), low_sum = high_sum;
  for (int32_t b = first; b < end; ++b) {
    const uint64_t seen = visible_in_block(keys, b);
    Ints p[4];  // weights in the low 16 bits
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const Floats d = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_load_si512(score + kBlock * b + 16 * c), top));
      const Floats e = exp2_product<false>(d, zs);  // where it should be 0 it is below 2^-126, and the weight 0 all the same
      p[c] = _mm512_castps_si512(_mm512_fmadd_ps(_mm512_set1_ps(65535.0f), e, _mm512_set1_ps(kRoundBias)));
    }
    if (seen != ~uint64_t{0}) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) p[c] = _mm512_maskz_mov_epi32(static_cast<__mmask16>(seen >> (16 * c)), p[c]);
    }
    const __mmask32 odd_words = 0xAAAAAAAA;
    const __mmask64 odd_bytes = 0xAAAAAAAAAAAAAAAA;
    const Ints even = _mm512_mask_mov_epi16(p[0], odd_words, _mm512_slli_epi32(p[1], 16));
    const Ints odd = _mm512_mask_mov_epi16(p[2], odd_words, _mm512_slli_epi32(p[3], 16));
    const Ints low = _mm512_mask_mov_epi8(even, odd_bytes, _mm512_slli_epi16(odd, 8));
    const Ints high = _mm512_mask_mov_epi8(_mm512_srli_epi16(even, 8), odd_bytes, odd);
    _mm512_store_si512(scratch.weight[2 * r] + kBlock * b, high);
    _mm512_store_si512(scratch.weight[2 * r + 1] + kBlock * b, low);
    add_products(high_sum, high, _mm512_set1_epi8(1));
    add_products(low_sum, low, _mm512_set1_epi8(1));
  }
  return _mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(high_sum, 8), low_sum));
}

// out[row] for kRows query rows from tile row r on: sums over blocks [first, end), 64 channels at a time.
template <int kRows>
KAIJU_INLINE void value_tile(const AttentionPiece& piece, const Scratch& scratch, int r, int32_t chunk, int32_t first, int32_t end, float* out) {
  for (int32_t channel = 0; channel < piece.head_dim; channel += 64) {
    Ints acc[2 * kRows][4];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kRows; ++i) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) acc[i][c] = _mm512_setzero_si512();
    }
    for (int32_t b = first; b < end; ++b) {
      const uint8_t* values = half(piece, chunk / kBlock + b) + kBlock * piece.head_dim + 4 * channel;
      accumulate_tile<2 * kRows, false>(values, int64_t{4} * piece.head_dim, scratch.weight[2 * r] + kBlock * b, kChunk, kBlock / 4, acc);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {  // both sums are exact as floats, so this is the sum rounded once
        const Floats sum = _mm512_fmadd_ps(_mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(acc[2 * i][c]), _mm512_cvtepi32_ps(acc[2 * i + 1][c]));
        _mm512_storeu_ps(out + int64_t{i} * piece.head_dim + channel + 16 * c, sum);
      }
    }
  }
}

KAIJU_INLINE int32_t sum_bytes(const int8_t* bytes, int32_t count) {
  Ints sum = _mm512_setzero_si512();
  for (int32_t i = 0; i < count; i += 64) sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(bytes + i));
  return _mm512_reduce_add_epi32(sum);
}

KAIJU_INLINE const int8_t* query_of(const AttentionPiece& piece, int32_t query_row) {
  return piece.queries + query_row / piece.head_count * piece.row_stride + int64_t{query_row % piece.head_count} * piece.head_dim;
}

void sum_chunk(const AttentionPiece& piece, int32_t chunk, const AttentionSums& sums, std::byte* memory) {
  Scratch& scratch = *reinterpret_cast<Scratch*>(memory);
  alignas(64) uint8_t queries[kTile][kMaxHeadDim];
  const int32_t rows = piece.row_count * piece.head_count;
  for (int32_t tile = 0; tile < rows; tile += kTile) {
    const int32_t count = least(kTile, rows - tile);
    Visible keys[kTile];
    int32_t start[kTile] = {}, from = kChunk, to = 0;
    for (int32_t r = 0; r < count; ++r) {
      keys[r] = visible_keys(piece, tile + r, chunk);
      if (keys[r].to <= keys[r].from) continue;
      from = least(from, keys[r].from);
      to = most(to, keys[r].to);
    }
    for (int32_t r = 0; r < count; ++r) sums.maximum[tile + r] = kNothingSeen;
    if (to <= from) continue;
    for (int32_t r = 0; r < count; ++r) {
      const int8_t* query = query_of(piece, tile + r);
      start[r] = -128 * sum_bytes(query, piece.head_dim);
      for (int32_t i = 0; i < piece.head_dim; i += 64) _mm512_store_si512(queries[r] + i, _mm512_loadu_si512(query + i));
    }

    const int32_t first = from / kBlock, end = (to + kBlock - 1) / kBlock;
    switch (count) {
      case 6: score_tile<6>(piece, queries[0], kMaxHeadDim, start, chunk, first, end, tile == 0, scratch); break;
      case 5: score_tile<5>(piece, queries[0], kMaxHeadDim, start, chunk, first, end, tile == 0, scratch); break;
      case 4: score_tile<4>(piece, queries[0], kMaxHeadDim, start, chunk, first, end, tile == 0, scratch); break;
      case 3: score_tile<3>(piece, queries[0], kMaxHeadDim, start, chunk, first, end, tile == 0, scratch); break;
      case 2: score_tile<2>(piece, queries[0], kMaxHeadDim, start, chunk, first, end, tile == 0, scratch); break;
      default: score_tile<1>(piece, queries[0], kMaxHeadDim, start, chunk, first, end, tile == 0, scratch); break;
    }
    for (int32_t r = 0; r < count; ++r) {
      if (keys[r].to <= keys[r].from) {  // its sums are computed but never looked at: bytes left from before would do as well
        __builtin_memset(scratch.weight[2 * r], 0, 2 * kChunk);
        continue;
      }
      sums.total[tile + r] = static_cast<float>(weigh(scratch, r, keys[r], first, end, piece.z, sums.maximum[tile + r]));
    }
    const int32_t step = count == 4 ? 2 : kValueTile;  // 2 + 2 loads less than 3 + 1
    for (int32_t r = 0; r < count; r += step) {
      float* out = sums.out + int64_t{tile + r} * piece.head_dim;
      switch (least(step, count - r)) {
        case 3: value_tile<3>(piece, scratch, r, chunk, first, end, out); break;
        case 2: value_tile<2>(piece, scratch, r, chunk, first, end, out); break;
        default: value_tile<1>(piece, scratch, r, chunk, first, end, out); break;
      }
    }
  }
}

void fold(int32_t query_rows, int32_t head_dim, float z, const AttentionSums& total, const AttentionSums& later) {
  for (int32_t row = 0; row < query_rows; ++row) {
    if (later.maximum[row] == kNothingSeen) continue;
    float* sum = total.out + int64_t{row} * head_dim;
    const float* add = later.out + int64_t{row} * head_dim;
    if (total.maximum[row] == kNothingSeen) {
      total.maximum[row] = later.maximum[row];
      total.total[row] = later.total[row];
      for (int32_t i = 0; i < head_dim; i += 16) _mm512_storeu_ps(sum + i, _mm512_loadu_ps(add + i));
      continue;
    }
    const int32_t difference = total.maximum[row] - later.maximum[row];
    const bool scale_total = difference <= 0;
    const Floats factor = exp2_product<true>(_mm512_set1_ps(static_cast<float>(scale_total ? difference : -difference)), _mm512_set1_ps(z));
    const Floats a = _mm512_set1_ps(total.total[row]), b = _mm512_set1_ps(later.total[row]);
    total.total[row] = _mm512_cvtss_f32(scale_total ? _mm512_fmadd_ps(a, factor, b) : _mm512_fmadd_ps(b, factor, a));
    if (scale_total) {
      total.maximum[row] = later.maximum[row];
      for (int32_t i = 0; i < head_dim; i += 16) _mm512_storeu_ps(sum + i, _mm512_fmadd_ps(_mm512_loadu_ps(sum + i), factor, _mm512_loadu_ps(add + i)));
    } else {
      for (int32_t i = 0; i < head_dim; i += 16) _mm512_storeu_ps(sum + i, _mm512_fmadd_ps(_mm512_loadu_ps(add + i), factor, _mm512_loadu_ps(sum + i)));
    }
  }
}

void finish(const AttentionPiece& piece, const AttentionSums& total) {
  for (int32_t row = 0; row < piece.row_count * piece.head_count; ++row) {
    const Floats inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_set1_ps(total.total[row]));
    const float* sum = total.out + int64_t{row} * piece.head_dim;
    int8_t* out = piece.out + row / piece.head_count * piece.row_stride + int64_t{row % piece.head_count} * piece.head_dim;
    for (int32_t i = 0; i < piece.head_dim; i += 16)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), quantise(_mm512_mul_ps(_mm512_loadu_ps(sum + i), inverse), _mm512_loadu_ps(piece.out_inverse + i)));
  }
}

// One token into a block: keys [head_dim / 4][64][4] biased, values [16][head_dim][4].
void store_token(const int8_t* key, const int8_t* value, int32_t head_dim, int32_t token, std::byte* keys, std::byte* values) {
  for (int32_t i = 0; i < head_dim; i += 4) {
    uint32_t four;
    __builtin_memcpy(&four, key + i, 4);
    four ^= 0x80808080u;
    __builtin_memcpy(keys + i * kBlock + 4 * token, &four, 4);
  }
  const int32_t quarter = token / 16;
  std::byte* to = values + int64_t{token % 16} * 4 * head_dim + ((quarter & 1) * 2 + quarter / 2);
  for (int32_t i = 0; i < head_dim; ++i) to[4 * i] = static_cast<std::byte>(value[i]);
}

// Rotates 16 pairs (low[i], high[i]) by angles [16].
KAIJU_INLINE void rotate(Floats& low, Floats& high, const Angle* angles) {
  const Floats a = _mm512_loadu_ps(&angles[0].cos), b = _mm512_loadu_ps(&angles[8].cos);
  const Ints even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const Ints odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const Floats cos = _mm512_permutex2var_ps(a, even, b), sin = _mm512_permutex2var_ps(a, odd, b);
  const Floats x = low, y = high;
  low = _mm512_fmsub_ps(x, cos, _mm512_mul_ps(y, sin));
  high = _mm512_fmadd_ps(y, cos, _mm512_mul_ps(x, sin));
}

KAIJU_INLINE void rotate_quantise(const float* x, const Angle* angles, int32_t head_dim, const float* inverse, int8_t* out) {
  const int32_t middle = head_dim / 2;
  for (int32_t i = 0; i < middle; i += 16) {
    Floats low = _mm512_loadu_ps(x + i), high = _mm512_loadu_ps(x + middle + i);
    rotate(low, high, angles + i);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), quantise(low, _mm512_loadu_ps(inverse + i)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + middle + i), quantise(high, _mm512_loadu_ps(inverse + middle + i)));
  }
}

void queries(const float* q, int32_t rows, const Angle* angles, int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  for (int32_t row = 0; row < rows; ++row)
    for (int32_t h = 0; h < heads; ++h) {
      const int64_t at = (int64_t{row} * heads + h) * head_dim;
      rotate_quantise(q + at, angles + int64_t{row} * (head_dim / 2), head_dim, inverse + int64_t{h} * kv_heads / heads * head_dim, out + at);
    }
}

void append(const float* k, const float* v, const Angle* angles, int32_t head_dim, const float* k_inverse, const float* v_inverse, int32_t token, std::byte* keys, std::byte* values) {
  alignas(64) int8_t key[kMaxHeadDim], value[kMaxHeadDim];
  rotate_quantise(k, angles, head_dim, k_inverse, key);
  for (int32_t i = 0; i < head_dim; i += 16)
    _mm_store_si128(reinterpret_cast<__m128i*>(value + i), quantise(_mm512_loadu_ps(v + i), _mm512_loadu_ps(v_inverse + i)));
  store_token(key, value, head_dim, token, keys, values);
}

}  // namespace

void add_attention_avx512(Kernels& kernels) {
  kernels.queries = queries;
  kernels.append = append;
  kernels.attention_scratch_bytes = sizeof(Scratch);
  kernels.sum_chunk = sum_chunk;
  kernels.fold = fold;
  kernels.finish = finish;
}

}  // namespace kaiju::cpu
