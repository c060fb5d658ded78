// Reads a text file that the user names, as a whole.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>

#include "../tools/text_input.hpp"
#include "owned.hpp"

namespace chat {

// `what` it should be: "a card". Throws Problem where it is no regular file (a pipe that nobody writes to would be
// waited for), cannot be read, or is longer than `most_bytes`.
inline std::string read_regular_file(const std::string& file, const char* what, size_t most_bytes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) throw Problem(fmt::format("{}: a folder, not {}", file, what));
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored))
    throw Problem(fmt::format("{}: not a regular file", file));
  kaiju::tools::TextFile read = kaiju::tools::read_text_file(file, most_bytes);
  if (!read.problem.empty()) throw Problem(read.problem);
  return std::move(read.text);
}

}  // namespace chat
