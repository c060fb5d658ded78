// Sweeps: a scenario is run with its first, second, third ... allocation or file call failing, once or from then on,
// until it runs through. After every failure it must have said so by a status, and given everything back.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>

#include "catch.hpp"
#include "kaiju/base/status.hpp"
#include "tests/heap.hpp"

namespace shortage {

// File calls of the library: open, stat, fstat, readlink, mmap, pread, fallocate, ftruncate, pwrite, fsync, close,
// rename. Linked with --wrap (shortage.cmake).
namespace files {
void fail_at(int64_t nth, bool for_good);  // as heap::fail_at
// A signal interrupts the nth of those that can be, and `more` tries after it; 0: none.
void interrupt_at(int64_t nth, int64_t more = 0);
int64_t calls();  // since the last fail_at or interrupt_at; after interrupt_at of those that can be interrupted
}  // namespace files

// Does something from the beginning, gives everything back, and tells the first failure.
using Scenario = std::function<kaiju::StatusCode()>;

size_t open_files();

namespace detail {

template <class FailAt, class Met>
int64_t sweep(const Scenario& scenario, std::initializer_list<kaiju::StatusCode> answers, const FailAt& fail_at,
              const Met& met) {
  REQUIRE(scenario() == kaiju::StatusCode::kOk);  // and makes what is made once
  int64_t failures = 0;
  for (const bool for_good : {false, true})
    for (int64_t nth = 1;; ++nth) {
      const size_t files_before = open_files();
      heap::reset();
      fail_at(nth, for_good);
      kaiju::StatusCode code = kaiju::StatusCode::kInternal;
      bool thrown = false;
      try {
        code = scenario();
      } catch (...) {
        thrown = true;
      }
      const bool reached = met(nth);
      fail_at(0, false);
      const heap::Count after = heap::count();
      const size_t files_after = open_files();
      const bool told =
          code == kaiju::StatusCode::kOk || std::find(answers.begin(), answers.end(), code) != answers.end();
      if (thrown || !told || after.live_blocks != 0 || files_after != files_before) {
        INFO("failure " << nth << (for_good ? " and all after it" : ""));
        CHECK_FALSE(thrown);
        INFO("answered with status " << static_cast<int>(code));
        CHECK(told);
        CHECK(after.live_blocks == 0);
        CHECK(files_after == files_before);
        break;  // the rest would be the same
      }
      if (!reached) break;
      failures += code != kaiju::StatusCode::kOk;
    }
  REQUIRE(scenario() == kaiju::StatusCode::kOk);  // the shortage over, all is as before
  return failures;
}

}  // namespace detail

// How many runs failed for want of memory and said so.
inline int64_t sweep_memory(const Scenario& scenario) {
  return detail::sweep(scenario, {kaiju::StatusCode::kOutOfMemory}, heap::fail_at,
                       [](int64_t nth) { return heap::count().allocations >= nth; });
}
// The same where a step may be what finds no memory: half-way through its books it stops the engine, with kInternal and
// "no memory".
inline int64_t sweep_memory_of_steps(const Scenario& scenario) {
  return detail::sweep(scenario, {kaiju::StatusCode::kOutOfMemory, kaiju::StatusCode::kInternal}, heap::fail_at,
                       [](int64_t nth) { return heap::count().allocations >= nth; });
}
// How many runs failed for a file call and said so.
inline int64_t sweep_files(const Scenario& scenario) {
  return detail::sweep(scenario, {kaiju::StatusCode::kIo}, files::fail_at,
                       [](int64_t nth) { return files::calls() >= nth; });
}

}  // namespace shortage
