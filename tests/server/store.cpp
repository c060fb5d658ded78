// What a store keeps, refuses and forgets. The same promises for SQLite and for PostgreSQL (store_postgres.sh).
#include "examples/server/store/store.hpp"

#include <fstream>
#include <sstream>
#include <thread>

#include "store_open.hpp"

using namespace kaiju;
using namespace kaiju::server;
using namespace kaiju::server::test;

TEST_CASE("token ids of another tokenizer are marked, and what is written anew is not") {
  const Place place;
  std::string id, fork;
  {
    auto store = place.open({.tokenizer = "a"});
    id = new_chat(*store);
    must(store->append_turn("ann", id, 0, turn_of("Hello", "Hi")));
    must(store->append_turn("ann", id, 1, turn_of("How are you?", "Well")));
    CHECK_FALSE(must(store->character("wren")).foreign);
    CHECK_FALSE(must(store->chat("ann", id)).turns[0].foreign);
  }
  {
    auto store = place.open({.tokenizer = "b"});
    fork = must(store->fork_chat("ann", id, 1)).id;
    must(store->edit_user("ann", id, 1, "Who are you?", {1}));
    must(store->add_reply("ann", id, 1, reply_of("Wren")));
    must(store->edit_reply("ann", id, 0, "Good day", {2}));
    CHECK(must(store->character("wren")).foreign);
    CHECK(must(store->chat("ann", fork)).turns[0].foreign);
    CHECK(must(store->chat("ann", fork)).turns[0].replies[0].foreign);
    const Chat chat = must(store->chat("ann", id));
    CHECK(chat.turns[0].foreign);
    CHECK_FALSE(chat.turns[0].replies[0].foreign);
    CHECK_FALSE(chat.turns[1].foreign);
    CHECK_FALSE(chat.turns[1].replies[0].foreign);
    must(store->add_version("wren", wren()));
    CHECK_FALSE(must(store->character("wren")).foreign);
  }
  auto store = place.open({.tokenizer = "a"});
  CHECK_FALSE(must(store->chat("ann", fork)).turns[0].foreign);  // the first one's again
  CHECK(must(store->chat("ann", id)).turns[1].foreign);
}

TEST_CASE("a version of a character comes back as it was given, and never changes") {
  const Place place;
  auto store = place.open({[] { return int64_t{1'764'360'900'123}; }});
  NewCharacter first = wren();
  first.picture = std::string("\x89PNG\0\xFF", 6);
  first.canonical = "{\"name\":\"Wren\",\"description\":\"caf\xC3\xA9 \xF0\x9F\x90\xA6\"}";
  first.tokens = {0, -1, 2147483647, -2147483648};
  const Character made = must(store->create_character("wren", first));
  CHECK(made.id == "wren");
  CHECK(made.version == 1);
  NewCharacter second = wren();
  second.name = "Wren the Second";
  second.digest = "d2";
  CHECK(must(store->add_version("wren", second)).version == 2);

  const Character old = must(store->character("wren", 1));
  CHECK(old.name == "Wren");
  CHECK(old.canonical == first.canonical);
  CHECK(old.digest == "d1");
  CHECK(old.tokens == first.tokens);
  CHECK(old.has_picture);
  CHECK(old.created_ms == 1'764'360'900'123);
  CHECK(must(store->picture("wren", 1)) == first.picture);
  const Character newest = must(store->character("wren"));
  CHECK(newest.version == 2);
  CHECK(newest.name == "Wren the Second");
  CHECK_FALSE(newest.has_picture);
  CHECK(must(store->picture("wren")).empty());
  CHECK(must(store->versions("wren")) == std::vector<int64_t>{1, 2});
  CHECK(must(store->characters()).size() == 1);
  CHECK(must(store->characters())[0].version == 2);
}

TEST_CASE("an id that is taken gets a number") {
  const Place place;
  auto store = place.open();
  CHECK(must(store->create_character("wren", wren())).id == "wren");
  CHECK(must(store->create_character("wren", wren())).id == "wren-2");
  CHECK(must(store->create_character("wren", wren())).id == "wren-3");
  CHECK(must(store->create_character("rook", wren())).id == "rook");
  for (const char* bad : {"", "Wren", "wr en", "../x", "w\xC3\xA9"})
    CHECK(said(store->create_character(bad, wren())).find("letters a-z") != std::string::npos);
}

