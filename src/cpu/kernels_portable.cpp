// Portable kernels: plain loops that GCC vectorises for baseline x86-64 (SSE2, no fma) and everything else.
//
// Products: activations are widened to 16 bits once, and four rows share each row of W as it is widened, so that the inner loop is the multiply-add of
// 16-bit pairs. Attention is the same loop twice: keys lie [64 tokens][head_dim], values [head_dim][64 tokens], and four query rows (the two bytes of two
// rows' weights) share what is widened. Bound: arithmetic everywhere but in single-row decode.
#include "portable.hpp"

namespace kaiju::cpu {
namespace {

int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

// ---- rows ----

void embed(const int8_t* weight, int32_t width, const float* scale, const int32_t* tokens, int32_t rows, Bf16* x) {
  for (int32_t row = 0; row < rows; ++row) {
    const int8_t* bytes = weight + int64_t{tokens[row]} * width;
    const float s = scale[tokens[row]];
    for (int32_t i = 0; i < width; ++i) x[int64_t{row} * width + i] = arith::to_bf16(static_cast<float>(bytes[i]) * s);
  }
}

float sum_of_squares(const Bf16* x, int32_t width) {
  float partial[256] = {};
  for (int32_t first = 0; first < width; first += 256) {
    const int32_t count = least(256, width - first);
    for (int32_t j = 0; j < count; ++j) {
      const float value = arith::from_bf16(x[first + j]);
      partial[j] = fma(value, value, partial[j]);
    }
  }
  for (int32_t half = 128; half > 0; half /= 2)
    for (int32_t j = 0; j < half; ++j) partial[j] += partial[j + half];
  return partial[0];
}

void norm(const Bf16* x, int32_t rows, int32_t width, float eps, float inverse, int8_t* a) {
  for (int32_t row = 0; row < rows; ++row, x += width, a += width) {
    const float mean = sum_of_squares(x, width) / static_cast<float>(width) + eps;
    const float m = (1.0f / __builtin_sqrtf(mean)) * inverse;
    for (int32_t i = 0; i < width; ++i) a[i] = quantise(arith::from_bf16(x[i]), m);
  }
}

// ---- products ----

template <Product P>
inline void store(const MatmulArgs& args, int64_t at, int32_t n, int32_t acc) {
  const auto sum = static_cast<float>(acc);
  if constexpr (P == Product::kLinear) {
    static_cast<float*>(args.result)[at] = sum * args.scale[n];
  } else if constexpr (P == Product::kUp) {
    const float shifted = sum * args.scale[n] + -128.0f;
    const auto u = static_cast<uint32_t>(static_cast<int32_t>(nearest(at_most(at_least(shifted, -128.0f), 127.0f))) + 128);
    static_cast<uint8_t*>(args.result)[at] = arith::square_byte(static_cast<uint8_t>(u));
  } else {
    Bf16& x = static_cast<Bf16*>(args.result)[at];
    x = arith::to_bf16(fma(sum, args.scale[n], arith::from_bf16(x)));
  }
}

constexpr int32_t kOuts = 16;  // outputs whose sums wait for a common epilogue

// sums[r * sums_stride] += dot product of row r of a with the bytes.
template <int kRows>
inline void dot(const int16_t* a, int64_t a_stride, const int8_t* bytes, int32_t count, int32_t* sums, int32_t sums_stride) {
  int32_t sum[kRows] = {};
  for (int32_t k = 0; k < count; ++k) {
    const int16_t b = bytes[k];
    for (int r = 0; r < kRows; ++r) sum[r] += int32_t{a[r * a_stride + k]} * int32_t{b};
  }
  for (int r = 0; r < kRows; ++r) sums[r * sums_stride] += sum[r];
}

template <Product P, int kRows>
void multiply_rows(const MatmulArgs& args, int32_t row, int32_t n, int32_t count) {
  int32_t acc[kRows * kOuts] = {};
  const int16_t* a = static_cast<const int16_t*>(args.prepared) + int64_t{row} * args.in;
  for (int32_t o = 0; o < count; ++o) dot<kRows>(a, args.in, args.weight + int64_t{n + o} * args.in, args.in, acc + o, kOuts);
  for (int r = 0; r < kRows; ++r)
    for (int32_t o = 0; o < count; ++o) store<P>(args, int64_t{row + r} * args.out + n + o, n + o, acc[r * kOuts + o]);
}

template <Product P>
void multiply(const MatmulArgs& args, const MatmulPiece& piece, std::byte*) {
  for (int32_t n = piece.first_out; n < piece.end_out; n += kOuts) {
    const int32_t count = least(kOuts, piece.end_out - n);
    int32_t row = piece.first_row;
    for (; row + 4 <= piece.end_row; row += 4) multiply_rows<P, 4>(args, row, n, count);
    for (; row < piece.end_row; ++row) multiply_rows<P, 1>(args, row, n, count);
  }
}

size_t prepared_bytes(int32_t rows, int32_t in) { return static_cast<size_t>(rows) * static_cast<size_t>(in) * sizeof(int16_t); }
size_t scratch_bytes(int32_t, int32_t) { return 0; }
int32_t out_unit(int32_t) { return kOuts; }

void prepare(const MatmulArgs& args, int32_t first_row, int32_t end_row) {
  auto* wide = static_cast<int16_t*>(args.prepared);
  const int64_t first = int64_t{first_row} * args.in, end = int64_t{end_row} * args.in;
  if (args.product == Product::kAddDown) {
    const auto* bytes = static_cast<const uint8_t*>(args.bytes);
    for (int64_t i = first; i < end; ++i) wide[i] = bytes[i];
  } else {
    const auto* bytes = static_cast<const int8_t*>(args.bytes);
    for (int64_t i = first; i < end; ++i) wide[i] = bytes[i];
  }
}

// ---- attention ----

void rotate_quantise(const float* x, const Angle* angles, int32_t head_dim, const float* inverse, int8_t* out) {
  const int32_t middle = head_dim / 2;
  float turned[kMaxHeadDim];
  for (int32_t i = 0; i < middle; ++i) {
    turned[i] = fma(x[i], angles[i].cos, -(x[middle + i] * angles[i].sin));
    turned[middle + i] = fma(x[middle + i], angles[i].cos, x[i] * angles[i].sin);
  }
  for (int32_t i = 0; i < head_dim; ++i) out[i] = quantise(turned[i], inverse[i]);
}

void queries(const float* q, int32_t rows, const Angle* angles, int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  for (int32_t row = 0; row < rows; ++row)
    for (int32_t h = 0; h < heads; ++h) {
      const int64_t at = (int64_t{row} * heads + h) * head_dim;
      rotate_quantise(q + at, angles + int64_t{row} * (head_dim / 2), head_dim, inverse + int64_t{h} * kv_heads / heads * head_dim, out + at);
    }
}

void append(const float* k, const float* v, const Angle* angles, int32_t head_dim, const float* k_inverse, const float* v_inverse, int32_t token, std::byte* keys, std::byte* values) {
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
};

struct Visible {
  int32_t from = 0, to = 0;  // within the chunk, `to` excluded; empty when to <= from
};

Visible visible_keys(const AttentionPiece& piece, int32_t query_row, int32_t chunk) {
  const int32_t position = piece.position + query_row / piece.head_count;
  const int32_t first = piece.window > 0 && position >= piece.window ? position - piece.window + 1 : 0;
  return {most(first - chunk, 0), least(position + 1 - chunk, kChunk)};
}

const int8_t* half(const AttentionPiece& piece, int32_t block) { return reinterpret_cast<const int8_t*>(piece.cache + int64_t{piece.table[block]} * piece.block_bytes); }

template <int kRows>
void score_keys(const AttentionPiece& piece, int32_t chunk, int32_t from, int32_t to, Scratch& s) {
  for (int32_t j = from; j < to; ++j) {
    for (int r = 0; r < kRows; ++r) s.score[r][j] = 0;
    dot<kRows>(s.query[0], kMaxHeadDim, half(piece, (chunk + j) / kBlock) + int64_t{j % kBlock} * piece.head_dim, piece.head_dim, &s.score[0][j], kChunk);
  }
}

// Turns the scores of tile row r into the two bytes of their weights; returns the sum of the weights, and the maximum.
int32_t weigh(Scratch& s, int r, Visible keys, float z, int32_t& maximum) {
  const int32_t* score = s.score[r];
  maximum = kNothingSeen;
  for (int32_t j = keys.from; j < keys.to; ++j) maximum = score[j] > maximum ? score[j] : maximum;
  const float least_difference = kLeastExponent / z;
  for (int32_t j = keys.from; j < keys.to; ++j) s.difference[j] = at_least(static_cast<float>(score[j] - maximum), least_difference);
  for (int32_t j = keys.from; j < keys.to; ++j) s.bits[j] = std::bit_cast<int32_t>(fma(65535.0f, exp2_product(s.difference[j], z), kRoundBias));
  int32_t total = 0;
  for (int32_t j = keys.from; j < keys.to; ++j) {
    const int32_t weight = s.bits[j] & 0xFFFF;
    total += weight;
    s.weight[2 * r][j] = static_cast<int16_t>(weight >> 8);
    s.weight[2 * r + 1][j] = static_cast<int16_t>(weight & 255);
  }
  return total;
}

template <int kByteRows>
void sum_values(const AttentionPiece& piece, int32_t chunk, int32_t first_block, int32_t end_block, int32_t byte_row, Scratch& s) {
  for (int32_t b = first_block; b < end_block; ++b) {
    const int8_t* values = half(piece, chunk / kBlock + b) + kBlock * piece.head_dim;
    for (int32_t i = 0; i < piece.head_dim; ++i)
      dot<kByteRows>(s.weight[byte_row] + kBlock * b, kChunk, values + kBlock * i, kBlock, &s.sum[byte_row][i], kMaxHeadDim);
  }
}

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
    for (int32_t r = 0; r < count; ++r) {
      const int8_t* query = piece.queries + (tile + r) / piece.head_count * piece.row_stride + int64_t{(tile + r) % piece.head_count} * head_dim;
      for (int32_t i = 0; i < head_dim; ++i) s.query[r][i] = query[i];
    }
    switch (count) {
      case 4: score_keys<4>(piece, chunk, from, to, s); break;
      case 3: score_keys<3>(piece, chunk, from, to, s); break;
      case 2: score_keys<2>(piece, chunk, from, to, s); break;
      default: score_keys<1>(piece, chunk, from, to, s); break;
    }
    const int32_t first_block = from / kBlock, end_block = (to + kBlock - 1) / kBlock;
    for (int32_t r = 0; r < count; ++r) {
      for (int part = 0; part < 2; ++part) {
        for (int32_t j = kBlock * first_block; j < kBlock * end_block; ++j) s.weight[2 * r + part][j] = 0;
        for (int32_t i = 0; i < head_dim; ++i) s.sum[2 * r + part][i] = 0;
      }
      if (keys[r].from < keys[r].to) sums.total[tile + r] = static_cast<float>(weigh(s, r, keys[r], piece.z, sums.maximum[tile + r]));
    }
    int32_t r = 0;
    for (; r + 2 <= count; r += 2) sum_values<4>(piece, chunk, first_block, end_block, 2 * r, s);
    if (r < count) sum_values<2>(piece, chunk, first_block, end_block, 2 * r, s);
    for (r = 0; r < count; ++r) {
      float* out = sums.out + int64_t{tile + r} * head_dim;
      for (int32_t i = 0; i < head_dim; ++i) out[i] = fma(256.0f, static_cast<float>(s.sum[2 * r][i]), static_cast<float>(s.sum[2 * r + 1][i]));
    }
  }
}

