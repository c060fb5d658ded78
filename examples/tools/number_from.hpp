// Checks numbers of options and says their range, for --help. Numbers are decimal, without leading zeros: CLI11 alone
// reads 010 as 8 and 0x10 as 16, and its rules differ between versions.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kaiju::tools {

inline bool has_leading_zero(const std::string& given) {
  const size_t first = given.starts_with('-') ? 1 : 0;
  return given.size() > first + 1 && given[first] == '0' && std::isdigit(static_cast<unsigned char>(given[first + 1]));
}

// Nothing where `given` is anything but a number of this type.
template <class Number>
std::optional<Number> decimal(const std::string& given) {
  Number value = 0;
  const char* end = given.data() + given.size();
  const auto [stop, error] = std::from_chars(given.data(), end, value);
  const bool is_good = error == std::errc() && stop == end && !has_leading_zero(given);
  return is_good ? std::optional(value) : std::nullopt;
}

inline std::string wanted(const std::string& given, const std::string& what) {
  return fmt::format("give {}{}", what, has_leading_zero(given) ? ", without leading zeros" : "");
}

enum class Zero { kLikeOthers, kToo };

// A number from `low` to `high`, or with Zero::kToo 0 besides. Not NaN.
inline CLI::Validator number_from(double low, double high, Zero zero = Zero::kLikeOthers) {
  const char* besides = zero == Zero::kToo ? "0 or " : "";
  const auto check = [=](const std::string& given) {
    const std::optional<double> value = decimal<double>(given);
    const bool is_good = value && ((*value >= low && *value <= high) || (zero == Zero::kToo && *value == 0));
    return is_good ? "" : wanted(given, fmt::format("{}a number from {:g} to {:g}", besides, low, high));
  };
  return CLI::Validator(check, fmt::format("{}{:g} to {:g}", besides, low, high));
}

inline CLI::Validator whole_number(int64_t low, int64_t high) {
  const auto check = [=](const std::string& given) {
    const std::optional<int64_t> value = decimal<int64_t>(given);
    const bool is_good = value && *value >= low && *value <= high;
    return is_good ? "" : wanted(given, fmt::format("a whole number from {} to {}", low, high));
  };
  return CLI::Validator(check, fmt::format("{} to {}", low, high));
}

// All of a uint64_t and nothing else: CLI11 by itself takes -1 for its largest.
inline CLI::Validator whole_number() {
  const auto check = [](const std::string& given) {
    return decimal<uint64_t>(given) ? "" : wanted(given, "a whole number from 0 to 2^64 - 1");
  };
  return CLI::Validator(check, "");
}

// Bytes up to 1 PiB, as a number or with a unit, of which all are powers of 1024: 8GiB, 8G. For Option::transform: it
// puts the plain number in place of what it was given.
inline CLI::Validator byte_count() {
  const auto convert = [](std::string& given) -> std::string {
    constexpr uint64_t kMost = uint64_t{1} << 50;
    constexpr std::string_view kUnits = "bkmgtp";
    const size_t digits = std::min(given.find_first_not_of("0123456789"), given.size());
    std::string unit = CLI::detail::to_lower(CLI::detail::trim_copy(given.substr(digits)));
    if (unit.size() > 1 && unit.back() == 'b') unit.pop_back();
    if (unit.size() > 1 && unit.back() == 'i') unit.pop_back();
    const size_t power = unit.empty() ? 0 : unit.size() == 1 ? kUnits.find(unit[0]) : std::string::npos;
    const std::optional<uint64_t> count = decimal<uint64_t>(given.substr(0, digits));
    if (!count || power == std::string::npos || *count > kMost >> (10 * power))
      return wanted(given, fmt::format("bytes, at most {}, or a size such as 8GiB", kMost));
    given = fmt::format("{}", *count << (10 * power));
    return "";
  };
  return CLI::Validator(convert, "SIZE");
}

}  // namespace kaiju::tools