TEST_CASE("a retired character takes no new chats and versions until it is restored, and its chats go on") {
  const Place place;
  auto store = place.open();
  const std::string chat = new_chat(*store);
  must(store->retire_character("wren"));
  must(store->retire_character("wren"));
  CHECK(must(store->character("wren")).retired);
  CHECK(said(store->create_chat({"ann", "", "", {{"wren", 0}}})).find("retired") != std::string::npos);
  CHECK(said(store->add_version("wren", wren())).find("retired") != std::string::npos);
  CHECK(must(store->versions("wren")).size() == 1);  // the refused version left nothing
  must(store->append_turn("ann", chat, 0, turn_of("Hello", "Hi")));
  must(store->restore_character("wren"));
  CHECK_FALSE(must(store->character("wren")).retired);
  CHECK(must(store->add_version("wren", wren())).version == 2);
  CHECK(said(store->restore_character("nobody")).find("no character") != std::string::npos);
}

TEST_CASE("a character keeps the owner that made it") {
  const Place place;
  auto store = place.open();
  NewCharacter hers = wren();
  hers.owner = "ann";
  CHECK(must(store->create_character("wren", hers)).owner == "ann");
  hers.owner = "bob";
  CHECK(must(store->add_version("wren", hers)).owner == "ann");
  CHECK(must(store->create_character("rook", wren())).owner.empty());
  CHECK(must(store->characters())[1].owner == "ann");
}

TEST_CASE("a chat keeps the versions of its characters when they get new ones") {
  const Place place;
  auto store = place.open();
  const std::string chat = new_chat(*store);
  must(store->create_character("rook", wren()));
  must(store->add_version("wren", wren()));
  CHECK(must(store->chat("ann", chat)).characters == std::vector<ChatCharacter>{{"wren", 1}});
  const ChatSummary both = must(store->create_chat({"ann", "", "", {{"wren", 0}, {"rook", 1}}}));
  CHECK(both.characters == std::vector<ChatCharacter>{{"wren", 2}, {"rook", 1}});
  CHECK(said(store->create_chat({"ann", "", "", {{"wren", 3}}})).find("of version 3") != std::string::npos);
  CHECK(said(store->create_chat({"ann", "", "", {{"wren", 1}, {"wren", 2}}})).find("twice") != std::string::npos);
  CHECK(said(store->create_chat({"ann", "", "", {}})).find("needs a character") != std::string::npos);
}

TEST_CASE("turns come back as they were given, after the store was closed too") {
  const Place place;
  std::string id;
  Turn greeting;
  greeting.speaker = "wren";
  greeting.replies = {reply_of("Welcome")};
  greeting.chosen = 0;
  Turn odd = turn_of(std::string("NUL \0 and \xFF", 11), std::string("\xFE\0", 2));
  Turn open_question = turn_of("Anybody?", "");
  open_question.replies.clear();
  open_question.chosen = -1;
  {
    auto store = place.open();
    id = new_chat(*store);
    CHECK(id.size() == 18);
    CHECK(id.starts_with("c_"));
    must(store->append_turn("ann", id, 0, greeting));
    must(store->append_turn("ann", id, 1, odd));
    must(store->append_turn("ann", id, 2, open_question));
  }
  auto store = place.open();
  const Chat chat = must(store->chat("ann", id));
  CHECK(chat.title == "A walk");
  CHECK(chat.user == "Ann");
  CHECK(chat.turn_count == 3);
  REQUIRE(chat.turns.size() == 3);
  CHECK_FALSE(chat.turns[0].user.has_value());
  CHECK(chat.turns[0].input_tokens.empty());
  CHECK(chat.turns[0].replies == greeting.replies);
  CHECK(chat.turns[1].user == odd.user);
  CHECK(chat.turns[1].input_tokens == odd.input_tokens);
  CHECK(chat.turns[1].replies == odd.replies);
  CHECK(chat.turns[2].replies.empty());
  CHECK(chat.turns[2].chosen == -1);
}

