// Choices: reads and writes the file of cuBLASLt choices. See choices.hpp.
#include "choices.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>

#include "format/new_file.hpp"
#include "format/path.hpp"

namespace kaiju::cuda {
namespace {

constexpr std::string_view kFirstLine = "kaiju products 1", kOwn = "own";

// Takes the text before the next `end`, and `end`; false where there is none.
bool take_until(std::string_view& text, char end, std::string_view& taken) {
  const size_t at = text.find(end);
  if (at == text.npos) return false;
  taken = text.substr(0, at);
  text.remove_prefix(at + 1);
  return true;
}

template <class T>
bool take_number(std::string_view& text, int base, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return true;
}

bool read_line(std::string_view line, Choices& choices) {
  MatmulSize size;
  for (int32_t* number : {&size.out, &size.in, &size.rows})
    if (!take_number(line, 10, *number) || *number <= 0) return false;
  std::optional<Algorithm> algorithm;
  if (line != kOwn) {
    for (uint64_t& word : algorithm.emplace())
      if (!take_number(line, 16, word)) return false;
    if (!line.empty()) return false;
  }
  return choices.of.emplace(size, algorithm).second;
}

}  // namespace

std::string text_of(const Choices& choices) {
  std::string text = fmt::format("{}\n{}\n", kFirstLine, choices.machine);
  for (const auto& [size, algorithm] : choices.of) {
    text += fmt::format("{} {} {}", size.out, size.in, size.rows);
    if (!algorithm)
      text += fmt::format(" {}", kOwn);
    else
      for (const uint64_t word : *algorithm) text += fmt::format(" {:x}", word);
    text += '\n';
  }
  return text;
}

Result<Choices> choices_of(std::string_view text) {
  Choices choices;
  std::string_view line;
  if (!take_until(text, '\n', line) || line != kFirstLine)
    return invalid_argument(fmt::format("its first line is not \"{}\"", kFirstLine));
  if (!take_until(text, '\n', line)) return invalid_argument("it ends early");
  choices.machine = line;
  for (int32_t number = 3; !text.empty(); ++number)
    if (!take_until(text, '\n', line) || !read_line(line, choices))
      return invalid_argument(fmt::format("line {} is not a choice", number));
  return choices;
}

Result<Choices> read_choices(const std::string& path) {
  KAIJU_TRY(format::check_path(path));
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    return Status(StatusCode::kNotFound, fmt::format("there is no file {}", path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(StatusCode::kIo, fmt::format("{} cannot be read", path));
  std::ostringstream text;
  text << file.rdbuf();
  Result<Choices> choices = choices_of(text.str());
  if (!choices.ok())
    return invalid_argument(fmt::format("{} is not a file of cuBLASLt choices: {}; remove it, and a new one is written",
                                        path, choices.status().message()));
  return choices;
}

Status write_choices(const std::string& path, const Choices& choices) {
  const std::string text = text_of(choices);
  format::NewFile file(path);
  KAIJU_TRY(file.open());
  KAIJU_TRY(file.put(std::as_bytes(std::span(text)), 0));
  return file.commit();
}

}  // namespace kaiju::cuda
