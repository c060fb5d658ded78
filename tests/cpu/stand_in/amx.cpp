// The kernels for AMX with tiles that are computed by AVX512 with VNNI (tiles.hpp): compiled from the library's loops.
#include "amx.hpp"

#define KAIJU_TILES "tests/cpu/stand_in/tiles.hpp"
#include "cpu/isa/avx512.hpp"
#include "cpu/loops/table.hpp"

namespace kaiju::test {
const cpu::Kernels& stand_in_amx() { return cpu::kTable; }
}  // namespace kaiju::test
