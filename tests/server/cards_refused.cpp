// Cards that are refused: the sentence names the field, and hostile ones cost little.
#include <chrono>
#include <random>

#include "cards_make.hpp"
#include "heap.hpp"

using namespace kaiju;
using namespace kaiju::server;
using namespace kaiju::server::test;

namespace {

struct Bad {
  const char* what;
  std::string bytes;
  std::string says;  // part of the message
};

std::string own(json more) {
  json all = {{"name", "A"}, {"description", "d"}};
  if (!more.is_null()) all.update(more);
  return all.dump();
}
std::string v2(json more) {
  json fields = v1();
  if (!more.is_null()) fields.update(more);
  return in_data(fields, "chara_card_v2").dump();
}
std::string entry(json more) {
  json all = {{"keys", {"k"}}, {"content", "c"}};
  if (!more.is_null()) all.update(more);
  return with_book({{{"keys", {"x"}}, {"content", "fine"}}, all});
}
std::string nested(size_t depth, const char* open, const char* close) {
  std::string out = R"({"name":"A","description":"d","tags":)";
  for (size_t i = 0; i < depth; ++i) out += open;
  for (size_t i = 0; i < depth; ++i) out += close;
  return out + "}";
}

std::vector<Bad> bad_cards() {
  return {
      {"nothing", "", "the card is empty"},
      {"white space", " \n\t\r\n", "the card is empty"},
      {"a list", "[]", "the card must be an object and is a list"},
      {"cut short", R"({"name":"A",)", "no JSON in UTF-8: wrong at line 1, byte 1"},
      {"a comma too many", "{\"name\":\"A\",\n\"description\":\"d\",}", "wrong at line 2, byte 19"},
      {"something behind it", own({}) + "x", "no JSON"},
      {"Latin-1", "{\"name\":\"caf\xE9\",\"description\":\"d\"}", "no JSON in UTF-8"},
      {"half a surrogate", R"({"name":"\ud800","description":"d"})", "no JSON"},
      {"65 lists in the card", nested(64, "[", "]"), "more than 64 levels deep"},
      {"a million lists", nested(1'000'000, "[", "]"), "more than 64 levels deep"},
      {"objects all the way down", nested(100'000, "{\"a\":", "}"), "more than 64 levels deep"},
      {"too many values", own({{"tags", json(std::vector<int>(200'001, 1))}}), "more than 200000 values"},
      {"too many bytes", own({{"description", std::string(kMaxCardJsonBytes, 'x')}}), "at most 4194304"},
      {"no name", R"({"description":"d"})", "name is missing"},
      {"a name of blanks", R"({"name":" \n ","description":"d"})", "name is missing"},
      {"a name that is a number", own({{"name", 5}}), "name must be a text and is a number"},
      {"a name of 101 bytes", own({{"name", std::string(101, 'x')}}), "name has 101 bytes; at most 100"},
      {"no description", R"({"name":"A"})", "description is missing"},
      {"a description that is a list", own({{"description", json::array()}}),
       "description must be a text and is a list"},
      {"a long description", own({{"description", std::string(kMaxDescriptionBytes + 1, 'x')}}),
       "description has 1048577 bytes"},
      {"a description that grows",
       own({{"name", std::string(100, 'n')},
            {"description",
             [] {
               std::string text;
               for (int i = 0; i < 20'000; ++i) text += "{{char}}";
               return text;
             }()}}),
       "with names in it"},
      {"an unknown field", own({{"greting", "hi"}}), "'greting' is no field of a card: did you mean greeting?"},
      {"a field with an escape", own({{"\033[31m", 1}}), "'[31m' is no field"},
      {"nine suggestions", own({{"suggestions", json(std::vector<std::string>(9, "q"))}}), "suggestions has 9 values"},
      {"a tag that is a number", own({{"tags", {"a", 3}}}), "tags[1] must be a text and is a number"},
      {"tags that are a text", own({{"tags", "a"}}), "tags must be a list and is a text"},
      {"a long tag", own({{"tags", {std::string(1001, 't')}}}), "tags[0] has 1001 bytes; at most 1000"},
      {"an unknown spec", R"({"spec":"chara_card_v9","data":{}})", "spec must be chara_card_v2 or chara_card_v3"},
      {"a spec that is a number", R"({"spec":2,"data":{}})", "spec must be a text"},
      {"no data", R"({"spec":"chara_card_v2","name":"A"})", "data is missing"},
      {"data that is a text", R"({"spec":"chara_card_v2","data":"x"})", "data must be an object and is a text"},
      {"V2 without a name", R"({"spec":"chara_card_v2","data":{"description":"d"}})", "name is missing"},
      {"V1 without anything", R"({"name":"A","personality":"","first_mes":"hi"})", "description is missing"},
      {"a greeting that is true", v2({{"first_mes", true}}), "data.first_mes must be a text and is true or false"},
      {"a greeting of the others that is an object", v2({{"alternate_greetings", {"a", json::object()}}}),
       "data.alternate_greetings[1] must be a text and is an object"},
      {"too many greetings", v2({{"alternate_greetings", json(std::vector<std::string>(101, "g"))}}),
       "data.alternate_greetings has 101 values; at most 100"},
      {"extensions that are a list", v2({{"extensions", json::array()}}), "data.extensions must be an object"},
      {"an author's note that is a number", v2({{"extensions", {{"depth_prompt", {{"prompt", 1}}}}}}),
       "data.extensions.depth_prompt.prompt must be a text"},
      {"a book that is a list", v2({{"character_book", json::array()}}), "data.character_book must be an object"},
      {"entries by number", v2({{"character_book", {{"entries", {{"0", json::object()}}}}}}),
       "data.character_book.entries must be a list and is an object"},
      {"too many entries", with_book(json(std::vector<json>(4097, json{{"content", "c"}}))),
       "data.character_book.entries has 4097 values; at most 4096"},
      {"an entry that is a text", with_book({"x"}), "data.character_book.entries[0] must be an object and is a text"},
      {"keys that are a text", entry({{"keys", "k"}}), "data.character_book.entries[1].keys must be a list"},
      {"a key that is null", entry({{"keys", {nullptr}}}), "data.character_book.entries[1].keys[0] must be a text"},
      {"too many keys", entry({{"keys", json(std::vector<std::string>(257, "k"))}}), "entries[1].keys has 257 values"},
      {"long content", entry({{"content", std::string(kMaxEntryBytes + 1, 'c')}}),
       "data.character_book.entries[1].content has 65537 bytes; at most 65536"},
      {"constant that is a text", entry({{"constant", "yes"}}), "entries[1].constant must be true or false"},
      {"an order that is a text", entry({{"insertion_order", "1"}}), "entries[1].insertion_order must be a number"},
      {"an order of 1e300", entry({{"insertion_order", 1e300}}), "entries[1].insertion_order must be from"},
      {"a logic that does not exist", entry({{"selective", true}, {"extensions", {{"selectiveLogic", 9}}}}),
       "entries[1].extensions.selectiveLogic must be from 0 to 3"},
      {"the text form without a description", "name: A\n", "card:1: the description is missing"},
      {"a text that is no card", "Hello", "card:1: expected 'name: ...'"},
      {"a long text", "name: A\n\n" + std::string(kMaxCardTextBytes, 'x'), "in its text form at most 1048576"},
      {"JPEG", "\xFF\xD8\xFF\xE0 JFIF", "no PNG"},
      {"WebP", "RIFF1234WEBP", "no PNG"},
      {"a .charx", std::string("PK\x03\x04", 4), "ZIP file (.charx)"},
      {"only a signature", kSignature, "cut short"},
      {"a PNG without a card", png(chunk("tEXt", zero("Comment", "hi"))), "has no card in it"},
      {"a PNG without pixels", kSignature + header() + text_chunk("chara", v1().dump()) + chunk("IEND", ""),
       "no picture in it"},
      {"a PNG without an end", kSignature + header() + text_chunk("chara", v1().dump()) + pixels(), "cut short"},
      {"a PNG that begins with text", kSignature + text_chunk("chara", v1().dump()) + header() + pixels(),
       "does not begin with its one header"},
      {"two headers", png(header()), "does not begin with its one header"},
      {"a picture of 0 pixels", kSignature + header(0, 1) + pixels(), "0 by 1 pixels"},
      {"a huge picture", kSignature + header(16385, 4294967295u) + pixels(), "16385 by 4294967295 pixels"},
      {"a chunk of 4 GB", kSignature + header() + "\xFF\xFF\xFF\xFF" + "tEXtchara",
       "cut short, or a chunk says a wrong"},
      {"a text without an end of its keyword", png(chunk("tEXt", "chara")), "damaged text chunk"},
      {"no base64", png(chunk("tEXt", zero("chara", "{\"name\""))), "no base64"},
      {"base64 of no JSON", png(text_chunk("ccv3", "hello")), "the card in the PNG (text 'ccv3') is no JSON"},
      {"a large text", png(chunk("tEXt", zero("chara", std::string(6'000'000, 'A')))), "at most"},
      {"a bomb", png(chunk("zTXt", zero("chara", std::string(1, '\0') + deflated(std::string(100'000'000, 'A'))))),
       "when it is inflated"},
      {"damaged compression", png(chunk("zTXt", zero("chara", std::string("\0nonsense", 9)))), "is damaged"},
      {"an unknown compression", png(chunk("zTXt", zero("chara", "\x07..."))), "unknown method"},
      {"a large PNG", png(chunk("abCd", std::string(kMaxPngBytes, 'x'))), "at most 16777216"},
  };
}

}  // namespace

TEST_CASE("a bad card is refused with a sentence that names what is wrong") {
  for (const Bad& bad : bad_cards()) {
    INFO(bad.what);
    const std::string message = refusal(bad.bytes);
    INFO(message.substr(0, 500));
    CHECK(message.find(bad.says) != std::string::npos);
    CHECK(message.size() < 600);
    for (const char c : message) CHECK(static_cast<unsigned char>(c) >= 0x20);
  }
}

TEST_CASE("64 levels are read, as the limit says") {
  CHECK(refusal(nested(63, "[", "]")).find("tags[0] must be a text") != std::string::npos);
}

TEST_CASE("hostile cards take no more memory than honest ones of their size") {
  const auto repeated = [](const char* text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  const std::string bomb =
      png(chunk("zTXt", zero("chara", std::string(1, '\0') + deflated(std::string(200'000'000, 'A')))));
  for (const std::string& card :
       {bomb, nested(1'000'000, "[", "]"), own({{"description", repeated("{{a", 100'000) + repeated("}}", 100'000)}}),
        own({{"description", repeated("{{random:", 50'000) + repeated("}}", 50'000)}}),
        own({{"description", repeated("{{//", 50'000) + repeated("<user}}", 50'000)}})}) {
    heap::reset();
    (void)read_card(card);
    CHECK(heap::count().peak_bytes < (64 << 20));
  }
}

TEST_CASE("every byte of a PNG that a card needs is guarded: no damage is taken for a card") {
  const std::string file = png(text_chunk("chara", v1().dump()));
  REQUIRE(read_card(file).ok());
  for (size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    INFO("byte " << at);
    CHECK_FALSE(read_card(damaged).ok());
    CHECK_FALSE(read_card(file.substr(0, at)).ok());
  }
}

TEST_CASE("damaged and made-up cards give a card or a sentence, and canonical bytes stay what they are") {
  const auto seed = std::getenv("KAIJU_SEED") ? std::strtoull(std::getenv("KAIJU_SEED"), nullptr, 10)
                                              : uint64_t{std::random_device{}()};
  INFO("KAIJU_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> pieces = {
      "{{",       "}}", "{{char}}", "{{user}}", "{{random:", "{{//", "newline", "{", "}",
      "<BOT>",    "<U", "SER>",     ",",        ":",         "\n",   "\r",      " ", "a",
      "{{trim}}", "@@", "\t",       "\xC3\xA9", "<START>\n", "pick", "::",      "/"};
  const auto some_text = [&] {
    std::string text;
    for (size_t i = random() % 24; i > 0; --i) text += pieces[random() % pieces.size()];
    return text;
  };
  size_t read_count = 0;
  for (int i = 0; i < 4000; ++i) {
    json fields = {{"name", "W" + some_text()},  {"description", some_text() + "d"},         {"first_mes", some_text()},
                   {"mes_example", some_text()}, {"post_history_instructions", some_text()}, {"tags", {some_text()}}};
    fields["character_book"] = {
        {"entries", {{{"keys", {some_text(), "k"}}, {"content", some_text()}, {"constant", random() % 2 == 0}}}}};
    std::string bytes = in_data(fields, "chara_card_v3").dump();
    if (i % 4 == 3)
      for (size_t k = 1 + random() % 3; k > 0; --k) bytes[random() % bytes.size()] = static_cast<char>(random());
    INFO(bytes);
    const auto card = read_card(bytes);
    if (!card.ok()) {
      CHECK_FALSE(card.status().message().empty());
      continue;
    }
    ++read_count;
    const Card again = must_read(card.value().canonical);
    REQUIRE(again.canonical == card.value().canonical);
    REQUIRE(again.description == card.value().description);
    REQUIRE(again.greeting == card.value().greeting);
  }
  CHECK(read_count > 2000);
}
