// Finds out which instruction sets the processor and the operating system support.
#include "instruction_sets.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace kaiju::cpu {
namespace {

[[maybe_unused]] bool never() { return false; }
bool always() { return true; }

#if defined(__x86_64__)

// These ask the system too: whether it saves the wide registers.
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
}

// Whether the processor has tiles of bytes, and the system saves them and lets this process use them. The system wants
// to be asked: a process that uses tiles has larger signal frames. It refuses, for instance, where a thread's alternate
// signal stack is too small for those; then avx512 serves.
#if defined(__linux__)
bool has_amx() {
  constexpr unsigned kTiles = 1u << 24, kTileBytes = 1u << 25, kSystemSaves = 1u << 27;
  constexpr unsigned kTileState = 3u << 17;
  constexpr int kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if ((d & kTiles) == 0 || (d & kTileBytes) == 0) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kSystemSaves) == 0) return false;
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState && ::syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}
#else
bool has_amx() { return false; }
#endif
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool has_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx2() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || a < 1) return false;  // a: the last subleaf of leaf 7
  __cpuid_count(7, 1, a, b, c, d);
  return (a & 1u << 4) != 0;
}

constexpr InstructionSet kSets[] = {
    {"amx", has_amx, amx_kernels},
    {"avx512", has_avx512, avx512_kernels},
    {"avxvnni", has_avxvnni, avxvnni_kernels},
    {"avx2", has_avx2, avx2_kernels},
    {"i8mm", never, nullptr},
    {"neon", never, nullptr},
    {"portable", always, portable_kernels},
};

#elif defined(__aarch64__)

bool has_i8mm() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & 1ul << 20) != 0 && (getauxval(AT_HWCAP2) & 1ul << 13) != 0;  // HWCAP2_I8MM
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  return true;
#else
  return false;
#endif
}

bool has_dot_product() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & 1ul << 20) != 0;  // HWCAP_ASIMDDP
#elif defined(__ARM_FEATURE_DOTPROD)
  return true;
#else
  return false;
#endif
}

constexpr InstructionSet kSets[] = {
    {"amx", never, nullptr},
    {"avx512", never, nullptr},
    {"avxvnni", never, nullptr},
    {"avx2", never, nullptr},
    {"i8mm", has_i8mm, i8mm_kernels},
    {"neon", has_dot_product, neon_kernels},
    {"portable", always, portable_kernels},
};

#else

constexpr InstructionSet kSets[] = {
    {"amx", never, nullptr},  {"avx512", never, nullptr}, {"avxvnni", never, nullptr},
    {"avx2", never, nullptr}, {"neon", never, nullptr},   {"portable", always, portable_kernels},
};

#endif

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kSets; }

}  // namespace kaiju::cpu
