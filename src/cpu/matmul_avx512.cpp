// Matrix products with vpdpbusd (unsigned byte x signed byte, summed by fours into int32), weights in place.
//
// Few rows (decode): each row of W meets each row of activations as a dot product along K, 16 accumulators at a time, which a transposing addition
// turns into one vector of 16 outputs. Activations are biased to unsigned (+128), and 128 * row_sum[n] leaves again at the end. Bound: memory.
//
// Many rows (prefill): 64 outputs x K of W are repacked into a scratch panel, [K / 4][64 outputs][4 bytes], and reused by all rows: 6 rows x 64
// outputs of accumulators, no horizontal sums. The panel is biased to unsigned instead of the activations, so those are used where they
// lie; 128 * sum(a[row]) is taken off the start value. For the down projection the activations are unsigned already. Bound: the
// dot-product units, two instructions a cycle, for which a tile issues 24 products, 4 panel loads and 6 broadcasts.
//
// Limits: K a multiple of 64; any number of outputs (the tail is masked) and rows.
#include "avx512.hpp"

namespace kaiju::cpu {
namespace {

constexpr int32_t kPanelOuts = 64;
constexpr int32_t kTileRows = 6;
constexpr int32_t kMostFewRows = 16;  // the forms meet between 16 and 20 rows at K = 512 ... 5120 (bench/ops)

bool few(int32_t rows) { return rows <= kMostFewRows; }

// Stores 16 outputs of one row.
template <Product P>
KAIJU_INLINE void store(const MatmulArgs& args, int32_t row, int32_t n, Ints acc, __mmask16 lanes) {
  const int64_t at = int64_t{row} * args.out + n;
  const Floats scale = _mm512_maskz_loadu_ps(lanes, args.scale + n);
  const Floats sum = _mm512_cvtepi32_ps(acc);
  if constexpr (P == Product::kLinear) {
    _mm512_mask_storeu_ps(static_cast<float*>(args.result) + at, lanes, _mm512_mul_ps(sum, scale));
  } else if constexpr (P == Product::kUp) {
    const Floats shifted = _mm512_add_ps(_mm512_mul_ps(sum, scale), _mm512_set1_ps(-128.0f));
    const Floats u = _mm512_cvtepi32_ps(_mm512_add_epi32(round_saturate(shifted, -128.0f, 127.0f), _mm512_set1_epi32(128)));
    // rint(u * u / 255): no quotient lies within 1/510 of a tie, so this float form gives the integers of arith::square_byte for all 256 bytes (tests/conformance).
    const Ints square = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_mul_ps(u, u), _mm512_set1_ps(1.0f / 255.0f)));
    _mm_mask_storeu_epi8(static_cast<uint8_t*>(args.result) + at, lanes, _mm512_cvtepi32_epi8(square));
  } else {
    Bf16* x = static_cast<Bf16*>(args.result) + at;
    const Floats old = from_bf16(_mm256_maskz_loadu_epi16(lanes, x));
    _mm256_mask_storeu_epi16(x, lanes, to_bf16(_mm512_fmadd_ps(sum, scale, old)));
  }
}

// ---- few rows ----

// Lane i of the result is the sum of acc[i]'s lanes.
KAIJU_INLINE Ints sum_each(const Ints (&acc)[16]) {
  Ints pairs[8], fours[4];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) pairs[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(acc[2 * i], acc[2 * i + 1]), _mm512_unpackhi_epi32(acc[2 * i], acc[2 * i + 1]));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) fours[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]), _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
  const Ints low = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[0], fours[1], 0x88), _mm512_shuffle_i32x4(fours[0], fours[1], 0xDD));
  const Ints high = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[2], fours[3], 0x88), _mm512_shuffle_i32x4(fours[2], fours[3], 0xDD));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xDD));
}

