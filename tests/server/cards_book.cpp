// The character book: what is always there, what a recent text brings in, and in which order.
#include "cards_make.hpp"

using namespace kaiju;
using namespace kaiju::server;
using namespace kaiju::server::test;

namespace {

// The contents of the entries that `recent` triggers, "a|b".
std::string triggered(const Card& card, const std::string& recent) {
  std::string all;
  for (const BookEntry* entry : triggered_entries(card, recent)) all += (all.empty() ? "" : "|") + entry->content;
  return all;
}

Card one_entry(json more) {
  json entry = {{"keys", {"cat"}}, {"content", "found"}};
  if (!more.is_null()) entry.update(more);
  return must_read(with_book({entry}));
}

}  // namespace

TEST_CASE("constant entries end the description, by order; keyed ones wait for their key") {
  const Card card =
      must_read(with_book({{{"keys", {"z"}}, {"content", "C2"}, {"constant", true}, {"insertion_order", 20}},
                           {{"keys", {"key"}}, {"content", "K2 {{user}}"}, {"insertion_order", 9}},
                           {{"keys", {"key"}}, {"content", "K1 {{char}}"}, {"insertion_order", 8.0}},
                           {{"keys", json::array()}, {"content", "C1"}, {"constant", true}, {"insertion_order", 10}},
                           {{"keys", {"key"}}, {"content", "off"}, {"enabled", false}}}));
  CHECK(card.description.ends_with("Wren: Rain.\n\nC1\n\nC2"));
  CHECK(card.description.find("K1") == std::string::npos);
  CHECK(triggered(card, "the KEY turns") == "K1 Wren|K2 the user");
  CHECK(triggered(card, "nothing") == "");
  CHECK(volatile_text(card, "the key turns") == "K1 Wren\n\nK2 the user");
  CHECK(has_note(card, "Constant: 2 entries of the character book placed at the description's end"));
  CHECK(has_note(card, "With keys: 2 entries of the character book placed before the newest message"));
  CHECK(has_note(card, "Disabled: 1 entry"));
}

TEST_CASE("keys are whole words in any case, unless the entry says otherwise") {
  const Card card = one_entry({});
  for (const char* text : {"cat", "a CAT.", "(Cat)", "cat\n", "my-cat's",
                           "\xE2\x80\x9C"
                           "cat\xE2\x80\x9D"}) {
    INFO(text);
    CHECK(triggered(card, text) == "found");
  }
  for (const char* text : {"", "concatenate", "cats", "cat_", "cat9",
                           "\xC3\xA9"
                           "cat",
                           "ca t"}) {
    INFO(text);
    CHECK(triggered(card, text) == "");
  }
  CHECK(triggered(one_entry({{"extensions", {{"match_whole_words", false}}}}), "concatenate") == "found");
  CHECK(triggered(one_entry({{"case_sensitive", true}}), "Cat") == "");
  CHECK(triggered(one_entry({{"case_sensitive", true}}), "cat") == "found");
  CHECK(triggered(one_entry({{"extensions", {{"case_sensitive", true}}}}), "Cat") == "");
}

TEST_CASE("keys of other scripts are found: without case where it exists, within words where none are written") {
  CHECK(triggered(one_entry({{"keys", {"\xC3\x89T\xC3\x89"}}}), "l'\xC3\xA9t\xC3\xA9 vient") == "found");  // summer
  CHECK(triggered(one_entry({{"keys", {"\xD0\x9C\xD0\x98\xD0\xA0"}}}), "\xD0\xBC\xD0\xB8\xD1\x80!") ==
        "found");  // Cyrillic
  CHECK(triggered(one_entry({{"keys", {"\xD0\xBC\xD0\xB8\xD1\x80"}}}), "\xD0\xBC\xD0\xB8\xD1\x80\xD1\x8B") ==
        "");  // longer
  CHECK(triggered(one_entry({{"keys", {"\xE7\x8C\xAB"}}}), "\xE9\xBB\x92\xE7\x8C\xAB\xE3\x81\x8C") ==
        "found");  // Japanese
  CHECK(triggered(one_entry({{"keys", {"cat", "two words"}}}), "my two words") == "found");
  CHECK(triggered(one_entry({{"keys", {"{{user}}"}}}), "hello the user") == "found");
  CHECK(triggered(one_entry({{"keys", {"c++"}}}), "in c++20") == "found");
}

