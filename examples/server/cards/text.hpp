// Text of cards: white space, macros, base64, words. No I/O.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kaiju::server {

// Why a card is refused, in a sentence. Thrown inside this folder only; read_card makes a Status of it.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Line ends are '\n'; no blanks at the ends of lines, no more than one empty line in a row, nothing around the text.
// Control characters other than line ends and tabs are removed and counted in `removed`.
std::string tidied(std::string_view text, size_t* removed = nullptr);
// The same on one line.
std::string tidied_line(std::string_view text, size_t* removed = nullptr);

// Macros of Tavern cards that need no chat: comments are removed, {{random:a,b}} becomes its first choice, {{Char}} and
// <BOT> become {{char}}. Only {{char}}, {{user}} and unknown macros are left. The text is tidied, too; settling it
// again changes nothing.
struct Settled {
  std::string text;
  bool chose = false;    // a {{random:...}} or {{pick:...}} became its first choice
  bool unknown = false;  // a macro was left as it is written
};
Settled settle_macros(std::string_view text);
// Puts names for {{char}} and {{user}}.
std::string with_names(std::string_view text, std::string_view character, std::string_view user);

// Without white space; nothing where it is no base64.
std::optional<std::string> from_base64(std::string_view text);

// Letters in small form, code point by code point.
std::string folded(std::string_view text);
// `text` contains `key`; with `whole_words` no letter or digit may touch it where key begins or ends with one. Scripts
// that are written without spaces (Chinese, Japanese, Thai) have no such limits of words.
bool contains(std::string_view text, std::string_view key, bool whole_words);

std::string joined(const std::vector<std::string>& texts, std::string_view between);

}  // namespace kaiju::server
