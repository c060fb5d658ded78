// File: a file descriptor that closes itself, and whole writes and reads.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "kaiju/base/status.hpp"

namespace kaiju::journal {

class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept;
  ~File();

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// `flags` as open's; new files are for their owner alone. kIo names the path.
Result<File> open_file(const std::string& path, int flags);
Status write_all(const File& file, const std::string& path, std::string_view bytes);
Result<std::string> read_all(const std::string& path);
// The reason that errno has.
Status io_error(const std::string& path, const char* what);

}  // namespace kaiju::journal