// Dot products of kRows rows of bytes with 16 / kRows rows of W: lane r * (16 / kRows) + o. Prefetches what lies `ahead` bytes after W into
// the second-level cache: the first would not hold it beside this panel.
template <int kRows>
KAIJU_INLINE Ints dot_tile(const uint8_t* bytes, int64_t byte_stride, const int8_t* const* weight, int64_t ahead, int32_t in) {
  constexpr int kOuts = 16 / kRows;
  Ints acc[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_setzero_si512();
  for (int32_t k = 0; k < in; k += 64) {
    Ints a[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) a[r] = _mm512_loadu_si512(bytes + r * byte_stride + k);
#pragma GCC unroll 16
    for (int o = 0; o < kOuts; ++o) {
      const Ints w = _mm512_loadu_si512(weight[o] + k);
      _mm_prefetch(reinterpret_cast<const char*>(weight[o] + k + ahead), _MM_HINT_T1);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) add_products(acc[r * kOuts + o], a[r], w);
    }
  }
  return sum_each(acc);
}

// 16 outputs of kRows rows: out[r] holds row r.
template <int kRows>
KAIJU_INLINE void dot_panel(const uint8_t* bytes, int64_t byte_stride, const int8_t* const (&weight)[16], int64_t ahead, int32_t in, Ints (&out)[kRows]) {
  if constexpr (kRows == 1) {
    out[0] = dot_tile<1>(bytes, byte_stride, weight, ahead, in);
  } else if constexpr (kRows == 2) {
    const Ints low = dot_tile<2>(bytes, byte_stride, weight, ahead, in), high = dot_tile<2>(bytes, byte_stride, weight + 8, ahead, in);
    out[0] = _mm512_shuffle_i64x2(low, high, 0x44);
    out[1] = _mm512_shuffle_i64x2(low, high, 0xEE);
  } else {
    Ints part[4];
    for (int g = 0; g < 4; ++g) part[g] = dot_tile<4>(bytes, byte_stride, weight + 4 * g, ahead, in);
    const Ints a = _mm512_shuffle_i32x4(part[0], part[1], 0x44), b = _mm512_shuffle_i32x4(part[2], part[3], 0x44);
    const Ints c = _mm512_shuffle_i32x4(part[0], part[1], 0xEE), d = _mm512_shuffle_i32x4(part[2], part[3], 0xEE);
    out[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    out[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
    out[2] = _mm512_shuffle_i32x4(c, d, 0x88);
    out[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
  }
}

template <Product P, int kRows>
KAIJU_INLINE void few_rows(const MatmulArgs& args, const uint8_t* bytes, int32_t row, int32_t n, const int8_t* const (&weight)[16], int64_t ahead, Ints correction, __mmask16 lanes) {
  Ints out[kRows];
  dot_panel<kRows>(bytes + int64_t{row} * args.in, args.in, weight, ahead, args.in, out);
  for (int r = 0; r < kRows; ++r) store<P>(args, row + r, n, _mm512_sub_epi32(out[r], correction), lanes);
}

template <Product P>
void multiply_few(const MatmulArgs& args, const MatmulPiece& piece) {
  constexpr bool kUnsigned = P == Product::kAddDown;
  const auto* bytes = static_cast<const uint8_t*>(kUnsigned ? args.bytes : args.prepared);
  for (int32_t n = piece.first_out; n < piece.end_out; n += 16) {
    const __mmask16 lanes = low_lanes(args.out - n);
    const Ints correction = kUnsigned ? _mm512_setzero_si512() : _mm512_slli_epi32(_mm512_maskz_loadu_epi32(lanes, args.row_sum + n), 7);
    const int8_t* weight[16];
    for (int o = 0; o < 16; ++o) weight[o] = args.weight + int64_t{least(n + o, args.out - 1)} * args.in;
    const int64_t next = n + 32 <= piece.end_out ? int64_t{16} * args.in : 0;
    int32_t row = piece.first_row;
    for (; row + 4 <= piece.end_row; row += 4) few_rows<P, 4>(args, bytes, row, n, weight, next, correction, lanes);
    for (; row + 2 <= piece.end_row; row += 2) few_rows<P, 2>(args, bytes, row, n, weight, next, correction, lanes);
    for (; row < piece.end_row; ++row) few_rows<P, 1>(args, bytes, row, n, weight, next, correction, lanes);
  }
}

// ---- many rows ----

// Transposes 16 outputs x 64 bytes of W into 16 groups of [16 outputs][4 bytes], which lie 4 * kPanelOuts bytes apart.
KAIJU_INLINE void pack_square(const int8_t* const* weight, int32_t k, Ints flip, uint8_t* panel) {
  for (int q = 0; q < 4; ++q) {
    Ints row[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto load = [&](int o) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(weight[o] + k + 16 * q)); };
      const __m256i low = _mm256_inserti32x4(_mm256_castsi128_si256(load(j)), load(j + 4), 1);
      const __m256i high = _mm256_inserti32x4(_mm256_castsi128_si256(load(j + 8)), load(j + 12), 1);
      row[j] = _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), flip);
    }
    const Ints a = _mm512_unpacklo_epi32(row[0], row[1]), b = _mm512_unpacklo_epi32(row[2], row[3]);
    const Ints c = _mm512_unpackhi_epi32(row[0], row[1]), d = _mm512_unpackhi_epi32(row[2], row[3]);
    uint8_t* to = panel + q * 4 * 4 * kPanelOuts;
    _mm512_store_si512(to, _mm512_unpacklo_epi64(a, b));
    _mm512_store_si512(to + 4 * kPanelOuts, _mm512_unpackhi_epi64(a, b));
    _mm512_store_si512(to + 8 * kPanelOuts, _mm512_unpacklo_epi64(c, d));
    _mm512_store_si512(to + 12 * kPanelOuts, _mm512_unpackhi_epi64(c, d));
  }
}

