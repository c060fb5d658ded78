// A reply that goes in circles: what counts as one, and what is left of it.
#include "kaiju/sample/detail/loop_guard.hpp"

#include <string>
#include <vector>

#include "catch.hpp"
#include "kaiju/text/utf8_stream.hpp"

using namespace kaiju;

namespace {

std::string times(int count, const std::string& piece) {
  std::string text;
  for (int i = 0; i < count; ++i) text += piece;
  return text;
}

// What is left of it.
std::string kept(const std::string& text) { return text.substr(0, repeats_from(text, 4, 24)); }

// What comes out of a guard that is given the text in pieces of `size` bytes.
std::string guarded(const std::string& text, size_t size, bool& stopped) {
  LoopGuard guard;
  std::string out;
  for (size_t at = 0; at < text.size() && !guard.stopped(); at += size) guard.push(text.substr(at, size), out);
  stopped = guard.stopped();
  if (!stopped) guard.finish(out);
  return out;
}

}  // namespace

TEST_CASE("of a piece that is repeated four times at the end one is left, cut at the end of a word") {
  const std::pair<std::string, std::string> cases[] = {
      {"I like" + times(4, " apples"), "I like apples"},
      {times(4, "apples "), "apples"},
      {"my grapes," + times(4, " apes,"), "my grapes,"},
      {"xpples" + times(4, " apples"), "xpples apples"},
      {"Well, " + times(4, "we go on and on, and ") + "we go", "Well, we go on and on, and"},
      {"One." + times(4, "\nThe same line."), "One.\nThe same line."},
      {"Oh" + times(24, "!"), "Oh!"},
      {"so l" + times(24, "o"), "so lo"},
      {times(4, "日本語"), "日本語"},
      {"x" + times(6, "é") + times(12, "è"), "x" + times(6, "é") + "è"},
  };
  for (const auto& [text, left] : cases) {
    INFO(text);
    CHECK(kept(text) == left);
  }
}

TEST_CASE("ordinary repetition in a text is left unchanged") {
  for (const std::string& text : std::vector<std::string>{
           "", "a", "Ha ha ha ha!", "no, no, no, no", "It had had it, had it not?", "1000000000", "Hmmmmm...",
           "Wait........", times(3, "apples and pears, "),
           times(4, "A piece of more than eighty bytes, which is as long as a line on a terminal or two of them. "),
           times(4, "one apple ") + "too many"}) {
    INFO(text);
    CHECK(repeats_from(text, 4, 24) == std::string::npos);
  }
}

TEST_CASE("the result is always a prefix of the text and whole UTF-8") {
  uint32_t random = 1;
  const auto below = [&](uint32_t n) { return ((random = random * 1664525 + 1013904223) >> 16) % n; };
  const char* const letters[] = {"a", "b", " ", "\n", "é", "è", "日", "旤", "😀"};
  int found = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text, piece;
    for (uint32_t i = below(12); i > 0; --i) text += letters[below(9)];
    for (uint32_t i = 1 + below(4); i > 0; --i) piece += letters[below(9)];
    text += times(static_cast<int>(below(6)), piece);
    INFO(text);
    const size_t end = repeats_from(text, 2, 0);
    if (end == std::string::npos) continue;
    ++found;
    REQUIRE(end < text.size());
    REQUIRE(is_utf8(text.substr(0, end)));
  }
  CHECK(found > 5000);
}

TEST_CASE("a guard lets ordinary text through whole and ends a circle after little more than its first piece") {
  bool stopped = false;
  for (const size_t size : {1, 3, 7}) {
    const std::string plain = "It had had it, had it not? Ha ha ha! " + times(3, "one two ") + "three.";
    CHECK(guarded(plain, size, stopped) == plain);
    CHECK(!stopped);
    const std::string text = "I like" + times(20, " apples");
    const std::string out = guarded(text, size, stopped);
    INFO(out);
    CHECK(stopped);
    CHECK(out.size() <= std::string("I like apples apples").size());
    CHECK(text.substr(0, out.size()) == out);
  }
}
