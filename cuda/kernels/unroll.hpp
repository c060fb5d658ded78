// KAIJU_UNROLL before a loop: unrolled on the device, in source that hosts compile too.
#pragma once

#if defined(__CUDA_ARCH__)
#define KAIJU_UNROLL _Pragma("unroll")
#else
#define KAIJU_UNROLL
#endif
