// Cards: every form gives the same character; what is placed where; what is refused with the field's name.
#include "cards_make.hpp"
#include "examples/server/cards/card.hpp"

using namespace kaiju;
using namespace kaiju::server;
using namespace kaiju::server::test;

namespace {

// What v1() means.
const char* const kDescription =
    "Wren is a hedge witch.\n\nWren's personality: kind, wary\n\nScenario: the user meets Wren on a road.\n\n"
    "Examples of how Wren speaks:\nthe user: Hi\nWren: Hm.\n\nWren: Rain.";

}  // namespace

TEST_CASE("our own JSON, the text form, V1, V2 and V3 give the same character, bytes and digest") {
  json own = {
      {"name", "Wren"},
      {"greeting", "Hello, {{user}}."},
      {"description",
       "{{char}} is a hedge witch.\n\n{{char}}'s personality: kind, wary\n\nScenario: {{user}} meets {{char}} on "
       "a road.\n\nExamples of how {{char}} speaks:\n{{user}}: Hi\n{{char}}: Hm.\n\n{{char}}: Rain."}};
  const Card wanted = must_read(own.dump());
  CHECK(wanted.description == kDescription);
  CHECK(wanted.greeting == "Hello, the user.");
  CHECK(wanted.digest.size() == 32);
  const std::string text = "name: Wren\ngreeting: Hello, {{user}}.\n\n" + own["description"].get<std::string>() + "\n";
  for (const std::string& form :
       {own.dump(4), "\xEF\xBB\xBF" + own.dump(), "  \r\n" + own.dump(), text, v1().dump(),
        in_data(v1(), "chara_card_v2").dump(), in_data(v1(), "chara_card_v3").dump(),
        png(text_chunk("chara", v1().dump())), png(text_chunk("ccv3", in_data(v1(), "chara_card_v3").dump()))}) {
    INFO(form);
    const Card card = must_read(form);
    CHECK(card.name == "Wren");
    CHECK(card.description == kDescription);
    CHECK(card.greeting == wanted.greeting);
    CHECK(card.canonical == wanted.canonical);
    CHECK(card.digest == wanted.digest);
  }
}

TEST_CASE("canonical bytes are a card that gives the same card and the same bytes") {
  json fields = v1();
  fields["name"] = "Caf\xC3\xA9 \"Wren\"";
  fields["nickname"] = "Birdie";
  fields["alternate_greetings"] = {"Two", "Three {{char}}"};
  fields["tags"] = {"witch", "cosy", "witch"};
  fields["creator"] = "somebody";
  fields["creator_notes"] = "for people";
  fields["character_version"] = "1.2";
  fields["post_history_instructions"] = "Stay brief. {{original}}";
  fields["extensions"] = {{"depth_prompt", {{"prompt", "It rains."}, {"depth", 4}, {"role", "system"}}}};
  fields["character_book"] = {
      {"scan_depth", 3},
      {"token_budget", 500},
      {"entries",
       {{{"keys", {"b", "a"}},
         {"content", "second"},
         {"insertion_order", 2},
         {"enabled", true},
         {"selective", true},
         {"secondary_keys", {"y", "x"}},
         {"extensions", {{"selectiveLogic", 3}, {"match_whole_words", false}}}},
        {{"keys", json::array()}, {"content", "always"}, {"constant", true}, {"insertion_order", 1}},
        {{"keys", {"c"}}, {"content", "off"}, {"enabled", false}, {"position", "after_char"}}}}};
  const Card card = must_read(in_data(fields, "chara_card_v2").dump());
  const Card again = must_read(card.canonical);
  CHECK(again.canonical == card.canonical);
  CHECK(again.digest == card.digest);
  CHECK(again.description == card.description);
  CHECK(again.greeting == card.greeting);
  CHECK(again.alternate_greetings == card.alternate_greetings);
  CHECK(again.alternate_greetings[1] == "Three Birdie");
  CHECK(again.tags == std::vector<std::string>{"cosy", "witch"});
  CHECK(again.author_note == "It rains.");
  CHECK(again.post_history_instructions == "Stay brief.");
  CHECK(again.creator == "somebody");
  CHECK(again.creator_notes == "for people");
  CHECK(again.character_version == "1.2");
  CHECK(again.scan_depth == 3);
  CHECK(again.token_budget == 500);
  REQUIRE(again.book.size() == 3);
  CHECK(again.book[0].content == "always");
  CHECK(again.book[1].keys == std::vector<std::string>{"a", "b"});
  CHECK(again.book[1].secondary_keys == std::vector<std::string>{"x", "y"});
  CHECK(again.book[1].secondary == Secondary::kAll);
  CHECK_FALSE(again.book[1].whole_words);
  CHECK_FALSE(again.book[2].enabled);
  CHECK(again.book[2].position == "after_char");
  CHECK(again.description.ends_with("Birdie: Rain.\n\nalways"));
}

TEST_CASE("white space, order of fields and of sets do not change the digest; a word does") {
  const Card one = must_read(R"({"name":"A","description":"one\ntwo","tags":["x","y"]})");
  CHECK(must_read("{ \"tags\": [\"y\", \"x\", \"x\"], \"description\": \"one  \\r\\ntwo \\n\\n\", \"name\": \" A \" }")
            .digest == one.digest);
  CHECK(must_read(R"({"name":"A","description":"one\ntwo!","tags":["x","y"]})").digest != one.digest);
  CHECK(must_read(R"({"name":"A","description":"one two","tags":["x","y"]})").digest != one.digest);
}