void fold(int32_t query_rows, int32_t head_dim, float z, const AttentionSums& total, const AttentionSums& later) {
  for (int32_t row = 0; row < query_rows; ++row) {
    if (later.maximum[row] == kNothingSeen) continue;
    float* sum = total.out + int64_t{row} * head_dim;
    const float* more = later.out + int64_t{row} * head_dim;
    if (total.maximum[row] == kNothingSeen) {
      total.maximum[row] = later.maximum[row];
      total.total[row] = later.total[row];
      for (int32_t i = 0; i < head_dim; ++i) sum[i] = more[i];
    } else if (total.maximum[row] <= later.maximum[row]) {
      const float factor = merge_factor(static_cast<float>(total.maximum[row] - later.maximum[row]), z);
      total.maximum[row] = later.maximum[row];
      total.total[row] = fma(total.total[row], factor, later.total[row]);
      for (int32_t i = 0; i < head_dim; ++i) sum[i] = fma(sum[i], factor, more[i]);
    } else {
      const float factor = merge_factor(static_cast<float>(later.maximum[row] - total.maximum[row]), z);
      total.total[row] = fma(later.total[row], factor, total.total[row]);
      for (int32_t i = 0; i < head_dim; ++i) sum[i] = fma(more[i], factor, sum[i]);
    }
  }
}

