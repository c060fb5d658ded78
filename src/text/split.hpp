// Split: cuts text into words by regular expressions, as a tokenizer's data gives them, in bounded time and memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"

namespace kaiju {

// Immutable, safe from any thread. Patterns have PCRE2's syntax, with \s and \S by Unicode's White_Space property, and
// Unicode properties for all other classes.
class Split {
 public:
  // kBadModel for a pattern that does not compile, or that may match nothing at all.
  static Result<Split> compile(std::span<const std::string> patterns);

  // Appends the end offset of each word of `text`, which is UTF-8, at most Tokenizer::kMaxTextBytes long. The first
  // pattern's matches and what lies between them are words; each further pattern cuts those words in the same way.
  // kBadModel where a pattern needs more work than any sane one: for a word of n bytes it may look at O(n) bytes.
  Status words(std::string_view text, std::vector<uint32_t>& ends) const;

 private:
  struct Pattern;
  std::vector<std::shared_ptr<const Pattern>> patterns_;
};

}  // namespace kaiju
