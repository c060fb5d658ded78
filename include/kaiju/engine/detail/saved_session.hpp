// Saved sessions: what lies in one, byte for byte, and who may write and read it. Knows no engine and no file.
//
//   head    magic "KAIJUSES", version, whether a key sealed it, epoch, counts, block sizes (SavedHead), then the
//   cache's identity, the KV's
//           layout, the tokens; sealed
//   block   one a block of KV: flags (bit 0: global, bit 1: window, bit 2: a resume point), 0, then the bytes of each;
//   sealed
//
// Numbers are little-endian. A seal is 32 bytes over the seal before it and the piece it ends: so pieces cannot be left
// out, swapped or taken from another file, and nothing is believed before its seal was found right.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kaiju/base/detail/printable.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/cache/name.hpp"
#include "kaiju/engine/save_options.hpp"

namespace kaiju {

static_assert(std::endian::native == std::endian::little, "saved sessions are little-endian");

inline constexpr char kSavedMagic[8] = {'K', 'A', 'I', 'J', 'U', 'S', 'E', 'S'};
inline constexpr uint32_t kSavedVersion = 1;

struct SavedHead {
  char magic[8] = {};
  uint32_t version = kSavedVersion;
  uint32_t keyed = 0;
  uint64_t epoch = 0;
  PerKind<uint64_t> block_bytes;
  uint32_t token_count = 0;
  uint32_t kv_tokens = 0;  // whose KV follows, from the first on
  uint32_t identity_bytes = 0;
  uint32_t layout_bytes = 0;
};
static_assert(sizeof(SavedHead) == 56);

struct SavedSession {
  SavedHead head;
  std::string identity;  // of the cache: checkpoint and arithmetic
  std::string layout;    // of the KV
  std::vector<int32_t> tokens;
};

inline constexpr uint32_t kSavedGlobal = 1, kSavedWindow = 2, kSavedPoint = 4;  // flags of a block

// One piece after another, in memory that is taken once. Both directions lay a piece out as: the seal before it, its
// bytes.
class SavedPieces {
 public:
  static constexpr size_t kMostIdentity = 512, kMostLayout = 64;

 protected:
  explicit SavedPieces(const Sealer& key) : key_(key) {}
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
  SealTag last_{};
};

class SessionWriter : SavedPieces {
 public:
  SessionWriter(const Sealer& key, const SessionSink& sink) : SavedPieces(key), sink_(sink) {}

  Status head(SavedSession saved) {
    std::memcpy(saved.head.magic, kSavedMagic, sizeof kSavedMagic);
    saved.head.keyed = key_ ? 1 : 0;
    saved.head.token_count = static_cast<uint32_t>(saved.tokens.size());
    saved.head.identity_bytes = static_cast<uint32_t>(saved.identity.size());
    saved.head.layout_bytes = static_cast<uint32_t>(saved.layout.size());
    const size_t token_bytes = saved.tokens.size() * sizeof(int32_t);
    std::byte* at = begin(sizeof saved.head + saved.identity.size() + saved.layout.size() + token_bytes);
    const auto put = [&](const void* bytes, size_t size) {
      if (size > 0) std::memcpy(at, bytes, size);
      at += size;
    };
    put(&saved.head, sizeof saved.head);
    put(saved.identity.data(), saved.identity.size());
    put(saved.layout.data(), saved.layout.size());
    put(saved.tokens.data(), token_bytes);
    return end();
  }
  // A block of KV: room for the bytes of what `flags` name, global first. Write them, then end().
  std::byte* block(uint32_t flags, size_t bytes) {
    std::byte* at = begin(2 * sizeof(uint32_t) + bytes);
    const uint32_t start[2] = {flags, 0};
    std::memcpy(at, start, sizeof start);
    return at + sizeof start;
  }
  Status end() {
    SealTag tag;
    KAIJU_TRY(seal(tag));
    last_ = tag;
    KAIJU_TRY(sink_(piece()));
    return sink_(last_);
  }

 private:
  const SessionSink& sink_;
};

class SessionReader : SavedPieces {
 public:
  SessionReader(const Sealer& key, const SessionSource& source) : SavedPieces(key), source_(source) {}

