// The table of kernels for AMX with 8-bit integers, beside AVX512 with VNNI.
#define KAIJU_TILES "tiles.hpp"
#include "isa/avx512.hpp"
#include "loops/table.hpp"

namespace kaiju::cpu {
const Kernels& amx_kernels() { return kTable; }
}  // namespace kaiju::cpu
