// Every option against every kind of wrong value: made from what kaiju_option_describe says, so a new option is covered
// the day it is listed.
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

std::vector<std::pair<kaiju_option, kaiju_option_info>> every_option() {
  std::vector<std::pair<kaiju_option, kaiju_option_info>> all;
  for (kaiju_option option = 0; option < 1000; ++option) {
    kaiju_option_info info{};
    info.struct_size = sizeof info;
    if (kaiju_option_describe(option, &info) == KAIJU_OK) all.emplace_back(option, info);
  }
  return all;
}

template <class Value>
void refused(kaiju_option option, const kaiju_option_info& info, const char* name, const Value& value) {
  DYNAMIC_SECTION(info.name << ": " << name) {
    Bag bag;
    const Answer answer = bag.set(option, value);
    INFO(answer.message);
    CHECK(answer.status == KAIJU_INVALID_ARGUMENT);
    CHECK(answer.says(info.name));
  }
}

void whole_numbers(kaiju_option option, const kaiju_option_info& info) {
  constexpr double kEdge = 9.2e18;  // beyond it there is no int64 left to try
  if (info.minimum > -kEdge) {
    refused(option, info, "one below its range", static_cast<int64_t>(info.minimum) - 1);
    refused(option, info, "least of all", INT64_MIN);
  }
  if (info.maximum < kEdge) {
    refused(option, info, "one above its range", static_cast<int64_t>(info.maximum) + 1);
    refused(option, info, "2^32 above its range",
            static_cast<int64_t>(info.maximum) + (int64_t{1} << 32));  // would fit once cut to 32 bits
    refused(option, info, "largest of all", INT64_MAX);
  }
}

void fractions(kaiju_option option, const kaiju_option_info& info) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  refused(option, info, "NaN", std::nan(""));
  refused(option, info, "-NaN", -std::nan(""));
  refused(option, info, "infinite", kInfinity);
  refused(option, info, "-infinite", -kInfinity);
  refused(option, info, "1e38", 1e38);
  refused(option, info, "-1e38", -1e38);
  refused(option, info, "1e308", 1e308);
  refused(option, info, "just below its range", std::nextafter(info.minimum, -kInfinity));
  refused(option, info, "just above its range", std::nextafter(info.maximum, kInfinity));
}

}  // namespace

TEST_CASE("every option refuses values out of its range by name", "[malformed]") {
  for (const auto& [option, info] : every_option()) {
    if (info.type == 'i') whole_numbers(option, info);
    if (info.type == 'f') fractions(option, info);
  }
}

TEST_CASE("every option refuses values of another type by name", "[malformed]") {
  for (const auto& [option, info] : every_option()) {
    if (info.type != 'i') refused(option, info, "an int", int64_t{1});
    if (info.type != 'f') refused(option, info, "a float", 1.0);
    if (info.type != 's') refused(option, info, "a string", std::string("1"));
  }
}

TEST_CASE("the error for a value out of range has all digits of the value and of the range", "[malformed]") {
  Bag bag;
  CHECK(bag.set(KAIJU_ENGINE_MAX_EVENTS, int64_t{1'000'000'000'000'000'001})
            .says("engine.max_events is 1000000000000000001; it must be from 1 to 2147483647"));
  CHECK(bag.set(KAIJU_ENGINE_CACHE_BYTES, int64_t{-1}).says("it must be from 0 to 9223372036854775807"));
  CHECK(bag.set(KAIJU_GENERATE_TEMPERATURE, 100.00000000000001)
            .says("is 100.00000000000001; it must be 0 (greedy) or from 0.001 to 100"));
}

TEST_CASE("unused option numbers are refused", "[malformed]") {
  for (const kaiju_option option : {-1, 0, 99, 105, 199, 223, 299, 333, 399, 999, INT32_MAX, INT32_MIN})
    DYNAMIC_SECTION("option " << option) {
      Bag bag;
      const std::string number = std::to_string(option);
      for (const Answer& answer :
           {bag.set(option, int64_t{1}), bag.set(option, 1.0), bag.set(option, std::string("x"))}) {
        CHECK(answer.status == KAIJU_INVALID_ARGUMENT);
        CHECK(answer.says(number.c_str()));
      }
    }
}
