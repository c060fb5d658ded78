// Store: where characters and chats are kept. Two are there: a file of SQLite, and a PostgreSQL database. Holds no KV
// and knows nothing of HTTP, models and cards' contents.
//
// Durability: a call that returns ok has been committed and synced: neither kill -9 nor a power loss undoes it (SQLite:
// WAL with synchronous=FULL; PostgreSQL: synchronous_commit on, as far as the server's fsync is on). A call is one
// transaction: after a crash all of it is there or nothing.
//
// Threads: every call may be made from any thread. The calls of one Store run one after the other, and one that writes
// waits for the disk: call from a thread that may wait, never from the one that steps the engine. Several Stores, in
// several processes too, may use the same database; a call that finds it locked waits up to 10 seconds (kBusy).
//
// Owners: a chat belongs to an owner, the name of an API key ("" without keys). With another owner it is not found. A
// character has an owner too ("": nobody's); who may change it is the caller's to decide.
//
// Token ids: a store is opened for one tokenizer (StoreOptions::tokenizer), and writes its name with the ids. Ids that
// another tokenizer made are read with `foreign`: they mean nothing here, and the texts beside them count.
//
// Errors: kInvalidArgument, kNotFound; kBusy (somebody else changed the chat or holds the lock: read again, try again);
// kIo (disk, connection, damaged file); kUnsupported (a database that this version does not know). Messages say what to
// do. Texts of messages are kept byte for byte; ids, names, owners and titles must be UTF-8 without NUL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"

namespace kaiju::server {

// Limits: what is larger is refused.
inline constexpr size_t kMaxStoredTextBytes = size_t{8} << 20;  // one message, one canonical card
inline constexpr size_t kMaxStoredPictureBytes = size_t{16} << 20;
inline constexpr size_t kMaxStoredTokens = size_t{1} << 22;  // of one character, input or reply
inline constexpr size_t kMaxStoredNameBytes = 400;           // a name, owner, title, speaker, id
inline constexpr size_t kMaxChatCharacters = 16;
inline constexpr size_t kMaxRepliesPerTurn = 256;
inline constexpr size_t kMaxTurns = 100'000;

// One version of a character. A version never changes; `retired` is the character's.
struct Character {
  std::string id;       // of addresses: "wren", "wren-2"
  int64_t version = 0;  // from 1
  std::string owner;    // the character's
  std::string name;
  std::string canonical;        // bytes that say what the character is (cards/card.hpp)
  std::string digest;           // of `canonical`
  std::vector<int32_t> tokens;  // of the description, as the model was given it
  bool foreign = false;         // `tokens` are another tokenizer's
  std::string picture;          // PNG; empty: none
  bool has_picture = false;     // also said where the picture was not read
  bool retired = false;
  int64_t created_ms = 0;  // of the version; milliseconds since 1970, UTC, as all times here
};

struct NewCharacter {
  std::string name, canonical, digest;
  std::vector<int32_t> tokens;
  std::string picture;
  std::string owner = {};  // of a character that is made; its later versions change nothing
};

struct ChatCharacter {
  std::string id;
  int64_t version = 0;
  bool operator==(const ChatCharacter&) const = default;
};

struct NewChat {
  std::string owner, title;
  std::string user;  // the name by which the characters call the user
  std::vector<ChatCharacter> characters;
};

struct Reply {
  std::string text;
  std::vector<int32_t> tokens;
  std::string reason;  // why it ended: "stop", "length", "cancelled", ...
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  bool foreign = false;  // `tokens` are another tokenizer's
  bool operator==(const Reply&) const = default;
};

struct Turn {
  std::optional<std::string> user;    // nothing: the characters speak without being asked, as in a greeting
  std::string speaker;                // id of the character that replies
  std::vector<int32_t> input_tokens;  // of this turn alone, as the engine was given them
  bool foreign = false;               // `input_tokens` are another tokenizer's
  std::vector<Reply> replies;         // may be empty: asked and not answered yet
  int64_t chosen = -1;                // index in `replies`; -1 while there are none
  int64_t created_ms = 0;
};

struct ChatSummary {
  std::string id;  // "c_" and 16 hexadecimal digits
  std::string owner, title, user;
  std::vector<ChatCharacter> characters;
  int64_t turn_count = 0;
  int64_t created_ms = 0, updated_ms = 0;
};

struct Chat : ChatSummary {
  std::vector<Turn> turns;
};

struct NewReport {
  std::string chat;
  int64_t turn = 0, reply = 0;
  std::string kind, comment;
};

// Keeps copies of the messages, so that it can be read after the chat was changed or deleted.
struct Report {
  int64_t id = 0;
  std::string chat, owner;
  int64_t turn = 0, reply = 0;
  std::string kind, comment;
  std::optional<std::string> user_text;
  std::string reply_text;
  ChatCharacter speaker;
  int64_t created_ms = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // --- Characters
  // Version 1, or the next version of a character that is not retired. `wanted_id` is a slug (a-z, 0-9, '-'); where it
  // is taken the id gets a number: "wren-2". Both give everything but the picture's bytes and the tokens.
  virtual Result<Character> create_character(std::string_view wanted_id, const NewCharacter& character) = 0;
  virtual Result<Character> add_version(std::string_view id, const NewCharacter& character) = 0;
  // Without the picture; `version` 0 is the newest.
  virtual Result<Character> character(std::string_view id, int64_t version = 0) = 0;
  // "" where the version has none.
  virtual Result<std::string> picture(std::string_view id, int64_t version = 0) = 0;
  virtual Result<std::vector<int64_t>> versions(std::string_view id) = 0;
  // The newest version of each, by id, retired ones too; without pictures and tokens.
  virtual Result<std::vector<Character>> characters() = 0;
  // No new chats with it; those that there are go on. Retiring twice is ok.
  virtual Status retire_character(std::string_view id) = 0;
  // Takes new chats and versions again.
  virtual Status restore_character(std::string_view id) = 0;

