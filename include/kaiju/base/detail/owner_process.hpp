// OwnerProcess: the process that made an object. fork() copies memory and no thread but the one that calls it: in the
// child, what relies on threads, locks, a GPU or a file that is shared is a picture of one moment, perhaps of a change
// half made. There its owner refuses every use, and destroys nothing: destroying may wait for threads that are not
// there.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>

#include "kaiju/base/status.hpp"

namespace kaiju {

// Threadsafe. A copy has the same owner.
class OwnerProcess {
 public:
  // False in a child of fork(). One system call.
  bool is_this() const { return ::getpid() == id_; }

  // kInvalidArgument in a child of fork(); `what` names the object.
  Status check(const char* what) const {
    if (is_this()) return {};
    return guarded<Status>([&] {
      return invalid_argument(std::string(what) + " belongs to process " + std::to_string(id_) +
                              ", which made it and was forked since; this is process " + std::to_string(::getpid()) +
                              ": make one here");
    });
  }

 private:
  pid_t id_ = ::getpid();
};

}  // namespace kaiju
