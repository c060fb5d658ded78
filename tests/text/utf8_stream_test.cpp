// UTF-8 from bytes that arrive in any pieces.
#include "kaiju/text/utf8_stream.hpp"

#include <random>
#include <string>
#include <vector>

#include "catch.hpp"

using namespace kaiju;

namespace {

std::string whole(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

std::string encode(uint32_t c) {
  const auto tail = [](uint32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | (c >> 6)), tail(c)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | (c >> 12)), tail(c >> 6), tail(c)};
  return {static_cast<char>(0xF0 | (c >> 18)), tail(c >> 12), tail(c >> 6), tail(c)};
}

const std::string kBad = std::string(kReplacementCharacter);

}  // namespace

TEST_CASE("every code point passes, whole and byte by byte") {
  Utf8Stream stream;
  std::string out;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    const std::string bytes = encode(c);
    out.clear();
    for (size_t i = 0; i < bytes.size(); ++i) {
      stream.push(bytes.substr(i, 1), out);
      if (out.empty() != (i + 1 < bytes.size())) FAIL("code point " << c << " came out too early or too late");
    }
    if (out != bytes || !is_utf8(bytes)) FAIL("code point " << c);
  }
}

TEST_CASE("an incomplete code point is held back and becomes U+FFFD at the end") {
  Utf8Stream stream;
  std::string out;
  stream.push("a\xF0\x9F\x98", out);
  CHECK(out == "a");
  CHECK(stream.held_bytes() == 3);
  stream.finish(out);
  CHECK(out == "a" + kBad);
  stream.finish(out);
  CHECK(out == "a" + kBad);
}

TEST_CASE("invalid bytes become U+FFFD by maximal subparts") {
  CHECK(whole("\x80") == kBad);
  CHECK(whole("\xFF\xFE") == kBad + kBad);
  CHECK(whole("\xC0\xAF") == kBad + kBad);                        // overlong
  CHECK(whole("\xE0\x9F\xBF") == kBad + kBad + kBad);             // overlong
  CHECK(whole("\xED\xA0\x80") == kBad + kBad + kBad);             // surrogate
  CHECK(whole("\xF4\x90\x80\x80") == kBad + kBad + kBad + kBad);  // beyond U+10FFFF
  CHECK(whole("\xF0\x9F\x98z") == kBad + "z");
  CHECK(whole("\xE2\x82\xE2\x82\xAC") == kBad + "\xE2\x82\xAC");
  // Unicode 15, table 3-11.
  CHECK(whole("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == kBad + kBad + kBad + kBad + "A");
}

TEST_CASE("the text does not depend on how the bytes were cut, and is always UTF-8") {
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (size_t i = 0, count = random() % 12; i < count; ++i) {
      const char choices[] = {'a',    '\x80', '\xBF', '\xC3', '\xE2', '\xED',
                              '\xA0', '\xF0', '\x9F', '\xF4', '\x90', '\xFF'};
      bytes += choices[random() % sizeof choices];
    }
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + random() % 3;
      stream.push(std::string_view(bytes).substr(at, size), out);
      if (!is_utf8(out)) FAIL("round " << round);
      at += size;
    }
    stream.finish(out);
    if (out != whole(bytes) || !is_utf8(out)) FAIL("round " << round);
  }
}
