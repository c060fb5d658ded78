// The practical ceilings and the memory of a GPU, for the subcommands.
#pragma once

#include <cstdint>
#include <string>

namespace kaiju::bench {

// Practical ceilings: docs/performance.md. 0: not known for this chip.
struct GpuCeilings {
  double bytes_per_second = 0, int8_per_second = 0;
  double attention_per_second = 0;   // of 4 operations a visible key, row and channel, where the matrix units do 8
  double link_bytes_per_second = 0;  // to other GPUs of the host, in one direction
};
GpuCeilings gpu_ceilings(const std::string& name);

// The first GPU: what `name` it has, and how many bytes of its memory are free now. Nothing where there is none: an
// executor says why.
struct Gpu {
  std::string name;
  int64_t free_bytes = 0;
};
Gpu first_gpu();

}  // namespace kaiju::bench
