// See new_file.hpp.
#include "new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "path.hpp"

namespace kaiju::format {

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (folder_fd_ >= 0) ::close(folder_fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status NewFile::open(bool secret) {
  if (path_.empty()) return invalid_argument("the path is empty: name the file to write");
  KAIJU_TRY(check_path(path_));
  struct stat info;
  if (::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return {StatusCode::kIo, fmt::format("{}: exists and is not a regular file: choose another path", path_)};
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
  const std::string name = slash == std::string::npos ? path_ : path_.substr(slash + 1);
  if (name.empty()) return invalid_argument(fmt::format("{}: names a folder, not a file", path_));
  folder_fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd_ < 0) return failed("open its folder (make the folder, or choose another)");
  constexpr size_t kNameBytes = 100;  // of a name as long as the file system allows
  static std::atomic<uint32_t> count{0};
  do {
    temporary_ = fmt::format("{}/.{}.{}-{}.tmp", folder, name.substr(0, kNameBytes), ::getpid(), count++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, secret ? 0600 : 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ >= 0) return {};
  Status status = failed("create a file in its folder (make the folder, or choose another)");
  temporary_.clear();
  return status;
}

Status NewFile::reserve(uint64_t bytes) {
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    return failed(fmt::format("reserve {} bytes", bytes));
  return {};
}

Status NewFile::put(std::span<const std::byte> bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = EIO;
    if (count <= 0) return failed("write");
    at += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status NewFile::commit() {
  if (::fsync(fd_) != 0) return failed("flush to the disk");
  if (::close(std::exchange(fd_, -1)) != 0) return failed("close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("give the finished file its name");
  temporary_.clear();
  // The name itself is on the disk only when the folder is.
  if (::fsync(folder_fd_) != 0 && errno != EINVAL)
    return failed("flush its folder");  // EINVAL: a file system without such a thing
  return {};
}

Status NewFile::failed(const std::string& what) const {
  return {StatusCode::kIo, fmt::format("{}: cannot {}: {}", path_, what, std::generic_category().message(errno))};
}

}  // namespace kaiju::format
