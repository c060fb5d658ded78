// Refuses an output whose name leads to a file that the program reads or to another of its outputs, because writing it
// would replace that file.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace kaiju::tools {

struct NamedFile {
  std::string what;  // for messages: "--tokens ids.txt"
  std::string path;
};

// Where a path leads. Follows links as a program that writes does, also a link to a file that does not exist yet.
inline std::filesystem::path destination(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as many as the system follows
  std::error_code error;
  for (int links = 0; links < kMostLinks && std::filesystem::is_symlink(path, error); ++links) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / target;  // an absolute target replaces the folder
  }
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(whole, error);
  return error ? whole.lexically_normal() : canonical;
}

// By device and inode; by name where a file does not exist yet.
inline bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) || destination(a) == destination(b);
}

// Empty, or why the output must not be written. `files` are those that the program reads and its other outputs.
inline std::string output_problem(const std::string& option, const std::string& path,
                                  std::span<const NamedFile> files) {
  for (const NamedFile& file : files)
    if (is_same_file(path, file.path))
      return fmt::format("{}: {} is the same file as {}: choose another name for the output", option, path, file.what);
  return "";
}

}  // namespace kaiju::tools
