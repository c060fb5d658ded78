// SentencepieceModel: the contents of a SentencePiece file, read from its protobuf encoding and fully checked.
// SentencePiece trusts its input (its normaliser follows offsets unchecked), so it gets only clean_copy(), which is
// written from the checked contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"

namespace kaiju {

enum class PieceKind : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencepieceModel {
  struct Piece {
    std::string_view text;  // borrowed from the file
    float score = 0.0f;
    PieceKind kind = PieceKind::kNormal;
  };
  std::vector<Piece> pieces;
  int32_t model_type = 1;  // 1 unigram, 2 byte pair encoding
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string_view charsmap;  // the normaliser's compiled rules, borrowed; empty for none
};

// kBadModel names the piece or the field and the rule it breaks.
Result<SentencepieceModel> read_sentencepiece_model(std::span<const std::byte> bytes, int32_t vocab_size);
// The checked fields and nothing else, as SentencePiece's own protobuf. Control pieces of a single character have other
// names in it.
std::string clean_copy(const SentencepieceModel& model);
// The rules are a double-array trie followed by replacement strings; every jump a text could cause must stay inside.
Status check_charsmap(std::string_view charsmap);

// How long a text becomes by the normaliser's rules, which may replace one character by many.
class Normaliser {
 public:
  Normaliser() = default;
  explicit Normaliser(std::string_view checked_charsmap);  // copied; as check_charsmap accepts it

  // Bytes of the text, which is UTF-8, once at each place the longest rule that fits has been applied. White space
  // counts as it stands: what is done with it makes no text longer by characters.
  size_t bytes_of(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;  // the trie; none: no rules
  std::string strings_;
};

// -1 unless `text` is one of <0x00> ... <0xFF>.
int32_t byte_of_piece(std::string_view text);

}  // namespace kaiju
