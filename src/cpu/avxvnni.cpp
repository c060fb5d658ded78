// The table of kernels for AVX-VNNI with 256-bit vectors.
#include "isa/x86_256.hpp"
#include "loops/table.hpp"

namespace kaiju::cpu {
const Kernels& avxvnni_kernels() { return kTable; }
}  // namespace kaiju::cpu
