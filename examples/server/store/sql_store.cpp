// SqlStore: what the calls of Store mean, in SQL that SQLite and PostgreSQL both know. Each call is one transaction.
// One that changes a chat updates the chat's row first: that is the lock by which two writers of one chat follow each
// other.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "../../chat/utf8.hpp"
#include "database.hpp"

namespace kaiju::server {
namespace {

static_assert(std::endian::native == std::endian::little, "token ids are stored in little-endian order");

using Row = std::vector<Value>;

StoreFailure invalid(std::string message) { return store_failure(StatusCode::kInvalidArgument, std::move(message)); }
StoreFailure not_found(std::string message) { return store_failure(StatusCode::kNotFound, std::move(message)); }
StoreFailure damaged(const char* what) {
  return store_failure(StatusCode::kIo, fmt::format("the store is damaged: {}; restore it from a backup", what));
}

int64_t integer(const Value& value) {
  if (const int64_t* number = std::get_if<int64_t>(&value)) return *number;
  throw damaged("a number is missing");
}
const std::string& words(const Value& value) {
  if (const std::string* text = std::get_if<std::string>(&value)) return *text;
  throw damaged("a text is missing");
}
std::optional<std::string> maybe_words(const Value& value) {
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  return words(value);
}

Blob blob(const std::vector<int32_t>& tokens) {
  return {{reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)}};
}
std::vector<int32_t> tokens_of(const Value& value) {
  const std::string& bytes = words(value);
  if (bytes.size() % sizeof(int32_t) != 0) throw damaged("token ids are cut short");
  std::vector<int32_t> tokens(bytes.size() / sizeof(int32_t));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

void check_size(size_t size, size_t most, const char* what, const char* unit) {
  if (size > most) throw invalid(fmt::format("{} has {} {}; at most {}", what, size, unit, most));
}
void check_text(std::string_view text, const char* what) {
  check_size(text.size(), kMaxStoredTextBytes, what, "bytes");
}
void check_tokens(const std::vector<int32_t>& tokens, const char* what) {
  check_size(tokens.size(), kMaxStoredTokens, what, "token ids");
}
// For what is stored as text: PostgreSQL takes neither NUL nor what is no UTF-8.
void check_name(std::string_view name, const char* what, size_t least = 0) {
  check_size(name.size(), kMaxStoredNameBytes, what, "bytes");
  if (name.size() < least) throw invalid(fmt::format("{} is empty", what));
  if (chat::utf8_error(name) != std::string_view::npos || name.find('\0') != std::string_view::npos)
    throw invalid(fmt::format("{} must be UTF-8 without NUL", what));
}
// An id that was asked for: what cannot be one is not found.
bool could_be_id(std::string_view id) {
  return id.size() <= kMaxStoredNameBytes && chat::utf8_error(id) == std::string_view::npos &&
         id.find('\0') == std::string_view::npos;
}
std::string printable(std::string_view id) { return could_be_id(id) ? std::string(id.substr(0, 60)) : "?"; }

void check_character(const NewCharacter& character) {
  check_name(character.name, "the character's name", 1);
  check_name(character.owner, "the character's owner");
  check_name(character.digest, "the character's digest", 1);
  check_text(character.canonical, "the character's card");
  if (character.canonical.empty()) throw invalid("the character's card is empty");
  check_tokens(character.tokens, "the character's description");
  check_size(character.picture.size(), kMaxStoredPictureBytes, "the character's picture", "bytes");
}

void check_reply(const Reply& reply) {
  check_text(reply.text, "the reply");
  check_tokens(reply.tokens, "the reply");
  check_name(reply.reason, "the reply's reason");
}

void check_turn(const Turn& turn) {
  if (turn.user) check_text(*turn.user, "the user's message");
  check_tokens(turn.input_tokens, "the turn's input");
  check_name(turn.speaker, "the turn's speaker", 1);
  check_size(turn.replies.size(), kMaxRepliesPerTurn, "the turn", "replies");
  for (const Reply& reply : turn.replies) check_reply(reply);
  const int64_t count = static_cast<int64_t>(turn.replies.size());
  if (count == 0 ? turn.chosen != -1 : turn.chosen < 0 || turn.chosen >= count)
    throw invalid(fmt::format("the turn has {} replies; {} cannot be the chosen one", count, turn.chosen));
}

std::string random_id() {
  std::random_device device;
  const auto low = static_cast<uint64_t>(device()), high = static_cast<uint64_t>(device());
  return fmt::format("c_{:016x}", high << 32 | low);
}

int64_t system_now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

Parameter maybe_text(const std::optional<std::string>& text) {
  return text ? Parameter(Text{*text}) : Parameter(std::monostate());
}

class SqlStore : public Store {
 public:
  SqlStore(std::unique_ptr<Database> database, const StoreOptions& options)
      : database_(std::move(database)),
        tokenizer_(options.tokenizer),
        now_ms_(options.now_ms ? options.now_ms : system_now_ms) {}

  Result<Character> create_character(std::string_view wanted_id, const NewCharacter& character) override {
    return transact<Result<Character>>(true, [&] {
      check_character(character);
      check_slug(wanted_id);
      const std::string id = free_id(wanted_id, character.owner);
      insert_version(id, 1, character);
      return read_character(id, 1, false);
    });
  }

  Result<Character> add_version(std::string_view id, const NewCharacter& character) override {
    return transact<Result<Character>>(true, [&] {
      check_character(character);
      const Rows rows = could_be_id(id) ? run("UPDATE characters SET versions = versions + 1 WHERE id = $1 "
                                              "RETURNING versions, retired",
                                              {Text{id}})
                                        : Rows();
      if (rows.empty()) throw no_character(id);
      if (integer(rows[0][1]) != 0)
        throw invalid(fmt::format("the character '{}' is retired: restore it first, or make a new one", printable(id)));
      const int64_t version = integer(rows[0][0]);
      insert_version(id, version, character);
      return read_character(id, version, false);
    });
  }

  Result<Character> character(std::string_view id, int64_t version) override {
    return transact<Result<Character>>(false, [&] { return read_character(id, version, true); });
  }

  Result<std::string> picture(std::string_view id, int64_t version) override {
    return transact<Result<std::string>>(false, [&] {
      const Rows rows = could_be_id(id)
                            ? run("SELECT v.picture FROM character_versions v JOIN characters c ON c.id = v.id "
                                  "WHERE v.id = $1 AND v.version = CASE WHEN CAST($2 AS BIGINT) = 0 THEN c.versions "
                                  "ELSE CAST($2 AS BIGINT) END",
                                  {Text{id}, version})
                            : Rows();
      if (rows.empty()) throw no_character(id, version);
      return words(rows[0][0]);
    });
  }

  Result<std::vector<int64_t>> versions(std::string_view id) override {
    return transact<Result<std::vector<int64_t>>>(false, [&] {
      std::vector<int64_t> found;
      if (could_be_id(id))
        for (const Row& row : run("SELECT version FROM character_versions WHERE id = $1 ORDER BY version", {Text{id}}))
          found.push_back(integer(row[0]));
      if (found.empty()) throw no_character(id);
      return found;
    });
  }

  Result<std::vector<Character>> characters() override {
    return transact<Result<std::vector<Character>>>(false, [&] {
      std::vector<Character> found;
      for (const Row& row : run("SELECT v.id, v.version, v.name, v.canonical, v.digest, v.created_ms, c.retired, "
                                "CASE WHEN length(v.picture) > 0 THEN 1 ELSE 0 END, c.owner "
                                "FROM character_versions v JOIN characters c ON c.id = v.id AND c.versions = v.version "
                                "ORDER BY v.id",
                                {}))
        found.push_back(character_of(row));
      return found;
    });
  }

  Status retire_character(std::string_view id) override { return set_retired(id, 1); }
  Status restore_character(std::string_view id) override { return set_retired(id, 0); }

  Result<ChatSummary> create_chat(const NewChat& chat) override {
    return transact<Result<ChatSummary>>(true, [&] {
      check_name(chat.owner, "the owner");
      check_name(chat.title, "the title");
      check_name(chat.user, "the user's name");
      if (chat.characters.empty()) throw invalid("a chat needs a character");
      check_size(chat.characters.size(), kMaxChatCharacters, "the chat", "characters");
      std::vector<ChatCharacter> chosen;
      for (const ChatCharacter& wanted : chat.characters) {
        const Character found = read_character(wanted.id, wanted.version, false);
        if (found.retired) throw invalid(fmt::format("the character '{}' is retired: it takes no new chats", found.id));
        for (const ChatCharacter& other : chosen)
          if (other.id == found.id) throw invalid(fmt::format("the character '{}' is named twice", found.id));
        chosen.push_back({found.id, found.version});
      }
      return insert_chat(chat.owner, chat.title, chat.user, chosen);
    });
  }

  Result<std::vector<ChatSummary>> chats(std::string_view owner, int64_t most) override {
    return transact<Result<std::vector<ChatSummary>>>(false, [&] {
      std::vector<ChatSummary> found;
      if (!could_be_id(owner)) return found;
      std::map<std::string, std::vector<ChatCharacter>> members;
      for (const Row& row :
           run("SELECT m.chat, m.id, m.version FROM chat_characters m JOIN (SELECT id FROM chats WHERE owner = $1 "
               "ORDER BY updated_ms DESC, id LIMIT $2) c ON c.id = m.chat ORDER BY m.chat, m.place",
               {Text{owner}, most}))
        members[words(row[0])].push_back({words(row[1]), integer(row[2])});
      for (const Row& row : run("SELECT id, owner, title, user_name, turn_count, created_ms, updated_ms FROM chats "
                                "WHERE owner = $1 ORDER BY updated_ms DESC, id LIMIT $2",
                                {Text{owner}, most})) {
        found.push_back(summary_of(row));
        found.back().characters = members[found.back().id];
      }
      return found;
    });
  }

  Result<Chat> chat(std::string_view owner, std::string_view id) override {
    return transact<Result<Chat>>(false, [&] {
      Chat chat;
      static_cast<ChatSummary&>(chat) = read_summary(owner, id);
      for (const Row& row :
           run("SELECT user_text, speaker, input_tokens, chosen, created_ms, turn, tokenizer FROM turns "
               "WHERE chat = $1 ORDER BY turn",
               {Text{id}})) {
        Turn turn;
        turn.user = maybe_words(row[0]);
        turn.speaker = words(row[1]);
        turn.input_tokens = tokens_of(row[2]);
        turn.chosen = integer(row[3]);
        turn.created_ms = integer(row[4]);
        turn.foreign = is_foreign(row[6]);
        if (integer(row[5]) != static_cast<int64_t>(chat.turns.size())) throw damaged("a turn is missing");
        chat.turns.push_back(std::move(turn));
      }
      if (static_cast<int64_t>(chat.turns.size()) != chat.turn_count) throw damaged("a turn is missing");
      for (const Row& row :
           run("SELECT turn, reply_text, tokens, reason, prompt_tokens, cached_tokens, generated_tokens, tokenizer "
               "FROM replies WHERE chat = $1 ORDER BY turn, reply",
               {Text{id}})) {
        Reply reply;
        reply.text = words(row[1]);
        reply.tokens = tokens_of(row[2]);
        reply.reason = words(row[3]);
        reply.prompt_tokens = integer(row[4]);
        reply.cached_tokens = integer(row[5]);
        reply.generated_tokens = integer(row[6]);
        reply.foreign = is_foreign(row[7]);
        const auto turn = static_cast<size_t>(integer(row[0]));
        if (turn >= chat.turns.size()) throw damaged("a reply belongs to no turn");
        chat.turns[turn].replies.push_back(std::move(reply));
      }
      return chat;
    });
  }

  Status set_title(std::string_view owner, std::string_view id, std::string_view title) override {
    return transact<Status>(true, [&] {
      check_name(title, "the title");
      lock_chat(owner, id);
      run("UPDATE chats SET title = $2 WHERE id = $1", {Text{id}, Text{title}});
      return Status();
    });
  }

  Status delete_chat(std::string_view owner, std::string_view id) override {
    return transact<Status>(true, [&] {
      lock_chat(owner, id);
      run("DELETE FROM chats WHERE id = $1", {Text{id}});
      return Status();
    });
  }

  Result<ChatSummary> fork_chat(std::string_view owner, std::string_view id, int64_t turn_count) override {
    return transact<Result<ChatSummary>>(true, [&] {
      const int64_t count = lock_chat(owner, id, false);
      check_count(turn_count, count);
      const ChatSummary from = read_summary(owner, id);
      ChatSummary made = insert_chat(owner, from.title, from.user, from.characters);
      run("INSERT INTO turns (chat, turn, user_text, speaker, input_tokens, chosen, created_ms, tokenizer) "
          "SELECT $1, turn, user_text, speaker, input_tokens, chosen, created_ms, tokenizer FROM turns "
          "WHERE chat = $2 AND turn < $3",
          {Text{made.id}, Text{id}, turn_count});
      run("INSERT INTO replies (chat, turn, reply, reply_text, tokens, reason, prompt_tokens, cached_tokens, "
          "generated_tokens, tokenizer) SELECT $1, turn, reply, reply_text, tokens, reason, prompt_tokens, "
          "cached_tokens, generated_tokens, tokenizer FROM replies WHERE chat = $2 AND turn < $3",
          {Text{made.id}, Text{id}, turn_count});
      set_turn_count(made.id, turn_count);
      made.turn_count = turn_count;
      return made;
    });
  }

  Status append_turn(std::string_view owner, std::string_view id, int64_t index, const Turn& turn) override {
    return transact<Status>(true, [&] {
      check_turn(turn);
      const int64_t count = lock_chat(owner, id);
      if (index != count)
        throw store_failure(StatusCode::kBusy,
                            fmt::format("the chat has {} turns, and {} were expected: it was changed in "
                                        "the meantime; read it again",
                                        count, index));
      if (static_cast<size_t>(count) >= kMaxTurns)
        throw invalid(fmt::format("the chat has {} turns, the most there can be: fork it or begin another", count));
      check_speaker(id, turn.speaker);
      run("INSERT INTO turns (chat, turn, user_text, speaker, input_tokens, chosen, created_ms, tokenizer) "
          "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
          {Text{id}, count, maybe_text(turn.user), Text{turn.speaker}, blob(turn.input_tokens), turn.chosen, now_ms_(),
           Text{tokenizer_}});
      for (size_t i = 0; i < turn.replies.size(); ++i)
        insert_reply(id, count, static_cast<int64_t>(i), turn.replies[i]);
      set_turn_count(id, count + 1);
      return Status();
    });
  }

  Result<int64_t> add_reply(std::string_view owner, std::string_view id, int64_t turn, const Reply& reply) override {
    return transact<Result<int64_t>>(true, [&] {
      check_reply(reply);
      check_newest(turn, lock_chat(owner, id));
      const int64_t count = reply_count(id, turn);
      if (static_cast<size_t>(count) >= kMaxRepliesPerTurn)
        throw invalid(fmt::format("the turn has {} replies, the most there can be", count));
      insert_reply(id, turn, count, reply);
      run("UPDATE turns SET chosen = $3 WHERE chat = $1 AND turn = $2", {Text{id}, turn, count});
      return count;
    });
  }

  Status choose_reply(std::string_view owner, std::string_view id, int64_t turn, int64_t reply) override {
    return transact<Status>(true, [&] {
      check_newest(turn, lock_chat(owner, id));
      const int64_t count = reply_count(id, turn);
      if (reply < 0 || reply >= count)
        throw invalid(fmt::format("the turn has {} replies, counted from 0; there is no {}", count, reply));
      run("UPDATE turns SET chosen = $3 WHERE chat = $1 AND turn = $2", {Text{id}, turn, reply});
      return Status();
    });
  }

  Status truncate_turns(std::string_view owner, std::string_view id, int64_t turn_count) override {
    return transact<Status>(true, [&] {
      check_count(turn_count, lock_chat(owner, id));
      drop_turns_from(id, turn_count);
      return Status();
    });
  }

  Status edit_user(std::string_view owner, std::string_view id, int64_t turn, std::string_view text,
                   const std::vector<int32_t>& input_tokens) override {
    return transact<Status>(true, [&] {
      check_text(text, "the user's message");
      check_tokens(input_tokens, "the turn's input");
      check_turn_index(turn, lock_chat(owner, id));
      drop_turns_from(id, turn + 1);
      run("DELETE FROM replies WHERE chat = $1 AND turn = $2", {Text{id}, turn});
      run("UPDATE turns SET user_text = $3, input_tokens = $4, tokenizer = $5, chosen = -1 "
          "WHERE chat = $1 AND turn = $2",
          {Text{id}, turn, Text{text}, blob(input_tokens), Text{tokenizer_}});
      return Status();
    });
  }

  Status edit_reply(std::string_view owner, std::string_view id, int64_t turn, std::string_view text,
                    const std::vector<int32_t>& tokens) override {
    return transact<Status>(true, [&] {
      check_text(text, "the reply");
      check_tokens(tokens, "the reply");
      check_turn_index(turn, lock_chat(owner, id));
      run("UPDATE replies SET reply_text = $3, tokens = $4, tokenizer = $5 WHERE chat = $1 AND turn = $2 AND reply = "
          "(SELECT chosen FROM turns WHERE chat = $1 AND turn = $2)",
          {Text{id}, turn, Text{text}, blob(tokens), Text{tokenizer_}});
      if (database_->changed() == 0) throw invalid(fmt::format("turn {} has no reply yet", turn));
      return Status();
    });
  }

  Result<int64_t> add_report(std::string_view owner, const NewReport& report) override {
    return transact<Result<int64_t>>(true, [&] {
      check_name(report.kind, "the report's kind", 1);
      check_text(report.comment, "the report's comment");
      check_turn_index(report.turn, lock_chat(owner, report.chat, false));
      const Rows rows =
          run("SELECT t.user_text, r.reply_text, m.id, m.version FROM turns t "
              "JOIN replies r ON r.chat = t.chat AND r.turn = t.turn "
              "JOIN chat_characters m ON m.chat = t.chat AND m.id = t.speaker "
              "WHERE t.chat = $1 AND t.turn = $2 AND r.reply = $3",
              {Text{report.chat}, report.turn, report.reply});
      if (rows.empty()) throw invalid(fmt::format("turn {} has no reply {}", report.turn, report.reply));
      const Row& said = rows[0];
      const std::optional<std::string> user = maybe_words(said[0]);
      const Rows made =
          run("INSERT INTO reports (chat, owner, turn, reply, kind, comment, user_text, reply_text, "
              "speaker, speaker_version, created_ms) "
              "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING id",
              {Text{report.chat}, Text{owner}, report.turn, report.reply, Text{report.kind}, Text{report.comment},
               maybe_text(user), Text{words(said[1])}, Text{words(said[2])}, integer(said[3]), now_ms_()});
      return integer(made.at(0).at(0));
    });
  }

  Result<std::vector<Report>> reports(int64_t after, int64_t most) override {
    return transact<Result<std::vector<Report>>>(false, [&] {
      std::vector<Report> found;
      for (const Row& row : run("SELECT id, chat, owner, turn, reply, kind, comment, user_text, reply_text, speaker, "
                                "speaker_version, created_ms FROM reports WHERE id > $1 ORDER BY id LIMIT $2",
                                {after, most})) {
        Report report;
        report.id = integer(row[0]);
        report.chat = words(row[1]);
        report.owner = words(row[2]);
        report.turn = integer(row[3]);
        report.reply = integer(row[4]);
        report.kind = words(row[5]);
        report.comment = words(row[6]);
        report.user_text = maybe_words(row[7]);
        report.reply_text = words(row[8]);
        report.speaker = {words(row[9]), integer(row[10])};
        report.created_ms = integer(row[11]);
        found.push_back(std::move(report));
      }
      return found;
    });
  }

 private:
  // Runs `body`, which throws StoreFailure, as one transaction.
  template <class Answer, class Body>
  Answer transact(bool writes, const Body& body) {
    return guarded<Answer>([&]() -> Answer {
      const std::lock_guard lock(mutex_);
      try {
        database_->begin(writes);
        auto answer = body();
        database_->commit();
        return answer;
      } catch (const StoreFailure& failed) {
        database_->roll_back();
        return failed.status;
      } catch (...) {
        database_->roll_back();
        throw;
      }
    });
  }

  Rows run(const char* sql, std::initializer_list<Parameter> parameters) { return database_->run(sql, parameters); }

  static StoreFailure no_character(std::string_view id, int64_t version = 0) {
    return not_found(version == 0 ? fmt::format("there is no character '{}'", printable(id))
                                  : fmt::format("there is no character '{}' of version {}", printable(id), version));
  }

  static void check_slug(std::string_view id) {
    const auto is_allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
    if (id.empty() || id.size() > 100 || !std::all_of(id.begin(), id.end(), is_allowed))
      throw invalid("a character's id has from 1 to 100 letters a-z, digits and '-'");
  }

  // Takes the id, or it with the first number that is free.
  std::string free_id(std::string_view wanted, std::string_view owner) {
    constexpr int kNumbers = 100;
    for (int i = 1; i <= 2 * kNumbers; ++i) {
      const std::string id = i == 1          ? std::string(wanted)
                             : i <= kNumbers ? fmt::format("{}-{}", wanted, i)
                                             : fmt::format("{}-{}", wanted, random_id().substr(2));
      run("INSERT INTO characters (id, versions, retired, owner) VALUES ($1, 1, 0, $2) ON CONFLICT (id) DO NOTHING",
          {Text{id}, Text{owner}});
      if (database_->changed() == 1) return id;
    }
    throw store_failure(StatusCode::kBusy, "no id is free for the character; give it another name");
  }

  Status set_retired(std::string_view id, int64_t retired) {
    return transact<Status>(true, [&] {
      if (could_be_id(id)) run("UPDATE characters SET retired = $2 WHERE id = $1", {Text{id}, retired});
      if (!could_be_id(id) || database_->changed() == 0) throw no_character(id);
      return Status();
    });
  }

  void insert_version(std::string_view id, int64_t version, const NewCharacter& character) {
    run("INSERT INTO character_versions (id, version, name, canonical, digest, tokens, picture, created_ms, tokenizer) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        {Text{id}, version, Text{character.name}, Text{character.canonical}, Text{character.digest},
         blob(character.tokens), Blob{character.picture}, now_ms_(), Text{tokenizer_}});
  }

  static Character character_of(const Row& row) {
    Character character;
    character.id = words(row[0]);
    character.version = integer(row[1]);
    character.name = words(row[2]);
    character.canonical = words(row[3]);
    character.digest = words(row[4]);
    character.created_ms = integer(row[5]);
    character.retired = integer(row[6]) != 0;
    character.has_picture = integer(row[7]) != 0;
    character.owner = words(row[8]);
    return character;
  }

  Character read_character(std::string_view id, int64_t version, bool with_tokens) {
    const Rows rows = could_be_id(id)
                          ? run("SELECT v.id, v.version, v.name, v.canonical, v.digest, v.created_ms, c.retired, "
                                "CASE WHEN length(v.picture) > 0 THEN 1 ELSE 0 END, c.owner, v.tokens, v.tokenizer "
                                "FROM character_versions v JOIN characters c ON c.id = v.id "
                                "WHERE v.id = $1 AND v.version = CASE WHEN CAST($2 AS BIGINT) = 0 THEN c.versions ELSE "
                                "CAST($2 AS BIGINT) END",
                                {Text{id}, version})
                          : Rows();
    if (rows.empty()) throw no_character(id, version);
    Character character = character_of(rows[0]);
    if (with_tokens) {
      character.tokens = tokens_of(rows[0][9]);
      character.foreign = is_foreign(rows[0][10]);
    }
    return character;
  }

  ChatSummary insert_chat(std::string_view owner, std::string_view title, std::string_view user,
                          const std::vector<ChatCharacter>& characters) {
    ChatSummary made;
    made.id = random_id();
    made.owner = owner;
    made.title = title;
    made.user = user;
    made.characters = characters;
    made.created_ms = made.updated_ms = now_ms_();
    run("INSERT INTO chats (id, owner, title, user_name, turn_count, created_ms, updated_ms) "
        "VALUES ($1, $2, $3, $4, 0, $5, $6)",
        {Text{made.id}, Text{owner}, Text{title}, Text{user}, made.created_ms, made.updated_ms});
    for (size_t i = 0; i < characters.size(); ++i)
      run("INSERT INTO chat_characters (chat, place, id, version) VALUES ($1, $2, $3, $4)",
          {Text{made.id}, static_cast<int64_t>(i), Text{characters[i].id}, characters[i].version});
    return made;
  }

  static ChatSummary summary_of(const Row& row) {
    ChatSummary summary;
    summary.id = words(row[0]);
    summary.owner = words(row[1]);
    summary.title = words(row[2]);
    summary.user = words(row[3]);
    summary.turn_count = integer(row[4]);
    summary.created_ms = integer(row[5]);
    summary.updated_ms = integer(row[6]);
    return summary;
  }

  ChatSummary read_summary(std::string_view owner, std::string_view id) {
    const Rows rows = could_be_id(id) && could_be_id(owner)
                          ? run("SELECT id, owner, title, user_name, turn_count, created_ms, updated_ms FROM chats "
                                "WHERE id = $1 AND owner = $2",
                                {Text{id}, Text{owner}})
                          : Rows();
    if (rows.empty()) throw not_found(fmt::format("there is no chat '{}'", printable(id)));
    ChatSummary summary = summary_of(rows[0]);
    for (const Row& row : run("SELECT id, version FROM chat_characters WHERE chat = $1 ORDER BY place", {Text{id}}))
      summary.characters.push_back({words(row[0]), integer(row[1])});
    return summary;
  }

  // Locks the chat until the transaction's end; the count of its turns. `changes` it: its time is now.
  int64_t lock_chat(std::string_view owner, std::string_view id, bool changes = true) {
    Rows rows;
    if (could_be_id(id) && could_be_id(owner))
      rows = changes ? run("UPDATE chats SET updated_ms = $3 WHERE id = $1 AND owner = $2 RETURNING turn_count",
                           {Text{id}, Text{owner}, now_ms_()})
                     : run("UPDATE chats SET updated_ms = updated_ms WHERE id = $1 AND owner = $2 RETURNING turn_count",
                           {Text{id}, Text{owner}});
    if (rows.empty()) throw not_found(fmt::format("there is no chat '{}'", printable(id)));
    return integer(rows[0][0]);
  }

  bool is_foreign(const Value& tokenizer) const { return words(tokenizer) != tokenizer_; }

  void set_turn_count(std::string_view id, int64_t count) {
    run("UPDATE chats SET turn_count = $2 WHERE id = $1", {Text{id}, count});
  }

  void drop_turns_from(std::string_view id, int64_t turn) {
    run("DELETE FROM turns WHERE chat = $1 AND turn >= $2", {Text{id}, turn});
    set_turn_count(id, turn);
  }

  int64_t reply_count(std::string_view id, int64_t turn) {
    return integer(run("SELECT count(*) FROM replies WHERE chat = $1 AND turn = $2", {Text{id}, turn}).at(0).at(0));
  }

  void insert_reply(std::string_view id, int64_t turn, int64_t index, const Reply& reply) {
    run("INSERT INTO replies (chat, turn, reply, reply_text, tokens, reason, prompt_tokens, cached_tokens, "
        "generated_tokens, tokenizer) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        {Text{id}, turn, index, Text{reply.text}, blob(reply.tokens), Text{reply.reason}, reply.prompt_tokens,
         reply.cached_tokens, reply.generated_tokens, Text{tokenizer_}});
  }

