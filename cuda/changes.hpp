// Changes of what the GPUs of a model compute with: weights, scales, the classifier. One that has begun ends on all of
// them, or its error is final (Executor) and stops the engine, which would compute with parts of both. Includes nothing
// of CUDA.
#pragma once

#include <cstddef>
#include <new>

#include "kaiju/base/status.hpp"

namespace kaiju::cuda {

// The error of a change that has begun: those after which an engine goes on become kInternal.
inline Status final_error(Status error) noexcept {
  if (error.ok() || error.code() == StatusCode::kDeviceLost || error.code() == StatusCode::kInternal) return error;
  try {
    return internal_error("what a GPU computes with was replaced in part: " + error.message());
  } catch (const std::bad_alloc&) {
    return internal_error("no memory");  // allocates none
  }
}

// Calls change(rank) for one GPU after the other. `change`: its own errors are final once it has begun to change.
template <class Change>
Status change_each(size_t count, Change&& change) noexcept {
  for (size_t rank = 0; rank < count; ++rank) {
    Status done = guarded<Status>([&] { return change(rank); });
    if (!done.ok()) return rank == 0 ? done : final_error(std::move(done));
  }
  return {};
}

}  // namespace kaiju::cuda
