// Writes a file that appears as a whole: see new_file.hpp.
#include "new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <utility>

#include "file_calls.hpp"
#include "path.hpp"

namespace kaiju::format {
namespace {

// Of the path's last part.
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

NewFile::~NewFile() {
  if (fd_ >= 0) close_file(fd_);
  if (folder_fd_ >= 0) close_file(folder_fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status NewFile::open(bool secret) {
  KAIJU_TRY(check_path(path_));
  struct stat old, found;
  const bool exists = ::stat(path_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT && errno != ENOTDIR) return failed("look at it");
  if (exists && !S_ISREG(old.st_mode))
    return {StatusCode::kIo, fmt::format("{}: exists and is not a regular file: choose another path", path_)};
  KAIJU_TRY(follow_links());
  // The links of /proc lead to files that may have no name any more.
  if (exists && target_ != path_ &&
      (::stat(target_.c_str(), &found) != 0 || found.st_dev != old.st_dev || found.st_ino != old.st_ino))
    return {StatusCode::kIo, fmt::format("{}: is a link that leads to no name: choose another path", path_)};
  const std::string folder = folder_of(target_), name = target_.substr(target_.rfind('/') + 1);
  if (name.empty()) return invalid_argument(fmt::format("{}: names a folder, not a file", path_));
  folder_fd_ = open_file(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd_ < 0) return failed("open its folder (make the folder, or choose another)");
  constexpr size_t kNameBytes = 100;  // of a name as long as the file system allows
  static std::atomic<uint32_t> count{0};
  do {
    temporary_ = fmt::format("{}/.{}.{}-{}.tmp", folder, name.substr(0, kNameBytes), ::getpid(), count++);
    fd_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, secret ? 0600 : 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ >= 0) return exists && !secret ? keep_access(old) : Status();
  Status status = failed("create a file in its folder (make the folder, or choose another)");
  temporary_.clear();
  return status;
}

// A plain open would follow them too, and make what the last one leads to where nothing is.
Status NewFile::follow_links() {
  constexpr int kMostLinks = 40;  // as many as the system follows
  char to[PATH_MAX];
  for (int links = 0; links <= kMostLinks; ++links) {
    const ssize_t size = ::readlink(target_.c_str(), to, sizeof to);
    if (size < 0) return errno == EINVAL || errno == ENOENT || errno == ENOTDIR ? Status() : failed("read its link");
    const std::string link(to, static_cast<size_t>(size));
    target_ = link.starts_with('/') ? link : folder_of(target_) + '/' + link;
  }
  errno = ELOOP;
  return failed("follow its links");
}

Status NewFile::keep_access(const struct stat& old) {
  struct stat now;
  if (::fstat(fd_, &now) != 0) return failed("look at the new file");
  mode_t mode = old.st_mode & 0777;
  // Only root may give a file to another owner. A group that is not the old one gets what everybody has.
  if (now.st_uid != old.st_uid || now.st_gid != old.st_gid)
    if (::fchown(fd_, old.st_uid, old.st_gid) != 0 && ::fchown(fd_, static_cast<uid_t>(-1), old.st_gid) != 0)
      mode = (mode & 0707) | ((mode & 0007) << 3);
  if ((now.st_mode & 0777) == mode || ::fchmod(fd_, mode) == 0) return {};
  return failed("give the new file the old one's permissions");
}

Status NewFile::reserve(uint64_t bytes) {
  if (reserve_file(fd_, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    return failed(fmt::format("reserve {} bytes", bytes));
  return {};
}

Status NewFile::put(std::span<const std::byte> bytes, uint64_t at) {
  return write_file(fd_, bytes, at) == 0 ? Status() : failed("write");
}

Status NewFile::commit() {
  if (flush_file(fd_) != 0) return failed("flush to the disk");
  if (close_file(std::exchange(fd_, -1)) != 0) return failed("close");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return failed("give the finished file its name");
  temporary_.clear();
  // The name itself is on the disk only when the folder is.
  if (flush_file(folder_fd_) != 0 && errno != EINVAL)
    return failed("flush its folder");  // EINVAL: a file system without such a thing
  return {};
}

Status NewFile::failed(std::string_view what) const {
  return file_error(target_ == path_ ? path_ : fmt::format("{} (a link to {})", path_, target_), what);
}

}  // namespace kaiju::format
