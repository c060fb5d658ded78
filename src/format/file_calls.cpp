// File calls that handle EINTR and SIGXFSZ: see file_calls.hpp.
#include "file_calls.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>

namespace kaiju::format {
namespace {

template <class Call>
auto until_not_interrupted(const Call& call) {
  while (true) {
    const auto answer = call();
    if (answer >= 0 || errno != EINTR) return answer;
  }
}

// The system sends SIGXFSZ to the thread whose call fails with EFBIG. A thread that has it blocked finds it pending,
// and takes it away again, unless one was pending before: that is the host's.
template <class Call>
auto without_size_signal(const Call& call) {
  sigset_t size_signal, before, pending;
  ::sigemptyset(&size_signal);
  ::sigaddset(&size_signal, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &size_signal, &before);
  const bool was_pending =
      ::sigismember(&before, SIGXFSZ) == 1 && ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
  const auto answer = call();
  const int error = errno;
  if (answer < 0 && error == EFBIG && !was_pending) {
    const struct timespec no_time = {};
    (void)until_not_interrupted([&] { return ::sigtimedwait(&size_signal, nullptr, &no_time); });
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return answer;
}

}  // namespace

int open_file(const std::string& path, int flags, mode_t mode) {
  return until_not_interrupted([&] { return ::open(path.c_str(), flags, mode); });
}

int write_file(int fd, std::span<const std::byte> bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t count = until_not_interrupted([&] {
      return without_size_signal([&] { return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)); });
    });
    if (count == 0) errno = EIO;
    if (count <= 0) return -1;
    at += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return 0;
}

int reserve_file(int fd, uint64_t bytes) {
  const auto reserve = [&] {
    return without_size_signal([&] { return ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)); });
  };
  int answer = reserve();
  if (answer == 0 || errno != EINTR) return answer;
  // A file system may give back what it had reserved when a signal comes. The next try takes as long as the first, so a
  // timer's signal could end every one: they are held back from this thread.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  answer = until_not_interrupted(reserve);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return answer;
}

int resize_file(int fd, uint64_t bytes) {
  return until_not_interrupted(
      [&] { return without_size_signal([&] { return ::ftruncate(fd, static_cast<off_t>(bytes)); }); });
}

int flush_file(int fd) {
  return until_not_interrupted([&] { return ::fsync(fd); });
}

// An interrupted close has closed all the same, on Linux: another one would close what another thread has opened since.
int close_file(int fd) { return ::close(fd) == 0 || errno == EINTR ? 0 : -1; }

Status file_error(std::string_view path, std::string_view what) {
  const int error = errno;
  std::string reason = std::generic_category().message(error);
  struct rlimit limit;
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    reason += fmt::format(": the files of this process may have {} bytes (RLIMIT_FSIZE, ulimit -f)", limit.rlim_cur);
  return {StatusCode::kIo, fmt::format("{}: cannot {}: {}", path, what, reason)};
}

}  // namespace kaiju::format
