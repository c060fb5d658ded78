// Split: divides text into words as the regular expressions of published tokenizers do. The rules are known by name, so
// no model file can bring one that takes long; dividing takes time in proportion to the text and cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kaiju {

// One rule. Its words are what the alternatives below match, the first one that matches at each place.
struct Split {
  enum class Contractions : uint8_t { kNone, kLowerCase, kAnyCase };

  std::string_view name;
  Contractions contractions;           // 's 't 're 've 'm 'll 'd are words
  bool any_before_letters;             // before letters, a character that is no letter, number or newline; else a space
  bool cased;                          // letters and marks, upper case before lower case; else any letters
  bool digits_apart;                   // numbers are cut out first, so white space before one is at the end of a text
  int most_digits;                     // in a number; 0: any count, after a space if there is one
  std::string_view after_punctuation;  // characters that end a word of punctuation
  bool ends_after_newline;             // white space that has a newline ends a word after its last newline
};

const Split* find_split(std::string_view name);  // NULL if there is none
std::string split_names();                       // "gpt2, smollm, ..."

// Appends the end offset of each word of `text`, which is UTF-8 of less than 4 GiB. The words are all of the text.
// Returns how many times it looked at a character; tests bound that.
size_t split_words(const Split& split, std::string_view text, std::vector<uint32_t>& ends);

}  // namespace kaiju
