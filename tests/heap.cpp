// Heap: see heap.hpp.
#include "tests/heap.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace heap {
namespace {

thread_local Count counted;
thread_local int64_t fails_in = 0;  // 0: never
thread_local bool fails_for_good = false;
thread_local int paused = 0;

}  // namespace

bool may_have() {
  if (paused) return true;
  ++counted.allocations;
  if (fails_in == 0) return true;
  if (fails_in > 1) return --fails_in, true;
  if (!fails_for_good) fails_in = 0;
  return false;
}

namespace {

void* note(void* memory) {
  if (!memory) return memory;
  counted.live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  ++counted.live_blocks;
  counted.peak_bytes = std::max(counted.peak_bytes, counted.live_bytes);
  return memory;
}

void* take(size_t size, size_t alignment) {
  if (!may_have()) return nullptr;
  size = std::max<size_t>(size, 1);
  if (alignment <= alignof(std::max_align_t)) return note(std::malloc(size));
  return note(std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment));
}

void* take_or_throw(size_t size, size_t alignment) {
  void* memory = take(size, alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void give(void* memory) {
  if (!memory) return;
  counted.live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  --counted.live_blocks;
  std::free(memory);
}

}  // namespace

Pause::Pause() { ++paused; }
Pause::~Pause() { --paused; }

const Count& count() { return counted; }
void reset() { counted = {}; }
void fail_at(int64_t nth, bool for_good) {
  fails_in = nth;
  fails_for_good = for_good;
}

}  // namespace heap

constexpr size_t kPlain = alignof(std::max_align_t);
void* operator new(size_t size) { return heap::take_or_throw(size, kPlain); }
void* operator new[](size_t size) { return heap::take_or_throw(size, kPlain); }
void* operator new(size_t size, std::align_val_t alignment) {
  return heap::take_or_throw(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return heap::take_or_throw(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return heap::take(size, kPlain); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return heap::take(size, kPlain); }
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return heap::take(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return heap::take(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { heap::give(memory); }
void operator delete[](void* memory) noexcept { heap::give(memory); }
void operator delete(void* memory, size_t) noexcept { heap::give(memory); }
void operator delete[](void* memory, size_t) noexcept { heap::give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { heap::give(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { heap::give(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { heap::give(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { heap::give(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { heap::give(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { heap::give(memory); }
