// Fuzz: what POST /characters gets: a card of any form. Either a problem, or a card within its limits whose canonical
// form is a card of the same meaning.
#include "examples/chat/owned.hpp"
#include "examples/chat/utf8.hpp"
#include "examples/server/cards/card.hpp"
#include "tests/fuzz/fuzz.hpp"

using fuzz::promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto card = kaiju::server::read_card({reinterpret_cast<const char*>(data), size});
  if (!card.ok()) {
    promise(!card.status().message().empty() && card.status().message().size() < 2000, "a problem is said, briefly");
    return 0;
  }
  promise(!card->name.empty() && card->name.size() <= kaiju::server::kMaxNameBytes, "a card has a name");
  promise(!card->description.empty() && card->description.size() <= kaiju::server::kMaxDescriptionBytes,
          "a card has a description");
  promise(card->book.size() <= kaiju::server::kMaxBookEntries, "a book has few entries");
  for (const std::string* text : {&card->name, &card->description, &card->greeting, &card->canonical})
    promise(chat::utf8_error(*text) == std::string_view::npos, "a card is UTF-8");
  auto again = kaiju::server::read_card(card->canonical);
  promise(again.ok() && again->canonical == card->canonical && again->digest == card->digest,
          "the canonical form is a card of the same meaning");
  return 0;
}