  // --- Chats
  virtual Result<ChatSummary> create_chat(const NewChat& chat) = 0;
  // Newest first; at most `most`.
  virtual Result<std::vector<ChatSummary>> chats(std::string_view owner, int64_t most = 1000) = 0;
  virtual Result<Chat> chat(std::string_view owner, std::string_view id) = 0;
  virtual Status set_title(std::string_view owner, std::string_view id, std::string_view title) = 0;
  // With its turns; reports stay.
  virtual Status delete_chat(std::string_view owner, std::string_view id) = 0;
  // A new chat of the same owner with the first `turn_count` turns and all of their replies.
  virtual Result<ChatSummary> fork_chat(std::string_view owner, std::string_view id, int64_t turn_count) = 0;

  // --- Turns, counted from 0
  // Appends `turn` as number `index`, which must be the count of turns that the caller knows of: two writers of one
  // chat cannot both append (kBusy). Input, replies and choice are one transaction.
  virtual Status append_turn(std::string_view owner, std::string_view id, int64_t index, const Turn& turn) = 0;
  // Another reply to the newest turn, which it must be; it is chosen. Gives its index.
  virtual Result<int64_t> add_reply(std::string_view owner, std::string_view id, int64_t turn, const Reply& reply) = 0;
  // One of the replies of the newest turn.
  virtual Status choose_reply(std::string_view owner, std::string_view id, int64_t turn, int64_t reply) = 0;
  // Keeps the first `turn_count` turns.
  virtual Status truncate_turns(std::string_view owner, std::string_view id, int64_t turn_count) = 0;
  // Another text of the user: the turn's replies and all later turns go.
  virtual Status edit_user(std::string_view owner, std::string_view id, int64_t turn, std::string_view text,
                           const std::vector<int32_t>& input_tokens) = 0;
  // Another text of the chosen reply; later turns stay.
  virtual Status edit_reply(std::string_view owner, std::string_view id, int64_t turn, std::string_view text,
                            const std::vector<int32_t>& tokens) = 0;

  // --- Reports
  virtual Result<int64_t> add_report(std::string_view owner, const NewReport& report) = 0;
  // Of all owners, oldest first, those after the id `after`; at most `most`.
  virtual Result<std::vector<Report>> reports(int64_t after = 0, int64_t most = 1000) = 0;
};

struct StoreOptions {
  // Milliseconds since 1970. Empty: the system's clock.
  std::function<int64_t()> now_ms = {};
  // Names the tokenizer that makes all token ids that are written; at most kMaxStoredNameBytes.
  std::string tokenizer = {};
};

// A file, made where there is none (its folder must exist), brought to this version's tables where it is older. A file
// of another program, or of a later version, is refused and not changed. Files FILE-wal and FILE-shm belong to it.
Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& file, const StoreOptions& options = {});

// A connection string or URI of libpq; tables are made in the first schema of its search_path. kUnsupported in a build
// without KAIJU_SERVER_POSTGRES. A connection that is lost between calls is made again by the next call; one that is
// lost during a call fails it (kIo), and what it wrote may have been committed or not: read it again.
Result<std::unique_ptr<Store>> open_postgres_store(const std::string& connection, const StoreOptions& options = {});

// "2026-11-28T20:15:00.123Z" (RFC 3339).
std::string time_text(int64_t unix_ms);

}  // namespace kaiju::server
