// Finds and reads character cards.
#include "card.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <vector>

#include "../tools/nearest.hpp"
#include "owned.hpp"
#include "regular_file.hpp"
#include "utf8.hpp"

namespace chat {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxCardBytes = size_t{1} << 20;
constexpr size_t kMaxNameBytes = 100;
constexpr size_t kMaxAsks = 8;

std::string trimmed(const std::string& text) {
  const char* kSpaces = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpaces);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The first control character that is no tab, npos without one.
size_t control_character(const std::string& text) {
  const auto is_control = [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F; };
  const auto found = std::find_if(text.begin(), text.end(), is_control);
  return found == text.end() ? std::string::npos : static_cast<size_t>(found - text.begin());
}

void check_line(const std::string& line, const std::string& file, size_t number) {
  if (const size_t bad = utf8_error(line); bad != std::string::npos)
    throw Problem(
        fmt::format("{}:{}: not UTF-8 at byte {} of the line; save the card as UTF-8", file, number, bad + 1));
  if (const size_t bad = control_character(line); bad != std::string::npos)
    throw Problem(fmt::format("{}:{}: a control character (code {})", file, number, static_cast<int>(line[bad])));
}

}  // namespace

void check_card(const Card& card) {
  if (card.name.empty() || card.description.empty()) throw Problem("its character has no name or no description");
  if (card.name.size() > kMaxNameBytes)
    throw Problem(fmt::format("its character's name is longer than {} bytes", kMaxNameBytes));
  std::string description = card.description;
  std::replace(description.begin(), description.end(), '\n', ' ');
  for (const std::string& text : {card.name, card.greeting, description})
    if (control_character(text) != std::string::npos) throw Problem("its character has a control character");
}

Card parse_card(std::string text, const std::string& file) {
  kaiju::tools::skip_byte_order_mark(text);
  if (trimmed(text).empty())
    throw Problem(
        fmt::format("{}:1: the card is empty; it needs a line 'name: ...', an empty line and a description", file));
  Card card;
  std::istringstream lines(std::move(text));
  size_t number = 0, greeting_line = 0;
  bool in_header = true;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    check_line(line, file, number);
    if (!in_header) {
      card.description += line + "\n";
      continue;
    }
    if (trimmed(line).empty()) {
      if (number == 1) throw Problem(fmt::format("{}:1: the card must begin with a line 'name: ...'", file));
      in_header = false;
      continue;
    }
    const size_t colon = line.find(':');
    const std::string key = colon == std::string::npos ? "" : lower(trimmed(line.substr(0, colon)));
    if (key != "name" && key != "greeting" && key != "ask")
      throw Problem(fmt::format(
          "{}:{}: expected 'name: ...', 'greeting: ...', 'ask: ...' or an empty line before the description", file,
          number));
    const std::string value = trimmed(line.substr(colon + 1));
    if (value.empty()) throw Problem(fmt::format("{}:{}: '{}:' has nothing after it", file, number, key));
    if ((key == "name" && !card.name.empty()) || (key == "greeting" && greeting_line > 0))
      throw Problem(fmt::format("{}:{}: a second '{}:'", file, number, key));
    if (key == "name") card.name = value;
    if (key == "ask") card.asks.push_back(value);
    if (card.asks.size() > kMaxAsks)
      throw Problem(fmt::format("{}:{}: more than {} lines 'ask: ...'", file, number, kMaxAsks));
    if (key == "greeting") {
      card.greeting = value;
      greeting_line = number;
    }
    if (card.name.size() > kMaxNameBytes)
      throw Problem(fmt::format("{}:{}: the name is longer than {} bytes", file, number, kMaxNameBytes));
  }
  card.description = trimmed(card.description);
  if (card.name.empty()) throw Problem(fmt::format("{}:1: the name is missing; begin with a line 'name: ...'", file));
  if (card.description.empty())
    throw Problem(fmt::format("{}:{}: the description is missing; it comes after an empty line", file, number));
  return card;
}

Card read_card(const std::string& file) { return parse_card(read_regular_file(file, "a card", kMaxCardBytes), file); }

std::vector<std::string> card_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".card") files.push_back(it->path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::string stem_of(const std::string& file) { return fs::path(file).stem().string(); }

std::string find_card(const std::string& file_or_name, const std::string& folder) {
  const bool looks_like_file = file_or_name.find('/') != std::string::npos || file_or_name.ends_with(".card");
  std::error_code ignored;
  if (looks_like_file || fs::is_regular_file(file_or_name, ignored)) return file_or_name;
  const std::string wanted = lower(file_or_name);
  std::vector<std::string> names;
  const std::vector<std::string> files = card_files(folder);
  for (const std::string& file : files) {
    if (lower(stem_of(file)) == wanted) return file;
    names.push_back(stem_of(file));
  }
  for (const std::string& file : files) {
    try {
      if (lower(read_card(file).name) == wanted) return file;
    } catch (const Problem&) {  // a broken card has no name to be found by
    }
  }
  const std::string meant = kaiju::tools::did_you_mean(file_or_name, names);
  throw Problem(fmt::format("no character '{}'{}: {} (or give the path of a card file)", file_or_name,
                            meant.empty() ? "; there are" : meant + " There are",
                            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace chat
