// Ring: a queue that keeps its memory: it allocates only when it is fuller than ever before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace kaiju {

template <class T>
class Ring {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }

  // From here on so many fit without memory being taken.
  void reserve(size_t count) {
    if (count > slots_.size()) grow(count);
  }
  void push_back(T value) {
    if (count_ == slots_.size()) grow(count_ + 1);
    slots_[(first_ + count_) % slots_.size()] = std::move(value);
    ++count_;
  }
  // Not when empty.
  T pop_front() {
    T value = std::exchange(slots_[first_], T());
    first_ = (first_ + 1) % slots_.size();
    --count_;
    return value;
  }

 private:
  void grow(size_t least) {
    std::vector<T> larger(std::max({least, slots_.size() * 2, size_t{16}}));
    for (size_t i = 0; i < count_; ++i) larger[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace kaiju
