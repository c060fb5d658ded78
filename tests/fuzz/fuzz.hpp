// What the fuzz targets share. Each target is one file with one LLVMFuzzerTestOneInput; libFuzzer calls it with what it
// invents, replay.cpp with the committed corpus. A broken promise aborts, which is how libFuzzer learns of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "tests/heap.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fuzz {

inline void promise(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// The input, eaten from the front; zeros once it is gone.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool done() const { return rest_.empty(); }
  template <class T = uint8_t>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::string_view bytes = take_text(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::string_view take_text(size_t size) {
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(text.size());
    return text;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// Around what reads `input_bytes` from outside: in proportion to them, whatever they claim, and given back at the end.
class MemoryBound {
 public:
  MemoryBound(size_t input_bytes, int64_t per_byte, int64_t fixed)
      : most_(static_cast<int64_t>(input_bytes) * per_byte + fixed) {
    heap::reset();
  }
  ~MemoryBound() {
    if (heap::count().peak_bytes > most_)
      std::fprintf(stderr, "%lld bytes at once, %lld allowed\n", static_cast<long long>(heap::count().peak_bytes),
                   static_cast<long long>(most_));
    promise(heap::count().peak_bytes <= most_, "memory stays in proportion to the input");
  }

 private:
  int64_t most_;
};

}  // namespace fuzz