void finish(const AttentionPiece& piece, const AttentionSums& total) {
  for (int32_t row = 0; row < piece.row_count * piece.head_count; ++row) {
    const float inverse = 1.0f / total.total[row];
    int8_t* out = piece.out + row / piece.head_count * piece.row_stride + int64_t{row % piece.head_count} * piece.head_dim;
    for (int32_t i = 0; i < piece.head_dim; ++i) out[i] = quantise(total.out[int64_t{row} * piece.head_dim + i] * inverse, piece.out_inverse[i]);
  }
}

// ---- sampling ----

float maximum(const float* logits, int32_t count) {
  float best = logits[0];
  for (int32_t i = 1; i < count; ++i) best = logits[i] > best ? logits[i] : best;
  return best;
}

uint64_t masses(const float* logits, int32_t count, float maximum, float factor, uint32_t* mass) {
  constexpr int32_t kPiece = 256;
  uint64_t total = 0;
  uint32_t some[kPiece];
  for (int32_t first = 0; first < count; first += kPiece) {
    const int32_t here = least(kPiece, count - first);
    uint32_t* to = mass ? mass + first : some;
    for (int32_t i = 0; i < here; ++i) {
      // Below -31 the mass is 0, and rounds to it from -32 as well.
      const float t = at_least((logits[first + i] - maximum) * factor, -32.0f);
      const float n = nearest(t);
      const double w = pow2(n, t - n) * 0x1p30f;
      to[i] = static_cast<uint32_t>(std::bit_cast<uint64_t>(w + 0x1.8p52));  // the nearest integer in the low bits
    }
    for (int32_t i = 0; i < here; ++i) total += to[i];
  }
  return total;
}

Kernels make_table() {
  Kernels kernels;
  kernels.isa = "portable";
  kernels.embed = embed;
  kernels.norm = norm;
  kernels.prepared_bytes = prepared_bytes;
  kernels.prepare = prepare;
  kernels.matmul_scratch_bytes = scratch_bytes;
  kernels.out_unit = out_unit;
  kernels.matmul[static_cast<int>(Product::kLinear)] = multiply<Product::kLinear>;
  kernels.matmul[static_cast<int>(Product::kUp)] = multiply<Product::kUp>;
  kernels.matmul[static_cast<int>(Product::kAddLinear)] = multiply<Product::kAddLinear>;
  kernels.matmul[static_cast<int>(Product::kAddDown)] = multiply<Product::kAddDown>;
  kernels.attention_scratch_bytes = sizeof(Scratch);
  kernels.queries = queries;
  kernels.append = append;
  kernels.sum_chunk = sum_chunk;
  kernels.fold = fold;
  kernels.finish = finish;
  kernels.maximum = maximum;
  kernels.masses = masses;
  return kernels;
}

}  // namespace

const Kernels& portable_kernels() {
  static const Kernels kernels = make_table();
  return kernels;
}

}  // namespace kaiju::cpu
