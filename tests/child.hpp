// What a child of fork() does, tested from its parent.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace kaiju::test {

// Runs `body` in a child of fork(), which leaves by _exit: the number that body returns; -1 where it threw or ended by
// a signal, SIGALRM among them, which ends one that hangs.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    int answer = 255;
    try {
      answer = body();
    } catch (...) {
    }
    ::_exit(answer);
  }
  int ended = 0;
  if (child < 0 || ::waitpid(child, &ended, 0) != child || !WIFEXITED(ended)) return -1;
  return WEXITSTATUS(ended) == 255 ? -1 : WEXITSTATUS(ended);
}

// Counts promises in a child, which has no way to report: `broken` is the number of the first that was not kept.
struct Promises {
  void operator()(bool kept) {
    ++count;
    if (!kept && broken == 0) broken = count;
  }
  int count = 0, broken = 0;
};

}  // namespace kaiju::test
