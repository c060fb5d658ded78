// Opens, maps and reads the bytes of a checkpoint: see source.hpp.
#include "source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

namespace kaiju::format {
namespace {

Status cannot(const char* what, int error) {
  return {StatusCode::kIo, fmt::format("cannot {} the file: {}", what, std::generic_category().message(error))};
}

constexpr std::string_view kWhileRead = "while it was being read: try again once its writer is done";

Status changed(std::string_view when) { return {StatusCode::kIo, fmt::format("the file changed {}", when)}; }

}  // namespace

Source::Source(Source&& other) noexcept { *this = std::move(other); }

Source& Source::operator=(Source&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(changed_seconds_, other.changed_seconds_);
  std::swap(changed_nanoseconds_, other.changed_nanoseconds_);
  return *this;
}

Source::~Source() {
  if (!is_file()) return;
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  ::close(fd_);
}

Result<Source> Source::open(const std::string& path) {
  Source file;
  file.fd_ =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a pipe would wait for its writer
  if (file.fd_ < 0) return Status(StatusCode::kIo, cannot("open", errno).message() + "; check the path");
  struct stat info;
  if (::fstat(file.fd_, &info) != 0) return cannot("examine", errno);
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kIo, "not a regular file: give the path of a checkpoint file");
  if (info.st_size == 0) return bad_model("the file is empty");
  file.changed_seconds_ = info.st_mtim.tv_sec;
  file.changed_nanoseconds_ = info.st_mtim.tv_nsec;
  const auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd_, 0);
  if (data == MAP_FAILED) return cannot("map", errno);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return Result<Source>(std::move(file));
}

Status Source::read(uint64_t offset, std::span<std::byte> to) const {
  if (!is_file()) {
    std::copy_n(data_ + offset, to.size(), to.data());
    return {};
  }
  while (!to.empty()) {
    const ssize_t count = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot("read", errno);
    if (count == 0) return changed(kWhileRead);  // its size at open() said otherwise
    to = to.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

Status Source::check_unchanged() const { return check_unchanged(kWhileRead); }

Status Source::check_unchanged(std::string_view when) const {
  if (!is_file()) return {};
  struct stat info;
  if (::fstat(fd_, &info) != 0) return cannot("examine", errno);
  if (static_cast<uint64_t>(info.st_size) != size_ || info.st_mtim.tv_sec != changed_seconds_ ||
      info.st_mtim.tv_nsec != changed_nanoseconds_)
    return changed(when);
  return {};
}

}  // namespace kaiju::format
