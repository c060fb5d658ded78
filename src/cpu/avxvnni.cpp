// The table for AVX-VNNI in 256 bits.
#include "isa/x86_256.hpp"
#include "loops/table.hpp"

namespace kaiju::cpu {
const Kernels& avxvnni_kernels() { return kTable; }
}  // namespace kaiju::cpu
