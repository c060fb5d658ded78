// Finds what a mistyped word was meant to be: "did you mean --seed?"
#pragma once

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kaiju::tools {

// How many letters are wrong, missing, too many, or exchanged with their neighbour: the optimal string alignment
// distance. Small and capital letters are the same.
inline size_t typing_errors(std::string_view typed, std::string_view meant) {
  const auto letter = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::vector<size_t>> errors(typed.size() + 1, std::vector<size_t>(meant.size() + 1));
  for (size_t i = 0; i <= typed.size(); ++i)
    for (size_t j = 0; j <= meant.size(); ++j) {
      if (i == 0 || j == 0) {
        errors[i][j] = i + j;
        continue;
      }
      const bool same = letter(typed[i - 1]) == letter(meant[j - 1]);
      errors[i][j] = std::min({errors[i - 1][j] + 1, errors[i][j - 1] + 1, errors[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && letter(typed[i - 1]) == letter(meant[j - 2]) &&
          letter(typed[i - 2]) == letter(meant[j - 1]))
        errors[i][j] = std::min(errors[i][j], errors[i - 2][j - 2] + 1);
    }
  return errors[typed.size()][meant.size()];
}

// The word that was most likely meant: with at most one error for each three letters typed, or one that begins as
// typed. Empty: none is near. Leading '-' and '/' are no letters.
inline std::string nearest(std::string_view typed, std::span<const std::string> words) {
  const auto letters = [](std::string_view word) {
    return word.substr(std::min(word.find_first_not_of("-/"), word.size()));
  };
  constexpr size_t kLongestWord = 64;
  const std::string_view wrong = letters(typed);
  if (wrong.empty() || wrong.size() > kLongestWord) return "";
  std::string best;
  size_t fewest = std::max<size_t>(wrong.size() / 3, 1) + 1;
  for (const std::string& word : words) {
    const std::string_view right = letters(word);
    const bool begins = wrong.size() >= 2 && right.starts_with(wrong);
    const size_t errors = begins ? 1 : typing_errors(wrong, right);
    if (errors >= fewest || errors >= right.size()) continue;
    fewest = errors;
    best = word;
  }
  return best;
}

// ": did you mean /retry?" or nothing.
inline std::string did_you_mean(std::string_view typed, std::span<const std::string> words) {
  const std::string word = nearest(typed, words);
  return word.empty() ? "" : ": did you mean " + word + "?";
}

}  // namespace kaiju::tools
