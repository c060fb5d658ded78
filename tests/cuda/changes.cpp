// What an engine is told of a change of weights that fails on one of several GPUs. Needs no GPU and no CUDA.
#include "cuda/changes.hpp"

#include <new>
#include <vector>

#include "catch.hpp"

namespace kaiju::cuda {
namespace {

TEST_CASE("a change of weights that fails before it begins leaves all GPUs as they were; later it stops the engine") {
  for (const StatusCode code :
       {StatusCode::kOutOfMemory, StatusCode::kIo, StatusCode::kBusy, StatusCode::kBadModel, StatusCode::kDeviceLost})
    for (size_t failing = 0; failing <= 4; ++failing) {
      CAPTURE(static_cast<int32_t>(code), failing);
      std::vector<size_t> changed;
      const Status done = change_each(4, [&](size_t rank) -> Status {
        if (rank == failing) return {code, "a reason"};
        changed.push_back(rank);
        return {};
      });
      CHECK(changed.size() == failing);
      if (failing == 4) {
        CHECK(done.ok());
        continue;
      }
      const bool is_lost = code == StatusCode::kDeviceLost;
      CHECK(done.code() == (failing == 0 || is_lost ? code : StatusCode::kInternal));
      CHECK(done.message().ends_with("a reason"));
    }
  CHECK(change_each(2, [&](size_t) -> Status { throw std::bad_alloc(); }).code() == StatusCode::kOutOfMemory);
  CHECK(change_each(2, [&](size_t rank) -> Status { return rank == 0 ? Status() : throw std::bad_alloc(); }).code() ==
        StatusCode::kInternal);
}

}  // namespace
}  // namespace kaiju::cuda
