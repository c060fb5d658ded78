// The stored form of a byte-level BPE tokenizer: JSON, read and checked (docs/checkpoint.md, "Byte-level BPE"). What
// the tokenizer does with it is in byte_bpe.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens.hpp"
#include "kaiju/base/status.hpp"
#include "split.hpp"

namespace kaiju {

enum class TokenRole : uint8_t {
  kUnused,    // the id has no token
  kOrdinary,  // a byte, or what merges make of bytes
  kControl,   // found in trusted text alone; decodes to nothing
  kVisible,   // found in trusted text alone; decodes to its text
  kLiteral,   // found in every text, before the text is split; decodes to its text
};

struct ByteBpeData {
  struct Merge {
    int32_t left, right;
    uint32_t rank;   // lower is earlier
    int32_t result;  // the ordinary token of left's and right's bytes
  };

  const Split* split = nullptr;  // one of the known ones; never NULL in checked data
  bool nfc = false;
  bool add_prefix_space = false;    // text that begins with no space gets one
  bool ignore_merges = false;       // a word that is an ordinary token becomes that token, whatever the merges say
  std::vector<std::string> tokens;  // bytes of each id
  std::vector<TokenRole> roles;     // of each id
  std::vector<TokenEdges> edges;    // of each id; set for control and visible tokens alone
  std::vector<Merge> merges;        // sorted by (left, right), which occurs once
  std::vector<int32_t> by_bytes;    // ordinary tokens, sorted by their bytes
  int32_t byte_tokens[256] = {};    // of each byte the token; -1 where the model has none

  // The ordinary token of these bytes, or -1. Takes log2(tokens) comparisons.
  int32_t find(std::string_view bytes) const;
};

// Reads and checks. kBadModel names the token, merge or field and the rule. More tokens than `vocab_size` are refused.
Result<ByteBpeData> read_byte_bpe(std::span<const std::byte> json, int32_t vocab_size);

}  // namespace kaiju
