// A program may be started with standard streams closed. The first files it opens would then take their numbers, and be
// read as its input or written over by its output.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace kaiju::tools {

// The first thing a program does: such a stream stands open on nothing, the wrong way round, so that reading or writing
// it still fails.
inline void hold_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0)
      (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest number that is free
}

}  // namespace kaiju::tools
