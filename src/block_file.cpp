// The file for evicted KV. It is created, its space is reserved, and its name is removed at once, so that no other
// process opens it and nothing is left of it after a crash.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "format/file_calls.hpp"
#include "format/path.hpp"
#include "kaiju/cache/name.hpp"
#include "kaiju/kaiju.hpp"

namespace kaiju {
namespace {

class NamelessFile final : public BlockFile {
 public:
  explicit NamelessFile(std::string path) : path_(std::move(path)) {}
  ~NamelessFile() override {
    if (fd_ >= 0) format::close_file(fd_);
  }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  Status write(int64_t offset, std::span<const std::byte> bytes, BlockName& digest) override {
    digest = digest_of(bytes);
    return format::write_file(fd_, bytes, static_cast<uint64_t>(offset)) == 0 ? Status() : failed("write");
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
    fd_ = format::open_file(path_, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd_ < 0) return failed("create the file");
    if (::unlink(path_.c_str()) != 0) return failed("remove the file's name");
    if (format::reserve_file(fd_, static_cast<uint64_t>(bytes)) == 0) return {};
    if (errno != EOPNOTSUPP && errno != ENOSYS) return failed(fmt::format("reserve {} bytes", bytes));
    return format::resize_file(fd_, static_cast<uint64_t>(bytes)) == 0 ? Status() : failed("grow");
  }

 private:
  static BlockName digest_of(std::span<const std::byte> bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.low64, hash.high64};
  }
  Status failed(std::string_view what) const { return format::file_error(path_, what); }

  int fd_ = -1;
  std::string path_;
};

}  // namespace

Result<std::shared_ptr<BlockFile>> open_block_file(const std::string& path, int64_t bytes) try {
  KAIJU_TRY(format::check_path(path));
  if (bytes <= 0)
    return invalid_argument(fmt::format("{}: the file would have {} bytes; it must have at least 1", path, bytes));
  auto file = std::make_shared<NamelessFile>(path);
  KAIJU_TRY(file->open(bytes));
  return std::shared_ptr<BlockFile>(std::move(file));
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, "out of memory");
}

}  // namespace kaiju