// Outputs past the last one repeat it; the stores mask them.
void pack_panel(const MatmulArgs& args, int32_t n, bool to_unsigned, uint8_t* panel) {
  const Ints flip = _mm512_set1_epi8(to_unsigned ? -128 : 0);
  for (int32_t part = 0; part < kPanelOuts; part += 16) {
    const int8_t* weight[16];
    for (int o = 0; o < 16; ++o) weight[o] = args.weight + int64_t{least(n + part + o, args.out - 1)} * args.in;
    for (int32_t k = 0; k < args.in; k += 64) pack_square(weight, k, flip, panel + int64_t{k} * kPanelOuts + 4 * part);
  }
}

template <Product P, int kRows>
KAIJU_INLINE void many_rows(const MatmulArgs& args, const uint8_t* panel, int32_t row, int32_t n) {
  constexpr bool kUnsigned = P == Product::kAddDown;
  Ints acc[kRows][4];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Ints start = kUnsigned ? _mm512_setzero_si512() : _mm512_set1_epi32(-128 * static_cast<const int32_t*>(args.prepared)[row + r]);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) acc[r][c] = start;
  }
  accumulate_tile<kRows, !kUnsigned>(panel, 4 * kPanelOuts, static_cast<const uint8_t*>(args.bytes) + int64_t{row} * args.in, args.in, args.in / 4, acc);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) store<P>(args, row + r, n + 16 * c, acc[r][c], low_lanes(args.out - n - 16 * c));
  }
}

// Brings the weights of the next panel into the second-level cache, some lines with every tile of rows, so that packing need not wait for memory.
class PanelPrefetch {
 public:
  PanelPrefetch(const MatmulArgs& args, const MatmulPiece& piece, int32_t n) {
    const int64_t bytes = int64_t{kPanelOuts} * args.in;
    at_ = reinterpret_cast<const char*>(args.weight) + int64_t{n + kPanelOuts} * args.in;
    end_ = n + 2 * kPanelOuts <= piece.end_out ? at_ + bytes : at_;
    step_ = 64 * (bytes / 64 / ((piece.end_row - piece.first_row) / kTileRows + 1) + 1);
  }
  KAIJU_INLINE void some() {
    for (const char* stop = end_ - at_ < step_ ? end_ : at_ + step_; at_ < stop; at_ += 64) _mm_prefetch(at_, _MM_HINT_T1);
  }

