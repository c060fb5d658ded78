// See file.hpp.
#include "file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kaiju::journal {

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status io_error(const std::string& path, const char* what) {
  return {StatusCode::kIo, fmt::format("{} cannot be {}: {}", path, what, std::strerror(errno))};
}

Result<File> open_file(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (descriptor < 0) return io_error(path, "opened");
  return File(descriptor);
}

Status write_all(const File& file, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.descriptor(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return io_error(path, "written");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<std::string> read_all(const std::string& path) {
  Result<File> file = open_file(path, O_RDONLY);
  if (!file.ok()) return file.status();
  std::string bytes, part(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = ::read(file->descriptor(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path, "read");
    if (got == 0) return bytes;
    bytes.append(part, 0, static_cast<size_t>(got));
  }
}

}  // namespace kaiju::journal
