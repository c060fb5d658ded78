// Merge: joins the bytes of a word into tokens, by rank.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "byte_bpe_data.hpp"

namespace kaiju {

// The merges, found by their left token and then by binary search: no hashing, so no vocabulary makes it slow.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  MergeTable() = default;
  // `merges` is sorted by (left, right), with ids below `token_count`.
  MergeTable(std::vector<ByteBpeData::Merge> merges, size_t token_count);
  // The merge of two neighbours, or NULL.
  const ByteBpeData::Merge* find(int32_t left, int32_t right) const;

 private:
  std::vector<ByteBpeData::Merge> merges_;
  std::vector<uint32_t> first_;  // of each left token, then the end
};

// Scratch memory for one encode call; used again for each word.
class Merger {
 public:
  // Appends the tokens of `word`, which is at most Tokenizer::kMaxTextBytes long: while any two neighbours can merge,
  // those of the lowest rank do, the leftmost of equals first. A byte without a token (-1) is left out, as the models'
  // own tokenizers do. O(n log n).
  void merge(std::string_view word, const MergeTable& table, std::span<const int32_t, 256> byte_tokens,
             std::vector<int32_t>& tokens);

 private:
  // A token with the places of its neighbours, and the merge with the one to its right.
  struct Part {
    int32_t token;
    int32_t left, right;  // -1 where there is none
    uint32_t rank;        // kNoRank: no merge, or this part is inside another now
    int32_t result;
  };

  void set_merge(int32_t at, const MergeTable& table);
  void join(int32_t at, const MergeTable& table);
  void merge_short(const MergeTable& table);
  void merge_long(const MergeTable& table);

  std::vector<Part> parts_;
  std::vector<uint64_t> heap_;  // rank in the upper half, place in the lower; the lowest is at the front
};

}  // namespace kaiju
