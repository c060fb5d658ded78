// Tokenizer: converts text to token ids and back with the tokenizer inside a checkpoint. That tokenizer is a
// SentencePiece model, or byte-level BPE in kaiju's own format (docs/checkpoint.md). A Tokenizer is immutable, so any
// number of threads may use it at once. A damaged SentencePiece model is refused before SentencePiece reads it:
// src/text/sentencepiece_model.hpp checks the model and passes a clean copy to SentencePiece. If memory runs out inside
// SentencePiece, the process can end, because SentencePiece's protobuf messages do not handle that. Every other failure
// of a Tokenizer is returned as a Status.
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
  // The largest size, in bytes, of the text of one encode() call. The limit holds both for the text that the caller
  // passes and for the text after the tokenizer's normalisation. While encode() runs, it needs up to 230 bytes of
  // memory for each byte of text, which is a quarter of a gigabyte for the longest text.
  static constexpr size_t kMaxTextBytes = size_t{1} << 20;

  // Creates a Tokenizer. `model` is byte-level BPE if its first byte is '{', and else a serialised SentencePiece model;
  // load() copies it. If the model breaks a rule, load() returns kBadModel, and the message names the rule and the
  // piece, token or field that breaks it. load() refuses a tokenizer with more than `vocab_size` tokens. A tokenizer
  // with fewer tokens is accepted, because vocab_size is rounded up to a multiple of 16.
  static Result<std::shared_ptr<const Tokenizer>> load(std::span<const std::byte> model, int32_t vocab_size);

  virtual int32_t size() const = 0;  // number of pieces; their ids are 0 to size() - 1
  // Returns the vocab_size of the language model. Token ids from size() on are padding, which sampling may still draw.
  virtual int32_t vocab_size() const = 0;
  // Encodes text to token ids. No text can make the result contain a control symbol. Returns kInvalidArgument if the
  // text is longer than kMaxTextBytes; the message says by how much, and the text can be encoded in parts. Returns
  // kInvalidArgument also if the text is not UTF-8; the message names the first invalid byte, counted from 1.
  virtual Result<std::vector<int32_t>> encode(std::string_view text) const = 0;
  // Encodes as encode() does, but text such as "<|im_start|>" becomes the special token of that name, control symbols
  // included. For text that the host itself wrote, such as a prompt template: whoever writes the text can forge any
  // token. Returns kUnsupported for a SentencePiece model.
  virtual Result<std::vector<int32_t>> encode_with_special_tokens(std::string_view text) const = 0;
  // Returns the bytes of a token's text. SentencePiece's mark for a space, U+2581, is returned as a space.
  // SentencePiece's byte pieces (vocabulary entries for one byte) are returned as one raw byte. One character may need
  // several tokens. The result is empty for control symbols and for ids that the vocabulary does not have. The returned
  // view is valid as long as the Tokenizer exists.
  std::string_view piece(int32_t token) const override = 0;
  virtual bool is_control(int32_t token) const = 0;
  // Returns whether encode() never produces the token because it is special: a control symbol, or a special token that
  // decodes to its text, such as "<think>" of byte-level BPE.
  virtual bool is_special(int32_t token) const { return is_control(token); }
  // Returns whether encode() puts a space before the text. If encode() puts a space before the text, the first token's
  // text begins with a space that is not part of the encoded text. Byte-level BPE puts none before a text that begins
  // with a space; decode() then leaves out that space.
  virtual bool adds_space() const = 0;

  // Returns the text of the tokens, without the space that encode() may have added at the beginning. A token id from
  // size() on adds no text, as in the engine's events. Returns kInvalidArgument if an id is not in [0, vocab_size()).
  Result<std::string> decode(std::span<const int32_t> tokens) const;

  // Returns kInvalidArgument if encode() would refuse the text because it is too long or not UTF-8.
  static Status check_text(std::string_view text);
};

// Returns the offset of the first byte that is not valid UTF-8, or text.size() if all bytes are valid. Overlong
// encodings and surrogates are not valid UTF-8.
size_t utf8_valid_prefix(std::string_view text);

}  // namespace kaiju
