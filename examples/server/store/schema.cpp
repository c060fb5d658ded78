// The tables, and how those of an older version become these. A version that was released never changes: add the next.
#include <fmt/format.h>

#include <iterator>

#include "database.hpp"

namespace kaiju::server {
namespace {

// Token ids are int32 in little-endian order. Times are milliseconds since 1970. Flags are 0 and 1.
constexpr const char* kVersion1[] = {
    R"(CREATE TABLE characters (
      id {text} NOT NULL PRIMARY KEY,
      versions {int} NOT NULL,
      retired {int} NOT NULL DEFAULT 0{end})",
    R"(CREATE TABLE character_versions (
      id {text} NOT NULL REFERENCES characters (id),
      version {int} NOT NULL,
      name {text} NOT NULL,
      canonical {words} NOT NULL,
      digest {text} NOT NULL,
      tokens {bytes} NOT NULL,
      picture {bytes} NOT NULL,
      created_ms {int} NOT NULL,
      PRIMARY KEY (id, version){end})",
    R"(CREATE TABLE chats (
      id {text} NOT NULL PRIMARY KEY,
      owner {text} NOT NULL,
      title {text} NOT NULL,
      user_name {text} NOT NULL,
      turn_count {int} NOT NULL,
      created_ms {int} NOT NULL,
      updated_ms {int} NOT NULL{end})",
    "CREATE INDEX chats_of_owner ON chats (owner, updated_ms)",
    R"(CREATE TABLE chat_characters (
      chat {text} NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
      place {int} NOT NULL,
      id {text} NOT NULL,
      version {int} NOT NULL,
      PRIMARY KEY (chat, place),
      FOREIGN KEY (id, version) REFERENCES character_versions (id, version){end})",
    R"(CREATE TABLE turns (
      chat {text} NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
      turn {int} NOT NULL,
      user_text {words},
      speaker {text} NOT NULL,
      input_tokens {bytes} NOT NULL,
      chosen {int} NOT NULL,
      created_ms {int} NOT NULL,
      PRIMARY KEY (chat, turn){end})",
    R"(CREATE TABLE replies (
      chat {text} NOT NULL,
      turn {int} NOT NULL,
      reply {int} NOT NULL,
      reply_text {words} NOT NULL,
      tokens {bytes} NOT NULL,
      reason {text} NOT NULL,
      prompt_tokens {int} NOT NULL,
      cached_tokens {int} NOT NULL,
      generated_tokens {int} NOT NULL,
      PRIMARY KEY (chat, turn, reply),
      FOREIGN KEY (chat, turn) REFERENCES turns (chat, turn) ON DELETE CASCADE{end})",
    R"(CREATE TABLE reports (
      id {id},
      chat {text} NOT NULL,
      owner {text} NOT NULL,
      turn {int} NOT NULL,
      reply {int} NOT NULL,
      kind {text} NOT NULL,
      comment {words} NOT NULL,
      user_text {words},
      reply_text {words} NOT NULL,
      speaker {text} NOT NULL,
      speaker_version {int} NOT NULL,
      created_ms {int} NOT NULL{end})",
};

// Whose a character is ("": nobody's), and whose tokenizer made token ids ("": one that was not written down).
constexpr const char* kVersion2[] = {
    "ALTER TABLE characters ADD COLUMN owner {text} NOT NULL DEFAULT ''",
    "ALTER TABLE character_versions ADD COLUMN tokenizer {text} NOT NULL DEFAULT ''",
    "ALTER TABLE turns ADD COLUMN tokenizer {text} NOT NULL DEFAULT ''",
    "ALTER TABLE replies ADD COLUMN tokenizer {text} NOT NULL DEFAULT ''",
};

struct Migration {
  const char* const* statements;
  size_t count;
};
constexpr Migration kMigrations[] = {{kVersion1, std::size(kVersion1)}, {kVersion2, std::size(kVersion2)}};

}  // namespace

void migrate(Database& database) {
  constexpr int64_t kNewest = std::size(kMigrations);
  database.begin(true);
  try {
    const int64_t version = database.schema_version();
    if (version > kNewest)
      throw store_failure(
          StatusCode::kUnsupported,
          fmt::format("the store has tables of version {}, and this program knows those up to {}: use the "
                      "program that made it, or a later one",
                      version, kNewest));
    for (int64_t i = version; i < kNewest; ++i)
      for (size_t k = 0; k < kMigrations[i].count; ++k) database.make(kMigrations[i].statements[k]);
    if (version < kNewest) database.set_schema_version(kNewest);
    database.commit();
  } catch (...) {
    database.roll_back();
    throw;
  }
}

}  // namespace kaiju::server
