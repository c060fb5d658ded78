// A pipe that nobody reads, for programs that a test starts through a shell: `>&9` makes it their output.
#pragma once

#include <unistd.h>

#include "catch.hpp"

namespace kaiju::tests {

class BrokenPipe {
 public:
  BrokenPipe() {
    int ends[2] = {};
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::dup2(ends[1], 9) == 9);
    for (const int end : ends)
      if (end != 9) ::close(end);
  }
  ~BrokenPipe() { ::close(9); }
  BrokenPipe(const BrokenPipe&) = delete;
};

}  // namespace kaiju::tests
