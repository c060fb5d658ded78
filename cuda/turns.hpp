// Turns: the order in which groups of GPUs that have a GPU in common run kernels that wait for peers.
//
// Such a kernel fills a GPU while it waits. If a group's kernel filled one GPU and waited for another GPU that a second
// group's kernel fills, which waits for the first, neither would ever end. So launches of a group come in turns. In a
// turn every GPU of the group gets the same meetings. A group begins one when no other group with one of its GPUs
// launches. Its streams first wait for the end of the turns that were last on its GPUs, and a mark is recorded behind
// its launches. So turns have one order on all GPUs, each waits for earlier ones alone, and the earliest that has not
// ended always runs. The host waits for nothing but another group's launches.
//
// Includes nothing of CUDA: the owner makes the calls (worker_group.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "shared_rows.hpp"

namespace kaiju::cuda {

using Mark = void*;  // a cudaEvent_t, as recorded last

// What the groups know of each other: which turn was last on each GPU.
class TurnBoard {
 public:
  // The one of this process, while any group has it. It is global because a host makes its engines apart from each
  // other: they have nothing in common but the GPUs.
  static std::shared_ptr<TurnBoard> of_process();

 private:
  friend class Turns;
  friend class QuietGpu;
  struct Place {
    std::recursive_mutex launching;  // a thread in its turn may want its GPUs quiet, too
    const void* group = nullptr;     // whose turn was last; null: nobody's that has not ended
    Mark mark = nullptr;
  };
  Place& of(int32_t gpu);

  std::mutex mutex_;
  std::map<int32_t, Place> places_;  // by index of the GPU
};

// Those of one group.
class Turns {
 public:
  // `gpus`: the group's, by rank; at most kMostGpus, all different.
  Turns(std::shared_ptr<TurnBoard> board, std::span<const int32_t> gpus);

  // While it lives no other group launches on the GPUs of this one.
  class Turn {
   public:
    Turn() = default;  // of nobody

    // Turns of other groups that every GPU of this one waits for in front of its launches.
    std::span<const Mark> before() const { return {before_.data(), static_cast<size_t>(before_count_)}; }
    // `marks`: recorded behind this turn's launches, by rank. None: nothing of this group runs any more. Without end()
    // nothing was launched.
    void end(std::span<const Mark> marks);

   private:
    friend class Turns;
    Turns* turns_ = nullptr;
    std::array<std::unique_lock<std::recursive_mutex>, kMostGpus> locks_;
    std::array<Mark, kMostGpus> before_{};
    int32_t before_count_ = 0;
  };
  Turn begin();

 private:
  std::shared_ptr<TurnBoard> board_;
  std::vector<TurnBoard::Place*> places_;    // by rank
  std::vector<TurnBoard::Place*> in_order_;  // by index of the GPU, as all groups lock them
};

// While it lives no other thread's group launches on this GPU. For calls of CUDA that may wait for all that a GPU runs,
// and hold launches of other threads up meanwhile: memory that is taken or freed, a kernel that is loaded. Between a
// group's launches on one GPU and on the next, such a call would wait for a kernel that waits for what it holds up.
class QuietGpu {
 public:
  explicit QuietGpu(int32_t gpu);

 private:
  std::shared_ptr<TurnBoard> board_;
  std::unique_lock<std::recursive_mutex> launching_;
};

}  // namespace kaiju::cuda
