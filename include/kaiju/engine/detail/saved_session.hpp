// Saved sessions: what lies in one, byte for byte, and who may write and read it. Knows no engine and no file.
//
//   head    magic "KAIJUSES", version, whether a key sealed it, epoch, counts, block sizes (SavedHead), then the
//   cache's identity, the KV's
//           layout, the tokens; sealed
//   block   one a block of KV: flags (bit 0: global, bit 1: window, bit 2: a resume point), 0, then the bytes of each;
//   sealed
//
// The pieces are sealed one after another (saved_pieces.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kaiju/base/detail/printable.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/engine/detail/saved_pieces.hpp"
#include "kaiju/engine/save_options.hpp"

namespace kaiju {

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

inline constexpr size_t kMostIdentity = 512, kMostLayout = 64;  // bytes

class SessionWriter : PieceWriter {
 public:
  using PieceWriter::end;
  using PieceWriter::PieceWriter;

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
};

class SessionReader : PieceReader {
 public:
  SessionReader(const Sealer& key, const SealTag& before, const SessionSource& source)
      : PieceReader(key, before, source, "saved session", kSavedMagic) {}

  // At most `most_tokens`, of the model with this identity. kUnsupported for another version or model, kInvalidArgument
  // for a key missing or too many, else kBadModel.
  Status head(const std::string& identity, size_t most_tokens, SavedSession& saved) {
    SavedHead& head = saved.head;
    KAIJU_TRY(fill(begin(sizeof head), sizeof head));
    std::memcpy(&head, piece().data(), sizeof head);
    KAIJU_TRY(check_magic(head.magic));
    if (head.version != kSavedVersion)
      return {StatusCode::kUnsupported, "the saved session is of version " + std::to_string(head.version) +
                                            "; this library reads version " + std::to_string(kSavedVersion)};
    if (head.keyed > 1) return damaged("its head is wrong");
    KAIJU_TRY(check_keyed(head.keyed == 1));
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
};

}  // namespace kaiju