TEST_CASE("secondary keys narrow an entry as their logic says") {
  const auto with = [](int logic) {
    return one_entry(
        {{"selective", true}, {"secondary_keys", {"red", "blue"}}, {"extensions", {{"selectiveLogic", logic}}}});
  };
  const std::string none = "cat", some = "red cat", all = "red and blue cat";
  CHECK(triggered(with(0), none) == "");
  CHECK(triggered(with(0), some) == "found");
  CHECK(triggered(with(1), some) == "found");  // not all
  CHECK(triggered(with(1), all) == "");
  CHECK(triggered(with(2), none) == "found");  // not any
  CHECK(triggered(with(2), some) == "");
  CHECK(triggered(with(3), some) == "");
  CHECK(triggered(with(3), all) == "found");
  CHECK(triggered(with(3), "red and blue") == "");                              // the keys come first
  CHECK(triggered(one_entry({{"secondary_keys", {"red"}}}), none) == "found");  // not selective: they are ignored
}

TEST_CASE("positions, expressions, chances and recursion that are not followed are said") {
  const Card card = must_read(
      with_book({{{"keys", {"/cat|dog/i", "bird"}}, {"content", "one"}, {"position", "after_char"}},
                 {{"keys", {"a.c"}}, {"use_regex", true}, {"content", "two"}},
                 {{"keys", {"x"}},
                  {"content", "three"},
                  {"extensions", {{"position", 4}, {"depth", 2}, {"probability", 50}, {"useProbability", true}}}},
                 {{"keys", {"x"}}, {"content", " "}}}));
  CHECK(has_note(card, "Other positions or depths: 2 entries"));
  CHECK(has_note(card, "2 keys that are regular expressions were left out"));
  CHECK(has_note(card, "Probability, sticky, cooldown, delay: 1 entry"));
  CHECK(has_note(card, "Without a usable key: 1 entry"));
  CHECK(has_note(card, "Without content: 1 entry"));
  REQUIRE(card.book.size() == 3);
  CHECK(card.book[2].position == "at a depth");
  CHECK(card.book[2].depth == 2);
  CHECK(triggered(card, "cat") == "");
  CHECK(triggered(card, "bird") == "one");
}

TEST_CASE("V3's decorators are read and taken off the content") {
  const Card card = must_read(with_book({{{"keys", {"k"}}, {"content", "@@depth 3\n@@unheard of\nText"}},
                                         {{"keys", {"k"}}, {"content", "@@constant\nAlways"}},
                                         {{"keys", {"k"}}, {"content", "@@dont_activate\nNever"}}}));
  CHECK(triggered(card, "k") == "Text");
  CHECK(card.book[0].depth == 3);
  CHECK(card.description.ends_with("\n\nAlways"));
  CHECK(has_note(card, "1 decorators"));
}

TEST_CASE("triggered text, the author's note and the instructions come in this order") {
  json fields = v1();
  fields["post_history_instructions"] = "last";
  fields["extensions"] = {{"depth_prompt", {{"prompt", "note"}}}};
  fields["character_book"] = {{"entries", {{{"keys", {"k"}}, {"content", "entry"}}}}};
  const Card card = must_read(in_data(fields, "chara_card_v2").dump());
  CHECK(volatile_text(card, "k") == "entry\n\nnote\n\nlast");
  CHECK(volatile_text(card, "") == "note\n\nlast");
  CHECK(volatile_text(must_read(v1().dump()), "k") == "");
}
