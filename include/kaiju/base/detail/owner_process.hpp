// OwnerProcess: remembers which process made an object. fork() copies memory but only the calling thread. So in the
// child, an object that relies on threads, locks, a GPU or a shared file may be in the middle of a change. There the
// object's owner refuses every use and destroys nothing, because destroying may wait for threads that do not exist.
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
                              ", which created it and has forked since; this is process " + std::to_string(::getpid()) +
                              ": create one here");
    });
  }

 private:
  pid_t id_ = ::getpid();
};

}  // namespace kaiju
