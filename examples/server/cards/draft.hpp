// Draft: a card while it is read. Its texts are tidied and still say {{char}} and {{user}}; its description is without
// the constant entries.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "card.hpp"
#include "fields.hpp"

namespace kaiju::server {

struct Draft {
  Card card;
  std::string nickname;  // what {{char}} means, where it is not the name
};

// Both throw Refusal.
Draft own_draft(const CardFields& card);
Draft tavern_draft(const CardFields& card);  // V1, V2, V3
bool is_tavern(const nlohmann::json& card);

// The fields that both forms call alike: suggestions excepted, everything for people, and alternate greetings, author's
// note, instructions, book.
void read_common(const CardFields& data, Draft& draft);
void read_book(const CardFields& book, Card& card);
nlohmann::json book_json(const Card& card);

}  // namespace kaiju::server
