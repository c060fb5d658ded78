// NamedFiles: a folder with files that the server may change to while it serves, by their names without the ending.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kaiju::server {

class NamedFiles {
 public:
  static constexpr const char* kModel = "model";  // what is in the model's own file

  // `folder`: empty, no files.
  explicit NamedFiles(std::string folder) : folder_(std::move(folder)) {}

  std::string path_of(const std::string& name) const { return folder_ + "/" + name + std::string(kEnding); }
  // kModel first, then those of the folder in their order. No name leads out of the folder.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    std::error_code error;
    if (!folder_.empty())
      for (std::filesystem::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error))
        if (const std::string name = it->path().filename().string(); name.ends_with(kEnding))
          names.push_back(name.substr(0, name.size() - kEnding.size()));
    std::sort(names.begin(), names.end());
    names.insert(names.begin(), kModel);
    return names;
  }
  bool has(const std::string& name) const {
    const std::vector<std::string> all = names();
    return std::find(all.begin(), all.end(), name) != all.end();
  }

 private:
  static constexpr std::string_view kEnding = ".safetensors";
  std::string folder_;
};

}  // namespace kaiju::server
