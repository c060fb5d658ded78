// MappedFile: see mapped_file.hpp.
#include "mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace kaiju::format {
namespace {

Status cannot(const char* what, int error) {
  return {StatusCode::kIo, fmt::format("cannot {} the file: {}", what, std::generic_category().message(error))};
}

}  // namespace

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(changed_seconds_, other.changed_seconds_);
  std::swap(changed_nanoseconds_, other.changed_nanoseconds_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
  if (fd_ >= 0) ::close(fd_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile file;
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
  file.data_ = data;
  file.size_ = size;
  return Result<MappedFile>(std::move(file));
}

Status MappedFile::check_unchanged() const {
  struct stat info;
  if (::fstat(fd_, &info) != 0) return cannot("examine", errno);
  if (static_cast<uint64_t>(info.st_size) != size_ || info.st_mtim.tv_sec != changed_seconds_ ||
      info.st_mtim.tv_nsec != changed_nanoseconds_)
    return {StatusCode::kIo, "the file changed while it was being read: try again once its writer is done"};
  return {};
}

}  // namespace kaiju::format