 private:
  const char* at_;
  const char* end_;
  int64_t step_;
};

template <Product P>
void multiply_many(const MatmulArgs& args, const MatmulPiece& piece, uint8_t* panel) {
  for (int32_t n = piece.first_out; n < piece.end_out; n += kPanelOuts) {
    pack_panel(args, n, P != Product::kAddDown, panel);
    PanelPrefetch next(args, piece, n);
    int32_t row = piece.first_row;
    for (; row + kTileRows <= piece.end_row; row += kTileRows) {
      next.some();
      many_rows<P, kTileRows>(args, panel, row, n);
    }
    switch (piece.end_row - row) {
      case 5: many_rows<P, 5>(args, panel, row, n); break;
      case 4: many_rows<P, 4>(args, panel, row, n); break;
      case 3: many_rows<P, 3>(args, panel, row, n); break;
      case 2: many_rows<P, 2>(args, panel, row, n); break;
      case 1: many_rows<P, 1>(args, panel, row, n); break;
      default: break;
    }
  }
}

template <Product P>
void multiply(const MatmulArgs& args, const MatmulPiece& piece, std::byte* scratch) {
  if (few(args.rows)) multiply_few<P>(args, piece);
  else multiply_many<P>(args, piece, reinterpret_cast<uint8_t*>(scratch));
}

size_t prepared_bytes(int32_t rows, int32_t in) {
  return few(rows) ? static_cast<size_t>(rows) * static_cast<size_t>(in) : static_cast<size_t>(rows) * sizeof(int32_t);
}

size_t scratch_bytes(int32_t rows, int32_t in) { return few(rows) ? 0 : static_cast<size_t>(in) * kPanelOuts; }

int32_t out_unit(int32_t rows) { return few(rows) ? 16 : kPanelOuts; }

void prepare(const MatmulArgs& args, int32_t first_row, int32_t end_row) {
  if (args.product == Product::kAddDown) return;
  const auto* bytes = static_cast<const int8_t*>(args.bytes);
  if (few(args.rows)) {
    auto* biased = static_cast<uint8_t*>(args.prepared);
    for (int64_t i = int64_t{first_row} * args.in; i < int64_t{end_row} * args.in; i += 64)
      _mm512_storeu_si512(biased + i, _mm512_xor_si512(_mm512_loadu_si512(bytes + i), _mm512_set1_epi8(-128)));
    return;
  }
  for (int32_t row = first_row; row < end_row; ++row) {
    Ints sum = _mm512_setzero_si512();
    for (int32_t k = 0; k < args.in; k += 64) sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(bytes + int64_t{row} * args.in + k));
    static_cast<int32_t*>(args.prepared)[row] = _mm512_reduce_add_epi32(sum);
  }
}

}  // namespace

void add_matmul_avx512(Kernels& kernels) {
  kernels.prepared_bytes = prepared_bytes;
  kernels.prepare = prepare;
  kernels.matmul_scratch_bytes = scratch_bytes;
  kernels.out_unit = out_unit;
  kernels.matmul[static_cast<int>(Product::kLinear)] = multiply<Product::kLinear>;
  kernels.matmul[static_cast<int>(Product::kUp)] = multiply<Product::kUp>;
  kernels.matmul[static_cast<int>(Product::kAddLinear)] = multiply<Product::kAddLinear>;
  kernels.matmul[static_cast<int>(Product::kAddDown)] = multiply<Product::kAddDown>;
}

}  // namespace kaiju::cpu
