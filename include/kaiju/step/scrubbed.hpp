// Scrubbed: what one look at the weights in memory has covered (Executor::scrub).
#pragma once

#include <cstdint>

namespace kaiju {

struct Scrubbed {
  uint64_t bytes = 0;
  bool whole = false;  // with this part, all of the weights have been looked at once more
};

}  // namespace kaiju
