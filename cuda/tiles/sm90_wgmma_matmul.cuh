// wgmma for matmuls: both int8 operands are in shared memory, swizzled by TMA in rows of 128 bytes, with the output
// columns of a whole tile. Compiles for sm_90a only.
#pragma once

#include <cstdint>

#include "sm80_mma.cuh"
#include "sm90_wgmma.cuh"

namespace kaiju::cuda {

// A tile [rows][128 bytes], as copy_box leaves it with 128-byte swizzling, 1024-byte aligned; 32 bytes further along k
// is 2 more.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
  return uint64_t{(address & 0x3FFFFu) >> 4} | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ void store_shared(uint32_t address, int4 v) {
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ int4 load_shared(uint32_t address) {
  int4 v;
  asm volatile("ld.shared.v4.s32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// c [64, kCols] (+)= a [64, 32] b [kCols, 32] by a warpgroup. Lane (g, t) of warp w holds rows 16 w + g and + 8,
// columns 8 j + 2 t and + 1: c[4 j + 2 upper + odd].
#define KAIJU_SUMS8(i)                                                                                        \
  "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]), "+r"(c[i + 6]), \
      "+r"(c[i + 7])
#define KAIJU_SUMS24 KAIJU_SUMS8(0), KAIJU_SUMS8(8), KAIJU_SUMS8(16)
#define KAIJU_SUMS32 KAIJU_SUMS24, KAIJU_SUMS8(24)
#define KAIJU_SUMS40 KAIJU_SUMS32, KAIJU_SUMS8(32)
#define KAIJU_SUMS48 KAIJU_SUMS40, KAIJU_SUMS8(40)
#define KAIJU_SUMS56 KAIJU_SUMS48, KAIJU_SUMS8(48)
#define KAIJU_SUMS64 KAIJU_SUMS56, KAIJU_SUMS8(56)
#define KAIJU_SUMS72 KAIJU_SUMS64, KAIJU_SUMS8(64)
#define KAIJU_SUMS80 KAIJU_SUMS72, KAIJU_SUMS8(72)
#define KAIJU_SUMS88 KAIJU_SUMS80, KAIJU_SUMS8(80)
#define KAIJU_SUMS96 KAIJU_SUMS88, KAIJU_SUMS8(88)
#define KAIJU_SUMS104 KAIJU_SUMS96, KAIJU_SUMS8(96)
#define KAIJU_SUMS112 KAIJU_SUMS104, KAIJU_SUMS8(104)
#define KAIJU_SUMS120 KAIJU_SUMS112, KAIJU_SUMS8(112)
#define KAIJU_SUMS128 KAIJU_SUMS120, KAIJU_SUMS8(120)
#define KAIJU_PLACES24 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23"
#define KAIJU_PLACES32 KAIJU_PLACES24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define KAIJU_PLACES40 KAIJU_PLACES32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define KAIJU_PLACES48 KAIJU_PLACES40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define KAIJU_PLACES56 KAIJU_PLACES48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define KAIJU_PLACES64 KAIJU_PLACES56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define KAIJU_PLACES72 KAIJU_PLACES64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define KAIJU_PLACES80 KAIJU_PLACES72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define KAIJU_PLACES88 KAIJU_PLACES80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define KAIJU_PLACES96 KAIJU_PLACES88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define KAIJU_PLACES104 KAIJU_PLACES96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define KAIJU_PLACES112 KAIJU_PLACES104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define KAIJU_PLACES120 KAIJU_PLACES112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define KAIJU_PLACES128 KAIJU_PLACES120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define KAIJU_MULTIPLY(columns, count, types, a_place, b_place, accumulate_place)                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, " accumulate_place ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns \
               "k32.s32." types " {" KAIJU_PLACES##count "}, " a_place ", " b_place ", p;\n}"                         \
               : KAIJU_SUMS##count                                                                                    \
               : "l"(a), "l"(b), "r"(accumulate))
#define KAIJU_MULTIPLY_SIGN(columns, count, ...)          \
  if constexpr (kA == Sign::kUnsigned)                    \
    KAIJU_MULTIPLY(columns, count, "u8.s8", __VA_ARGS__); \
  else                                                    \
    KAIJU_MULTIPLY(columns, count, "s8.s8", __VA_ARGS__)

template <Sign kA, int kCols>
__device__ __forceinline__ void wgmma(int32_t (&c)[kCols / 2], uint64_t a, uint64_t b, int32_t accumulate) {
  static_assert(kCols == 48 || kCols == 256 || (kCols % 16 == 0 && kCols >= 80 && kCols <= 208));
  if constexpr (kCols == 48) {
    KAIJU_MULTIPLY_SIGN("48", 24, "%24", "%25", "%26");
  }
  if constexpr (kCols == 80) {
    KAIJU_MULTIPLY_SIGN("80", 40, "%40", "%41", "%42");
  }
  if constexpr (kCols == 96) {
    KAIJU_MULTIPLY_SIGN("96", 48, "%48", "%49", "%50");
  }
  if constexpr (kCols == 112) {
    KAIJU_MULTIPLY_SIGN("112", 56, "%56", "%57", "%58");
  }
  if constexpr (kCols == 128) {
    KAIJU_MULTIPLY_SIGN("128", 64, "%64", "%65", "%66");
  }
  if constexpr (kCols == 144) {
    KAIJU_MULTIPLY_SIGN("144", 72, "%72", "%73", "%74");
  }
  if constexpr (kCols == 160) {
    KAIJU_MULTIPLY_SIGN("160", 80, "%80", "%81", "%82");
  }
  if constexpr (kCols == 176) {
    KAIJU_MULTIPLY_SIGN("176", 88, "%88", "%89", "%90");
  }
  if constexpr (kCols == 192) {
    KAIJU_MULTIPLY_SIGN("192", 96, "%96", "%97", "%98");
  }
  if constexpr (kCols == 208) {
    KAIJU_MULTIPLY_SIGN("208", 104, "%104", "%105", "%106");
  }
  if constexpr (kCols == 256) {
    KAIJU_MULTIPLY_SIGN("256", 128, "%128", "%129", "%130");
  }
}

#undef KAIJU_SUMS8
#undef KAIJU_SUMS24
#undef KAIJU_SUMS32
#undef KAIJU_SUMS40
#undef KAIJU_SUMS48
#undef KAIJU_SUMS56
#undef KAIJU_SUMS64
#undef KAIJU_SUMS72
#undef KAIJU_SUMS80
#undef KAIJU_SUMS88
#undef KAIJU_SUMS96
#undef KAIJU_SUMS104
#undef KAIJU_SUMS112
#undef KAIJU_SUMS120
#undef KAIJU_SUMS128
#undef KAIJU_PLACES24
#undef KAIJU_PLACES32
#undef KAIJU_PLACES40
#undef KAIJU_PLACES48
#undef KAIJU_PLACES56
#undef KAIJU_PLACES64
#undef KAIJU_PLACES72
#undef KAIJU_PLACES80
#undef KAIJU_PLACES88
#undef KAIJU_PLACES96
#undef KAIJU_PLACES104
#undef KAIJU_PLACES112
#undef KAIJU_PLACES120
#undef KAIJU_PLACES128
#undef KAIJU_MULTIPLY
#undef KAIJU_MULTIPLY_SIGN

}  // namespace kaiju::cuda
