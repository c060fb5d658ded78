// The table of kernels for AVX2.
#include "isa/x86_256.hpp"
#include "loops/table.hpp"

namespace kaiju::cpu {
const Kernels& avx2_kernels() { return kTable; }
}  // namespace kaiju::cpu
