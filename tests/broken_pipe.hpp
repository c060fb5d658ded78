// A pipe that nobody reads, for programs that a test starts through a shell: `>&9` makes it their output.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "catch.hpp"

namespace kaiju::tests {

class BrokenPipe {
 public:
  BrokenPipe() : before_(::fcntl(9, F_DUPFD_CLOEXEC, 10)) {
    int ends[2] = {};
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::dup2(ends[1], 9) == 9);
    for (const int end : ends)
      if (end != 9) ::close(end);
  }
  ~BrokenPipe() {
    if (before_ < 0) {
      ::close(9);
      return;
    }
    ::dup3(before_, 9, O_CLOEXEC);
    ::close(before_);
  }
  BrokenPipe(const BrokenPipe&) = delete;

 private:
  int before_;  // what 9 was, which in a process that uses a GPU is the driver's; -1 where it was closed
};

}  // namespace kaiju::tests
