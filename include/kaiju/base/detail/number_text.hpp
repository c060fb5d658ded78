// Formats numbers for messages.
#pragma once

#include <charconv>
#include <string>

namespace kaiju {

// The fewest digits that tell `value` from all others of its type.
template <class Number>
std::string number_text(Number value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

}  // namespace kaiju
