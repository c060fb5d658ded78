// Checks options whose value is one of a few names, before any file is opened.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace kaiju::tools {

// Leaves an empty value to refuse_empty_values.
inline CLI::Validator name_from(std::vector<std::string> names) {
  const auto check = [names = std::move(names)](const std::string& given) {
    const bool is_known = std::find(names.begin(), names.end(), given) != names.end();
    return is_known || given.empty()
               ? ""
               : fmt::format("there is no \"{}\"; choose one of: {}", given, fmt::join(names, ", "));
  };
  return CLI::Validator(check, "NAME");
}

// Names that --backend takes. The library says which of them this build and this machine have.
inline CLI::Validator backend_name() {
  return name_from({"auto", "cuda", "amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "portable", "reference"});
}

inline CLI::Validator preset_name() { return name_from({"nano", "small", "medium", "large"}); }

}  // namespace kaiju::tools
