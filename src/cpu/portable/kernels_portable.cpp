// Portable kernels: plain loops that GCC vectorises for baseline x86-64 (SSE2, no fma) and other processors. This file
// has row operations, matmuls, sampling and the table of kernels.
//
// In matmuls, activations are widened to 16 bits once, and four rows share each widened row of weights, so that the
// inner loop is the multiply-add of 16-bit pairs. Bound: arithmetic, except in decode of a single row.
#include "kaiju/arith/rows.hpp"
#include "portable.hpp"

namespace kaiju::cpu {

void add_attention_portable(Kernels& kernels);
void add_candidates_portable(Kernels& kernels);

namespace {

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

template <MatmulKind P>
inline void store(const MatmulArgs& args, int64_t at, int32_t n, int32_t acc) {
  const auto sum = static_cast<float>(acc);
  if constexpr (P == MatmulKind::kLinear) {
    static_cast<float*>(args.result)[at] = sum * args.scale[n];
  } else if constexpr (P == MatmulKind::kUp) {
    const float shifted = sum * args.scale[n] + -128.0f;
    const auto u =
        static_cast<uint32_t>(static_cast<int32_t>(nearest(at_most(at_least(shifted, -128.0f), 127.0f))) + 128);
    static_cast<uint8_t*>(args.result)[at] = arith::square_byte(static_cast<uint8_t>(u));
  } else {
    Bf16& x = static_cast<Bf16*>(args.result)[at];
    x = arith::to_bf16(fma(sum, args.scale[n], arith::from_bf16(x)));
  }
}

inline void store_wide(const MatmulArgs& args, int64_t at, int32_t n, int32_t high, int32_t low) {
  const float scale = args.scale[n];
  static_cast<float*>(args.result)[at] = fma(256.0f, static_cast<float>(high) * scale, static_cast<float>(low) * scale);
}

constexpr int32_t kOuts = 16;  // outputs whose sums wait for a common epilogue

template <MatmulKind P, int kRows>
void multiply_rows(const MatmulArgs& args, int32_t row, int32_t n, int32_t count) {
  int32_t acc[kRows * kOuts] = {};
  const int16_t* a = static_cast<const int16_t*>(args.prepared) + int64_t{row} * args.in;
  for (int32_t o = 0; o < count; ++o)
    dot<kRows>(a, args.in, args.weight + int64_t{n + o} * args.in, args.in, acc + o, kOuts);
  if constexpr (P == MatmulKind::kWide) {
    for (int r = 0; r < kRows; r += 2)
      for (int32_t o = 0; o < count; ++o)
        store_wide(args, int64_t{(row + r) / 2} * args.out + n + o, n + o, acc[r * kOuts + o],
                   acc[(r + 1) * kOuts + o]);
  } else {
    for (int r = 0; r < kRows; ++r)
      for (int32_t o = 0; o < count; ++o)
        store<P>(args, int64_t{row + r} * args.out + n + o, n + o, acc[r * kOuts + o]);
  }
}

template <MatmulKind P>
void multiply(const MatmulArgs& args, const MatmulPiece& piece) {
  constexpr int kFewest = P == MatmulKind::kWide ? 2 : 1;
  for (int32_t n = piece.first_out; n < piece.end_out; n += kOuts) {
    const int32_t count = least(kOuts, piece.end_out - n);
    int32_t row = piece.first_row;
    for (; row + 4 <= piece.end_row; row += 4) multiply_rows<P, 4>(args, row, n, count);
    for (; row < piece.end_row; row += kFewest) multiply_rows<P, kFewest>(args, row, n, count);
  }
}

size_t prepared_bytes(int32_t rows, int32_t in) {
  return static_cast<size_t>(rows) * static_cast<size_t>(in) * sizeof(int16_t);
}

void prepare(const MatmulArgs& args, const PreparePiece& piece) {
  auto* wide = static_cast<int16_t*>(args.prepared);
  const auto widen = [&](const auto* bytes) {
    for (int32_t row = piece.first_row; row < piece.end_row; ++row) {
      const int64_t at = int64_t{row} * args.in;
      for (int64_t i = at + piece.first_in; i < at + piece.end_in; ++i) wide[i] = bytes[i];
    }
  };
  if (args.kind == MatmulKind::kAddDown)
    widen(static_cast<const uint8_t*>(args.bytes));
  else
    widen(static_cast<const int8_t*>(args.bytes));
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

// ---- version 2 of the arithmetic ----

// Calls the scalar operation that defines a row.
template <class Args, void (*kRow)(const Args&, int64_t)>
void each_row(const Args& args, int32_t first, int32_t end) {
  for (int32_t row = first; row < end; ++row) kRow(args, row);
}

Kernels make_table() {
  Kernels kernels;
  kernels.isa = "portable";
  kernels.embed = embed;
  kernels.norm = norm;
  kernels.prepared_bytes = prepared_bytes;
  kernels.prepare = prepare;
  kernels.row_unit = 2;  // the high and the low bytes of kWide
  kernels.out_unit = kOuts;
  kernels.matmul[static_cast<int>(MatmulKind::kLinear)] = multiply<MatmulKind::kLinear>;
  kernels.matmul[static_cast<int>(MatmulKind::kUp)] = multiply<MatmulKind::kUp>;
  kernels.matmul[static_cast<int>(MatmulKind::kAddLinear)] = multiply<MatmulKind::kAddLinear>;
  kernels.matmul[static_cast<int>(MatmulKind::kAddDown)] = multiply<MatmulKind::kAddDown>;
  kernels.matmul[static_cast<int>(MatmulKind::kWide)] = multiply<MatmulKind::kWide>;
  kernels.maximum = maximum;
  kernels.masses = masses;
  kernels.embed_rows = each_row<EmbedRows, arith::embed_row>;
  kernels.norm_rows = each_row<NormRows, arith::norm_quantise_row>;
  kernels.quantise_rows = each_row<QuantiseRows, arith::quantise_row>;
  kernels.gate_rows = each_row<GateRows, arith::gate_row>;
  kernels.add_rows = each_row<AddRows, arith::add_row>;
  kernels.logit_rows = each_row<LogitRows, arith::logit_row>;
  add_attention_portable(kernels);
  add_candidates_portable(kernels);
  return kernels;
}

}  // namespace

const Kernels& portable_kernels() {
  static const Kernels kernels = make_table();
  return kernels;
}

}  // namespace kaiju::cpu
