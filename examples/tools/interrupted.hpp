// Makes a program that is interrupted while it writes a file leave no partial file.
#pragma once

#include <csignal>

namespace kaiju::tools {

inline volatile std::sig_atomic_t interrupted = 0;

// From now on a signal sets `interrupted`. A second one ends the program at once.
inline void give_up_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto before = std::signal(signal, [](int which) {
      interrupted = 1;
      std::signal(which, SIG_DFL);
    });
    if (before == SIG_IGN) std::signal(signal, SIG_IGN);  // nohup, a shell's background jobs
  }
}

}  // namespace kaiju::tools
