// Reads, checks and rewrites a SentencePiece file (sentencepiece_model.proto of its 0.1.97 and 0.2.0 releases).
#include "sentencepiece_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "kaiju/text/tokenizer.hpp"

namespace kaiju {
namespace {

constexpr size_t kMaxModelBytes = size_t{256} << 20;
// SentencePiece collects the pieces that begin at one place in arrays of fixed size; a piece's length bounds how many
// there can be.
constexpr size_t kMaxPieceBytes = 512;            // array of 1024
constexpr size_t kMaxUserDefinedCharacters = 64;  // array of 64; Gemma has runs of 31 spaces, three bytes each

Status damaged(std::string_view what) { return bad_model(fmt::format("tokenizer: {}", what)); }

// One field of a protobuf message: varints and fixed-width values in `number`, length-delimited ones in `bytes`.
struct Field {
  uint32_t id = 0;
  uint32_t wire = 0;
  uint64_t number = 0;
  std::string_view bytes;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }

  // False when the bytes end inside the field or the wire type is none a message may use here.
  bool next(Field& field) {
    uint64_t key = 0;
    if (!varint(key) || key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) return false;
    field = {.id = static_cast<uint32_t>(key >> 3), .wire = static_cast<uint32_t>(key & 7), .number = 0, .bytes = {}};
    switch (field.wire) {
      case 0:
        return varint(field.number);
      case 1:
        return fixed(8, field.number);
      case 5:
        return fixed(4, field.number);
      case 2: {
        uint64_t size = 0;
        if (!varint(size) || size > rest_.size()) return false;
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      }
      default:
        return false;  // groups are not used by this format
    }
  }

 private:
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) return false;
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift == 63 && byte > 1) return false;
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool fixed(size_t size, uint64_t& value) {
    if (rest_.size() < size) return false;
    value = 0;
    for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
};

bool wire_is(const Field& field, uint32_t wire) { return field.wire == wire; }

Status read_piece(std::string_view bytes, size_t index, SentencepieceModel::Piece& piece) {
  WireReader reader(bytes);
  for (Field field; !reader.done();) {
    if (!reader.next(field)) return damaged(fmt::format("piece {} ends in the middle of a field", index));
    if (field.id == 1 && wire_is(field, 2)) {
      piece.text = field.bytes;
    } else if (field.id == 2 && wire_is(field, 5)) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.number));
    } else if (field.id == 3 && wire_is(field, 0)) {
      if (field.number < 1 || field.number > 6)
        return damaged(fmt::format("piece {} has kind {}; kinds are 1 to 6", index, field.number));
      piece.kind = static_cast<PieceKind>(field.number);
    } else if (field.id <= 3) {
      return damaged(fmt::format("piece {}: field {} has the wrong wire type {}", index, field.id, field.wire));
    }
  }
  return {};
}

Status read_trainer(std::string_view bytes, SentencepieceModel& model) {
  WireReader reader(bytes);
  for (Field field; !reader.done();) {
    if (!reader.next(field)) return damaged("trainer_spec ends in the middle of a field");
    const bool used = field.id == 3 || field.id == 24 || field.id == 35;
    if (used && !wire_is(field, 0))
      return damaged(fmt::format("trainer_spec: field {} has the wrong wire type {}", field.id, field.wire));
    if (field.id == 3) {
      if (field.number != 1 && field.number != 2)
        return damaged(
            fmt::format("model_type is {}; kaiju reads 1 (unigram) and 2 (byte pair encoding)", field.number));
      model.model_type = static_cast<int32_t>(field.number);
    }
    if (field.id == 24) model.whitespace_as_suffix = field.number != 0;
    if (field.id == 35) model.byte_fallback = field.number != 0;
  }
  return {};
}

Status read_normalizer(std::string_view bytes, SentencepieceModel& model) {
  WireReader reader(bytes);
  for (Field field; !reader.done();) {
    if (!reader.next(field)) return damaged("normalizer_spec ends in the middle of a field");
    const bool used = field.id >= 2 && field.id <= 5;
    if (used && !wire_is(field, field.id == 2 ? 2 : 0))
      return damaged(fmt::format("normalizer_spec: field {} has the wrong wire type {}", field.id, field.wire));
    if (field.id == 2) model.charsmap = field.bytes;
    if (field.id == 3) model.add_dummy_prefix = field.number != 0;
    if (field.id == 4) model.remove_extra_whitespaces = field.number != 0;
    if (field.id == 5) model.escape_whitespaces = field.number != 0;
  }
  return {};
}

bool starts_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

// Of sound UTF-8.
size_t characters_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

