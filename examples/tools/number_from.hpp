// What an option's number may be, checked and shown in --help.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace kaiju::tools {

enum class Zero { kLikeOthers, kToo };

// A number from `low` to `high`, or with Zero::kToo 0 besides. Not NaN, which CLI::Range lets pass.
inline CLI::Validator number_from(double low, double high, Zero zero = Zero::kLikeOthers) {
  const char* besides = zero == Zero::kToo ? "0 or " : "";
  const auto check = [=](const std::string& given) {
    double value = 0;
    const bool is_good = CLI::detail::lexical_cast(given, value) && ((value >= low && value <= high) || (zero == Zero::kToo && value == 0));
    return is_good ? std::string() : fmt::format("give {}a number from {:g} to {:g}", besides, low, high);
  };
  return CLI::Validator(check, fmt::format("{}in [{:g} - {:g}]", besides, low, high));
}

}  // namespace kaiju::tools
