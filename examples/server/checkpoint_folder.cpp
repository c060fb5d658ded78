// See checkpoint_folder.hpp.
#include "checkpoint_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "failure.hpp"

namespace kaiju::server {
namespace {

constexpr std::string_view kEnding = ".safetensors";

std::string current_file(const std::string& folder) { return folder + "/current.json"; }

// An open file or folder.
class Opened {
 public:
  Opened(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Opened() {
    if (fd_ >= 0) ::close(fd_);
  }
  Opened(const Opened&) = delete;
  bool ok() const { return fd_ >= 0; }
  bool write(std::string_view text) const { return ::write(fd_, text.data(), text.size()) == std::ssize(text); }
  bool sync() const { return ::fsync(fd_) == 0; }

 private:
  const int fd_;
};

}  // namespace

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  if (!folder.empty())
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
      if (const std::string name = it->path().filename().string(); name.ends_with(kEnding))
        names.push_back(name.substr(0, name.size() - kEnding.size()));
  std::sort(names.begin(), names.end());
  std::erase(names, kModel);
  names.insert(names.begin(), kModel);
  return names;
}

void check_name(const std::string& folder, const std::string& name, const char* kind) {
  const std::vector<std::string> known = names_in(folder);
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw Failure{404, fmt::format("{}: there is no {:?}; there are: {}", kind, name, fmt::join(known, ", ")), kind,
                  fmt::format("{}_not_found", kind)};
}

std::string file_in(const std::string& folder, const std::string& name) {
  return folder + "/" + name + std::string(kEnding);
}

std::string read_current(const std::string& folder) {
  const std::string file = current_file(folder);
  if (folder.empty() || !std::filesystem::exists(file)) return kModel;
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const nlohmann::json read = nlohmann::json::parse(text, nullptr, false);
  const std::string name = read.is_object() && read.contains("current") && read["current"].is_string()
                               ? read["current"].get<std::string>()
                               : std::string();
  const std::vector<std::string> names = names_in(folder);
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  throw std::runtime_error(fmt::format(
      "{}: names no file of its folder: put it back, or delete {} to serve with what --model has", file, file));
}

void write_current(const std::string& folder, const std::string& name) {
  const std::string file = current_file(folder), unnamed = file + ".new";
  const std::string text = nlohmann::json{{"current", name}}.dump() + "\n";
  const Opened out(unnamed, O_WRONLY | O_CREAT | O_TRUNC);
  const bool written = out.ok() && out.write(text) && out.sync() && ::rename(unnamed.c_str(), file.c_str()) == 0;
  if (!written || !Opened(folder, O_RDONLY | O_DIRECTORY).sync())
    throw Failure{
        500, fmt::format("{}: cannot be written: {}: what was served before is served on", file, std::strerror(errno))};
}

}  // namespace kaiju::server
