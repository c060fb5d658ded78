// Source: the bytes of a checkpoint, in a file or in the caller's memory. Knows no format.
//
// A file is mapped, so that weights can be used in place. All other bytes are read by system calls: if another program
// cuts the file short, a read returns an error, while touching the mapping raises a signal that ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kaiju/base/status.hpp"

namespace kaiju::format {

class Source {
 public:
  Source() = default;
  // Borrows `memory`.
  explicit Source(std::span<const std::byte> memory) : data_(memory.data()), size_(memory.size()) {}
  Source(Source&& other) noexcept;
  Source& operator=(Source&& other) noexcept;
  ~Source();

  // Maps a file. Regular files only: a pipe or a device has no size to check lengths against.
  static Result<Source> open(const std::string& path);

  bool is_file() const { return fd_ >= 0; }
  uint64_t size() const { return size_; }
  // All bytes where they lie. Of a file this is the mapping: its pages may be gone when they are touched.
  std::span<const std::byte> in_place() const { return {data_, size_}; }
  // Copies the bytes from `offset` on, which lie within size(). kIo when a file no longer has them or cannot be read.
  Status read(uint64_t offset, std::span<std::byte> to) const;
  // kIo when the file's size or time of change is not what it was at open(). The message begins "the file changed" and
  // ends with `when`, which says what to do: as a rule that it changed while it was being read.
  Status check_unchanged() const;
  Status check_unchanged(std::string_view when) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
  int64_t changed_seconds_ = 0;
  int64_t changed_nanoseconds_ = 0;
};

}  // namespace kaiju::format
