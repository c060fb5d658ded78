// wgmma for attention: int8 operands in the layout of the KV cache (layout.cuh), or with the left operand in registers.
// Compiles for sm_90a only.
#pragma once

#include <cstdint>

#include "layout.cuh"
#include "sm80_mma.cuh"
#include "sm90_wgmma.cuh"

namespace kaiju::cuda {

// An operand in shared memory in the columns of layout.cuh: `rows` rows; the instruction reads two columns (32 bytes of
// every row) from `address` on.
__device__ __forceinline__ uint64_t operand(uint32_t address, int32_t rows) {
  constexpr uint64_t kEightRows = 8 * kColumnBytes;
  return (address & 0x3FFFFu) >> 4 | static_cast<uint64_t>(rows * kColumnBytes >> 4) << 16 | (kEightRows >> 4) << 32;
}
// The operand `bytes` further on.
__device__ __forceinline__ uint64_t advanced(uint64_t operand, int32_t bytes) {
  return operand + static_cast<uint64_t>(bytes >> 4);
}

// d [64, N] = (accumulate ? d : 0) + a [64, 32] b [N, 32]^T, exact; N = 2 kCount. Warp w of the warpgroup holds rows 16
// w ... + 15; with g = lane / 4 and t = lane % 4, d[4 j + e] is row g + 8 (e / 2), column 8 j + 2 t + e % 2. Signed
// bytes both, a in shared memory:
__device__ __forceinline__ void multiply_shared(int32_t (&d)[32], uint64_t a, uint64_t b, int32_t accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, "
      "%28, %29, "
      "%30, %31"
      "}, %32, %33, p;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
        "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]),
        "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]),
        "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31])
      : "l"(a), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void multiply_shared(int32_t (&d)[16], uint64_t a, uint64_t b, int32_t accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, %16, %17, p;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
        "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
      : "l"(a), "l"(b), "r"(accumulate));
}
// a unsigned in registers (a[0]: row g, bytes 4 t ... + 3; a[1]: row g + 8; a[2], a[3]: the same 16 bytes on), b
// signed.
__device__ __forceinline__ void multiply_registers(int32_t (&d)[32], const uint32_t* a, uint64_t b,
                                                   int32_t accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, "
      "%28, %29, "
      "%30, %31"
      "}, {%32, %33, %34, %35}, %36, p;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
        "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]),
        "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]),
        "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void multiply_registers(int32_t (&d)[64], const uint32_t* a, uint64_t b,
                                                   int32_t accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k32.s32.u8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, "
      "%28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "
      "%52, %53, %54, %55, "
      "%56, %57, "
      "%58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
        "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]),
        "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]),
        "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]),
        "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]),
        "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]),
        "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]), "+r"(d[56]),
        "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

// The same for few columns, kN of them, and with both operands in shared memory: a signed, b of sign kB.
#define KAIJU_PLACES4 "%0, %1, %2, %3"
#define KAIJU_PLACES8 KAIJU_PLACES4 ", %4, %5, %6, %7"
#define KAIJU_PLACES16 KAIJU_PLACES8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KAIJU_PLACES24 KAIJU_PLACES16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define KAIJU_PLACES32 KAIJU_PLACES24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define KAIJU_PLACES40 KAIJU_PLACES32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define KAIJU_SUMS4(how, i) how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3])
#define KAIJU_SUMS8(how, i) KAIJU_SUMS4(how, i), KAIJU_SUMS4(how, i + 4)
#define KAIJU_SUMS16(how, i) KAIJU_SUMS8(how, i), KAIJU_SUMS8(how, i + 8)
#define KAIJU_SUMS24(how, i) KAIJU_SUMS16(how, i), KAIJU_SUMS8(how, i + 16)
#define KAIJU_SUMS32(how, i) KAIJU_SUMS16(how, i), KAIJU_SUMS16(how, i + 16)
#define KAIJU_SUMS40(how, i) KAIJU_SUMS32(how, i), KAIJU_SUMS8(how, i + 32)
#define KAIJU_SET "=r"
#define KAIJU_ADD "+r"
#define KAIJU_MULTIPLY(columns, types, count, a_place, b_place)                                        \
  do {                                                                                                 \
    if constexpr (kAdds)                                                                               \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n" columns \
                   "k32.s32." types " {" KAIJU_PLACES##count "}, " a_place ", " b_place ", p;\n}"      \
                   : KAIJU_SUMS##count(KAIJU_ADD, 0)                                                   \
                   : "l"(a), "l"(b));                                                                  \
    else                                                                                               \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" columns \
                   "k32.s32." types " {" KAIJU_PLACES##count "}, " a_place ", " b_place ", p;\n}"      \
                   : KAIJU_SUMS##count(KAIJU_SET, 0)                                                   \
                   : "l"(a), "l"(b));                                                                  \
  } while (false)
// Registers that hold nothing yet are outputs alone: else the compiler keeps a place for what they held before.
template <int kN, Sign kB, bool kAdds>
__device__ __forceinline__ void multiply_shared_by(int32_t (&d)[kN / 2], uint64_t a, uint64_t b) {
  if constexpr (kB == Sign::kSigned) {
    static_assert(kN == 8 || kN == 16 || kN == 32 || kN == 48);
    if constexpr (kN == 8) KAIJU_MULTIPLY("8", "s8.s8", 4, "%4", "%5");
    if constexpr (kN == 16) KAIJU_MULTIPLY("16", "s8.s8", 8, "%8", "%9");
    if constexpr (kN == 32) KAIJU_MULTIPLY("32", "s8.s8", 16, "%16", "%17");
    if constexpr (kN == 48) KAIJU_MULTIPLY("48", "s8.s8", 24, "%24", "%25");
  } else {
    static_assert(kN == 16 || kN == 32 || kN == 64 || kN == 80);
    if constexpr (kN == 16) KAIJU_MULTIPLY("16", "s8.u8", 8, "%8", "%9");
    if constexpr (kN == 32) KAIJU_MULTIPLY("32", "s8.u8", 16, "%16", "%17");
    if constexpr (kN == 64) KAIJU_MULTIPLY("64", "s8.u8", 32, "%32", "%33");
    if constexpr (kN == 80) KAIJU_MULTIPLY("80", "s8.u8", 40, "%40", "%41");
  }
}
#undef KAIJU_MULTIPLY
#undef KAIJU_SET
#undef KAIJU_ADD
#undef KAIJU_PLACES4
#undef KAIJU_SUMS4
#undef KAIJU_PLACES8
#undef KAIJU_SUMS8
#undef KAIJU_PLACES16
#undef KAIJU_SUMS16
#undef KAIJU_PLACES24
#undef KAIJU_SUMS24
#undef KAIJU_PLACES32
#undef KAIJU_SUMS32
#undef KAIJU_PLACES40
#undef KAIJU_SUMS40

}  // namespace kaiju::cuda
