// Card: a character as a text file.
//
//   name: Wren
//   greeting: Welcome to the wagon.
//   ask: What are you afraid of?
//
//   Wren Applegarth is a travelling hedge witch ...
#pragma once

#include <string>
#include <vector>

namespace chat {

struct Card {
  std::string name;
  std::string greeting;  // may be empty: then the user speaks first
  std::string description;
  std::vector<std::string> asks;  // questions to begin with, shown to the user; the model never sees them
};

// Throws Problem when a card from elsewhere than parse_card has no name or description, or holds control characters.
void check_card(const Card& card);

// Throws Problem with file and line.
Card parse_card(std::string text, const std::string& file);
Card read_card(const std::string& file);

// The .card files of a folder, sorted.
std::vector<std::string> card_files(const std::string& folder);
// A file, or a character of the folder by file name or by the name it bears. Throws Problem with the names there are.
std::string find_card(const std::string& file_or_name, const std::string& folder);
// "wren" for ".../wren.card"
std::string stem_of(const std::string& file);

}  // namespace chat