TEST_CASE("another reply is chosen, and only the newest turn gets and chooses replies") {
  const Place place;
  auto store = place.open();
  const std::string id = new_chat(*store);
  must(store->append_turn("ann", id, 0, turn_of("a", "A")));
  must(store->append_turn("ann", id, 1, turn_of("b", "B")));
  CHECK(must(store->add_reply("ann", id, 1, reply_of("B2"))) == 1);
  CHECK(must(store->add_reply("ann", id, 1, reply_of("B3"))) == 2);
  CHECK(must(store->chat("ann", id)).turns[1].chosen == 2);
  must(store->choose_reply("ann", id, 1, 0));
  const Turn turn = must(store->chat("ann", id)).turns[1];
  CHECK(turn.chosen == 0);
  REQUIRE(turn.replies.size() == 3);
  CHECK(turn.replies[2].text == "B3");
  CHECK(said(store->add_reply("ann", id, 0, reply_of("A2"))).find("not the newest") != std::string::npos);
  CHECK(said(store->choose_reply("ann", id, 0, 0)).find("not the newest") != std::string::npos);
  CHECK(said(store->choose_reply("ann", id, 1, 3)).find("there is no 3") != std::string::npos);
  CHECK(said(store->choose_reply("ann", id, 1, -1)).find("there is no -1") != std::string::npos);
  CHECK(said(store->add_reply("ann", id, 2, reply_of("C"))).find("there is no 2") != std::string::npos);
}

TEST_CASE("of two writers that append the same turn, one is told to read again") {
  const Place place;
  auto one = place.open(), other = place.open();
  const std::string id = new_chat(*one);
  must(one->append_turn("ann", id, 0, turn_of("a", "A")));
  const Status late = other->append_turn("ann", id, 0, turn_of("b", "B"));
  CHECK(late.code() == StatusCode::kBusy);
  CHECK(late.message().find("read it again") != std::string::npos);
  CHECK(must(one->chat("ann", id)).turns.size() == 1);
}

