// PNG files: where the card is found in them, and what is left of the picture.
#include "cards_make.hpp"

using namespace kaiju;
using namespace kaiju::server;
using namespace kaiju::server::test;

namespace {

std::string named(const char* name) { return json{{"name", name}, {"description", "d"}}.dump(); }

}  // namespace

TEST_CASE("ccv3 comes before chara, wherever they are, and the first of each counts") {
  CHECK(must_read(png(text_chunk("chara", named("Old")) + text_chunk("ccv3", named("New")))).name == "New");
  CHECK(must_read(png(text_chunk("chara", named("One")) + text_chunk("chara", named("Two")))).name == "One");
  CHECK(must_read(png(text_chunk("Chara", named("Capital")))).name == "Capital");
  const std::string behind =
      kSignature + header() + pixels() + text_chunk("chara", named("Behind")) + chunk("IEND", "");
  CHECK(must_read(behind).name == "Behind");
}

TEST_CASE("compressed and international text is read") {
  const std::string card = base64(named("Packed"));
  CHECK(must_read(png(chunk("zTXt", zero("chara", std::string(1, '\0') + deflated(card))))).name == "Packed");
  CHECK(must_read(png(chunk("iTXt", zero("ccv3", std::string("\0\0\0\0", 4) + card)))).name == "Packed");
  CHECK(must_read(png(chunk("iTXt", zero("ccv3", std::string("\1\0en\0\0", 6) + deflated(card))))).name == "Packed");
}

TEST_CASE("base64 is read with line breaks and without padding, and not with anything else") {
  for (const char* name : {"A", "AB", "ABC"}) {
    std::string text = base64(named(name));
    text.insert(10, "\r\n");
    CHECK(must_read(png(chunk("tEXt", zero("chara", text)))).name == name);
    while (text.ends_with('=')) text.pop_back();
    CHECK(must_read(png(chunk("tEXt", zero("chara", text)))).name == name);
    CHECK(refusal(png(chunk("tEXt", zero("chara", text + "====")))).find("no base64") != std::string::npos);
    CHECK(refusal(png(chunk("tEXt", zero("chara", "=" + text)))).find("no base64") != std::string::npos);
  }
}

TEST_CASE("the picture is kept without its text, time and Exif, and without what follows its end") {
  const std::string file = kSignature + header() + text_chunk("chara", named("A")) + chunk("tIME", "1234567") +
                           chunk("eXIf", "where") + chunk("gAMA", std::string("\0\0\xB1\x8F", 4)) + pixels() +
                           chunk("IEND", "") + "a trailer";
  CHECK(must_read(file).picture ==
        kSignature + header() + chunk("gAMA", std::string("\0\0\xB1\x8F", 4)) + pixels() + chunk("IEND", ""));
  CHECK(must_read(named("A")).picture.empty());
  CHECK(must_read(file).digest == must_read(named("A")).digest);
}
