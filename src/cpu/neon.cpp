// The table of kernels for Arm with NEON and the dot-product extension.
#include "isa/neon.hpp"

#include "loops/table.hpp"

namespace kaiju::cpu {
const Kernels& neon_kernels() { return kTable; }
}  // namespace kaiju::cpu
