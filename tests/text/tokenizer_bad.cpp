// Damaged tokenizers and hostile text: refused by name, nothing crashes.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "catch.hpp"
#include "tests/text/tiny_tokenizer.hpp"
#include "tests/text/trained_tokenizer.hpp"

using namespace kaiju;
using namespace kaiju::tests;

namespace {

// The refusal names what is wrong.
void refuse(const std::string& bytes, const std::string& what, int32_t vocab_size = kTinyVocabulary) {
  const auto tokenizer = load(bytes, vocab_size);
  REQUIRE_FALSE(tokenizer.ok());
  CHECK(tokenizer.status().code() == StatusCode::kBadModel);
  INFO(tokenizer.status().message());
  CHECK(tokenizer.status().message().find(what) != std::string::npos);
}

template <class Change>
std::string changed(const Change& change) {
  auto tiny = tiny_model();
  change(tiny);
  return tiny.bytes();
}

// One unit of a Darts-clone array.
uint32_t unit(uint32_t label, uint32_t offset, bool leaf = false) { return label | offset << 10 | (leaf ? 0x100u : 0); }

// A charsmap whose trie replaces "a" by the first string.
struct Charsmap {
  std::vector<uint32_t> units = std::vector<uint32_t>(512, 0);
  std::string strings = std::string("b\0", 2);
  uint32_t trie_bytes = 512 * 4;

  Charsmap() {
    units[0] = unit(0, 256);  // children at 256 ^ label
    units[256 ^ 'a'] = unit('a', 64, true);
    units[(256 ^ 'a') ^ 64] = 0x80000000u | 0;  // value: offset of the string
  }
  std::string bytes() const {
    std::string out(4 + units.size() * 4, '\0');
    std::memcpy(out.data(), &trie_bytes, 4);
    std::memcpy(out.data() + 4, units.data(), units.size() * 4);
    return out + strings;
  }
};

std::string with_charsmap(const Charsmap& charsmap) {
  const std::string bytes = charsmap.bytes();
  return changed([&](TinyModel& tiny) { tiny.model.charsmap = bytes; });
}

// Unchecked protobuf bytes behind a sound model.
std::string with_tail(const std::string& tail) { return tiny_model().bytes() + tail; }

}  // namespace

