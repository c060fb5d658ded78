// The house keeps its floors: no file includes one above it, and the two towers never meet (docs/architecture.md).
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"

namespace {

namespace fs = std::filesystem;

// What each folder may include of include/kaiju/; itself always.
const std::set<std::string> kGround = {"base", "arith", "format", "step"};

std::set<std::string> ground_and(std::set<std::string> more) {
  more.insert(kGround.begin(), kGround.end());
  return more;
}

const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"include/kaiju/base", {"base"}},
    {"include/kaiju/arith", {"base", "arith"}},
    {"include/kaiju/format", {"base", "format"}},
    {"include/kaiju/step", {"base", "step"}},
    // host tower
    {"include/kaiju/cache", ground_and({"cache"})},
    {"include/kaiju/sample", ground_and({"sample"})},
    {"include/kaiju/text", ground_and({"text"})},
    {"include/kaiju/engine", ground_and({"cache", "sample", "text", "engine"})},
    // device tower
    {"include/kaiju/tensor", ground_and({"tensor"})},
    {"include/kaiju/backend", ground_and({"tensor", "backend"})},
    {"include/kaiju/model", ground_and({"tensor", "backend", "model"})},
    {"include/kaiju/run", ground_and({"tensor", "backend", "model", "run"})},
    {"src/format", {"base", "format"}},
    {"src/text", ground_and({"text"})},
    {"src/cpu", ground_and({"tensor", "backend"})},
    {"cuda", ground_and({"tensor", "backend", "model", "run"})},
    {"capi", {"kaiju.hpp", "base", "sample", "text"}},
};

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Folders (or files) under include/kaiju that a file includes: "base" for kaiju/base/status.hpp, "kaiju.hpp" for
// kaiju/kaiju.hpp.
std::vector<std::string> includes_of(const std::string& text) {
  static const std::regex pattern("#\\s*include\\s*[\"<]kaiju/([^/\">]+)");
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) found.push_back((*it)[1]);
  return found;
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> kEndings = {".hpp", ".cpp", ".h", ".c", ".cu", ".cuh", ".inc"};
  return kEndings.count(path.extension().string()) > 0;
}

// One line per include that climbs.
std::vector<std::string> climbs(const std::string& folder, const std::string& file, const std::string& text) {
  std::vector<std::string> out;
  const auto rule = kMayInclude.find(folder);
  if (rule == kMayInclude.end()) return out;
  for (const std::string& target : includes_of(text))
    if (!rule->second.count(target)) out.push_back(folder + "/" + file + " includes kaiju/" + target);
  return out;
}

// One line per way to print that may end a program, or to read a number that is not decimal, beside the two headers
// that do it safely.
std::vector<std::string> unsafe_in_programs(const std::string& file, const std::string& text) {
  static const std::regex pattern("fmt::print(ln)?\\(|std::(cout|cerr|clog|print(ln)?)\\b|CLI::(Range|AsSizeValue)\\b");
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    out.push_back(file + " has " + it->str());
  return out;
}

}  // namespace

TEST_CASE("no include climbs to a floor above") {
  const fs::path root = KAIJU_SOURCE_DIR;
  int files = 0;
  for (const auto& [folder, allowed] : kMayInclude) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      ++files;
      for (const std::string& climb : climbs(folder, entry.path().filename().string(), read(entry.path())))
        FAIL_CHECK(climb);
    }
  }
  CHECK(files > 20);
}

TEST_CASE("a climbing include would be noticed") {
  CHECK(climbs("include/kaiju/cache", "x.hpp", "#include \"kaiju/engine/engine.hpp\"\n").size() == 1);
  CHECK(climbs("include/kaiju/backend", "x.hpp", "#include \"kaiju/cache/blocks.hpp\"\n").size() == 1);
  CHECK(climbs("capi", "kaiju.cpp", "#  include <kaiju/engine/engine.hpp>\n").size() == 1);
  CHECK(climbs("include/kaiju/engine", "x.hpp", "#include \"kaiju/cache/blocks.hpp\"\n").empty());
}

TEST_CASE("every folder of the core has its rule") {
  const fs::path root = fs::path(KAIJU_SOURCE_DIR) / "include/kaiju";
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory() || fs::is_empty(entry.path())) continue;
    INFO(entry.path().filename().string());
    CHECK(kMayInclude.count("include/kaiju/" + entry.path().filename().string()) == 1);
  }
}

TEST_CASE("programs print only by what cannot end them, and read numbers only in decimal") {
  int files = 0;
  for (const char* folder : {"examples", "bench"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(KAIJU_SOURCE_DIR) / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const std::string name = entry.path().filename().string();
      ++files;
      for (const std::string& found : unsafe_in_programs(name, read(entry.path()))) FAIL_CHECK(found);
    }
  CHECK(files > 30);
}

TEST_CASE("a print that may end a program would be noticed") {
  CHECK(unsafe_in_programs("x", "fmt::print(stderr, \"x\");").size() == 1);
  CHECK(unsafe_in_programs("x", "std::cout << 1;").size() == 1);
  CHECK(unsafe_in_programs("x", "->check(CLI::Range(0, 1))").size() == 1);
  CHECK(unsafe_in_programs("x", "tools::print(stderr, \"x\");").empty());
}
