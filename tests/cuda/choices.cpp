// The file of cuBLASLt's algorithms: what is written is what is read, and nothing else is taken for one.
#include "cuda/launch/choices.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "catch.hpp"

namespace kaiju::cuda {
namespace {

Choices some_choices() {
  Choices choices{"A GPU, 108 multiprocessors as of 8.0, cuBLASLt 130100", {}};
  choices.of[{20480, 5120, 128}] = Algorithm{1, 0, ~uint64_t{0}, 0x123456789abcdef0, 5, 6, 7, 8};
  choices.of[{20480, 5120, 64}] = std::nullopt;
  choices.of[{64, 64, 4096}] = Algorithm{};
  return choices;
}

std::string path_of(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("kaiju-" + name + "-" + std::to_string(::getpid()))).string();
}

}  // namespace

TEST_CASE("choices that are written to a file are read back unchanged") {
  const std::string path = path_of("choices");
  const Choices choices = some_choices();
  for (int32_t time = 0; time < 2; ++time) {  // an old file is replaced
    REQUIRE(write_choices(path, choices).ok());
    Result<Choices> read = read_choices(path);
    REQUIRE(read.ok());
    CHECK(read->machine == choices.machine);
    CHECK((read->of == choices.of));
  }
  std::filesystem::remove(path);
}

TEST_CASE("a missing file of choices is kNotFound, and a file of something else is refused by name") {
  const std::string path = path_of("not-choices");
  CHECK(read_choices(path).status().code() == StatusCode::kNotFound);
  std::ofstream(path) << "{}";
  const Status refused = read_choices(path).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message().find(path) == 0);
  CHECK(refused.message().find("remove it") != std::string::npos);
  std::filesystem::remove(path);
  CHECK_FALSE(read_choices(std::filesystem::temp_directory_path().string()).ok());
  CHECK_FALSE(write_choices(path + "/not/there", some_choices()).ok());
}

TEST_CASE("choices that are cut or changed anywhere are refused") {
  const std::string text = text_of(some_choices());
  REQUIRE(choices_of(text).ok());
  for (size_t length = 0; length < text.size(); ++length) {
    INFO("the first " << length << " bytes");
    const bool at_line = length > 0 && text[length - 1] == '\n';  // then fewer choices are left
    const auto lines = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length), '\n');
    CHECK(choices_of(text.substr(0, length)).ok() == (at_line && lines >= 2));
  }
  const std::string head = "kaiju products 1\nmachine\n";
  CHECK(choices_of(head).ok());
  for (const char* line : {"64 64 64\n", "64 64 own\n", "64 64 0 own\n", "-64 64 64 own\n", "64 64 64 own \n",
                           "64 64 64 owned\n", "64 64 99999999999 own\n", "64 64 64 1 2 3 4 5 6 7\n",
                           "64 64 64 1 2 3 4 5 6 7 8 9\n", "64 64 64 1 2 3 4 5 6 7 g\n",
                           "64 64 64 1 2 3 4 5 6 7 11111111111111111\n", "\n", "64 64 64 own\n64 64 64 own\n"}) {
    INFO(line);
    CHECK_FALSE(choices_of(head + line).ok());
  }
  CHECK_FALSE(choices_of("kaiju products 2\nmachine\n").ok());
}

}  // namespace kaiju::cuda
