// A SentencePiece model made by hand: the control symbols of the chat format, 256 bytes, letters and a few words. And
// tools to break it.
#pragma once

#include <fmt/format.h>

#include <list>
#include <span>
#include <string>

#include "kaiju/text/tokenizer.hpp"
#include "src/text/sentencepiece_model.hpp"

namespace kaiju::tests {

// Owns the text its pieces point to.
struct TinyModel {
  SentencepieceModel model;
  std::list<std::string> texts;

  void add(std::string text, float score, PieceKind kind) {
    texts.push_back(std::move(text));
    model.pieces.push_back({texts.back(), score, kind});
  }
  std::string bytes() const { return clean_copy(model); }
};

// Ids: 0 <unk>, 1 <s>, 2 </s>, 3 <|card|>, 4 <|user|>, 5 <|char|>, 6 <|end|>, 7 <|text|>, 8 to 263 the bytes, then
// letters and words.
inline TinyModel tiny_model() {
  TinyModel tiny;
  tiny.model.byte_fallback = true;
  tiny.model.add_dummy_prefix = false;
  tiny.model.remove_extra_whitespaces = false;
  tiny.add("<unk>", 0, PieceKind::kUnknown);
  for (const char* symbol : {"<s>", "</s>", "<|card|>", "<|user|>", "<|char|>", "<|end|>", "<|text|>"})
    tiny.add(symbol, 0, PieceKind::kControl);
  for (int byte = 0; byte < 256; ++byte) tiny.add(fmt::format("<0x{:02X}>", byte), 0, PieceKind::kByte);
  for (char letter = 'a'; letter <= 'z'; ++letter) tiny.add(std::string(1, letter), -8, PieceKind::kNormal);
  for (const char* word :
       {"\xE2\x96\x81", "\xE2\x96\x81the", "hello", "\xE2\x96\x81world", ".", ",", "!", "?", "H", "W", "I"})
    tiny.add(word, -5, PieceKind::kNormal);
  return tiny;
}

inline constexpr int32_t kTinyVocabulary = 320;  // a multiple of 16 with room for the pieces

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline Result<std::shared_ptr<const Tokenizer>> load(const std::string& bytes, int32_t vocab_size = kTinyVocabulary) {
  return Tokenizer::load(as_bytes(bytes), vocab_size);
}

}  // namespace kaiju::tests
