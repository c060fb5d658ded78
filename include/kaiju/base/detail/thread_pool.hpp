// ThreadPool: a fixed number of threads that share the parts of one piece of work at a time. The calling thread is one
// of them. Nothing is allocated after construction. Workers spin for a moment while they wait for the next piece,
// because the operations of one step follow each other within microseconds; then they sleep, so an idle pool uses no
// core. A caller that waits long for the parts of others sleeps, too. In a child of fork() the workers do not exist:
// there a pool of the parent may only be destroyed.
//
// A pool of a host's threads starts none. Each piece of work is offered to the host as one call for each thread, a
// seat; who sits there takes parts as a worker does. So a host may run the seats at once or one after another.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "kaiju/base/detail/owner_process.hpp"
#include "kaiju/base/host_threads.hpp"

namespace kaiju {

class ThreadPool {
 public:
  // What a worker does while it waits, a little at a time, until it returns false. It must not throw.
  using Idle = bool (*)(void* context, int32_t thread);

  // `threads` counts the caller: 1 starts no thread at all. Throws std::system_error when the system starts no more of
  // them. Workers may call `idle` at any time of the pool's life, each with its own number.
  // With `host`, the pool starts no thread and calls no `idle`: the caller of parallel_for calls host.run for each
  // piece of work of two parts or more, and at most `threads` of the host's threads compute at a time.
  explicit ThreadPool(int32_t threads, Idle idle = nullptr, void* idle_context = nullptr, const HostThreads& host = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t threads() const { return threads_; }

  // Calls work(part, thread) for every part in [0, parts), each exactly once, and returns when all are done. `thread`
  // is below threads() and no two calls that run at the same time share it, so it may name scratch memory. Part p is
  // for thread p % threads(), which finds what it read of part p the last time in its caches; a thread that has no
  // parts left takes those of others. So who takes which part is a race, and results must not depend on it. One caller
  // at a time; `work` must not throw and must not call parallel_for.
  template <class Work>
  void parallel_for(int32_t parts, Work&& work) {
    using Function = std::remove_reference_t<Work>;
    if (threads_ <= 1 || parts <= 1) {
      for (int32_t part = 0; part < parts; ++part) work(part, 0);
      return;
    }
    run(
        static_cast<uint32_t>(parts),
        [](void* context, int32_t part, int32_t thread) { (*static_cast<Function*>(context))(part, thread); },
        const_cast<void*>(static_cast<const void*>(&work)));
  }

 private:
  using Call = void (*)(void* context, int32_t part, int32_t thread);

  // What the system knows of, or would wait for when it is destroyed.
  struct Workers {
    std::mutex mutex;
    std::condition_variable wake, done;
    std::vector<std::thread> threads;
  };

  // How many of a thread's parts have been taken, of which piece of work: packed like an offer. A line of the cache
  // each.
  struct alignas(64) Taken {
    std::atomic<uint64_t> word{0};
  };
  // Parts done by some threads, of all pieces of work so far.
  struct alignas(64) Done {
    std::atomic<uint32_t> count{0};
  };

  void run(uint32_t parts, Call call, void* context);
  void wake_workers();
  void wait_for_others();
  bool stay_awake(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::duration longest) const;
  void wake_caller();
  void call_host(uint64_t offer);
  void take_seat(int32_t seat);
  bool take(uint64_t offer, int32_t owner, uint32_t& part);
  void take_parts(uint64_t offer, int32_t thread);
  uint32_t parts_done() const;
  void serve(int32_t thread);
  void sleep_until_work(uint64_t last);
  void stop();

  // The piece of work on offer: its number, and its parts. The fields under it are written before the word is
  // published, and not again before every part is done: only who took a part reads them.
  alignas(64) std::atomic<uint64_t> offer_{0};
  Call call_ = nullptr;
  void* context_ = nullptr;
  uint32_t first_part_ = 0;
  std::atomic<uint32_t> parts_offered_{0};  // so far, of all pieces of work
  std::unique_ptr<Taken[]> taken_;
  std::unique_ptr<Done[]> done_;
  std::unique_ptr<std::atomic<uint64_t>[]> seats_;  // of a host's threads: the last piece of work that each served
  alignas(64) std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stopping_{false};
  OwnerProcess process_;
  int32_t threads_;
  bool has_cores_;  // one for each thread
  Idle idle_;
  void* idle_context_;
  HostThreads host_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace kaiju
