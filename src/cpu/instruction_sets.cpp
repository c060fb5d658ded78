// Finds out which instruction sets the processor and the operating system support.
#include "instruction_sets.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
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
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool has_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx2() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || a < 1) return false;  // a: the last subleaf of leaf 7
  __cpuid_count(7, 1, a, b, c, d);
  return (a & 1u << 4) != 0;
}

constexpr InstructionSet kSets[] = {
    {"avx512", has_avx512, avx512_kernels}, {"avxvnni", has_avxvnni, avxvnni_kernels},
    {"avx2", has_avx2, avx2_kernels},       {"neon", never, nullptr},
    {"portable", always, portable_kernels},
};

#elif defined(__aarch64__)

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
    {"avx512", never, nullptr},
    {"avxvnni", never, nullptr},
    {"avx2", never, nullptr},
    {"neon", has_dot_product, neon_kernels},
    {"portable", always, portable_kernels},
};

#else

constexpr InstructionSet kSets[] = {
    {"avx512", never, nullptr},
    {"avxvnni", never, nullptr},
    {"avx2", never, nullptr},
    {"neon", never, nullptr},
    {"portable", always, portable_kernels},
};

#endif

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kSets; }

}  // namespace kaiju::cpu
