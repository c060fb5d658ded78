// HostThreads: threads of the host's own that compute for kaiju, in place of worker threads that kaiju would start.
#pragma once

#include <cstdint>

namespace kaiju {

struct HostThreads {
  // Computes one part. It needs 64 KiB of stack, never blocks, throws nothing, and may be called in any floating-point
  // state, which it restores.
  using Part = void (*)(void* work, int32_t part);
  // Calls part(work, i) once for each i in [0, parts), on any threads, at once or one after another in any order, and
  // returns when all of them have returned. parts is at most the number of threads that the engine was asked to compute
  // with. If `run` leaves parts out, the calling thread computes them after it has returned. `run` must not throw, must
  // not call kaiju, and must not keep `part` and `work` beyond its return.
  using Run = void (*)(void* user_data, int32_t parts, Part part, void* work);

  Run run = nullptr;          // null: kaiju starts threads of its own
  void* user_data = nullptr;  // borrowed, for `run`
};

}  // namespace kaiju
