// Heap: what a test program knows and decides about its allocations. Linking heap.cpp replaces operator new and delete
// for the whole program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heap {

// Of the calling thread alone, so that a test runner's own threads do not disturb.
struct Count {
  int64_t live_bytes = 0;  // taken and not given back since reset()
  int64_t peak_bytes = 0;  // most live_bytes at once since reset()
  int64_t live_blocks = 0;
  int64_t allocations = 0;  // since reset(), failed ones included
};
const Count& count();
void reset();

// From now on the `nth` allocation of this thread fails (1: the next), and with `for_good` every later one too. 0 stops
// failing.
void fail_at(int64_t nth, bool for_good);
// What operator new asks before it allocates, for wrappers of other functions that do.
bool may_have();

// While it lives nothing fails or counts as an allocation; what is live still does.
class Pause {
 public:
  Pause();
  ~Pause();
  Pause(const Pause&) = delete;
};

}  // namespace heap
