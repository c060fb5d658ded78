// Saved conversations: what lies in one, byte for byte. Knows no engine and no file.
//
//   turns     magic "KAIJUTLK", version, whether a key sealed it, a count of words, then the words: numbers of 32 bits,
//             a conversation's tokens and counts (Conversation::save writes them); sealed
//   session   a saved session (saved_session.hpp), whose seals follow that of the turns
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kaiju/engine/detail/saved_pieces.hpp"

namespace kaiju {

struct SavedTurnsHead {
  char magic[8] = {};
  uint32_t version = 1;
  uint32_t keyed = 0;
  uint64_t words = 0;
};
static_assert(sizeof(SavedTurnsHead) == 24);

class SavedTurnsWriter : PieceWriter {
 public:
  using PieceWriter::last;
  using PieceWriter::PieceWriter;

  Status write(std::span<const int32_t> words) {
    SavedTurnsHead head;
    std::memcpy(head.magic, kSavedTurnsMagic, sizeof head.magic);
    head.keyed = key_ ? 1 : 0;
    head.words = words.size();
    std::byte* const at = begin(sizeof head + words.size_bytes());
    std::memcpy(at, &head, sizeof head);
    if (!words.empty()) std::memcpy(at + sizeof head, words.data(), words.size_bytes());
    return end();
  }
};

class SavedTurnsReader : PieceReader {
 public:
  using PieceReader::last;
  SavedTurnsReader(const Sealer& key, const SessionSource& source)
      : PieceReader(key, {}, source, "saved conversation", kSavedTurnsMagic) {}

  // kUnsupported for another version, kInvalidArgument for a key missing or too many, else kBadModel.
  Status read(std::vector<int32_t>& words) {
    SavedTurnsHead head;
    const SavedTurnsHead ours;
    KAIJU_TRY(fill(begin(sizeof head), sizeof head));
    std::memcpy(&head, piece().data(), sizeof head);
    KAIJU_TRY(check_magic(head.magic));
    if (head.version != ours.version)
      return {StatusCode::kUnsupported, "the saved conversation is of version " + std::to_string(head.version) +
                                            "; this library reads version " + std::to_string(ours.version)};
    if (head.keyed > 1 || head.words > (uint64_t{1} << 40)) return damage("its head is wrong");
    KAIJU_TRY(check_keyed(head.keyed == 1));
    // A count that lies takes no more memory than there are bytes.
    constexpr uint64_t kMostAtOnce = uint64_t{1} << 18;
    for (uint64_t left = head.words; left > 0;) {
      const size_t now = static_cast<size_t>(std::min(left, kMostAtOnce)) * sizeof(int32_t);
      KAIJU_TRY(fill(grow(now), now));
      left -= now / sizeof(int32_t);
    }
    KAIJU_TRY(check("its turns"));
    words.resize(head.words);
    if (!words.empty()) std::memcpy(words.data(), piece().data() + sizeof head, words.size() * sizeof(int32_t));
    return {};
  }
};

// Takes numbers off the beginning of words; what is not there, or too large, makes it fail from then on.
class WordReader {
 public:
  explicit WordReader(std::span<const int32_t> words) : words_(words) {}

  bool ok() const { return ok_; }
  bool at_end() const { return words_.empty(); }
  // At most `most`.
  size_t number(size_t most) {
    if (words_.empty()) return ok_ = false, 0;
    const auto value = static_cast<uint32_t>(words_.front());
    words_ = words_.subspan(1);
    if (value > most) return ok_ = false, 0;
    return value;
  }
  // A count, and as many words.
  std::vector<int32_t> list() {
    const size_t size = number(words_.size());
    if (size > words_.size()) return ok_ = false, std::vector<int32_t>();
    const std::span<const int32_t> taken = words_.first(size);
    words_ = words_.subspan(size);
    return {taken.begin(), taken.end()};
  }

 private:
  std::span<const int32_t> words_;
  bool ok_ = true;
};

}  // namespace kaiju