TEST_CASE("the user's name is for what is said, and leaves the shared description and the digest alone") {
  const Card shared = must_read(v1().dump()), ann = must_read(v1().dump(), {"Ann", "the user"});
  CHECK(ann.greeting == "Hello, Ann.");
  CHECK(ann.description == shared.description);
  CHECK(ann.digest == shared.digest);
  CHECK(has_note(ann, "In the description {{user}} is read as \"the user\""));
  CHECK(must_read(v1().dump(), {"Ann", "Ann"}).description.find("Scenario: Ann meets Wren") != std::string::npos);
  CHECK(refusal(v1().dump(), {std::string(101, 'x'), "the user"}).find("from 1 to 100 bytes") != std::string::npos);
  CHECK(refusal(v1().dump(), {"", "the user"}).find("from 1 to 100 bytes") != std::string::npos);
}

TEST_CASE("macros: names in any spelling, comments go, choices are settled, unknown ones stay and are said") {
  const auto described = [](const std::string& text) {
    return must_read(json{{"name", "Wren"}, {"description", text}}.dump());
  };
  CHECK(described("{{Char}} {{ USER }} <BOT> <user>").description == "Wren the user Wren the user");
  CHECK(described("a{{// a note}}b{{comment: c}}c").description == "abc");
  CHECK(described("a{{newline}}b").description == "a\nb");
  const Card chosen = described("{{random:{{char}},b}} {{pick::x::y}}");
  CHECK(chosen.description == "Wren x");
  CHECK(has_note(chosen, "random choices in description"));
  const Card unknown = described("roll {{roll:d20}} {{char");
  CHECK(unknown.description == "roll {{roll:d20}} {{char");
  CHECK(has_note(unknown, "A macro in description is not known"));
  CHECK(described("{{{char}}}").description == "{Wren}");
  CHECK(described("{{user}}{{user}}}}").description == "the userthe user}}");
  // What a removal brings together is settled too, or the canonical bytes would mean something else.
  CHECK(described("{{ne{{//}}wline}}x").description == "x");
  CHECK(must_read(json{{"name", "{{user}}"}, {"description", "{{char}}"}}.dump()).description == "{{user}}");
}

TEST_CASE("V2's system prompt begins the description, and instructions go before the newest message") {
  json fields = v1();
  fields["system_prompt"] = "Write as {{char}}. {{original}}";
  fields["post_history_instructions"] = "No lists.";
  const Card card = must_read(in_data(fields, "chara_card_v2").dump());
  CHECK(card.description == std::string("Write as Wren.\n\n") + kDescription);
  CHECK(card.description.find("No lists") == std::string::npos);
  CHECK(volatile_text(card, "anything") == "No lists.");
  CHECK(has_note(card, "data.post_history_instructions is placed before the newest message"));
  CHECK(has_note(card, "Added to the end of the description: personality, scenario, mes_example."));
}

TEST_CASE("an author's note goes before the newest message, whatever depth it asks for") {
  json fields = v1();
  fields["extensions"] = {{"depth_prompt", {{"prompt", "{{user}} is tired."}, {"depth", 4}}},
                          {"world", "Elsewhere"},
                          {"talkativeness", "0.5"}};
  const Card card = must_read(in_data(fields, "chara_card_v3").dump(), {"Ann", "the user"});
  CHECK(card.author_note == "Ann is tired.");
  CHECK(volatile_text(card, "") == "Ann is tired.");
  CHECK(has_note(card, "asks for depth 4"));
  CHECK(has_note(card, "world book outside the card"));
}

TEST_CASE("what Tavern has and we do not is left out and said") {
  json fields = v1();
  fields["group_only_greetings"] = {"Hi all"};
  fields["assets"] = {{{"type", "icon"}, {"uri", "ccdefault:"}}};
  const Card card = must_read(in_data(fields, "chara_card_v3").dump());
  CHECK(has_note(card, "Left out: data.group_only_greetings, data.assets."));
}

TEST_CASE("control characters are removed and counted") {
  const Card card = must_read(R"({"name":"A\u0007","description":"a\u0000b\u001b[31m\tc"})");
  CHECK(card.name == "A");
  CHECK(card.description == "ab[31m\tc");
  CHECK(has_note(card, "2 control characters of description were removed"));
}

TEST_CASE("suggestions come with our own cards, in JSON and in text") {
  const Card own =
      must_read(R"({"name":"A","description":"d","first_question":"One?","suggestions":["Two?","Three?"]})");
  CHECK(own.suggestions == std::vector<std::string>{"One?", "Two?", "Three?"});
  CHECK(must_read("name: A\nask: One?\nask: Two?\nask: Three?\n\nd\n").canonical == own.canonical);
}

TEST_CASE("a name gives an id that an address can have") {
  CHECK(slug_of("Wren Applegarth") == "wren-applegarth");
  CHECK(slug_of("  D'Artagnan -- the 3rd! ") == "dartagnan-the-3rd");
  CHECK(slug_of("../../etc") == "etc");
  CHECK(slug_of("\xE9\x9B\xAA") == "character");
  CHECK(slug_of("") == "character");
  CHECK(slug_of(std::string(500, 'a')).size() == 40);
}
