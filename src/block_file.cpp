// The file tier's file: opened, reserved, and without a name from then on, so that nothing is left of it whatever
// happens and nobody else opens it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "format/path.hpp"
#include "kaiju/kaiju.hpp"

namespace kaiju {
namespace {

class NamelessFile final : public BlockFile {
 public:
  explicit NamelessFile(std::string path) : path_(std::move(path)) {}
  ~NamelessFile() override {
    if (fd_ >= 0) ::close(fd_);
  }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  Status write(int64_t offset, std::span<const std::byte> bytes, BlockName& digest) override {
    digest = digest_of(bytes);
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) errno = EIO;
      if (count <= 0) return failed("write");
      offset += count;
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return {};
  }
  Status read(int64_t offset, std::span<std::byte> bytes, const BlockName& digest) override {
    for (std::span<std::byte> rest = bytes; !rest.empty();) {
      const ssize_t count = ::pread(fd_, rest.data(), rest.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) return {StatusCode::kIo, path_ + ": ends early"};
      if (count < 0) return failed("read");
      offset += count;
      rest = rest.subspan(static_cast<size_t>(count));
    }
    return digest_of(bytes) == digest ? Status() : bad_model(path_ + ": a block changed since it was written");
  }
  Status open(int64_t bytes) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd_ < 0) return failed("create the file");
    if (::unlink(path_.c_str()) != 0) return failed("take the file's name away");
    if (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return {};
    if (errno != EOPNOTSUPP && errno != ENOSYS) return failed(fmt::format("reserve {} bytes", bytes).c_str());
    return ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? Status() : failed("grow");
  }

 private:
  static BlockName digest_of(std::span<const std::byte> bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.low64, hash.high64};
  }
  Status failed(const char* what) const {
    return {StatusCode::kIo, fmt::format("{}: cannot {}: {}", path_, what, std::generic_category().message(errno))};
  }

  int fd_ = -1;
  std::string path_;
};

}  // namespace

Result<std::shared_ptr<BlockFile>> open_block_file(const std::string& path, int64_t bytes) try {
  KAIJU_TRY(format::check_path(path));
  if (bytes <= 0) return invalid_argument(fmt::format("{}: a file of {} bytes was asked for", path, bytes));
  auto file = std::make_shared<NamelessFile>(path);
  KAIJU_TRY(file->open(bytes));
  return std::shared_ptr<BlockFile>(std::move(file));
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, "out of memory");
}

}  // namespace kaiju
