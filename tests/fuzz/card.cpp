// Fuzz: a character card, as kaiju-chat reads it. Either a problem with file and line, or a card that holds what it
// promises.
#include "examples/chat/card.hpp"

#include "examples/chat/owned.hpp"
#include "examples/chat/utf8.hpp"
#include "tests/fuzz/fuzz.hpp"

using fuzz::promise;

namespace {

void check(const chat::Card& card) {
  promise(!card.name.empty() && card.name.size() <= 100, "a name has 1 to 100 bytes");
  promise(!card.description.empty(), "a card has a description");
  for (const std::string* text : {&card.name, &card.greeting, &card.description}) {
    promise(chat::utf8_error(*text) == std::string_view::npos, "a card is UTF-8");
    for (const char c : *text)
      promise((static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) || c == '\t' || c == '\n',
              "a card has no control characters");
  }
  promise((card.name + card.greeting).find('\n') == std::string::npos, "name and greeting are one line each");
  promise(card.asks.size() <= 8, "a card has few questions");
  for (const std::string& ask : card.asks) {
    promise(!ask.empty() && chat::utf8_error(ask) == std::string_view::npos, "a question is UTF-8");
    for (const char c : ask)
      promise((static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) || c == '\t', "a question is one line");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const fuzz::MemoryBound bound(size, 16, 16 << 10);
  try {
    const chat::Card card = chat::parse_card(text, "x.card");
    check(card);
    std::string again = "name: " + card.name + "\n";
    if (!card.greeting.empty()) again += "greeting: " + card.greeting + "\n";
    for (const std::string& ask : card.asks) again += "ask: " + ask + "\n";
    const chat::Card second = chat::parse_card(again + "\n" + card.description, "x.card");
    promise(second.name == card.name && second.greeting == card.greeting && second.description == card.description &&
                second.asks == card.asks,
            "a card written out again is the same card");
  } catch (const chat::Problem& problem) {
    const std::string_view message = problem.what();
    promise(message.starts_with("x.card:") && message.size() < 200, "a problem names file and line, briefly");
  }
  return 0;
}
