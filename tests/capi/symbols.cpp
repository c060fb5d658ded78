// The exported names: the header, kaiju.symbols and the shared library say the same.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "catch.hpp"
#include "kaiju.h"

extern "C" {
typedef void (*any_function)(void);
extern const any_function kaiju_every_function[];
extern const size_t kaiju_every_function_count;
}

namespace {

using Names = std::set<std::string>;

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Names listed() {
  std::ifstream file(std::string(KAIJU_SOURCE_DIR) + "/capi/kaiju.symbols");
  Names names;
  for (std::string line; std::getline(file, line);) names.insert(line);
  return names;
}

Names declared() {
  const std::string header = read(std::string(KAIJU_SOURCE_DIR) + "/capi/kaiju.h");
  static const std::regex pattern("\\nKAIJU_API[^;(]*?(kaiju_[a-z0-9_]+)\\(");
  Names names;
  for (std::sregex_iterator it(header.begin(), header.end(), pattern), end; it != end; ++it) names.insert((*it)[1]);
  return names;
}

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  char buffer[4096];
  while (const size_t size = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, size);
  REQUIRE(pclose(pipe) == 0);
  return out;
}

}  // namespace

TEST_CASE("kaiju.symbols lists what kaiju.h declares") {
  CHECK(declared().size() > 30);
  CHECK(declared() == listed());
}

TEST_CASE("every declared function exists") {
  CHECK(kaiju_every_function_count == listed().size());
  for (size_t i = 0; i < kaiju_every_function_count; ++i) CHECK(kaiju_every_function[i] != nullptr);
}

TEST_CASE("the shared library exports kaiju.symbols and nothing else") {
  const std::string table = output_of("nm -D --defined-only --format=posix '" KAIJU_SHARED_LIBRARY "'");
  static const std::regex pattern("(?:^|\\n)([^ @\\n]+)(@@?[^ \\n]+)? ([A-Za-z])");
  Names exported;
  for (std::sregex_iterator it(table.begin(), table.end(), pattern), end; it != end; ++it) {
    if ((*it)[3] == "A") continue;  // the version's own name
    CHECK((*it)[2] == "@@KAIJU_0");
    exported.insert((*it)[1]);
  }
  CHECK(exported == listed());
}

TEST_CASE("the shared library's name carries the ABI's major version") {
  CHECK(output_of("readelf -d '" KAIJU_SHARED_LIBRARY "' | grep SONAME").find("[libkaiju.so.0]") != std::string::npos);
}