  // At most `most_tokens`, of the model with this identity. kUnsupported for another version or model, kInvalidArgument
  // for a key missing or too many, else kBadModel.
  Status head(const std::string& identity, size_t most_tokens, SavedSession& saved) {
    SavedHead& head = saved.head;
    KAIJU_TRY(fill(begin(sizeof head), sizeof head));
    std::memcpy(&head, piece().data(), sizeof head);
    if (std::memcmp(head.magic, kSavedMagic, sizeof kSavedMagic) != 0) return damaged("it does not begin as one");
    if (head.version != kSavedVersion)
      return {StatusCode::kUnsupported, "the saved session is of version " + std::to_string(head.version) +
                                            "; this library reads version " + std::to_string(kSavedVersion)};
    if (head.keyed > 1) return damaged("its head is wrong");
    if ((head.keyed == 1) != static_cast<bool>(key_))
      return invalid_argument(
          key_ ? "the saved session was saved without a key: whoever could write it may have changed it"
               : "the saved session was saved with a key: give the same one");
    if (head.identity_bytes > kMostIdentity || head.layout_bytes > kMostLayout || head.kv_tokens > head.token_count)
      return damaged("its head is wrong");
    std::byte* const names = grow(head.identity_bytes + head.layout_bytes);
    KAIJU_TRY(fill(names, head.identity_bytes + head.layout_bytes));
    saved.identity.assign(reinterpret_cast<const char*>(names), head.identity_bytes);
    saved.layout.assign(reinterpret_cast<const char*>(names) + head.identity_bytes, head.layout_bytes);
    // Looked at before the seal, which comes after the tokens: another model may have a longer context.
    if (head.token_count > most_tokens && saved.identity != identity) return other_model(saved.identity, identity);
    if (head.token_count > most_tokens)
      return damaged("it claims " + std::to_string(head.token_count) + " tokens; the context is " +
                     std::to_string(most_tokens));
    const size_t token_bytes = head.token_count * sizeof(int32_t);
    std::byte* const tokens = grow(token_bytes);
    KAIJU_TRY(fill(tokens, token_bytes));
    saved.tokens.resize(head.token_count);
    if (token_bytes > 0) std::memcpy(saved.tokens.data(), tokens, token_bytes);
    KAIJU_TRY(check("its head or its tokens"));
    if (saved.identity != identity) return other_model(saved.identity, identity);
    return {};
  }
  // The next block: its flags and its bytes, which stay until the next call. `must` flags have to be there, others than
  // `may` must not.
  Status block(const SavedHead& head, uint32_t must, uint32_t may, uint32_t& flags, std::byte*& bytes) {
    uint32_t start[2];
    KAIJU_TRY(fill(begin(sizeof start), sizeof start));
    std::memcpy(start, piece().data(), sizeof start);
    flags = start[0];
    if (start[1] != 0 || (flags & must) != must || (flags & ~may) != 0) return damaged("a block of KV is wrong");
    const size_t size =
        (flags & kSavedGlobal ? head.block_bytes[0] : 0) + (flags & kSavedWindow ? head.block_bytes[1] : 0);
    piece_.resize(piece_.size() + size);
    bytes = piece().data() + sizeof start;
    KAIJU_TRY(fill(bytes, size));
    return check("a block of KV");
  }

  static Status other_model(const std::string& theirs, const std::string& ours) {
    return {StatusCode::kUnsupported, "the session was saved with the model " + printable(theirs) +
                                          "; this engine's is " + printable(ours) + ": restore it there"};
  }
  static Status damaged(const std::string& what) { return bad_model("the saved session is damaged: " + what); }

 private:
  // Memory of the piece for `size` more bytes.
  std::byte* grow(size_t size) {
    piece_.resize(piece_.size() + size);
    return piece_.data() + piece_.size() - size;
  }
  Status fill(std::byte* to, size_t size) {
    while (size > 0) {
      Result<size_t> count = source_(std::span(to, size));
      if (!count.ok()) return count.status();
      if (*count == 0 || *count > size) return damaged("it ends early");
      to += *count;
      size -= *count;
    }
    return {};
  }
  Status check(const char* what) {
    SealTag expected, found;
    KAIJU_TRY(seal(expected));
    KAIJU_TRY(fill(found.data(), found.size()));
    unsigned difference = 0;  // in a time that tells nothing
    for (size_t i = 0; i < found.size(); ++i) difference |= static_cast<unsigned>(found[i] ^ expected[i]);
    if (difference != 0)
      return damaged(std::string(what) + (key_ ? " changed since, or the key is another" : " changed since"));
    last_ = found;
    return {};
  }

  const SessionSource& source_;
};

}  // namespace kaiju
