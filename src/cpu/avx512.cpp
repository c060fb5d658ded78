// The table of kernels for AVX512 with VNNI.
#include "isa/avx512.hpp"

#include "loops/table.hpp"

namespace kaiju::cpu {
const Kernels& avx512_kernels() { return kTable; }
}  // namespace kaiju::cpu
