// The lists and indices of Caches.
#include "bench/fleet/caches.hpp"

namespace kaiju::fleet {
namespace {

// A number for a new record: a freed one, or one more.
template <class Record>
int32_t take(std::vector<Record>& records, std::vector<int32_t>& free) {
  if (free.empty()) {
    records.emplace_back();
    return static_cast<int32_t>(records.size() - 1);
  }
  const int32_t number = free.back();
  free.pop_back();
  records[static_cast<size_t>(number)] = {};
  return number;
}

}  // namespace

int32_t Caches::find_copy(Item item, int32_t machine) const {
  return copy_index_.find(hash(item, machine),
                          [&](int32_t c) { return copy(c).item == item && copy(c).machine == machine; });
}

int32_t Caches::find_item(Item item) const {
  return item_index_.find(mixed(item), [&](int32_t i) { return items_[static_cast<size_t>(i)].item == item; });
}

int32_t Caches::found(Item item, int32_t machine) const {
  const int32_t number = find_copy(item, machine);
  return number == kNone ? 0 : copy(number).tokens;
}

int32_t Caches::add(Item item, int32_t machine) {
  const int32_t number = take(copies_, free_copies_);
  int32_t known = find_item(item);
  if (known == kNone) {
    known = take(items_, free_items_);
    items_[static_cast<size_t>(known)].item = item;
    item_index_.insert(mixed(item), known);
  }
  int32_t& first = items_[static_cast<size_t>(known)].first;
  Copy& added = copy(number);
  added.item = item;
  added.machine = machine;
  added.next_holder = first;
  if (first != kNone) copy(first).last_holder = number;
  first = number;
  copy_index_.insert(hash(item, machine), number);
  return number;
}

void Caches::put(Item item, int32_t machine, int32_t tokens) {
  Machine& at = machines_[static_cast<size_t>(machine)];
  int32_t number = find_copy(item, machine);
  if (number == kNone) {
    number = add(item, machine);
  } else {
    at.bytes -= bytes_(copy(number).tokens);
    unlink_use(number);
  }
  copy(number).tokens = tokens;
  at.bytes += bytes_(tokens);
  link_newest(number);
  while (at.bytes > memory_bytes_ && at.oldest != number) drop(at.oldest);
}

void Caches::clear(int32_t machine) {
  while (machines_[static_cast<size_t>(machine)].oldest != kNone) drop(machines_[static_cast<size_t>(machine)].oldest);
}

void Caches::drop(int32_t number) {
  const Copy& gone = copy(number);
  machines_[static_cast<size_t>(gone.machine)].bytes -= bytes_(gone.tokens);
  unlink_use(number);
  if (gone.next_holder != kNone) copy(gone.next_holder).last_holder = gone.last_holder;
  if (gone.last_holder != kNone) {
    copy(gone.last_holder).next_holder = gone.next_holder;
  } else {
    const int32_t known = find_item(gone.item);
    items_[static_cast<size_t>(known)].first = gone.next_holder;
    if (gone.next_holder == kNone) {
      item_index_.erase(mixed(gone.item), known);
      free_items_.push_back(known);
    }
  }
  copy_index_.erase(hash(gone.item, gone.machine), number);
  free_copies_.push_back(number);
}

void Caches::unlink_use(int32_t number) {
  const Copy& moved = copy(number);
  Machine& at = machines_[static_cast<size_t>(moved.machine)];
  (moved.newer == kNone ? at.newest : copy(moved.newer).older) = moved.older;
  (moved.older == kNone ? at.oldest : copy(moved.older).newer) = moved.newer;
}

void Caches::link_newest(int32_t number) {
  Copy& moved = copy(number);
  Machine& at = machines_[static_cast<size_t>(moved.machine)];
  moved.newer = kNone;
  moved.older = at.newest;
  (at.newest == kNone ? at.oldest : copy(at.newest).newer) = number;
  at.newest = number;
}

}  // namespace kaiju::fleet
