// Caches: which machine holds the KV of which item, how many tokens of it, and what it drops when its memory is full.
//
// An item is a character's card or a chat's history. It has state only while a machine holds it, so memory grows with
// what the fleet's caches hold and not with the number of characters there are: 32 bytes for a copy, 16 for an item.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/fleet/index.hpp"
#include "bench/fleet/zipf.hpp"

namespace kaiju::fleet {

using Item = uint64_t;
inline Item card_of(uint64_t character) { return character; }
inline Item history_of(uint64_t chat) { return chat | uint64_t{1} << 63; }

// Bytes of KV of an item that has so many tokens: those of global layers, and one window.
struct KvBytes {
  double token = 768, window = 3.9e6;
  double operator()(int32_t tokens) const { return tokens * token + window; }
};

class Caches {
 public:
  static constexpr int32_t kNone = Index::kNone;

  Caches(int32_t machine_count, double memory_bytes, KvBytes bytes)
      : memory_bytes_(memory_bytes), bytes_(bytes), machines_(static_cast<size_t>(machine_count)) {}

  // Tokens of the item's KV that the machine holds; 0 when it holds none.
  int32_t found(Item item, int32_t machine) const;
  // The machine has now computed, or used, so many tokens of it: it becomes the most recently used. The least recently
  // used ones go when memory is exceeded.
  void put(Item item, int32_t machine, int32_t tokens);
  void clear(int32_t machine);

  // visit(machine, tokens) for each machine that holds the item, the one that got it last first.
  template <class Visit>
  void for_holders(Item item, Visit visit) const {
    const int32_t known = find_item(item);
    if (known == kNone) return;
    for (int32_t c = items_[static_cast<size_t>(known)].first; c != kNone; c = copy(c).next_holder)
      visit(copy(c).machine, copy(c).tokens);
  }

  int64_t copy_count() const { return static_cast<int64_t>(copies_.size() - free_copies_.size()); }
  double bytes_of(int32_t machine) const { return machines_[static_cast<size_t>(machine)].bytes; }

 private:
  struct Copy {
    Item item = 0;
    int32_t machine = kNone, tokens = 0;
    int32_t newer = kNone, older = kNone;              // of the machine's copies, by last use
    int32_t next_holder = kNone, last_holder = kNone;  // of the item's copies
  };
  struct KnownItem {
    Item item = 0;
    int32_t first = kNone;  // copy
  };
  struct Machine {
    double bytes = 0;
    int32_t newest = kNone, oldest = kNone;
  };

  Copy& copy(int32_t number) { return copies_[static_cast<size_t>(number)]; }
  const Copy& copy(int32_t number) const { return copies_[static_cast<size_t>(number)]; }
  static uint64_t hash(Item item, int32_t machine) { return mixed(item ^ mixed(static_cast<uint64_t>(machine) + 1)); }
  int32_t find_copy(Item item, int32_t machine) const;
  int32_t find_item(Item item) const;
  int32_t add(Item item, int32_t machine);
  void drop(int32_t number);
  void unlink_use(int32_t number);
  void link_newest(int32_t number);

  double memory_bytes_;  // of one machine
  KvBytes bytes_;
  std::vector<Machine> machines_;
  std::vector<Copy> copies_;
  std::vector<KnownItem> items_;
  std::vector<int32_t> free_copies_, free_items_;
  Index copy_index_, item_index_;
};

}  // namespace kaiju::fleet
