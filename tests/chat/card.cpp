// Character cards: what parse_card takes, and what it refuses with file and line.
#include "examples/chat/card.hpp"

#include "catch.hpp"
#include "examples/chat/owned.hpp"

namespace {

struct BadCard {
  const char* name;
  std::string text;
  std::string says;  // the message, or its beginning
};

const std::vector<BadCard>& bad_cards() {
  static const std::vector<BadCard> all = {
      {"no text", "", "x.card:1: the card is empty"},
      {"white space", " \t\r\n\n  ", "x.card:1: the card is empty"},
      {"only a byte order mark", "\xEF\xBB\xBF", "x.card:1: "},
      {"an empty first line", "\nname: A\n\nd\n", "x.card:1: the card must begin"},
      {"a description first", "the world\n", "x.card:1: expected"},
      {"a description right after the name", "name: A\nthe world\n", "x.card:2: expected"},
      {"a heading of another language", "Name A\n\nd\n", "x.card:1: expected"},
      {"an unknown key", "name: A\nage: 5\n\nd\n", "x.card:2: expected"},
      {"an empty key", ": A\n\nd\n", "x.card:1: expected"},
      {"a key with a space in it", "na me: A\n\nd\n", "x.card:1: expected"},
      {"no name", "greeting: hi\n\nd\n", "x.card:1: the name is missing"},
      {"a name of nothing", "name:\n\nd\n", "x.card:1: 'name:' has nothing"},
      {"a name of spaces", "name:  \t \n\nd\n", "x.card:1: 'name:' has nothing"},
      {"a greeting of nothing", "name: A\ngreeting:\n\nd\n", "x.card:2: 'greeting:' has nothing"},
      {"two names", "name: A\nname: B\n\nd\n", "x.card:2: a second 'name:'"},
      {"two greetings", "name: A\ngreeting: a\ngreeting: b\n\nd\n", "x.card:3: a second 'greeting:'"},
      {"nine questions",
       "name: A\n" + std::string("ask: a\nask: b\nask: c\nask: d\nask: e\nask: f\nask: g\nask: h\nask: i\n") + "\nd\n",
       "x.card:10: more than 8 lines 'ask: ...'"},
      {"a question of nothing", "name: A\nask: \n\nd\n", "x.card:2: 'ask:' has nothing"},
      {"two names in other letters", "name: A\nNAME: B\n\nd\n", "x.card:2: a second 'name:'"},
      {"a name of 101 bytes", "name: " + std::string(101, 'x') + "\n\nd\n",
       "x.card:1: the name is longer than 100 bytes"},
      {"no description", "name: A\n", "x.card:1: the description is missing"},
      {"no description after the empty line", "name: A\n\n", "x.card:2: the description is missing"},
      {"a description of white space", "name: A\n\n \n\t\n", "x.card:4: the description is missing"},
      {"a name that is not UTF-8", "name: \xFF\n\nd\n", "x.card:1: not UTF-8 at byte 7"},
      {"a greeting in Latin-1", "name: A\ngreeting: caf\xE9\n\nd\n", "x.card:2: not UTF-8 at byte 14"},
      {"a description that is not UTF-8", "name: A\n\nthe w\xFFrld\n", "x.card:3: not UTF-8 at byte 6"},
      {"a surrogate", "name: A\n\n\xED\xA0\x80\n", "x.card:3: not UTF-8 at byte 1"},
      {"a character cut at the end of the file", "name: A\n\n\xE4\xBD", "x.card:3: not UTF-8 at byte 1"},
      {"UTF-16", std::string("\xFF\xFEn\0a\0m\0e\0", 10), "x.card:1: not UTF-8 at byte 1"},
      {"a NUL in the name", std::string("name: A\0B\n\nd\n", 13), "x.card:1: a control character (code 0)"},
      {"a NUL in the description", std::string("name: A\n\nd\0\n", 12), "x.card:3: a control character (code 0)"},
      {"escapes of a terminal", "name: A\n\n\033[31mred\n", "x.card:3: a control character (code 27)"},
      {"a bell", "name: \007\n\nd\n", "x.card:1: a control character (code 7)"},
      {"a carriage return inside a line", "name: A\rB\n\nd\n", "x.card:1: a control character (code 13)"},
      {"a form feed", "name: A\n\n\f\n", "x.card:3: a control character (code 12)"},
      {"a delete character", "name: A\x7F\n\nd\n", "x.card:1: a control character (code 127)"},
      {"a key of a megabyte", std::string(1 << 20, 'k'), "x.card:1: expected"},
  };
  return all;
}

}  // namespace

TEST_CASE("a malformed card is refused with file and line", "[malformed]") {
  for (const BadCard& c : bad_cards()) DYNAMIC_SECTION(c.name) {
      std::string message = "it was taken";
      try {
        (void)chat::parse_card(c.text, "x.card");
      } catch (const chat::Problem& problem) {
        message = problem.what();
      }
      INFO(message);
      CHECK(message.starts_with(c.says));
      CHECK(message.size() < 200);
    }
}

TEST_CASE("unusual but valid cards are accepted") {
  const auto card = chat::parse_card(
      "\xEF\xBB\xBF Name : \xC3\x89lise \r\nGREETING:a: b\r\n \t\r\n\tone\r\n\r\nname: not a key here\r\n", "x.card");
  CHECK(card.name == "\xC3\x89lise");
  CHECK(card.greeting == "a: b");
  CHECK(card.description == "one\n\nname: not a key here");
}

TEST_CASE("a card may have questions to begin with, anywhere in its header") {
  const auto card =
      chat::parse_card("ask: Who?\nname: A\nAsk:Where: here?\ngreeting: g\nask: Why?\n\nask: d\n", "x.card");
  CHECK(card.asks == std::vector<std::string>{"Who?", "Where: here?", "Why?"});
  CHECK(card.description == "ask: d");
  CHECK(chat::parse_card("name: A\n\nd\n", "x.card").asks.empty());
}

TEST_CASE("every truncation of a card is refused or is a shorter card") {
  const std::string whole =
      "name: \xC3\x89lise\ngreeting: \xE2\x80\x9Chello\xE2\x80\x9D\n\nShe is a glass-blower.\nShe hums.\n";
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    try {
      const auto card = chat::parse_card(whole.substr(0, size), "x.card");
      CHECK(card.name == "\xC3\x89lise");
      CHECK(whole.find(card.description) != std::string::npos);
    } catch (const chat::Problem& problem) {
      CHECK(std::string(problem.what()).starts_with("x.card:"));
    }
  }
}