Status check_pieces(const SentencepieceModel& model, int32_t vocab_size) {
  if (model.pieces.empty()) return damaged("it has no pieces");
  if (model.pieces.size() > static_cast<size_t>(vocab_size))
    return damaged(fmt::format("it has {} pieces, the model's vocabulary only {}", model.pieces.size(), vocab_size));
  std::unordered_set<std::string_view> seen;
  bool byte_found[256] = {};
  int32_t unknown_count = 0, byte_count = 0, normal_count = 0;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    if (piece.text.empty()) return damaged(fmt::format("piece {} is empty", i));
    if (piece.text.size() > kMaxPieceBytes)
      return damaged(fmt::format("piece {} is {} bytes long; the limit is {}", i, piece.text.size(), kMaxPieceBytes));
    if (piece.text.find('\0') != std::string_view::npos)
      return damaged(fmt::format("piece {} contains a zero byte", i));
    if (utf8_valid_prefix(piece.text) != piece.text.size()) return damaged(fmt::format("piece {} is not UTF-8", i));
    if (piece.kind == PieceKind::kUserDefined && characters_of(piece.text) > kMaxUserDefinedCharacters)
      return damaged(fmt::format("user-defined piece {} is {} characters long; the limit is {}", i,
                                 characters_of(piece.text), kMaxUserDefinedCharacters));
    if (!std::isfinite(piece.score)) return damaged(fmt::format("the score of piece {} is not finite", i));
    if (!seen.insert(piece.text).second) return damaged(fmt::format("piece {} occurs twice", i));
    if (piece.kind == PieceKind::kUnknown) ++unknown_count;
    if (piece.kind == PieceKind::kNormal || piece.kind == PieceKind::kUserDefined) ++normal_count;
    if (piece.kind != PieceKind::kByte) continue;
    const int32_t byte = byte_of_piece(piece.text);
    if (byte < 0) return damaged(fmt::format("byte piece {} is not of the form <0xNN>", i));
    byte_found[byte] = true;
    ++byte_count;
  }
  if (unknown_count != 1) return damaged(fmt::format("it has {} unknown pieces; exactly one is needed", unknown_count));
  if (normal_count == 0) return damaged("it has no normal piece");
  if (byte_count > 0 && !model.byte_fallback) return damaged("it has byte pieces although byte_fallback is off");
  if (model.byte_fallback)
    for (int byte = 0; byte < 256; ++byte)
      if (!byte_found[byte])
        return damaged(fmt::format("byte_fallback is on but the piece <0x{:02X}> is missing", byte));
  return {};
}

// Follows every path a text could take through a Darts-clone double array (nodes may be shared, so it is a graph
// without cycles).
struct TrieWalk {
  static constexpr int kMaxMatches = 32;               // SentencePiece's array of matches at one place
  static constexpr size_t kMaxReplacementBytes = 256;  // what one match may grow to
  static constexpr int kMaxDepth = 256;

  std::span<const uint32_t> units;
  std::string_view strings;
  std::unordered_map<size_t, int> known = {};  // node -> most matches on a path below it, -1 while being walked

  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 0x200u) >> 6); }

  Status below(size_t base, int depth, int& matches) {
    if (depth > kMaxDepth) return damaged("precompiled_charsmap: a rule is too long");
    if ((base | 255) >= units.size()) return damaged("precompiled_charsmap: a jump leaves the trie");
    if (const auto [entry, fresh] = known.try_emplace(base, -1); !fresh) {
      if (entry->second < 0) return damaged("precompiled_charsmap: the trie has a cycle");
      matches = entry->second;
      return {};
    }
    matches = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const size_t at = base ^ byte;
      const uint32_t unit = units[at];
      if ((unit & 0x800000FFu) != byte) continue;
      if (unit == 0) continue;  // an unused unit: a zero byte in the text stays at this node and matches nothing
      const size_t child = at ^ offset(unit);
      int found = 0;
      KAIJU_TRY(below(child, depth + 1, found));
      if (unit & 0x100u) {
        KAIJU_TRY(check_replacement(units[child] & 0x7FFFFFFFu));
        ++found;
      }
      matches = std::max(matches, found);
    }
    if (matches > kMaxMatches) return damaged("precompiled_charsmap: too many rules begin alike");
    known[base] = matches;
    return {};
  }

  Status check_replacement(size_t value) const {
    if (value >= strings.size()) return damaged("precompiled_charsmap: a replacement lies outside the strings");
    if (strings.find('\0', value) - value > kMaxReplacementBytes)
      return damaged("precompiled_charsmap: a replacement is too long");
    return {};
  }
};

// SentencePiece's byte pair encoding takes a lone character for the control piece of that name, and then refuses the
// text. Given a longer name than any piece has, such a piece is nowhere in a text, like every other control piece.
std::string name_for_sentencepiece(const SentencepieceModel::Piece& piece) {
  std::string name(piece.text);
  if (piece.kind == PieceKind::kControl && characters_of(name) == 1) name.append(kMaxPieceBytes, ' ');
  return name;
}

