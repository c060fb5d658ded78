// Stop strings in streamed text.
#include "kaiju/sample/detail/stop.hpp"

#include <random>
#include <string>
#include <vector>

#include "catch.hpp"

using namespace kaiju;

namespace {

struct Outcome {
  std::string text;
  bool stopped;
  bool operator==(const Outcome&) const = default;
};

// The meaning, on the whole text: of the matches that end first, the longest; the text ends where it begins.
Outcome naive(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t start = end;
    for (const std::string& stop : stops)
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        start = std::min(start, end - stop.size());
    if (start < end) return {text.substr(0, start), true};
  }
  return {text, false};
}

}  // namespace

TEST_CASE("only text that could become a stop string is held back") {
  StopMatcher matcher({"\nUser:"});
  std::string out;
  CHECK_FALSE(matcher.push("Hello", out));
  CHECK(out == "Hello");
  CHECK_FALSE(matcher.push("\nUs", out));
  CHECK(out == "Hello");
  CHECK_FALSE(matcher.push("ually", out));
  CHECK(out == "Hello\nUsually");
  CHECK_FALSE(matcher.push("\n\nUser", out));
  CHECK(out == "Hello\nUsually\n");
  CHECK(matcher.push(": more", out));
  CHECK(out == "Hello\nUsually\n");
  CHECK(matcher.push("and more", out));
  matcher.finish(out);
  CHECK(out == "Hello\nUsually\n");
}

TEST_CASE("held back text is output at the end") {
  StopMatcher matcher({"STOP"});
  std::string out;
  matcher.push("now STO", out);
  CHECK(out == "now ");
  matcher.finish(out);
  CHECK(out == "now STO");
}

TEST_CASE("without stop strings text passes at once") {
  StopMatcher matcher;
  std::string out;
  CHECK_FALSE(matcher.push("anything", out));
  CHECK(out == "anything");
}

TEST_CASE("a self-overlapping stop string is found") {
  for (const std::string text : {"aab", "aaab", "aaaab", "abaabaab"}) {
    StopMatcher matcher({"aab"});
    std::string out;
    bool stopped = false;
    for (const char c : text) stopped = matcher.push(std::string(1, c), out);
    CHECK(stopped);
    CHECK(out == naive(text, {"aab"}).text);
  }
}

TEST_CASE("the result does not depend on how the text was cut") {
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&](size_t size, int letters) {
      std::string text;
      for (size_t i = 0; i < size; ++i) text += static_cast<char>('a' + random() % static_cast<uint32_t>(letters));
      return text;
    };
    std::vector<std::string> stops;
    for (size_t i = 0, count = 1 + random() % 3; i < count; ++i) stops.push_back(word(1 + random() % 6, 2));
    const std::string text = word(random() % 25, 2 + static_cast<int>(random() % 2));
    StopMatcher matcher(stops);
    std::string out;
    bool stopped = false;
    for (size_t at = 0; at < text.size() && !stopped;) {
      const size_t size = 1 + random() % 4;
      stopped = matcher.push(text.substr(at, size), out);
      at += size;
    }
    if (!stopped) matcher.finish(out);
    const Outcome expected = naive(text, stops);
    if (!(Outcome{out, stopped} == expected)) {
      INFO("round " << round << ": " << text);
      CHECK(out == expected.text);
      CHECK(stopped == expected.stopped);
      break;
    }
  }
}
