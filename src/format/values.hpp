// Checks the rules for a checkpoint's values (docs/checkpoint.md, "What a loader checks"). header.cpp checks the
// structure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "source.hpp"

namespace kaiju::format {

// Every F32 tensor, and the constants arithmetic.md, section 3, derives from them. Reads no weights.
Status check_scales(const Checkpoint& checkpoint);

// Every byte, once: digests, no weight of -128, row sums. `threads` threads, the calling one included, share the
// tensors; of several complaints the one about the first tensor of the file is returned. The weights of a file are read
// from `source`, not touched where it is mapped; all else must be in memory. kCancelled when `progress` says so, which
// the calling thread asks.
Status check_bytes(const Checkpoint& checkpoint, const Source& source, const Checkpoint::Progress& progress,
                   int32_t threads);

struct RowScan {
  int32_t sum;
  bool has_minus_128;
};
RowScan scan_row(const int8_t* row, size_t count);  // count is a multiple of 64

}  // namespace kaiju::format
