// Files built for one instruction set share no function with the rest of the library: an inline function emitted there
// too could be the copy the linker keeps, and would stop a machine without those instructions. Their objects may define
// no weak symbol of C++ code.
#include <cstdio>
#include <filesystem>
#include <string>

#include "catch.hpp"

namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, got);
  REQUIRE(pclose(pipe) == 0);
  return text;
}

}  // namespace

TEST_CASE("objects of an instruction set define no function the linker could share") {
  const std::filesystem::path folder =
      std::filesystem::path(KAIJU_PROGRAM_DIR) / "../CMakeFiles/kaiju_objects.dir/src/cpu";
  if (!std::filesystem::exists(folder)) {
    WARN("no objects at " << folder << ": not checked");
    return;
  }
  int objects = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "amx.cpp.o" && name != "avx512.cpp.o" && name != "avxvnni.cpp.o" && name != "avx2.cpp.o" &&
        name != "i8mm.cpp.o" && name != "neon.cpp.o")
      continue;
    ++objects;
    const std::string symbols = output_of("nm --defined-only '" + entry.path().string() + "'");
    for (size_t at = 0; at < symbols.size();) {
      const size_t end = std::min(symbols.find('\n', at), symbols.size());
      const std::string line = symbols.substr(at, end - at);
      at = end + 1;
      INFO(name << ": " << line);
      const bool weak = line.find(" W _Z") != std::string::npos || line.find(" V _Z") != std::string::npos ||
                        line.find(" u _Z") != std::string::npos;
      CHECK_FALSE(weak);
    }
  }
  CHECK(objects >= 1);
}
