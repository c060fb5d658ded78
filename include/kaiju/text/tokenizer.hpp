// Tokenizer: text to token ids and back, by the SentencePiece model inside a checkpoint. Immutable, safe from any
// thread. Running out of memory inside SentencePiece itself can end the process: its protobuf messages do not survive
// it. Everything else answers. A damaged model is refused by name before SentencePiece sees it:
// src/text/sentencepiece_model.hpp checks it and hands on a clean copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/text/detail/pieces.hpp"

namespace kaiju {

class Tokenizer : public Pieces {
 public:
  // Longest text of one encode call, in bytes, as it is given and as the tokenizer's own rules rewrite it. Encoding
  // takes up to 230 bytes of memory for each while it runs: a quarter of a gigabyte for the longest.
  static constexpr size_t kMaxTextBytes = size_t{1} << 20;

  // `model` is copied. kBadModel names the piece or field and the rule; a vocabulary larger than `vocab_size` is
  // refused, a smaller one is fine (vocab_size is rounded up to a multiple of 16).
  static Result<std::shared_ptr<const Tokenizer>> load(std::span<const std::byte> model, int32_t vocab_size);

  virtual int32_t size() const = 0;        // pieces; their ids run from 0 to size() - 1
  virtual int32_t vocab_size() const = 0;  // the model's; ids from size() on are padding, which a model may draw
  // Never gives a control symbol: no text can forge one. kInvalidArgument when the text is longer than kMaxTextBytes
  // (the message says by how much: encode it in parts) or not UTF-8 (the message says at which byte, counted from 1).
  virtual Result<std::vector<int32_t>> encode(std::string_view text) const = 0;
  // The bytes a token stands for, a space for the mark U+2581 and one raw byte for a byte piece, so a character may
  // need several tokens. Empty for control symbols and for ids that are no piece. Lives as long as the tokenizer.
  std::string_view piece(int32_t token) const override = 0;
  virtual bool is_control(int32_t token) const = 0;
  // True when encoding puts a space before the text; the first piece then begins with a space that is not the text's
  // own.
  virtual bool adds_space() const = 0;

  // The pieces joined, without the space that encoding added. An id that is no piece gives nothing, as in the engine's
  // events; kInvalidArgument for one that is outside the vocabulary.
  Result<std::string> decode(std::span<const int32_t> tokens) const;
};

// Offset of the first byte that is not UTF-8 (overlong forms and surrogates are not), or text.size() when all is well.
size_t utf8_valid_prefix(std::string_view text);

}  // namespace kaiju
