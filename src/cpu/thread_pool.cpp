// ThreadPool: how workers and the calling thread wait and share the parts. include/kaiju/base/detail/thread_pool.hpp
// has the rules.
#include "kaiju/base/detail/thread_pool.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>

#include "kaiju/base/detail/core_count.hpp"
#include "kaiju/base/float_state.hpp"

namespace kaiju {
namespace {

using Clock = std::chrono::steady_clock;

// How long workers and the caller spin before they sleep. The longest gap between two operations of a step is a small
// row operation of the caller: some microseconds. The parts of others may take longer.
constexpr auto kAwake = std::chrono::microseconds(60);
constexpr auto kCallerAwake = std::chrono::milliseconds(1);
constexpr int kPausesPerLook = 64;  // between looks at the clock
// Where threads share cores, one that waits so long gives its core to others.
constexpr auto kBeforeYield = std::chrono::microseconds(10);

// An offer is the number of a piece of work and, in the lower bits, its parts.
constexpr int kPartBits = 24;
constexpr uint32_t kMostParts = (1u << kPartBits) - 1;
uint64_t piece_of(uint64_t offer) { return offer >> kPartBits; }
uint32_t parts_of(uint64_t offer) { return static_cast<uint32_t>(offer) & kMostParts; }

constexpr int32_t kThreadsPerCount = 8;  // that count the parts they did in one word

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

ThreadPool::ThreadPool(int32_t threads, Idle idle, void* idle_context, const HostThreads& host)
    : taken_(std::make_unique<Taken[]>(static_cast<size_t>(std::max(threads, 1)))),
      done_(std::make_unique<Done[]>(static_cast<size_t>(std::max(threads, 1) / kThreadsPerCount + 1))),
      threads_(std::max(threads, 1)),
      has_cores_(threads_ <= processor_count()),
      idle_(idle),
      idle_context_(idle_context),
      host_(host),
      workers_(std::make_unique<Workers>()) {
  if (host_.run) {
    seats_ = std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(threads_));
    return;
  }
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

void ThreadPool::run(uint32_t parts, Call call, void* context) {
  call_ = call;
  context_ = context;
  for (first_part_ = 0; first_part_ < parts; first_part_ += kMostParts) {
    const uint32_t count = std::min(parts - first_part_, kMostParts);
    parts_offered_.store(parts_offered_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
    const uint64_t offer = (piece_of(offer_.load(std::memory_order_relaxed)) + 1) << kPartBits | count;
    offer_.store(offer);
    if (host_.run) {
      call_host(offer);
    } else {
      wake_workers();
      take_parts(offer, 0);
    }
    wait_for_others();
  }
}

// Every part has been taken, so the caller can only wait.
void ThreadPool::wait_for_others() {
  const auto all_done = [this] { return parts_done() == parts_offered_.load(std::memory_order_relaxed); };
  const Clock::time_point begin = Clock::now();
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (all_done()) return;
      pause();
    }
  } while (stay_awake(begin, kCallerAwake));
  std::unique_lock lock(workers_->mutex);
  caller_sleeps_.store(true);
  workers_->done.wait(lock, all_done);
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

// After a thread has counted parts. Of the threads that count the last parts, one sees that all are done.
void ThreadPool::wake_caller() {
  if (!caller_sleeps_.load() || parts_done() != parts_offered_.load(std::memory_order_relaxed)) return;
  // As in wake_workers().
  {
    const std::lock_guard lock(workers_->mutex);
  }
  workers_->done.notify_one();
}

void ThreadPool::wake_workers() {
  if (sleepers_.load() == 0) return;
  // Taking the mutex orders us after a worker that has counted itself but does not wait yet.
  {
    const std::lock_guard lock(workers_->mutex);
  }
  workers_->wake.notify_all();
}

// Afterwards the caller takes the seats that the host has left out, so that no parts are missing.
void ThreadPool::call_host(uint64_t offer) {
  const auto seats = static_cast<int32_t>(std::min(parts_of(offer), static_cast<uint32_t>(threads_)));
  host_.run(
      host_.user_data, seats, [](void* pool, int32_t seat) { static_cast<ThreadPool*>(pool)->take_seat(seat); }, this);
  for (int32_t seat = 0; seat < seats; ++seat) take_seat(seat);
}

// Serves the present piece of work, once: threads at one seat would share scratch memory. A host that calls again, or
// too late, finds the seat taken or no parts left.
void ThreadPool::take_seat(int32_t seat) {
  if (seat < 0 || seat >= threads_) return;
  const uint64_t offer = offer_.load(std::memory_order_acquire);
  std::atomic<uint64_t>& served = seats_[static_cast<size_t>(seat)];
  uint64_t last = served.load(std::memory_order_acquire);
  do {
    if (piece_of(last) >= piece_of(offer)) return;
  } while (!served.compare_exchange_weak(last, offer, std::memory_order_acq_rel, std::memory_order_acquire));
  const FloatState float_state;
  take_parts(offer, seat);
}

// The next of the owner's parts, if one is left.
bool ThreadPool::take(uint64_t offer, int32_t owner, uint32_t& part) {
  if (static_cast<uint32_t>(owner) >= parts_of(offer)) return false;
  std::atomic<uint64_t>& word = taken_[static_cast<size_t>(owner)].word;
  uint64_t seen = word.load(std::memory_order_acquire);
  for (;;) {
    const bool begun = piece_of(seen) == piece_of(offer);
    // Of an earlier piece, or of a later one: then the later one has been offered.
    if (!begun && offer_.load(std::memory_order_acquire) != offer) return false;
    const uint32_t next = begun ? parts_of(seen) : 0;
    const uint64_t at = static_cast<uint64_t>(owner) + uint64_t{next} * static_cast<uint64_t>(threads_);
    if (at >= parts_of(offer)) return false;
    const uint64_t taken = piece_of(offer) << kPartBits | (next + 1);
    if (!word.compare_exchange_weak(seen, taken, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    part = static_cast<uint32_t>(at);
    return true;
  }
}

// First the thread's own parts, which it counts at once, then what others have left.
void ThreadPool::take_parts(uint64_t offer, int32_t thread) {
  std::atomic<uint32_t>& count = done_[static_cast<size_t>(thread / kThreadsPerCount)].count;
  for (int32_t i = 0; i < threads_; ++i) {
    const int32_t owner = thread + i < threads_ ? thread + i : thread + i - threads_;
    uint32_t done = 0;
    for (uint32_t part = 0; take(offer, owner, part); ++done)
      call_(context_, static_cast<int32_t>(first_part_ + part), thread);
    if (done > 0) {
      count.fetch_add(done);
      wake_caller();
    }
    if (offer_.load(std::memory_order_relaxed) != offer) return;
  }
}

uint32_t ThreadPool::parts_done() const {
  uint32_t sum = 0;
  for (int32_t i = 0; i <= threads_ / kThreadsPerCount; ++i) sum += done_[static_cast<size_t>(i)].count.load();
  return sum;
}

void ThreadPool::serve(int32_t thread) {
  const FloatState float_state;
  uint64_t last = 0;  // the offer that this thread has nothing left to do of
  while (!stopping_.load(std::memory_order_relaxed)) {
    const Clock::time_point begin = Clock::now();
    uint64_t offer = last;
    do {
      for (int i = 0; i < kPausesPerLook && offer == last; ++i) {
        offer = offer_.load(std::memory_order_acquire);
        if (offer == last && (!idle_ || !idle_(idle_context_, thread))) pause();
      }
    } while (offer == last && stay_awake(begin, kAwake));
    if (offer == last) {
      sleep_until_work(last);
    } else {
      take_parts(offer, thread);
      last = offer;
    }
  }
}

// Whether a thread that waits since `begin` goes on spinning. One that has a core does not yield it: a busy process
// would keep it for a turn of some milliseconds, and all threads would wait. Who sleeps is due as soon as it is woken.
bool ThreadPool::stay_awake(Clock::time_point begin, Clock::duration longest) const {
  const Clock::duration waited = Clock::now() - begin;
  if (!has_cores_ && waited >= kBeforeYield) std::this_thread::yield();
  return waited < longest;
}

void ThreadPool::sleep_until_work(uint64_t last) {
  std::unique_lock lock(workers_->mutex);
  sleepers_.fetch_add(1);
  workers_->wake.wait(lock, [&] { return stopping_.load() || offer_.load() != last; });
  sleepers_.fetch_sub(1);
}

}  // namespace kaiju
