// The pieces of a saved session or conversation: bytes, each piece sealed.
//
// Numbers are little-endian. A seal is 32 bytes over the seal before it and the piece it ends: so pieces cannot be left
// out, swapped or taken from another file, and nothing is believed before its seal was found right.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/cache/name.hpp"
#include "kaiju/engine/save_options.hpp"

namespace kaiju {

static_assert(std::endian::native == std::endian::little, "saved sessions are little-endian");

// The first bytes of both.
inline constexpr char kSavedMagic[8] = {'K', 'A', 'I', 'J', 'U', 'S', 'E', 'S'};
inline constexpr char kSavedTurnsMagic[8] = {'K', 'A', 'I', 'J', 'U', 'T', 'L', 'K'};

// One piece after another, in memory that is taken once. Both directions lay a piece out as: the seal before it, its
// bytes.
class SavedPieces {
 protected:
  SavedPieces(const Sealer& key, const SealTag& before) : key_(key), last_(before) {}
  std::byte* begin(size_t bytes) {
    piece_.resize(sizeof(SealTag) + bytes);
    std::memcpy(piece_.data(), last_.data(), sizeof(SealTag));
    return piece_.data() + sizeof(SealTag);
  }
  std::span<std::byte> piece() { return std::span(piece_).subspan(sizeof(SealTag)); }
  Status seal(SealTag& tag) const {
    if (key_) return key_(piece_, tag) ? Status() : Status(StatusCode::kOutOfMemory, "a seal could not be computed");
    const XXH128_hash_t hash = XXH3_128bits(piece_.data(), piece_.size());
    tag = {};
    std::memcpy(tag.data(), &hash, sizeof hash);
    return {};
  }

  Sealer key_;
  std::vector<std::byte> piece_;
  SealTag last_;
};

class PieceWriter : protected SavedPieces {
 public:
  // `before`: the seal of the piece that comes before these; zeros: none does.
  PieceWriter(const Sealer& key, const SealTag& before, const SessionSink& sink)
      : SavedPieces(key, before), sink_(sink) {}

  // Seals the piece and writes it.
  Status end() {
    SealTag tag;
    KAIJU_TRY(seal(tag));
    last_ = tag;
    KAIJU_TRY(sink_(piece()));
    return sink_(last_);
  }
  const SealTag& last() const { return last_; }

 private:
  const SessionSink& sink_;
};

class PieceReader : protected SavedPieces {
 public:
  PieceReader(const Sealer& key, const SealTag& before, const SessionSource& source, const char* what,
              const char* magic)
      : SavedPieces(key, before), source_(source), what_(what), magic_(magic) {}
  const SealTag& last() const { return last_; }

 protected:
  Status damage(const std::string& how) const { return bad_model("the " + std::string(what_) + " is damaged: " + how); }
  Status check_magic(const char* found) const {
    const auto is = [&](const char* magic) { return std::memcmp(found, magic, sizeof kSavedMagic) == 0; };
    if (is(magic_)) return {};
    if (is(kSavedMagic)) return invalid_argument("this is a saved session: restore it as a session");
    if (is(kSavedTurnsMagic)) return invalid_argument("this is a saved conversation: restore it as a conversation");
    return bad_model("this is no " + std::string(what_) + ": it does not begin as one");
  }
  Status check_keyed(bool keyed) const {
    if (keyed == static_cast<bool>(key_)) return {};
    return invalid_argument(
        "the " + std::string(what_) +
        (key_ ? " was saved without a key, so whoever could write it may have changed it: leave the key out if you "
                "trust it all the same"
              : " was saved with a key: give the same one"));
  }
  // Memory of the piece for `size` more bytes.
  std::byte* grow(size_t size) {
    piece_.resize(piece_.size() + size);
    return piece_.data() + piece_.size() - size;
  }
  Status fill(std::byte* to, size_t size) {
    while (size > 0) {
      Result<size_t> count = source_(std::span(to, size));
      if (!count.ok()) return count.status();
      if (*count == 0 || *count > size) return damage("it ends early");
      to += *count;
      size -= *count;
    }
    return {};
  }
  // Reads the seal of the piece.
  Status check(const char* part) {
    SealTag expected, found;
    KAIJU_TRY(seal(expected));
    KAIJU_TRY(fill(found.data(), found.size()));
    unsigned difference = 0;  // in a time that tells nothing
    for (size_t i = 0; i < found.size(); ++i) difference |= static_cast<unsigned>(found[i] ^ expected[i]);
    if (difference != 0)
      return damage(std::string(part) + (key_ ? " changed since, or the key is another" : " changed since"));
    last_ = found;
    return {};
  }

 private:
  const SessionSource& source_;
  const char *what_, *magic_;
};

}  // namespace kaiju
