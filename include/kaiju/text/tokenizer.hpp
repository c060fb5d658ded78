// Tokenizer: converts text to token ids and back with the tokenizer inside a checkpoint, which is of one of two kinds:
// a SentencePiece model, or byte-level BPE in kaiju's own format (docs/checkpoint.md). Immutable, safe from any thread.
// Damaged SentencePiece models are refused by name before SentencePiece reads them: src/text/sentencepiece_model.hpp
// checks the model and passes on a clean copy. If memory runs out inside SentencePiece, the process can end, because
// its protobuf messages do not handle that; every other failure is a status.
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
  // Longest text of one encode call in bytes. The limit holds for the text as passed and as the tokenizer's
  // normalisation rewrites it. Encoding needs up to 230 bytes of memory for each byte while it runs: a quarter of a
  // gigabyte for the longest text.
  static constexpr size_t kMaxTextBytes = size_t{1} << 20;

  // `model` is the serialised SentencePiece model, or byte-level BPE if its first byte is '{'; it is copied. A
  // kBadModel error names the piece, token or field and the rule. A vocabulary larger than `vocab_size` is refused. A
  // smaller one is accepted, because vocab_size is rounded up to a multiple of 16.
  static Result<std::shared_ptr<const Tokenizer>> load(std::span<const std::byte> model, int32_t vocab_size);

  virtual int32_t size() const = 0;  // number of pieces; their ids are 0 to size() - 1
  // vocabulary of the model; ids from size() on are padding, which a model may still draw
  virtual int32_t vocab_size() const = 0;
  // Encodes text. The result never contains a control symbol, whatever the text. kInvalidArgument if the text is longer
  // than kMaxTextBytes (the message says by how much: encode it in parts) or not UTF-8 (the message names the byte,
  // counted from 1). kBadModel if a split pattern of byte-level BPE backtracks beyond its limit on this text.
  virtual Result<std::vector<int32_t>> encode(std::string_view text) const = 0;
  // The same, but text such as "<|im_start|>" becomes the special token of that name, control symbols included. Only
  // for text that the host wrote itself, such as a prompt template: whoever writes the text can forge any token.
  // kUnsupported for a SentencePiece model.
  virtual Result<std::vector<int32_t>> encode_with_special_tokens(std::string_view text) const = 0;
  // The bytes of a token's text. SentencePiece's mark U+2581 is given as a space, and its byte pieces as one raw byte.
  // A character may need several tokens. Empty for control symbols and for ids that are no piece. The view is valid as
  // long as the tokenizer.
  std::string_view piece(int32_t token) const override = 0;
  virtual bool is_control(int32_t token) const = 0;
  // True if encoding puts a space before the text. The first piece then begins with a space that is not part of the
  // text.
  virtual bool adds_space() const = 0;

  // The text of the tokens, without the space that encoding added. An id that is no piece adds no text, as in the
  // engine's events. kInvalidArgument for an id outside the vocabulary.
  Result<std::string> decode(std::span<const int32_t> tokens) const;

 protected:
  static Status check_text(std::string_view text);  // kInvalidArgument if it is too long or not UTF-8
};

// Offset of the first byte that is not valid UTF-8, or text.size() if all bytes are valid. Overlong forms and
// surrogates are not valid.
size_t utf8_valid_prefix(std::string_view text);

}  // namespace kaiju
