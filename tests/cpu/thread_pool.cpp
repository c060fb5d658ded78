// The thread pool: every part once, nothing left running, the float state as the contract wants it. TSan runs this too.
#include "kaiju/base/detail/thread_pool.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <system_error>

#include "catch.hpp"
#include "kaiju/base/float_state.hpp"
#include "tests/child.hpp"

namespace kaiju {
namespace {

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Threads of a host's, started for each piece of work; `seats_at_most` of them, if a host forgets some.
struct Host {
  std::atomic<int> calls{0}, seats{0};
  int32_t seats_at_most = INT32_MAX;

  static void run(void* user_data, int32_t parts, HostThreads::Part part, void* work) {
    auto& host = *static_cast<Host*>(user_data);
    ++host.calls;
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < std::min(parts, host.seats_at_most); ++i) {
      ++host.seats;
      threads.emplace_back([=] { part(work, i); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  HostThreads threads() { return {run, this}; }
};

}  // namespace

TEST_CASE("every part runs exactly once, on any number of threads") {
  for (int32_t threads = 1; threads <= 5; ++threads) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (const int32_t parts : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<int> done(static_cast<size_t>(parts), 0);  // plain: a part run twice at a time is a race TSan reports
      pool.parallel_for(parts, [&](int32_t part, int32_t) { ++done[static_cast<size_t>(part)]; });
      for (const int count : done) REQUIRE(count == 1);
    }
  }
}

TEST_CASE("threads that run at the same time have different numbers") {
  ThreadPool pool(4);
  std::vector<int> taken(4, 0);
  std::atomic<int> strangers{0};
  for (int round = 0; round < 200; ++round)
    pool.parallel_for(16, [&](int32_t, int32_t thread) {
      if (thread < 0 || thread >= 4)
        ++strangers;
      else
        ++taken[static_cast<size_t>(thread)];  // plain, as scratch memory would be
    });
  CHECK(strangers == 0);
  CHECK(taken[0] + taken[1] + taken[2] + taken[3] == 200 * 16);
}

TEST_CASE("a piece of work reads what the previous piece wrote, over many short pieces") {
  ThreadPool pool(3);
  std::vector<int64_t> values(8, 0);
  for (int round = 0; round < 5000; ++round)
    pool.parallel_for(8, [&, round](int32_t part, int32_t) { values[static_cast<size_t>(part)] += round; });
  for (const int64_t value : values) CHECK(value == 5000 * 4999 / 2);
}

TEST_CASE("a thread takes parts that belong to one that is held up") {
  ThreadPool pool(2);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> others{0};
    pool.parallel_for(8, [&](int32_t part, int32_t) {  // parts 0, 2, 4 and 6 belong to one thread
      if (part > 0)
        ++others;
      else
        while (others < 7) std::this_thread::yield();
    });
    REQUIRE(others == 7);
  }
}

TEST_CASE("many more threads than cores run every part exactly once") {
  ThreadPool pool(64);
  for (const int32_t parts : {3, 63, 64, 65, 256, 5000}) {
    std::vector<int> done(static_cast<size_t>(parts), 0);
    for (int round = 0; round < 10; ++round)
      pool.parallel_for(parts, [&](int32_t part, int32_t) { ++done[static_cast<size_t>(part)]; });
    for (const int count : done) REQUIRE(count == 10);
  }
}

TEST_CASE("a pool wakes from sleep and still shares its work") {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> count{0};
    pool.parallel_for(2, [&](int32_t, int32_t) { ++count; });
    REQUIRE(count == 2);
  }
}

TEST_CASE("a host's threads run every part exactly once, each with scratch memory of its own") {
  for (int32_t threads = 1; threads <= 5; ++threads) {
    Host host;
    ThreadPool pool(threads, nullptr, nullptr, host.threads());
    for (const int32_t parts : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<int> done(static_cast<size_t>(parts), 0), scratch(static_cast<size_t>(threads), 0);
      const int before = host.seats;
      for (int round = 0; round < 5; ++round)
        pool.parallel_for(parts, [&](int32_t part, int32_t thread) {
          ++done[static_cast<size_t>(part)];  // plain, as scratch memory would be
          ++scratch[static_cast<size_t>(thread)];
        });
      for (const int count : done) REQUIRE(count == 5);
      CHECK(host.seats - before == (threads > 1 && parts > 1 ? 5 * std::min(parts, threads) : 0));
    }
  }
}

TEST_CASE("a host may run the parts one after another, in any order, on the calling thread") {
  const auto backwards = [](void*, int32_t parts, HostThreads::Part part, void* work) {
    while (parts-- > 0) part(work, parts);
  };
  ThreadPool pool(4, nullptr, nullptr, {backwards, nullptr});
  std::vector<int> done(100, 0);
  pool.parallel_for(100, [&](int32_t part, int32_t) { ++done[static_cast<size_t>(part)]; });
  for (const int count : done) CHECK(count == 1);
}

TEST_CASE("parts that a host leaves out or runs twice are run once, and never two at a time with one number") {
  for (const int32_t seats : {0, 1, 3}) {
    Host host;
    host.seats_at_most = seats;
    const auto twice = [](void* user_data, int32_t parts, HostThreads::Part part, void* work) {
      std::thread other([=] { Host::run(user_data, parts, part, work); });
      Host::run(user_data, parts, part, work);
      other.join();
      part(work, -1);
      part(work, parts);
    };
    ThreadPool pool(4, nullptr, nullptr, {twice, &host});
    std::vector<int> done(50, 0);
    std::atomic<int> with_number[4] = {}, together{0};
    for (int round = 0; round < 20; ++round)
      pool.parallel_for(50, [&](int32_t part, int32_t thread) {
        if (with_number[thread]++ > 0) ++together;
        ++done[static_cast<size_t>(part)];
        std::this_thread::yield();
        --with_number[thread];
      });
    for (const int count : done) REQUIRE(count == 20);
    CHECK(together == 0);
  }
}

TEST_CASE("an idle pool uses no processor time") {
  ThreadPool pool(4);
  pool.parallel_for(4, [](int32_t, int32_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(processor_seconds() - before < 0.02);
}

TEST_CASE("a caller that waits long for another thread's part uses no processor time, and is woken") {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::atomic<bool> begun{false};
    const double before = processor_seconds();
    pool.parallel_for(2, [&](int32_t, int32_t thread) {
      if (thread > 0) {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      while (!begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    CHECK(processor_seconds() - before < 0.02);
  }
}

TEST_CASE("pools can be created and destroyed, used or not") {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3);
    if (i % 2) pool.parallel_for(3, [](int32_t, int32_t) {});
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory knows no limit
TEST_CASE("a pool throws if the system refuses a thread, and ends the threads that it started") {
  const pid_t child = fork();
  if (child == 0) {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);  // some stacks
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(256);
      _exit(1);
    } catch (const std::system_error&) {
      _exit(0);
    }
  }
  int ended = -1;
  REQUIRE(waitpid(child, &ended, 0) == child);
  CHECK(ended == 0);
}
#endif

TEST_CASE("a child of fork() can destroy its parent's pool, whose workers exist only in the parent") {
  for (const int32_t threads : {2, 4}) {
    auto pool = std::make_unique<ThreadPool>(threads);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // asleep
    CHECK(test::in_child([&] { return pool.reset(), 0; }) == 0);
    std::atomic<bool> stop{false};
    std::thread host([&] {
      while (!stop) pool->parallel_for(8, [](int32_t, int32_t) {});
    });
    for (int i = 0; i < 10; ++i) CHECK(test::in_child([&] { return pool.reset(), 0; }) == 0);
    stop = true;
    host.join();
    std::atomic<int> count{0};
    pool->parallel_for(100, [&](int32_t, int32_t) { ++count; });
    CHECK(count == 100);
  }
}

TEST_CASE("workers block signals, so that the host's threads receive them") {
  static volatile sig_atomic_t handled;
  handled = 0;
  struct sigaction found{}, action{};
  action.sa_handler = [](int) { handled = handled + 1; };
  sigaction(SIGUSR1, &action, &found);
  sigset_t blocked, before, after, pending;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    ThreadPool pool(4);
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    CHECK(sigismember(&after, SIGUSR1) == sigismember(&before, SIGUSR1));
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    kill(getpid(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGUSR1) == 1);
    CHECK(handled == 0);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    CHECK(handled == 1);
  }
  sigaction(SIGUSR1, &found, nullptr);
}

#if defined(__x86_64__)
TEST_CASE(
    "workers compute in the contract's floating-point state, whatever the state of the thread that created them") {
  const unsigned found = _mm_getcsr();
  _mm_setcsr(found | 0x8040 | 0x2000);  // flush to zero, subnormals are zero, round down
  ThreadPool pool(3);
  unsigned state[3] = {0x1F80, 0x1F80, 0x1F80};
  for (int round = 0; round < 50; ++round)
    pool.parallel_for(12, [&](int32_t, int32_t thread) {
      if (thread > 0) state[thread] = _mm_getcsr() & ~0x3Fu;
      std::this_thread::yield();
    });
  _mm_setcsr(found);
  for (const unsigned s : state) CHECK(s == 0x1F80);
}

TEST_CASE("a host's threads compute in the contract's floating-point state and get back their own") {
  const auto flushing = [](void* after, int32_t parts, HostThreads::Part part, void* work) {
    const unsigned found = _mm_getcsr();
    _mm_setcsr(found | 0x8040);
    for (int32_t i = 0; i < parts; ++i) part(work, i);
    *static_cast<unsigned*>(after) = _mm_getcsr() & 0x8040;
    _mm_setcsr(found);
  };
  unsigned after = 0;
  ThreadPool pool(3, nullptr, nullptr, {flushing, &after});
  unsigned flushed = 0;
  pool.parallel_for(12, [&](int32_t, int32_t) { flushed |= _mm_getcsr() & 0x8040; });
  CHECK(flushed == 0);
  CHECK(after == 0x8040);
}

TEST_CASE("FloatState restores the previous floating-point state") {
  const unsigned found = _mm_getcsr();
  const unsigned hostile = found | 0x8040;
  _mm_setcsr(hostile);
  {
    const FloatState state;
    volatile float tiny = 1e-39f;
    CHECK(tiny * 0.5f != 0.0f);
  }
  const unsigned after = _mm_getcsr();
  _mm_setcsr(found);
  CHECK(after == hostile);
}
#endif

}  // namespace kaiju