  void check_speaker(std::string_view chat, std::string_view speaker) {
    if (run("SELECT place FROM chat_characters WHERE chat = $1 AND id = $2", {Text{chat}, Text{speaker}}).empty())
      throw invalid(fmt::format("the speaker '{}' is not a character of the chat", printable(speaker)));
  }

  static void check_count(int64_t wanted, int64_t count) {
    if (wanted < 0 || wanted > count)
      throw invalid(fmt::format("the chat has {} turns; {} cannot be kept", count, wanted));
  }
  static void check_turn_index(int64_t turn, int64_t count) {
    if (turn < 0 || turn >= count)
      throw invalid(fmt::format("the chat has {} turns, counted from 0; there is no {}", count, turn));
  }
  static void check_newest(int64_t turn, int64_t count) {
    check_turn_index(turn, count);
    if (turn != count - 1)
      throw invalid(
          fmt::format("turn {} is not the newest, {}: only the newest gets and chooses replies", turn, count - 1));
  }

  std::mutex mutex_;
  std::unique_ptr<Database> database_;
  const std::string tokenizer_;
  std::function<int64_t()> now_ms_;
};

}  // namespace

Result<std::unique_ptr<Store>> make_sql_store(std::unique_ptr<Database> database, const StoreOptions& options) {
  check_name(options.tokenizer, "the tokenizer's name");
  migrate(*database);
  return std::unique_ptr<Store>(std::make_unique<SqlStore>(std::move(database), options));
}

}  // namespace kaiju::server
