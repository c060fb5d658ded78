// cuda::reciprocal() on the device (reciprocals.cu).
#pragma once

#include <cstdint>

namespace kaiju::test {

// How many floats from 1 to 2^126 have another reciprocal than the rounded quotient; -1 if the GPU failed.
int64_t wrong_reciprocals();

}  // namespace kaiju::test
