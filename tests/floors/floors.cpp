// Every folder includes what docs/architecture.md allows it, and files stay short: read from the sources, no build
// needed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
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
    {"capi", {"kaiju.hpp", "calibration.hpp", "records.hpp", "rollout.hpp", "base", "sample", "text"}},
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

// Where quoted includes that do not begin with kaiju/ may lead from a folder of the project: files beside it, and of
// the project's other folders these. A path is looked for beside the file, then in the folders that the build searches.
struct QuotedRule {
  std::string folder;
  std::set<std::string> may_include;
};
const std::vector<QuotedRule> kQuoted = {
    // the first that a file is in counts
    {"src/format", {"src/format"}},
    {"src/text", {"src/text", "src/format"}},
    {"src/cpu/isa", {"src/cpu"}},
    {"src/cpu", {"src/cpu"}},
    {"src", {"src", "cuda/cuda.hpp"}},
    {"cuda/tiles", {"cuda/tiles", "cuda/kernels.hpp"}},
    {"cuda/kernels", {"cuda/kernels", "cuda/tiles", "cuda/launch/tiles.hpp", "cuda/kernels.hpp"}},
    {"cuda/launch", {"cuda", "src/format"}},
    {"cuda", {"cuda"}},
    {"capi", {"capi"}},
    {"bench/cuda", {"bench", "cuda", "examples/tools", "tests/cuda", "tests/conformance"}},
    {"bench/kv_events", {"examples/server/kv_events.hpp", "examples/tools"}},
    {"bench", {"bench", "cuda", "examples/tools", "src"}},
};
const char* const kSearched[] = {"src", "cuda", "capi", "bench", "."};

// The file of the project that `include` in `file` means; empty: none of the project's.
fs::path included_file(const fs::path& root, const fs::path& file, const std::string& include) {
  std::vector<fs::path> places = {(root / file).parent_path()};
  for (const char* folder : kSearched) places.push_back(root / folder);
  for (const fs::path& place : places)
    if (const fs::path found = place / include; fs::exists(found))
      return fs::relative(fs::weakly_canonical(found), fs::weakly_canonical(root));
  return {};
}

bool is_in(const fs::path& file, const std::string& folder) {
  const std::string name = file.generic_string();
  return name == folder || name.starts_with(folder + "/");
}

// One line for each quoted include that the first rule of the file's folder does not allow.
std::vector<std::string> forbidden_quotes(const fs::path& root, const fs::path& file, const std::string& text) {
  static const std::regex pattern("#\\s*include\\s*\"([^\"]+)\"");
  std::vector<std::string> out;
  for (const QuotedRule& rule : kQuoted) {
    if (!is_in(file, rule.folder)) continue;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
      const std::string include = (*it)[1];
      if (include.starts_with("kaiju/")) continue;
      const fs::path target = included_file(root, file, include);
      bool allowed = target.empty();
      for (const std::string& folder : rule.may_include) allowed |= is_in(target, folder);
      if (!allowed) out.push_back(file.generic_string() + " includes " + target.generic_string());
    }
    break;
  }
  return out;
}

// Whether a file outside of the library includes one of its details.
bool includes_detail(const std::string& text) {
  static const std::regex pattern("#\\s*include\\s*[\"<]kaiju/[^\">]*detail/");
  return std::regex_search(text, pattern);
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

TEST_CASE("no file includes a header of a higher layer") {
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

TEST_CASE("an include of a higher layer would be found") {
  CHECK(climbs("include/kaiju/cache", "x.hpp", "#include \"kaiju/engine/engine.hpp\"\n").size() == 1);
  CHECK(climbs("include/kaiju/backend", "x.hpp", "#include \"kaiju/cache/blocks.hpp\"\n").size() == 1);
  CHECK(climbs("capi", "kaiju.cpp", "#  include <kaiju/engine/engine.hpp>\n").size() == 1);
  CHECK(climbs("include/kaiju/engine", "x.hpp", "#include \"kaiju/cache/blocks.hpp\"\n").empty());
}

TEST_CASE("quoted includes in cuda, src, capi and bench obey the folder's rule") {
  const fs::path root = KAIJU_SOURCE_DIR;
  int files = 0;
  for (const char* folder : {"src", "cuda", "capi", "bench"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      ++files;
      for (const std::string& found : forbidden_quotes(root, fs::relative(entry.path(), root), read(entry.path())))
        FAIL_CHECK(found);
    }
  CHECK(files > 100);
}

TEST_CASE("a quoted include that breaks the rule would be found") {
  const fs::path root = KAIJU_SOURCE_DIR;
  CHECK(forbidden_quotes(root, "cuda/tiles/x.cuh", "#include \"../worker.hpp\"\n").size() == 1);
  CHECK(forbidden_quotes(root, "cuda/kernels/x.cu", "#include \"worker.hpp\"\n").size() == 1);
  CHECK(forbidden_quotes(root, "src/format/x.cpp", "#include \"text/sentencepiece_model.hpp\"\n").size() == 1);
  CHECK(forbidden_quotes(root, "cuda/x.cpp", "#include \"launch/tiles.hpp\"\n").empty());
}

TEST_CASE("example programs include no detail headers of the library") {
  const fs::path root = KAIJU_SOURCE_DIR;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / "examples")) {
    if (!entry.is_regular_file() || !is_source(entry.path())) continue;
    ++files;
    if (includes_detail(read(entry.path())))
      FAIL_CHECK(fs::relative(entry.path(), root).generic_string() + " includes a header of a detail folder");
  }
  CHECK(files > 30);
  CHECK(includes_detail("#include \"kaiju/engine/detail/scheduler.hpp\"\n"));
  CHECK_FALSE(includes_detail("#include \"kaiju/engine/engine.hpp\"\n"));
}

TEST_CASE("files of the library are short: nine in ten under 400 lines, none over 600 but kaiju.h") {
  const fs::path root = KAIJU_SOURCE_DIR;
  std::vector<std::pair<size_t, std::string>> lengths;
  for (const char* folder : {"include", "src", "cuda", "capi"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const std::string text = read(entry.path());
      lengths.emplace_back(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')),
                           fs::relative(entry.path(), root).generic_string());
    }
  std::sort(lengths.begin(), lengths.end());
  CHECK(lengths[lengths.size() * 9 / 10].first < 400);
  for (const auto& [lines, file] : lengths)
    if (lines > (file == "capi/kaiju.h" ? 1400 : 600)) FAIL_CHECK(file + " has " + std::to_string(lines) + " lines");
}

TEST_CASE("every folder of the core has its rule") {
  const fs::path root = fs::path(KAIJU_SOURCE_DIR) / "include/kaiju";
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory() || fs::is_empty(entry.path())) continue;
    INFO(entry.path().filename().string());
    CHECK(kMayInclude.count("include/kaiju/" + entry.path().filename().string()) == 1);
  }
}

TEST_CASE("programs print only with functions that cannot end them, and read numbers only as decimal") {
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

TEST_CASE("a print that may end a program would be found") {
  CHECK(unsafe_in_programs("x", "fmt::print(stderr, \"x\");").size() == 1);
  CHECK(unsafe_in_programs("x", "std::cout << 1;").size() == 1);
  CHECK(unsafe_in_programs("x", "->check(CLI::Range(0, 1))").size() == 1);
  CHECK(unsafe_in_programs("x", "tools::print(stderr, \"x\");").empty());
}
