// BlockPool: who refers to each cache block of one kind, and how many free ones are promised. Knows numbers and counts; never touches
// memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/step/facts.hpp"

namespace kaiju {

// One thread at a time. Every call is O(1) but check.
class BlockPool {
 public:
  explicit BlockPool(int32_t block_count) : references_(static_cast<size_t>(block_count), 0) {
    free_.reserve(references_.size());
    for (BlockId block = block_count - 1; block >= 0; --block) free_.push_back(block);  // low numbers first
  }

  int32_t total() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_count() const { return static_cast<int32_t>(free_.size()); }
  int32_t used_count() const { return total() - free_count(); }
  int32_t reserved() const { return reserved_; }
  // Free blocks that nobody was promised.
  int32_t available() const { return free_count() - reserved_; }
  int32_t references(BlockId block) const { return references_[static_cast<size_t>(block)]; }

  // A free block, now with one reference; kNoBlock when there is none.
  BlockId take() {
    if (free_.empty()) return kNoBlock;
    const BlockId block = free_.back();
    free_.pop_back();
    references_[static_cast<size_t>(block)] = 1;
    return block;
  }
  void share(BlockId block) { ++references_[static_cast<size_t>(block)]; }
  // True when that was the last reference and the block is free again.
  bool drop(BlockId block) {
    if (--references_[static_cast<size_t>(block)] > 0) return false;
    free_.push_back(block);
    return true;
  }

  // Promises are kept by cache/table.hpp: a promised block is taken by whom it was promised to, never found missing half-way.
  void reserve(int32_t count) { reserved_ += count; }
  void unreserve(int32_t count) { reserved_ -= count; }

  // free + used = total, no block twice free, no reference to a free one, promises covered. O(total).
  Status check(const char* name) const {
    std::vector<bool> is_free(references_.size(), false);
    for (const BlockId block : free_) {
      if (block < 0 || block >= total() || is_free[static_cast<size_t>(block)] || references(block) != 0)
        return broken(name, "block " + std::to_string(block) + " is in the free list wrongly");
      is_free[static_cast<size_t>(block)] = true;
    }
    for (BlockId block = 0; block < total(); ++block)
      if (references(block) < 0 || (references(block) == 0) != is_free[static_cast<size_t>(block)])
        return broken(name, "block " + std::to_string(block) + " has " + std::to_string(references(block)) + " references");
    if (reserved_ < 0 || reserved_ > free_count()) return broken(name, "promises are not covered");
    return {};
  }
  Status broken(const char* name, const std::string& what) const {
    return internal_error(std::string("cache ledger: ") + name + " blocks: " + what + " (total " + std::to_string(total()) + ", free " +
                          std::to_string(free_count()) + ", reserved " + std::to_string(reserved_) + ")");
  }

 private:
  std::vector<int32_t> references_;
  std::vector<BlockId> free_;
  int32_t reserved_ = 0;
};

}  // namespace kaiju