TEST_CASE("writers in many threads lose nothing and append no turn twice") {
  const Place place;
  auto one = place.open(), other = place.open();
  const std::string id = new_chat(*one);
  constexpr int kEach = 20;
  std::vector<std::thread> threads;
  std::atomic<int> appended = 0, failed = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Store& store = t % 2 == 0 ? *one : *other;
      for (int done = 0; done < kEach;) {
        const auto chat = store.chat("ann", id);
        if (!chat.ok()) {
          ++failed;
          return;
        }
        const Status status = store.append_turn("ann", id, chat.value().turn_count,
                                                turn_of(std::to_string(t) + "/" + std::to_string(done), "ok"));
        if (status.ok()) {
          ++appended;
          ++done;
        } else if (status.code() != StatusCode::kBusy) {
          ++failed;
          return;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(appended == 4 * kEach);
  CHECK(must(one->chat("ann", id)).turns.size() == 4 * kEach);
}

TEST_CASE("truncation and a user's edit drop what came later; a reply's edit does not") {
  const Place place;
  auto store = place.open();
  const std::string id = new_chat(*store);
  for (int i = 0; i < 4; ++i) must(store->append_turn("ann", id, i, turn_of("u" + std::to_string(i), "r")));
  must(store->add_reply("ann", id, 3, reply_of("r3b")));
  must(store->choose_reply("ann", id, 3, 0));
  must(store->edit_reply("ann", id, 3, "edited", {42}));
  must(store->edit_reply("ann", id, 1, "edited one", {43}));
  Chat chat = must(store->chat("ann", id));
  REQUIRE(chat.turns.size() == 4);
  CHECK(chat.turns[3].replies[0].text == "edited");
  CHECK(chat.turns[3].replies[0].tokens == std::vector<int32_t>{42});
  CHECK(chat.turns[3].replies[1].text == "r3b");
  CHECK(chat.turns[1].replies[0].text == "edited one");

  must(store->edit_user("ann", id, 2, "another", {1}));
  chat = must(store->chat("ann", id));
  REQUIRE(chat.turns.size() == 3);
  CHECK(chat.turn_count == 3);
  CHECK(chat.turns[2].user == "another");
  CHECK(chat.turns[2].input_tokens == std::vector<int32_t>{1});
  CHECK(chat.turns[2].replies.empty());
  CHECK(chat.turns[2].chosen == -1);
  CHECK(said(store->edit_reply("ann", id, 2, "x", {})).find("has no reply yet") != std::string::npos);
  CHECK(must(store->add_reply("ann", id, 2, reply_of("again"))) == 0);

  must(store->truncate_turns("ann", id, 1));
  CHECK(must(store->chat("ann", id)).turns.size() == 1);
  CHECK(said(store->truncate_turns("ann", id, 2)).find("cannot be kept") != std::string::npos);
  CHECK(said(store->truncate_turns("ann", id, -1)).find("cannot be kept") != std::string::npos);
  must(store->append_turn("ann", id, 1, turn_of("new", "N")));
  CHECK(must(store->chat("ann", id)).turns[1].replies.size() == 1);  // nothing of the dropped turn is left
}

TEST_CASE("a fork has the first turns with all of their replies, and neither changes the other") {
  const Place place;
  auto store = place.open();
  const std::string id = new_chat(*store);
  for (int i = 0; i < 3; ++i) must(store->append_turn("ann", id, i, turn_of("u" + std::to_string(i), "r")));
  must(store->truncate_turns("ann", id, 2));
  must(store->add_reply("ann", id, 1, reply_of("r1b")));
  const ChatSummary made = must(store->fork_chat("ann", id, 2));
  CHECK(made.id != id);
  CHECK(made.turn_count == 2);
  must(store->append_turn("ann", made.id, 2, turn_of("elsewhere", "E")));
  must(store->edit_reply("ann", made.id, 0, "changed", {}));
  const Chat from = must(store->chat("ann", id)), fork = must(store->chat("ann", made.id));
  CHECK(from.turns.size() == 2);
  CHECK(from.turns[0].replies[0].text == "r");
  REQUIRE(fork.turns.size() == 3);
  CHECK(fork.turns[1].replies == from.turns[1].replies);
  CHECK(fork.turns[1].chosen == 1);
  CHECK(fork.characters == from.characters);
  must(store->delete_chat("ann", id));
  CHECK(must(store->chat("ann", made.id)).turns.size() == 3);
  CHECK(said(store->fork_chat("ann", made.id, 4)).find("cannot be kept") != std::string::npos);
}

TEST_CASE("another owner's chat is not found by any call") {
  const Place place;
  auto store = place.open();
  const std::string id = new_chat(*store);
  must(store->append_turn("ann", id, 0, turn_of("a", "A")));
  for (const std::string& owner : {std::string(), std::string("bob"), std::string("ann\0", 4), std::string("\xFF")}) {
    const std::string none = "2: there is no chat '" + id + "'";
    CHECK(said(store->chat(owner, id)) == none);
    CHECK(said(store->set_title(owner, id, "x")) == none);
    CHECK(said(store->delete_chat(owner, id)) == none);
    CHECK(said(store->fork_chat(owner, id, 1)) == none);
    CHECK(said(store->append_turn(owner, id, 1, turn_of("b", "B"))) == none);
    CHECK(said(store->add_reply(owner, id, 0, reply_of("x"))) == none);
    CHECK(said(store->choose_reply(owner, id, 0, 0)) == none);
    CHECK(said(store->truncate_turns(owner, id, 0)) == none);
    CHECK(said(store->edit_user(owner, id, 0, "x", {})) == none);
    CHECK(said(store->edit_reply(owner, id, 0, "x", {})) == none);
    CHECK(said(store->add_report(owner, {id, 0, 0, "bad reply", ""})) == none);
    CHECK(must(store->chats(owner)).empty());
  }
  CHECK(must(store->chat("ann", id)).turns[0].replies[0].text == "A");
  for (const std::string& bad :
       {std::string("c_0"), std::string("c_\0", 3), std::string(5000, 'c'), std::string("' OR 1=1 --")})
    CHECK(store->chat("ann", bad).status().code() == StatusCode::kNotFound);
}

TEST_CASE("chats are listed newest first") {
  const Place place;
  int64_t now = 1000;
  auto store = place.open({[&] { return now++; }});
  std::vector<std::string> ids;
  for (int i = 0; i < 12; ++i) ids.push_back(new_chat(*store));
  must(store->append_turn("ann", ids[0], 0, turn_of("a", "A")));
  must(store->set_title("ann", ids[0], "Renamed"));
  const auto found = must(store->chats("ann"));
  REQUIRE(found.size() == 12);
  CHECK(found[0].id == ids[0]);
  CHECK(found[0].title == "Renamed");
  CHECK(found[0].turn_count == 1);
  CHECK(found[0].updated_ms > found[0].created_ms);
  for (size_t i = 1; i < 12; ++i) {
    CHECK(found[i].id == ids[12 - i]);
    CHECK(found[i].characters == std::vector<ChatCharacter>{{"wren", 1}});
  }
  const auto newest = must(store->chats("ann", 2));
  REQUIRE(newest.size() == 2);
  CHECK(newest[1].id == ids[11]);
  CHECK(newest[1].characters.size() == 1);
}

TEST_CASE("a report keeps the messages when the chat is changed or deleted") {
  const Place place;
  auto store = place.open();
  const std::string id = new_chat(*store);
  must(store->append_turn("ann", id, 0, turn_of("Tell me", "No.")));
  const int64_t first = must(store->add_report("ann", {id, 0, 0, "wrong refusal", "It was harmless"}));
  CHECK(must(store->add_report("ann", {id, 0, 0, "bad reply", ""})) > first);
  CHECK(said(store->add_report("ann", {id, 0, 1, "bad reply", ""})).find("has no reply 1") != std::string::npos);
  CHECK(said(store->add_report("ann", {id, 1, 0, "bad reply", ""})).find("there is no 1") != std::string::npos);
  must(store->delete_chat("ann", id));
  CHECK(store->chat("ann", id).status().code() == StatusCode::kNotFound);
  const auto reports = must(store->reports());
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].kind == "wrong refusal");
  CHECK(reports[0].comment == "It was harmless");
  CHECK(reports[0].user_text == "Tell me");
  CHECK(reports[0].reply_text == "No.");
  CHECK(reports[0].speaker == ChatCharacter{"wren", 1});
  CHECK(reports[0].owner == "ann");
  CHECK(must(store->reports(first)).size() == 1);
  CHECK(must(store->reports(0, 1)).size() == 1);
}

