// A model's vocabulary as xgrammar reads it: the bytes of each token. Control symbols and tokens that pad the
// vocabulary are empty, which xgrammar takes for special: no text of a grammar becomes one.
#pragma once

#include <xgrammar/xgrammar.h>

#include <string>
#include <vector>

#include "kaiju/kaiju.hpp"

namespace kaiju::structured {

inline xgrammar::TokenizerInfo vocabulary_of(const Model& model, const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int32_t token = 0; token < model.config().vocab_size; ++token)
    texts.emplace_back(token < tokenizer.size() ? tokenizer.piece(token) : "");
  return xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, model.config().vocab_size, model.stop_tokens());
}

// What an exception of xgrammar says, without the new line at its end.
inline std::string what_of(const std::exception& problem) {
  std::string why = problem.what();
  why.erase(why.find_last_not_of(" \n") + 1);
  return why;
}

}  // namespace kaiju::structured
