// What an option's number may be, checked and shown in --help.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace kaiju::tools {

enum class Zero { kLikeOthers, kToo };

// A number from `low` to `high`, or with Zero::kToo 0 besides. Not NaN, which CLI::Range lets pass.
inline CLI::Validator number_from(double low, double high, Zero zero = Zero::kLikeOthers) {
  const char* besides = zero == Zero::kToo ? "0 or " : "";
  const auto check = [=](const std::string& given) {
    double value = 0;
    const bool is_good = CLI::detail::lexical_cast(given, value) &&
                         ((value >= low && value <= high) || (zero == Zero::kToo && value == 0));
    return is_good ? std::string() : fmt::format("give {}a number from {:g} to {:g}", besides, low, high);
  };
  return CLI::Validator(check, fmt::format("{}in [{:g} - {:g}]", besides, low, high));
}

// All of a uint64_t and nothing else: CLI11 by itself takes -1 for its largest.
inline CLI::Validator whole_number() {
  const auto check = [](const std::string& given) {
    uint64_t value = 0;
    const char* end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, value);
    return error == std::errc() && stop == end ? std::string() : "give a whole number from 0 to 2^64 - 1";
  };
  return CLI::Validator(check, "");
}

}  // namespace kaiju::tools
