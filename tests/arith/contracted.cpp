// Built with -ffp-contract=fast, and with fma instructions where the processor has them (tests/arith/flags.cmake): a
// host that includes our headers under such flags. float32.cpp compares.
#include "kaiju/arith/rms.hpp"

namespace kaiju::arith {

float contracted_mul_add(float a, float b, float c);
float contracted_fold(float* partials);

float contracted_mul_add(float a, float b, float c) { return add(mul(a, b), c); }
float contracted_fold(float* partials) { return fold_partials(partials); }

}  // namespace kaiju::arith