TEST_CASE("what is too large or not sound is refused by name, and nothing of it is kept") {
  const Place place;
  auto store = place.open();
  const std::string id = new_chat(*store);
  CHECK(said(store->create_character("x", {"", "{}", "d", {}, ""})).find("name is empty") != std::string::npos);
  CHECK(said(store->create_character("x", {"\xFF", "{}", "d", {}, ""})).find("UTF-8") != std::string::npos);
  CHECK(said(store->create_character("x", {"X", "", "d", {}, ""})).find("card is empty") != std::string::npos);
  CHECK(said(store->create_character("x", {"X", "{}", "d", {}, std::string(kMaxStoredPictureBytes + 1, 'p')}))
            .find("picture has 16777217 bytes") != std::string::npos);
  CHECK(store->character("x").status().code() == StatusCode::kNotFound);

  CHECK(said(store->append_turn("ann", id, 0, turn_of(std::string(kMaxStoredTextBytes + 1, 'u'), "r")))
            .find("user's message has") != std::string::npos);
  CHECK(
      said(store->append_turn("ann", id, 0, turn_of("u", "r", "rook"))).find("'rook' is not a character of the chat") !=
      std::string::npos);
  Turn wrong = turn_of("u", "r");
  wrong.chosen = 1;
  CHECK(said(store->append_turn("ann", id, 0, wrong)).find("cannot be the chosen one") != std::string::npos);
  Turn many = turn_of("u", "r");
  many.replies.assign(kMaxRepliesPerTurn, reply_of("r"));
  must(store->append_turn("ann", id, 0, many));
  CHECK(said(store->add_reply("ann", id, 0, reply_of("r"))).find("the most there can be") != std::string::npos);
  CHECK(said(store->set_title("ann", id, std::string("a\0b", 3))).find("without NUL") != std::string::npos);
  CHECK(must(store->chat("ann", id)).turns.size() == 1);
}

TEST_CASE("two programs that open a new store at once both can") {
  for (int round = 0; round < (postgres().empty() ? 50 : 5); ++round) {
    const Place place;
    std::vector<std::thread> threads;
    std::vector<Status> statuses(4);
    for (size_t i = 0; i < statuses.size(); ++i)
      threads.emplace_back([&, i] { statuses[i] = place.try_open().status(); });
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) must(status);
  }
}

TEST_CASE("times are written as RFC 3339") {
  CHECK(time_text(0) == "1970-01-01T00:00:00.000Z");
  CHECK(time_text(1'764'360'900'123) == "2025-11-28T20:15:00.123Z");
  CHECK(time_text(-1) == "1969-12-31T23:59:59.999Z");
}
