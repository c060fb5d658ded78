// A small SentencePiece model by its own trainer, with one of its normalisation rules.
#pragma once

#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include <string>
#include <unordered_map>

namespace kaiju::tests {

// Empty when training failed.
inline std::string train_tokenizer(const std::string& normalization) {
  struct Lines final : sentencepiece::SentenceIterator {
    int at = 0;
    std::string line = make();
    std::string make() const {
      return fmt::format("the quick brown fox number {} jumps over the lazy dog and says hello world", at);
    }
    bool done() const override { return at >= 60; }
    void Next() override {
      ++at;
      line = make();
    }
    const std::string& value() const override { return line; }
    sentencepiece::util::Status status() const override { return {}; }
  } lines;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      std::unordered_map<std::string, std::string>{{"vocab_size", "330"},
                                                   {"byte_fallback", "true"},
                                                   {"hard_vocab_limit", "false"},
                                                   {"normalization_rule_name", normalization},
                                                   {"minloglevel", "2"},
                                                   {"num_threads", "1"}},
      &lines, &model);
  return status.ok() ? model : std::string();
}

}  // namespace kaiju::tests
