// EvictedNames: a bounded set of names of evicted blocks. It only serves to distinguish misses of evicted blocks from
// misses of new ones.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "kaiju/base/buffer.hpp"
#include "kaiju/cache/name.hpp"

namespace kaiju {

// A name lies in one set of eight (a cache line), newest first; a ninth replaces the set's oldest. Half of a name is
// kept, so one question in 2^60 is answered wrongly. One thread at a time.
class EvictedNames {
 public:
  static constexpr size_t kSet = 8;
  // How many words a memory of at least `names` takes.
  static size_t words_for(size_t names) { return std::bit_ceil(std::max(names, kSet)); }

  EvictedNames() = default;
  // `words` are zero, words_for(...) of them.
  explicit EvictedNames(Buffer<uint64_t> words) : words_(std::move(words)) {}

  size_t capacity() const { return words_.size(); }
  size_t bytes() const { return words_.bytes(); }

  void add(const BlockName& name) {
    uint64_t* const set = set_of(name);
    uint64_t* const old = std::find(set, set + kSet - 1, mark(name));  // its own old place, or the oldest's
    std::move_backward(set, old, old + 1);
    *set = mark(name);
  }
  // It is here again.
  void remove(const BlockName& name) {
    uint64_t* const set = set_of(name);
    uint64_t* const place = std::find(set, set + kSet, mark(name));
    if (place == set + kSet) return;
    std::move(place + 1, set + kSet, place);
    set[kSet - 1] = 0;
  }
  bool has(const BlockName& name) const {
    uint64_t* const set = const_cast<EvictedNames*>(this)->set_of(name);
    return std::find(set, set + kSet, mark(name)) != set + kSet;
  }

 private:
  static uint64_t mark(const BlockName& name) { return name.low | 1; }  // never the zero of an empty place
  uint64_t* set_of(const BlockName& name) { return words_.data() + (name.high & (words_.size() / kSet - 1)) * kSet; }

  Buffer<uint64_t> words_;
};

}  // namespace kaiju
