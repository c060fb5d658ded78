// bundled_file: where a file of the bundled model or a bundled character is.
#pragma once

#include <filesystem>
#include <string>

namespace kaiju::tools {

// Beside the program, in the prefix that it is installed in, or in `source`, the folder examples/chat of the sources.
inline std::string bundled_file(const std::string& name, const std::string& source) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& folder : {program, program / ".." / "share" / "kaiju", fs::path(source)})
    if (!folder.empty() && fs::exists(folder / name, error)) return (folder / name).lexically_normal().string();
  return (fs::path(source) / name).string();
}

}  // namespace kaiju::tools
