// File calls that are safe in a library: a signal that interrupts a call is no failure, and a write beyond the limit on
// file sizes (RLIMIT_FSIZE) is an error. The system also raises SIGXFSZ for such a write, which would end the host
// process; the signal is blocked in the calling thread for the length of the call. No handler is installed and no
// disposition is changed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kaiju/base/status.hpp"

namespace kaiju::format {

// Each answers as the system's call does: -1, with the reason in errno. Safe from any thread.
int open_file(const std::string& path, int flags, mode_t mode = 0);
// Writes all bytes at this place; 0 when they are written.
int write_file(int fd, std::span<const std::byte> bytes, uint64_t at);
// Takes disk space for the first so many bytes: EOPNOTSUPP or ENOSYS from a file system that cannot.
int reserve_file(int fd, uint64_t bytes);
int resize_file(int fd, uint64_t bytes);
int flush_file(int fd);
// The descriptor is gone whatever the answer.
int close_file(int fd);

// kIo of what errno says: "PATH: cannot WHAT: REASON", with the limit's size where that is the reason.
Status file_error(std::string_view path, std::string_view what);

}  // namespace kaiju::format
