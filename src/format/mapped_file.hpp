// MappedFile: a whole file as read-only bytes. Knows no format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kaiju/base/status.hpp"

namespace kaiju::format {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Regular files only: a pipe or a device has no size to check lengths against.
  static Result<MappedFile> open(const std::string& path);

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  // kIo when the file's size or time of change is not what it was at open().
  Status check_unchanged() const;

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
  int64_t changed_seconds_ = 0;
  int64_t changed_nanoseconds_ = 0;
};

}  // namespace kaiju::format
