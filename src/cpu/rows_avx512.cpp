// Row operations (embedding, norm), the integer part of sampling, and the table. Bound: memory and call overhead; all of them together are a few
// microseconds of a decode step.
#include "avx512.hpp"

namespace kaiju::cpu {

void add_matmul_avx512(Kernels& kernels);
void add_attention_avx512(Kernels& kernels);

namespace {

// width is a multiple of 16.
void embed(const int8_t* weight, int32_t width, const float* scale, const int32_t* tokens, int32_t rows, Bf16* x) {
  for (int32_t row = 0; row < rows; ++row) {
    const int8_t* bytes = weight + int64_t{tokens[row]} * width;
    const Floats s = _mm512_set1_ps(scale[tokens[row]]);
    for (int32_t i = 0; i < width; i += 16) {
      const Floats value = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i))));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(x + int64_t{row} * width + i), to_bf16(_mm512_mul_ps(value, s)));
    }
  }
}

KAIJU_INLINE Floats load_bf16(const Bf16* x) { return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))); }

// The contract's shape: 256 partial sums are the lanes of 16 vectors, and halving the width is adding the upper half of the vectors, then of the lanes.
KAIJU_INLINE __m128 sum_of_squares(const Bf16* x, int32_t width) {
  Floats partial[16];
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) partial[j] = _mm512_setzero_ps();
  int32_t i = 0;
  for (; i + 256 <= width; i += 256) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      const Floats value = load_bf16(x + i + 16 * j);
      partial[j] = _mm512_fmadd_ps(value, value, partial[j]);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) {
    if (i + 16 * j >= width) continue;
    const Floats value = load_bf16(x + i + 16 * j);
    partial[j] = _mm512_fmadd_ps(value, value, partial[j]);
  }
#pragma GCC unroll 4
  for (int half = 8; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int j = 0; j < half; ++j) partial[j] = _mm512_add_ps(partial[j], partial[j + half]);
  }
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(partial[0]), _mm512_extractf32x8_ps(partial[0], 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_add_ss(two, _mm_shuffle_ps(two, two, 1));
}

void norm(const Bf16* x, int32_t rows, int32_t width, float eps, float inverse, int8_t* a) {
  for (int32_t row = 0; row < rows; ++row, x += width, a += width) {
    const __m128 mean = _mm_add_ss(_mm_div_ss(sum_of_squares(x, width), _mm_set_ss(static_cast<float>(width))), _mm_set_ss(eps));
    const __m128 r = _mm_div_ss(_mm_set_ss(1.0f), _mm_sqrt_ss(mean));
    const Floats m = _mm512_broadcastss_ps(_mm_mul_ss(r, _mm_set_ss(inverse)));
    for (int32_t i = 0; i < width; i += 16) _mm_storeu_si128(reinterpret_cast<__m128i*>(a + i), quantise(load_bf16(x + i), m));
  }
}

float maximum(const float* logits, int32_t count) {
  Floats best = _mm512_set1_ps(logits[0]);
  for (int32_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = low_lanes(count - i);
    best = _mm512_mask_max_ps(best, lanes, best, _mm512_maskz_loadu_ps(lanes, logits + i));
  }
  return _mm512_reduce_max_ps(best);
}

// w = 0 if t < -31, else rint(2^30 * exp2(t)), t = (l - m) * factor: arithmetic.md, section 6.
uint64_t masses(const float* logits, int32_t count, float maximum, float factor, uint32_t* mass) {
  Ints total = _mm512_setzero_si512();
  const Floats top = _mm512_set1_ps(maximum), f = _mm512_set1_ps(factor);
  for (int32_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = low_lanes(count - i);
    const Floats t = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, logits + i), top), f);
    const __mmask16 kept = _mm512_mask_cmp_ps_mask(lanes, t, _mm512_set1_ps(-31.0f), _CMP_NLT_UQ);
    const Floats n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Floats e = _mm512_scalef_ps(pow2_fraction(_mm512_sub_ps(t, n)), n);
    const Ints w = _mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(_mm512_set1_ps(0x1p30f), e));
    if (mass) _mm512_mask_storeu_epi32(mass + i, lanes, w);
    total = _mm512_add_epi64(total, _mm512_add_epi64(_mm512_and_si512(w, _mm512_set1_epi64(0xFFFFFFFF)), _mm512_srli_epi64(w, 32)));
  }
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(total));
}

Kernels make_table() {
  Kernels kernels;
  kernels.isa = "avx512";
  kernels.embed = embed;
  kernels.norm = norm;
  kernels.maximum = maximum;
  kernels.masses = masses;
  add_matmul_avx512(kernels);
  add_attention_avx512(kernels);
  return kernels;
}

}  // namespace

const Kernels& avx512_kernels() {
  static const Kernels kernels = make_table();
  return kernels;
}

}  // namespace kaiju::cpu
