// Buffer: zeroed, 64-byte aligned memory of a fixed size. Allocating a large buffer does not touch its pages, so pages
// that are never used are not resident.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>

#include "kaiju/base/status.hpp"

namespace kaiju {

template <class T>
class Buffer {
 public:
  Buffer() = default;

  // Allocates `count` elements. A kOutOfMemory error names `what` and the number of bytes.
  static Result<Buffer> make(size_t count, const char* what) {
    Buffer buffer;
    if (count > std::numeric_limits<size_t>::max() / sizeof(T) - kAlignment) return out_of_memory(count, what);
    buffer.count_ = count;
    // calloc leaves the zeroing of new pages to the system. The kAlignment extra bytes make room for aligning the start
    // of the buffer.
    buffer.memory_.reset(std::calloc(1, count * sizeof(T) + kAlignment));
    if (!buffer.memory_) return out_of_memory(count, what);
    return buffer;
  }

  T* data() { return reinterpret_cast<T*>(aligned(static_cast<std::byte*>(memory_.get()), kAlignment)); }
  // Asks the system to use large pages for this buffer, which helps memory with random access. With large pages,
  // touching one byte may make 2 MiB resident.
  void prefer_large_pages() {
#if defined(__linux__)
    constexpr size_t kPage = size_t{2} << 20;
    std::byte* const end = reinterpret_cast<std::byte*>(data()) + bytes();
    std::byte* const first = aligned(reinterpret_cast<std::byte*>(data()), kPage);
    if (first < end) (void)madvise(first, static_cast<size_t>(end - first) / kPage * kPage, MADV_HUGEPAGE);
#endif
  }
  size_t size() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  static constexpr size_t kAlignment = 64;
  // Rounds an address up to the next multiple of `multiple`; a null address stays null.
  static std::byte* aligned(std::byte* address, size_t multiple) {
    return address + (0 - reinterpret_cast<uintptr_t>(address)) % multiple;
  }
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  static Status out_of_memory(size_t count, const char* what) {
    const std::string each = sizeof(T) > 1 ? " x " + std::to_string(sizeof(T)) : "";
    return {StatusCode::kOutOfMemory,
            std::string(what) + " needs " + std::to_string(count) + each + " bytes, which the system did not give"};
  }

  std::unique_ptr<void, Free> memory_;
  size_t count_ = 0;
};

// HostMemory points to zeroed bytes of host memory and frees them with the deleter of the code that allocated them.
using HostMemory = std::shared_ptr<std::byte>;
inline Result<HostMemory> plain_memory(size_t bytes, const char* what) {
  Result<Buffer<std::byte>> made = Buffer<std::byte>::make(bytes, what);
  if (!made.ok()) return made.status();
  const auto buffer = std::make_shared<Buffer<std::byte>>(std::move(made).value());
  return HostMemory(buffer, buffer->data());
}

}  // namespace kaiju
