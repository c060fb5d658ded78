// The kernels for AMX where no processor has it. They need AVX512 with VNNI.
#pragma once

namespace kaiju::cpu {
struct Kernels;
}

namespace kaiju::test {
const cpu::Kernels& stand_in_amx();
}