TEST_CASE("an empty tokenizer is refused", "[malformed]") { refuse("", "no pieces"); }
TEST_CASE("a tokenizer that is no protobuf is refused", "[malformed]") { refuse("this is no model", "field"); }
TEST_CASE("a tokenizer with more pieces than the vocabulary is refused", "[malformed]") {
  refuse(tiny_model().bytes(), "only 256", 256);
}
TEST_CASE("an empty piece is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add("", 0, PieceKind::kNormal); }), "is empty");
}
TEST_CASE("a piece that occurs twice is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add("hello", 0, PieceKind::kNormal); }), "occurs twice");
}
TEST_CASE("a piece that is not UTF-8 is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add("\xFF\xFE", 0, PieceKind::kNormal); }), "not UTF-8");
}
TEST_CASE("a piece with a zero byte is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add(std::string("x\0y", 3), 0, PieceKind::kNormal); }), "zero byte");
}
TEST_CASE("an overlong piece is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add(std::string(513, 'x'), 0, PieceKind::kNormal); }), "513 bytes");
}
TEST_CASE("an overlong user-defined piece is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add(std::string(65, 'x'), 0, PieceKind::kUserDefined); }), "65 characters");
}
TEST_CASE("a NaN score is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add("x1", std::nanf(""), PieceKind::kNormal); }), "not finite");
}
TEST_CASE("an infinite score is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add("x1", std::numeric_limits<float>::infinity(), PieceKind::kNormal); }),
         "not finite");
}
TEST_CASE("a kind of piece that does not exist is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add("x1", 0, static_cast<PieceKind>(7)); }), "has kind 7");
}
TEST_CASE("a second unknown piece is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add("<unk2>", 0, PieceKind::kUnknown); }), "2 unknown");
}
TEST_CASE("a model without an unknown piece is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.model.pieces[0].kind = PieceKind::kControl; }), "0 unknown");
}
TEST_CASE("a model without normal pieces is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) {
           for (auto& piece : t.model.pieces)
             if (piece.kind == PieceKind::kNormal) piece.kind = PieceKind::kUnused;
         }),
         "no normal piece");
}
TEST_CASE("a missing byte piece is refused by name", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.model.pieces.erase(t.model.pieces.begin() + 8 + 0x7F); }), "<0x7F>");
}
TEST_CASE("a byte piece of another form is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.add("<0xZZ>", 0, PieceKind::kByte); }), "<0xNN>");
}
TEST_CASE("byte pieces without byte fallback are refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.model.byte_fallback = false; }), "byte_fallback is off");
}
TEST_CASE("a model type that kaiju does not read is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.model.model_type = 4; }), "model_type is 4");
}
TEST_CASE("a field of the wrong wire type is refused", "[malformed]") {
  refuse(with_tail(std::string("\x08\x01", 2)), "wire type");           // pieces as a varint
  refuse(with_tail(std::string("\x0A\x02\x18\x00", 4)), "has kind 0");  // a piece of kind 0
  refuse(with_tail(std::string("\x0A\x02\x08\x01", 4)), "wire type");   // a piece whose text is a number
  refuse(with_tail(std::string("\x12\x02\x1A\x00", 4)), "wire type");   // model_type as bytes
  refuse(with_tail(std::string("\x1A\x02\x10\x01", 4)), "wire type");   // charsmap as a number
}
TEST_CASE("a group, a field number zero and an endless varint are refused", "[malformed]") {
  refuse(with_tail(std::string("\x0B", 1)), "field");
  refuse(with_tail(std::string("\x00\x00", 2)), "field");
  refuse(with_tail(std::string(11, '\xFF')), "field");
}
TEST_CASE("a length past the end is refused", "[malformed]") {
  refuse(with_tail(std::string("\x0A\x7F"
                               "abc",
                               5)),
         "field");
  refuse(with_tail(std::string("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11)), "field");
}
TEST_CASE("unknown fields are skipped") {
  CHECK(load(with_tail(std::string("\xC2\x3E\x03"
                                   "abc",
                                   6)))
            .ok());
}

TEST_CASE("a sound normaliser is accepted and used") {
  const auto tokenizer = load(with_charsmap({}));
  INFO(tokenizer.status().message());
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer.value()->decode(tokenizer.value()->encode("banana").value()).value() == "bbnbnb");
}
TEST_CASE("a normaliser shorter than its header is refused", "[malformed]") {
  refuse(changed([](TinyModel& t) { t.model.charsmap = "abc"; }), "shorter");
}
TEST_CASE("a normaliser whose trie does not fit is refused", "[malformed]") {
  for (const uint32_t bytes : {0u, 3u, 2052u, 0xFFFFFFFFu}) {
    Charsmap map;
    map.trie_bytes = bytes;
    refuse(with_charsmap(map), "does not fit");
  }
}
TEST_CASE("a normaliser that jumps out of its trie is refused", "[malformed]") {
  Charsmap map;
  map.units[0] = unit(0, 1 << 20);
  refuse(with_charsmap(map), "leaves the trie");
  Charsmap deeper;
  deeper.units[256 ^ 'a'] = unit('a', 1 << 19, true);
  refuse(with_charsmap(deeper), "leaves the trie");
}
TEST_CASE("a normaliser with a cycle is refused", "[malformed]") {
  Charsmap map;
  map.units[256 ^ 'a'] = unit('a', 'a', false);  // back to the node it came from
  refuse(with_charsmap(map), "cycle");
}
TEST_CASE("a normaliser whose replacement lies outside is refused", "[malformed]") {
  Charsmap map;
  map.units[(256 ^ 'a') ^ 64] = 0x80000000u | 99;
  refuse(with_charsmap(map), "outside the strings");
}
TEST_CASE("a normaliser whose strings do not end is refused", "[malformed]") {
  Charsmap map;
  map.strings = "bbb";
  refuse(with_charsmap(map), "do not end");
}
TEST_CASE("a normaliser with a huge replacement is refused", "[malformed]") {
  Charsmap map;
  map.strings = std::string(100000, 'b') + '\0';
  refuse(with_charsmap(map), "too long");
}

TEST_CASE("every truncation of a tokenizer is refused or loads, and none crashes", "[malformed]") {
  const std::string whole = tiny_model().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto tokenizer = load(whole.substr(0, size));
    if (tokenizer.ok()) CHECK(tokenizer.value()->encode("hello <|end|> \xC3\xA9").ok());
  }
}

TEST_CASE("random damage to a trained model with a normaliser is refused or harmless", "[malformed]") {
  const std::string whole = train_tokenizer("nmt_nfkc");
  REQUIRE_FALSE(whole.empty());
  const unsigned seed = 11;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  // The compiled rules are most of the file, so most of the damage lands there.
  for (int i = 0; i < 120; ++i) {
    std::string bytes = whole;
    for (uint32_t flips = 1 + random() % 3; flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
    const auto tokenizer = load(bytes, 512);
    if (!tokenizer.ok()) continue;
    const auto tokens = tokenizer.value()->encode("the \xEF\xBC\xA1 quick \xC3\xA9 \xE2\x85\xA8 fox \xF0\x9F\xA6\x96");
    if (tokens.ok()) CHECK(tokenizer.value()->decode(tokens.value()).ok());
  }
}
