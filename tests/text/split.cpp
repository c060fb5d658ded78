// Splits: what each takes for words, and that a text of any kind is looked at a bounded number of times.
#include "src/text/split.hpp"

#include <random>

#include "catch.hpp"

using namespace kaiju;

namespace {

using Words = std::vector<std::string>;

constexpr const char* kNames[] = {"gpt2", "smollm", "llama3", "qwen2", "tekken"};

Words words(std::string_view split, const std::string& text) {
  const Split* found = find_split(split);
  REQUIRE(found);
  std::vector<uint32_t> ends;
  split_words(*found, text, ends);
  Words out;
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    REQUIRE(end > begin);
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  REQUIRE(begin == text.size());
  return out;
}

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() + text.size() <= bytes) out += text;
  return out;
}

}  // namespace

TEST_CASE("the splits are known by name") {
  std::string names;
  for (const char* name : kNames) {
    CHECK(find_split(name)->name == name);
    names.append(names.empty() ? "" : ", ").append(name);
  }
  CHECK(split_names() == names);
  for (const char* name : {"", "llama", "llama3 ", "LLAMA3", " ?\\p{L}+|\\s+"}) CHECK_FALSE(find_split(name));
}

TEST_CASE("gpt2 puts one space before letters, numbers and punctuation") {
  CHECK(words("gpt2", "Hello  world 1234 5!?\n\n x") ==
        Words{"Hello", " ", " world", " 1234", " 5", "!?", "\n\n", " x"});
  CHECK(words("gpt2", "it's IT'S we'll '") == Words{"it", "'s", " IT", "'", "S", " we", "'ll", " '"});
  CHECK(words("gpt2", "a\n b\r\n") == Words{"a", "\n", " b", "\r\n"});
}

TEST_CASE("smollm cuts out each digit, and the white space before it whole") {
  CHECK(words("smollm", "a  12 3x  y") == Words{"a", "  ", "1", "2", " ", "3", "x", " ", " y"});
  CHECK(words("smollm", "\u00bd\u0663") == Words{"\u00bd", "\u0663"});
}

TEST_CASE("llama3 has numbers of three digits, and any character before letters") {
  CHECK(words("llama3", "x=12345 (foo)\tbar") == Words{"x", "=", "123", "45", " (", "foo", ")", "\tbar"});
  CHECK(words("llama3", "\"quoted\", (it'S)") == Words{"\"quoted", "\",", " (", "it", "'S", ")"});
  CHECK(words("llama3", "a!\r\n\n  b") == Words{"a", "!\r\n\n", " ", " b"});
  CHECK(words("llama3", "a \n \n  b") == Words{"a", " \n \n", " ", " b"});
  CHECK(words("llama3", "I'LLx he'\u017fx 'vE'ms 'xs") ==
        Words{"I", "'LL", "x", " he", "'\u017f", "x", " '", "vE", "'m", "s", " '", "xs"});
}

TEST_CASE("qwen2 is llama3 with each digit alone") {
  CHECK(words("qwen2", "x 12\n") == Words{"x", " ", "1", "2", "\n"});
}

TEST_CASE("tekken divides words before capital letters") {
  CHECK(words("tekken", "HTTPServer camelCase") == Words{"HTTPServer", " camel", "Case"});
  CHECK(words("tekken", "ABC abc XMLs X") == Words{"ABC", " abc", " XMLs", " X"});
  CHECK(words("tekken", "it's 12 a//\n/ b") == Words{"it", "'s", " ", "1", "2", " a", "//\n/", " b"});
  // Letters that are both cases, and marks: the last of them ends the word if no lower case follows.
  CHECK(words("tekken", "\u4f60AB") == Words{"\u4f60", "AB"});
  CHECK(words("tekken", "A\u0301BC") == Words{"A\u0301", "BC"});
  CHECK(words("tekken", "\u0301AB") == Words{"\u0301", "AB"});
  CHECK(words("tekken", "\u0301a\u0301") == Words{"\u0301a\u0301"});
}

TEST_CASE("white space is Unicode's: U+0085 is, U+180E is not") {
  for (const char* name : kNames) {
    INFO(name);
    CHECK(words(name, "\u2003\u3000") == Words{"\u2003\u3000"});
    CHECK(words(name, "1\u0085") == Words{"1", "\u0085"});
    CHECK(words(name, "!\u180e") == Words{"!\u180e"});
  }
}

TEST_CASE("words of any length are found whole") {
  for (const char* name : kNames)
    for (size_t length = 1; length < 300; length += 13) {
      const std::string letters = repeated("\u00e9", 2 * length), spaces(length, '\t');
      Words expected = {letters, "!"};
      if (length > 1) expected.push_back(spaces.substr(1));
      expected.insert(expected.end(), {"\t", "?"});
      CHECK(words(name, letters + "!" + spaces + "?") == expected);
    }
}

TEST_CASE("every text is divided into whole characters without a rest") {
  const unsigned seed = 5;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const char* const parts[] = {"'",      "s",          "LL",   " ",  "  ",     "\n",     "\r",     "\t",
                               "\u00a0", "a",          "B",    "1",  "\u00bd", "\u01c5", "\u02b0", "\u4f60",
                               "\u0301", "\U0001F600", "\x01", "//", "!",      "\u200d", "\u0378", "\u2028"};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (uint32_t count = 1 + random() % 12; count > 0; --count)
      text += repeated(parts[random() % std::size(parts)], 1 + random() % 6);
    for (const char* name : kNames)
      for (const std::string& word : words(name, text)) REQUIRE((word[0] & 0xC0) != 0x80);
  }
}

TEST_CASE("no text makes a split look at its characters more than eight times each") {
  std::mt19937 random(6);
  std::string mixed_space, capitals_between;
  for (int i = 0; i < 4096; ++i) mixed_space += " \t\n\r\v\f"[random() % 6];
  for (int i = 0; i < 4096; ++i) capitals_between += random() % 100 == 0 ? "\u4f60" : "A";
  const std::pair<const char*, std::string> kinds[] = {{"spaces", " "},
                                                       {"small letters", "a"},
                                                       {"capital letters", "A"},
                                                       {"letters of no case", "\u4f60"},
                                                       {"marks", "\u0301"},
                                                       {"digits", "1"},
                                                       {"newlines", "\n"},
                                                       {"carriage returns", "\r\n"},
                                                       {"apostrophes", "'"},
                                                       {"contractions", "'s"},
                                                       {"punctuation", "!"},
                                                       {"slashes and newlines", "/\n"},
                                                       {"spaces and newlines", "   \n"},
                                                       {"mixed white space", mixed_space},
                                                       {"white space of many bytes", "\u3000\u2028"},
                                                       {"a letter between spaces", " a  "},
                                                       {"a digit between spaces", "  1 "},
                                                       {"a mark before capital letters", "\u0301AAAAAAAAAAAAAAA"},
                                                       {"capital letters and others", capitals_between},
                                                       {"what nothing is assigned to", "\u0378"}};
  for (const auto& [kind, part] : kinds)
    for (const char* last : {"", "x", "X", " ", "\n", "1", "!", "\u0301"})
      for (const size_t bytes : {size_t{1} << 13, size_t{1} << 20}) {  // the short text stops a square before the long
        if (bytes > (1 << 13) && last[0] != 'x') continue;
        const std::string text = repeated(part, bytes - 2) + last;
        for (const char* name : kNames) {
          std::vector<uint32_t> ends;
          const size_t looked = split_words(*find_split(name), text, ends);
          INFO(name << ", " << kind << " before '" << last << "'");
          REQUIRE(looked <= 8 * text.size());
        }
      }
}
