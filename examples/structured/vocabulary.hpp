// A model's vocabulary as xgrammar reads it: the bytes of each token. Control symbols and tokens that pad the
// vocabulary are empty, which xgrammar takes for special: no text of a grammar becomes one.
#pragma once

#include <xgrammar/xgrammar.h>

#include <string>
#include <string_view>
#include <vector>

#include "kaiju/kaiju.hpp"

namespace kaiju::structured {

inline xgrammar::TokenizerInfo vocabulary_of(const Model& model, const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int32_t token = 0; token < model.config().vocab_size; ++token)
    texts.emplace_back(token < tokenizer.size() ? tokenizer.piece(token) : "");
  return xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, model.config().vocab_size, model.stop_tokens());
}

// Drops what comes up to `end` from a text that begins with `begin`.
inline void drop_before(std::string& text, std::string_view begin, std::string_view end) {
  const size_t at = text.starts_with(begin) ? text.find(end) : std::string::npos;
  if (at != std::string::npos) text.erase(0, at + end.size());
}

// What an exception of xgrammar says, without what is before it, "[TIME] FILE:LINE: " and "Check failed: (...) is
// false:
// ", and without the new line at its end.
inline std::string what_of(const std::exception& problem) {
  std::string why = problem.what();
  const bool placed = why.starts_with("[");
  drop_before(why, "[", "] ");
  if (placed) drop_before(why, "", ": ");
  drop_before(why, "Check failed: (", ") is false: ");
  why.erase(why.find_last_not_of(" \n") + 1);
  return why;
}

}  // namespace kaiju::structured
