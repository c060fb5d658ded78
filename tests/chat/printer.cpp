// What reaches a terminal: whole UTF-8 characters, however the text comes.
#include "examples/chat/printer.hpp"

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "examples/chat/utf8.hpp"

namespace {

// Everything that was written at once.
struct Writes {
  std::vector<std::string> all;
  std::FILE* stream = nullptr;

  Writes() {
    cookie_io_functions_t functions{};
    functions.write = [](void* self, const char* bytes, size_t size) -> ssize_t {
      static_cast<Writes*>(self)->all.emplace_back(bytes, size);
      return static_cast<ssize_t>(size);
    };
    stream = fopencookie(this, "w", functions);
  }
  ~Writes() { std::fclose(stream); }
  Writes(const Writes&) = delete;

  std::string joined() const {
    std::string text;
    for (const std::string& each : all) text += each;
    return text;
  }
};

const std::string kText =
    "Gr\xC3\xBC\xC3\x9F, \xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E \xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD "
    "e\xCC\x81 caf\xC3\xA9\n\xEF\xBF\xBD!";

}  // namespace

TEST_CASE("text that comes in pieces of any size is written in whole characters") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int time = 0; time < 200; ++time) {
    std::string text;
    while (text.size() < (time % 10 == 0 ? 9000u : 60u)) text += kText;
    Writes writes;
    chat::Printer printer(false, false, writes.stream);
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % (time % 2 == 0 ? 4 : 5000);
      printer.print(text.substr(at, size));
      at += size;
    }
    printer.end_line();
    for (const std::string& each : writes.all) CHECK(chat::utf8_error(each) == std::string::npos);
    CHECK(writes.joined() == text + "\n");
  }
}

TEST_CASE("bytes that are no character are written as U+FFFD, and half a character at the end of a line too") {
  const auto printed = [](const std::vector<std::string>& pieces) {
    Writes writes;
    chat::Printer printer(false, false, writes.stream);
    for (const std::string& piece : pieces) printer.print(piece);
    printer.end_line();
    return writes.joined();
  };
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(printed({"a\xFF"
                 "b"}) == "a" + bad + "b\n");
  CHECK(printed({"a\xC3"}) == "a" + bad + "\n");
  CHECK(printed({"\xF0\x9F", "\x98", "x"}) == bad + bad + bad + "x\n");
  CHECK(printed({"\xF0\x9F", "\x98", "\x80"}) == "\xF0\x9F\x98\x80\n");
  CHECK(printed({"\xED", "\xA0\x80"}) == bad + bad + bad + "\n");
  CHECK(printed({"\x1b[31m\x07red\x9B"}) == "[31mred" + bad + "\n");
}
