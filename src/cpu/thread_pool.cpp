// ThreadPool: how workers and the calling thread wait and share the parts. include/kaiju/base/detail/thread_pool.hpp
// has the rules.
#include "kaiju/base/detail/thread_pool.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>

#include "kaiju/base/float_state.hpp"

namespace kaiju {
namespace {

// The longest gap between two operations of a step is a small row operation of the caller: some microseconds.
constexpr auto kAwake = std::chrono::microseconds(60);
constexpr int kPausesPerLook = 64;  // between looks at the clock
constexpr int kPausesBeforeYield =
    512;  // some 10 us. Then whoever waits for this core may have it: on a busy machine it may be our own other half

uint32_t next_part(uint64_t offer) { return static_cast<uint32_t>(offer); }
uint32_t part_count(uint64_t offer) { return static_cast<uint32_t>(offer >> 32); }
bool has_parts(uint64_t offer) { return next_part(offer) < part_count(offer); }

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Threads that start in this scope leave the process's signals to its own threads; a fault of their own they do take.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) ::sigdelset(&blocked, fault);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &found_);
  }
  ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &found_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t found_;
};

}  // namespace

ThreadPool::ThreadPool(int32_t threads) : threads_(std::max(threads, 1)), workers_(std::make_unique<Workers>()) {
  workers_->threads.reserve(static_cast<size_t>(threads_ - 1));
  const BlockSignals block_signals;
  try {
    for (int32_t thread = 1; thread < threads_; ++thread)
      workers_->threads.emplace_back([this, thread] { serve(thread); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (process_.is_this()) {
    stop();
  } else {
    // A child of fork(): a join would wait for threads that are not there, and so would destroying what they slept on.
    (void)workers_.release();
  }
}

void ThreadPool::stop() {
  {
    const std::lock_guard lock(workers_->mutex);
    stopping_.store(true);
  }
  workers_->wake.notify_all();
  for (std::thread& worker : workers_->threads) worker.join();
}

void ThreadPool::run(int32_t parts, Call call, void* context) {
  call_ = call;
  context_ = context;
  parts_done_.store(0, std::memory_order_relaxed);
  offer_.store(static_cast<uint64_t>(parts) << 32);
  if (sleepers_.load() > 0) {
    // Taking the mutex orders us after a worker that has counted itself but does not wait yet.
    {
      const std::lock_guard lock(workers_->mutex);
    }
    workers_->wake.notify_all();
  }
  take_parts(0);
  for (int looks = 0; parts_done_.load(std::memory_order_acquire) < parts; ++looks) {
    if (looks < kPausesBeforeYield)
      pause();
    else
      std::this_thread::yield();
  }
}

void ThreadPool::take_parts(int32_t thread) {
  while (has_parts(offer_.load(std::memory_order_relaxed))) {
    const uint64_t offer = offer_.fetch_add(1, std::memory_order_acq_rel);
    if (!has_parts(offer)) return;  // another thread was faster
    call_(context_, static_cast<int32_t>(next_part(offer)), thread);
    parts_done_.fetch_add(1, std::memory_order_release);
  }
}

void ThreadPool::serve(int32_t thread) {
  const FloatState float_state;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const auto awake_until = std::chrono::steady_clock::now() + kAwake;
    bool found = false;
    int pauses = 0;
    do {
      for (int i = 0; i < kPausesPerLook && !found; ++i, ++pauses) {
        found = has_parts(offer_.load(std::memory_order_relaxed));
        if (!found) pause();
      }
      if (!found && pauses >= kPausesBeforeYield) std::this_thread::yield();
    } while (!found && std::chrono::steady_clock::now() < awake_until);
    if (found)
      take_parts(thread);
    else
      sleep_until_work();
  }
}

void ThreadPool::sleep_until_work() {
  std::unique_lock lock(workers_->mutex);
  sleepers_.fetch_add(1);
  workers_->wake.wait(lock, [this] { return stopping_.load() || has_parts(offer_.load()); });
  sleepers_.fetch_sub(1);
}

}  // namespace kaiju
