// Index: finds the numbers of records by their hash. Open addressing with linear probing; what the records are, and
// when two are the same, is the caller's. Eight bytes for each place of the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kaiju::fleet {

class Index {
 public:
  static constexpr int32_t kNone = -1;

  // The number for which same(number) holds among those whose hash this is, or kNone.
  template <class Same>
  int32_t find(uint64_t hash, Same same) const {
    const auto part = static_cast<uint32_t>(hash);
    for (size_t at = part & mask(); places_[at].number != kNone; at = (at + 1) & mask())
      if (places_[at].hash == part && same(places_[at].number)) return places_[at].number;
    return kNone;
  }

  void insert(uint64_t hash, int32_t number) {
    if (++count_ * 2 > places_.size()) grow();
    place({static_cast<uint32_t>(hash), number});
  }

  // `number` must be in it, under this hash. Later ones of the same run move up, so that no gap hides them.
  void erase(uint64_t hash, int32_t number) {
    size_t gap = static_cast<uint32_t>(hash) & mask();
    while (places_[gap].number != number) gap = (gap + 1) & mask();
    for (size_t at = (gap + 1) & mask(); places_[at].number != kNone; at = (at + 1) & mask()) {
      const size_t home = places_[at].hash & mask();
      if (((at - home) & mask()) < ((at - gap) & mask())) continue;  // it would come before its home
      places_[gap] = places_[at];
      gap = at;
    }
    places_[gap].number = kNone;
    --count_;
  }

 private:
  struct Place {
    uint32_t hash = 0;
    int32_t number = kNone;
  };
  size_t mask() const { return places_.size() - 1; }
  void place(Place place) {
    size_t at = place.hash & mask();
    while (places_[at].number != kNone) at = (at + 1) & mask();
    places_[at] = place;
  }
  void grow() {
    std::vector<Place> old(places_.size() * 2);
    std::swap(old, places_);
    for (const Place& one : old)
      if (one.number != kNone) place(one);
  }

  std::vector<Place> places_ = std::vector<Place>(1024);
  size_t count_ = 0;
};

}  // namespace kaiju::fleet
