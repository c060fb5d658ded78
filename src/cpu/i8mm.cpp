// The table of kernels for Arm with NEON and products of 8-bit matrices (i8mm) beside dot products.
#include "isa/neon.hpp"
#include "loops/table.hpp"

namespace kaiju::cpu {
const Kernels& i8mm_kernels() { return kTable; }
}  // namespace kaiju::cpu
