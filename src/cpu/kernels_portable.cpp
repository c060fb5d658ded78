// Portable kernels: plain loops that GCC vectorises for baseline x86-64 (SSE2, no fma) and everything else. Cache halves are [64 tokens][head_dim].
//
// Products: activations are widened to 16 bits once, and four rows share each row of W as it is widened, so that the inner loop is the multiply-add of
// 16-bit pairs. Bound: arithmetic everywhere but in single-row decode.
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
    const float clamped = shifted < -128.0f ? -128.0f : (shifted > 127.0f ? 127.0f : shifted);
    static_cast<uint8_t*>(args.result)[at] = arith::square_byte(static_cast<uint8_t>(static_cast<int32_t>(nearest(clamped)) + 128));
  } else {
    Bf16& x = static_cast<Bf16*>(args.result)[at];
    x = arith::to_bf16(fma(sum, args.scale[n], arith::from_bf16(x)));
  }
}

constexpr int32_t kOuts = 16;  // outputs whose sums wait for a common epilogue

template <int kRows>
inline void dot(const int16_t* a, const int8_t* weight, int32_t in, int32_t* acc) {
  int32_t sum[kRows] = {};
  for (int32_t k = 0; k < in; ++k) {
    const int16_t w = weight[k];
    for (int r = 0; r < kRows; ++r) sum[r] += int32_t{a[int64_t{r} * in + k]} * int32_t{w};
  }
  for (int r = 0; r < kRows; ++r) acc[r * kOuts] = sum[r];
}

template <Product P, int kRows>
void multiply_rows(const MatmulArgs& args, int32_t row, int32_t n, int32_t count) {
  int32_t acc[kRows * kOuts];
  const int16_t* a = static_cast<const int16_t*>(args.prepared) + int64_t{row} * args.in;
  for (int32_t o = 0; o < count; ++o) dot<kRows>(a, args.weight + int64_t{n + o} * args.in, args.in, acc + o);
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
  for (int32_t i = 0; i < middle; ++i) {
    const float a = x[i], b = x[middle + i];
    out[i] = quantise(fma(a, angles[i].cos, -(b * angles[i].sin)), inverse[i]);
    out[middle + i] = quantise(fma(b, angles[i].cos, a * angles[i].sin), inverse[middle + i]);
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
  rotate_quantise(k, angles, head_dim, k_inverse, reinterpret_cast<int8_t*>(keys) + int64_t{token} * head_dim);
  int8_t* value = reinterpret_cast<int8_t*>(values) + int64_t{token} * head_dim;
  for (int32_t i = 0; i < head_dim; ++i) value[i] = quantise(v[i], v_inverse[i]);
}

const int8_t* keys_of(const AttentionPiece& piece, int32_t position) {
  const auto* half = reinterpret_cast<const int8_t*>(piece.cache + int64_t{piece.table[position / kBlock]} * piece.block_bytes);
  return half + int64_t{position % kBlock} * piece.head_dim;
}
const int8_t* values_of(const AttentionPiece& piece, int32_t position) { return keys_of(piece, position) + kBlock * piece.head_dim; }

// One query row over the visible keys [from, to] of a chunk.
void sum_row(const AttentionPiece& piece, const int8_t* query, int32_t from, int32_t to, int32_t& maximum, float& total, float* out) {
  const int32_t head_dim = piece.head_dim, count = to - from + 1;
  int16_t wide[kMaxHeadDim];
  for (int32_t i = 0; i < head_dim; ++i) wide[i] = query[i];

  float difference[kChunk];
  int32_t score[kChunk];
  maximum = kNothingSeen;
  for (int32_t j = 0; j < count; ++j) {
    dot<1>(wide, keys_of(piece, from + j), head_dim, &score[j]);
    maximum = most(maximum, score[j]);
  }
  for (int32_t j = 0; j < count; ++j) difference[j] = static_cast<float>(score[j] - maximum);
  uint32_t weight[kChunk];
  for (int32_t j = 0; j < count; ++j)
    weight[j] = std::bit_cast<uint32_t>(fma(65535.0f, exp2_product(difference[j], piece.z), kRoundBias)) - std::bit_cast<uint32_t>(kRoundBias);

  uint32_t sum = 0;
  int32_t high[kMaxHeadDim] = {}, low[kMaxHeadDim] = {};  // of the weights' two bytes: each stays below 2^24
  for (int32_t j = 0; j < count; ++j) {
    sum += weight[j];
    if (weight[j] == 0) continue;
    const int8_t* value = values_of(piece, from + j);
    const auto weight_high = static_cast<int16_t>(weight[j] >> 8), weight_low = static_cast<int16_t>(weight[j] & 255);
    for (int32_t i = 0; i < head_dim; ++i) {  // |product| <= 255 * 127 fits 16 bits
      high[i] += static_cast<int16_t>(weight_high * value[i]);
      low[i] += static_cast<int16_t>(weight_low * value[i]);
    }
  }
  total = static_cast<float>(sum);
  for (int32_t i = 0; i < head_dim; ++i) out[i] = fma(256.0f, static_cast<float>(high[i]), static_cast<float>(low[i]));
}

void sum_chunk(const AttentionPiece& piece, int32_t chunk, const AttentionSums& sums, std::byte*) {
  for (int32_t row = 0; row < piece.row_count * piece.head_count; ++row) {
    const int32_t position = piece.position + row / piece.head_count;
    const int32_t first = piece.window > 0 && position >= piece.window ? position - piece.window + 1 : 0;
    const int32_t from = most(chunk, first), to = least(chunk + kChunk - 1, position);
    sums.maximum[row] = kNothingSeen;
    if (from > to) continue;
    const int8_t* query = piece.queries + row / piece.head_count * piece.row_stride + int64_t{row % piece.head_count} * piece.head_dim;
    sum_row(piece, query, from, to, sums.maximum[row], sums.total[row], sums.out + int64_t{row} * piece.head_dim);
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
      const float factor = exp2_product(static_cast<float>(total.maximum[row] - later.maximum[row]), z);
      total.maximum[row] = later.maximum[row];
      total.total[row] = fma(total.total[row], factor, later.total[row]);
      for (int32_t i = 0; i < head_dim; ++i) sum[i] = fma(sum[i], factor, more[i]);
    } else {
      const float factor = exp2_product(static_cast<float>(later.maximum[row] - total.maximum[row]), z);
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
      const float t = (logits[first + i] - maximum) * factor;
      const float kept = t < -31.0f ? -31.0f : t;
      const float n = nearest(kept);
      const float w = pow2(n, kept - n) * 0x1p30f;
      to[i] = t < -31.0f ? 0u : static_cast<uint32_t>(static_cast<int32_t>(__builtin_rintf(w)));
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
