// Unicode: decodes characters and says of which classes they are, by utf8proc's tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kaiju {

// Bits of Character::classes. \p{...} are Unicode's general categories.
enum CharacterClass : uint8_t {
  kLetter = 1,    // \p{L}
  kNumber = 2,    // \p{N}
  kSpace = 4,     // the property White_Space
  kNewline = 8,   // "\r" and "\n"
  kUpper = 16,    // \p{Lu}, \p{Lt}, \p{Lm}, \p{Lo}, \p{M}
  kLower = 32,    // \p{Ll}, \p{Lm}, \p{Lo}, \p{M}
  kWordPart = 64  // \w: Alphabetic, \p{M}, \p{Nd}, \p{Pc}, Join_Control
};

struct Character {
  uint8_t bytes = 0;    // its length in UTF-8
  uint8_t classes = 0;  // bits of CharacterClass

  bool is(unsigned any_of) const { return (classes & any_of) != 0; }
};

// The character that begins at `at`; one of no bytes and no classes at the end. `text` is UTF-8.
Character character_at(std::string_view text, size_t at);
// The character that ends at `end`; one of no bytes and no classes if `end` is 0.
Character character_before(std::string_view text, size_t end);

}  // namespace kaiju
