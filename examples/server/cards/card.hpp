// Cards: a character from the bytes of a card. Knows nothing of HTTP, of the engine and of where characters are kept.
//
// These forms are read:
//   our own JSON         {"name", "description", "greeting"?, "suggestions"?, ...}; unknown fields are refused
//   the text form        that of kaiju-chat (examples/chat/card.hpp): "name: ...", an empty line, a description
//   Tavern V1, V2, V3    JSON: flat, "spec": "chara_card_v2", "spec": "chara_card_v3"
//   a PNG                with one of the JSON forms, base64, in its text chunk "ccv3" or "chara" (tEXt, zTXt or iTXt)
//
// Where text is placed decides what a cache can keep. Two places are used, and never one between messages:
//   the description      the beginning of every chat: shared by all chats of the character, computed once. Constant
//                        entries of the character book are its end.
//   before the newest    entries whose keys the recent text names, the author's note, post_history_instructions: behind
//   message              all of the history, so that what was cached of the history stays valid (volatile_text).
// Card::notes says in sentences what was placed where and what was left out.
//
// All functions are pure and thread-safe. Text is UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"

namespace kaiju::server {

// Limits. What is larger is refused with a sentence that names the field and the limit.
inline constexpr size_t kMaxPngBytes = size_t{16} << 20;
inline constexpr size_t kMaxCardJsonBytes = size_t{4} << 20;  // also of the JSON in a PNG
inline constexpr size_t kMaxCardTextBytes = size_t{1} << 20;  // the text form: as kaiju-chat
inline constexpr uint32_t kMaxPictureSide = 16384;            // pixels
inline constexpr size_t kMaxJsonDepth = 64;                   // objects and lists inside each other
inline constexpr size_t kMaxJsonValues = 200'000;
inline constexpr size_t kMaxNameBytes = 100;  // the character's, its nickname's, the user's: as kaiju-chat
inline constexpr size_t kMaxFieldBytes = size_t{256} << 10;      // one text of a card, as written
inline constexpr size_t kMaxDescriptionBytes = size_t{1} << 20;  // the whole description, as the model reads it
inline constexpr size_t kMaxGreetings = 100;                     // alternate ones
inline constexpr size_t kMaxSuggestions = 8;                     // as kaiju-chat
inline constexpr size_t kMaxTags = 256;
inline constexpr size_t kMaxShortBytes = 1000;  // a tag, a key, a name of an entry, the creator, a suggestion
inline constexpr size_t kMaxBookEntries = 4096;
inline constexpr size_t kMaxEntryBytes = size_t{64} << 10;
inline constexpr size_t kMaxKeys = 256;  // of one entry, of one kind

// What the secondary keys of an entry ask for, once one of its keys is found.
enum class Secondary : uint8_t { kAny, kAll, kNotAny, kNotAll };

struct BookEntry {
  std::string name;                         // for people
  std::vector<std::string> keys;            // sorted; one of them triggers the entry
  std::vector<std::string> secondary_keys;  // sorted; empty: the keys alone decide
  Secondary secondary = Secondary::kAny;
  std::string content;
  bool constant = false;  // always in the description; keys are ignored
  bool enabled = true;
  bool case_sensitive = false;
  bool whole_words = true;        // the key "cat" does not find "concatenate"
  int64_t insertion_order = 100;  // smaller ones come first
  std::string position;           // as the card says, for people: it is not followed (see above)
  std::optional<int64_t> depth;   // messages from the end that the card asks for; not followed either
};

struct Card {
  std::string name;
  std::string description;  // as the model reads it: with personality, scenario, examples and constant entries
  std::string greeting;     // empty: the user speaks first
  std::vector<std::string> alternate_greetings;
  std::vector<std::string> suggestions;  // questions to begin with, for people
  std::vector<BookEntry> book;           // by insertion order; constant and disabled entries too
  std::optional<int64_t> scan_depth;     // newest messages to look for keys in; unset: kDefaultScanDepth
  std::optional<int64_t> token_budget;   // most tokens of triggered entries, for who has a tokenizer
  std::string author_note;
  std::string post_history_instructions;
  std::string creator, creator_notes, character_version;  // for people
  std::vector<std::string> tags;                          // sorted
  // The picture: the PNG that the card came in, without its text, time and Exif chunks. Its pixels were not decoded.
  std::string picture;

  // The card's meaning as our own JSON: keys sorted, no white space, {{char}} and {{user}} not replaced, no picture.
  // Cards of the same meaning have the same bytes, whatever form they came in; read_card reads them back.
  std::string canonical;
  std::string digest;  // of `canonical`: XXH3-128, 32 hexadecimal digits, as the library's digests
  std::vector<std::string> notes;
};

inline constexpr int64_t kDefaultScanDepth = 2;

struct CardOptions {
  // {{user}} in everything but the description: who chats.
  std::string user = "the user";
  // {{user}} in the description. With a name of the user's here, no two users share a cached description.
  std::string user_in_description = "the user";
};

// Errors are kInvalidArgument and name the field: "data.tags[3] must be a text and is a number".
Result<Card> read_card(std::string_view bytes, const CardOptions& options = {});

// The enabled entries that are not constant and whose keys `recent` contains, by insertion order. `recent` is the text
// of the newest messages, `scan_depth` of them. Letters are compared without case unless the entry says otherwise.
// Triggered content triggers no further entries.
std::vector<const BookEntry*> triggered_entries(const Card& card, std::string_view recent);

// What is placed right before the newest message of the user: triggered entries, the author's note,
// post_history_instructions, with an empty line between them. Empty: nothing.
std::string volatile_text(const Card& card, std::string_view recent);

// A name as an id for addresses: "Wren Applegarth" is "wren-applegarth". Letters a-z, digits and single '-', at most
// 40; "character" where nothing is left.
std::string slug_of(std::string_view name);

}  // namespace kaiju::server