// Of a character of sound UTF-8, from its first byte.
size_t utf8_bytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void put_number(std::string& out, uint32_t id, uint64_t value) {
  put_varint(out, uint64_t{id} << 3);
  put_varint(out, value);
}
void put_bytes(std::string& out, uint32_t id, std::string_view bytes) {
  put_varint(out, (uint64_t{id} << 3) | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

}  // namespace

int32_t byte_of_piece(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

Result<SentencepieceModel> read_sentencepiece_model(std::span<const std::byte> bytes, int32_t vocab_size) {
  if (bytes.size() > kMaxModelBytes)
    return damaged(fmt::format("{} bytes; the limit is {}", bytes.size(), kMaxModelBytes));
  SentencepieceModel model;
  WireReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  for (Field field; !reader.done();) {
    if (!reader.next(field)) return damaged("the file ends in the middle of a field, or is no SentencePiece model");
    if (field.id <= 3 && !wire_is(field, 2))
      return damaged(fmt::format("field {} has the wrong wire type {}", field.id, field.wire));
    if (field.id == 1) {
      KAIJU_TRY(read_piece(field.bytes, model.pieces.size(), model.pieces.emplace_back()));
    } else if (field.id == 2) {
      KAIJU_TRY(read_trainer(field.bytes, model));
    } else if (field.id == 3) {
      KAIJU_TRY(read_normalizer(field.bytes, model));
    }
  }
  KAIJU_TRY(check_pieces(model, vocab_size));
  KAIJU_TRY(check_charsmap(model.charsmap));
  return model;
}

Status check_charsmap(std::string_view charsmap) {
  if (charsmap.empty()) return {};
  // <trie bytes: uint32> <trie: uint32 units> <replacement strings, each ended by a zero byte>, all little-endian
  uint32_t trie_bytes = 0;
  if (charsmap.size() <= 4) return damaged("precompiled_charsmap is shorter than its header");
  std::memcpy(&trie_bytes, charsmap.data(), 4);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= charsmap.size() - 4)
    return damaged("precompiled_charsmap: the trie does not fit");
  std::vector<uint32_t> units(trie_bytes / 4);
  std::memcpy(units.data(), charsmap.data() + 4, trie_bytes);
  const std::string_view strings = charsmap.substr(4 + trie_bytes);
  if (strings.back() != '\0') return damaged("precompiled_charsmap: the replacement strings do not end");

  TrieWalk walk{.units = units, .strings = strings};
  int matches = 0;
  return walk.below(walk.offset(units[0]), 0, matches);
}

Normaliser::Normaliser(std::string_view checked_charsmap) {
  if (checked_charsmap.empty()) return;
  uint32_t trie_bytes = 0;
  std::memcpy(&trie_bytes, checked_charsmap.data(), 4);
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), checked_charsmap.data() + 4, trie_bytes);
  strings_ = checked_charsmap.substr(4 + trie_bytes);
}

size_t Normaliser::bytes_of(std::string_view text) const {
  if (units_.empty()) return text.size();
  size_t total = 0;
  for (size_t at = 0; at < text.size();) {
    size_t matched = 0, replacement = 0;
    size_t base = TrieWalk::offset(units_[0]);
    for (size_t i = at; i < text.size(); ++i) {
      const uint32_t byte = static_cast<uint8_t>(text[i]);
      const size_t node = base ^ byte;
      const uint32_t unit = units_[node];
      if ((unit & 0x800000FFu) != byte) break;
      base = node ^ TrieWalk::offset(unit);
      if (unit & 0x100u) matched = i + 1 - at, replacement = units_[base] & 0x7FFFFFFFu;
    }
    if (matched > 0) {
      total += strings_.find('\0', replacement) - replacement;
      at += matched;
    } else {
      const size_t character = utf8_bytes(text[at]);
      total += character;
      at += character;
    }
  }
  return total;
}

std::string clean_copy(const SentencepieceModel& model) {
  std::string out, part;
  for (const auto& piece : model.pieces) {
    part.clear();
    put_bytes(part, 1, name_for_sentencepiece(piece));
    put_varint(part, (2 << 3) | 5);
    const auto bits = std::bit_cast<uint32_t>(piece.score);
    for (int i = 0; i < 4; ++i) part += static_cast<char>(bits >> (8 * i));
    put_number(part, 3, static_cast<uint64_t>(piece.kind));
    put_bytes(out, 1, part);
  }
  part.clear();
  put_number(part, 3, static_cast<uint64_t>(model.model_type));
  put_number(part, 24, model.whitespace_as_suffix);
  put_number(part, 35, model.byte_fallback);
  put_bytes(out, 2, part);
  part.clear();
  if (!model.charsmap.empty()) put_bytes(part, 2, model.charsmap);
  put_number(part, 3, model.add_dummy_prefix);
  put_number(part, 4, model.remove_extra_whitespaces);
  put_number(part, 5, model.escape_whitespaces);
  put_bytes(out, 3, part);
  return out;
}

}  // namespace kaiju
