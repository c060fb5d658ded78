// Merges by rank: see merge.hpp.
#include "merge.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace kaiju {
namespace {

constexpr size_t kShortWord = 24;  // bytes; up to here looking through all parts is faster than a heap

}  // namespace

MergeTable::MergeTable(std::vector<ByteBpeData::Merge> merges, size_t token_count)
    : merges_(std::move(merges)), first_(token_count + 1, 0) {
  for (const auto& merge : merges_) ++first_[static_cast<size_t>(merge.left) + 1];
  for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

const ByteBpeData::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const auto begin = merges_.begin() + first_[left], end = merges_.begin() + first_[left + 1];
  const auto at = std::lower_bound(begin, end, right, [](const auto& merge, int32_t id) { return merge.right < id; });
  return at != end && at->right == right ? &*at : nullptr;
}

void Merger::set_merge(int32_t at, const MergeTable& table) {
  Part& part = parts_[at];
  const auto* found = part.right < 0 ? nullptr : table.find(part.token, parts_[part.right].token);
  part.rank = found ? found->rank : MergeTable::kNoRank;
  part.result = found ? found->result : -1;
}

// Merges the part with its right neighbour.
void Merger::join(int32_t at, const MergeTable& table) {
  Part& part = parts_[at];
  Part& gone = parts_[part.right];
  part.token = part.result;
  part.right = gone.right;
  gone.rank = MergeTable::kNoRank;
  if (part.right >= 0) parts_[part.right].left = at;
  set_merge(at, table);
  if (part.left >= 0) set_merge(part.left, table);
}

void Merger::merge_short(const MergeTable& table) {
  for (;;) {
    int32_t best = 0;
    for (int32_t at = parts_[0].right; at >= 0; at = parts_[at].right)
      if (parts_[at].rank < parts_[best].rank) best = at;
    if (parts_[best].rank == MergeTable::kNoRank) return;
    join(best, table);
  }
}

void Merger::merge_long(const MergeTable& table) {
  const auto key = [&](int32_t at) { return uint64_t{parts_[at].rank} << 32 | static_cast<uint32_t>(at); };
  heap_.clear();
  for (size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i].rank != MergeTable::kNoRank) heap_.push_back(key(static_cast<int32_t>(i)));
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const uint64_t lowest = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<int32_t>(lowest & UINT32_MAX);
    if (parts_[at].rank != lowest >> 32) continue;  // a neighbour has merged since
    join(at, table);
    for (const int32_t changed : {at, parts_[at].left}) {
      if (changed < 0 || parts_[changed].rank == MergeTable::kNoRank) continue;
      heap_.push_back(key(changed));
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
}

void Merger::merge(std::string_view word, const MergeTable& table, std::span<const int32_t, 256> byte_tokens,
                   std::vector<int32_t>& tokens) {
  parts_.clear();
  for (const char byte : word)
    if (const int32_t token = byte_tokens[static_cast<uint8_t>(byte)]; token >= 0) {
      const auto at = static_cast<int32_t>(parts_.size());
      parts_.push_back({token, at - 1, at + 1, MergeTable::kNoRank, -1});
    }
  if (parts_.empty()) return;
  parts_.back().right = -1;
  const auto size = static_cast<int32_t>(parts_.size());
  for (int32_t i = 0; i < size; ++i) set_merge(i, table);
  parts_.size() <= kShortWord ? merge_short(table) : merge_long(table);
  for (int32_t at = 0; at >= 0; at = parts_[at].right) tokens.push_back(parts_[at].token);
}

}  // namespace kaiju
