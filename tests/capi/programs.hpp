// Running the programs as a person would, with tiny models: arguments and input in; exit code and both outputs back.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/capi/host.hpp"

namespace kaiju::tests {

struct Run {
  int code = -1;
  std::string out, err;
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::istringstream stream(out);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  // One line on stderr that says `what`, nothing but failure otherwise.
  bool refuses(const std::string& what) const {
    return code != 0 && code < 100 && err.find(what) != std::string::npos &&
           std::count(err.begin(), err.end(), '\n') == 1;
  }
};

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string write_file(const std::string& name, const std::string& bytes) {
  const std::string path = temporary_folder() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// `streams`: further redirections for the shell, which win: "2>&-".
inline Run run_program(const std::string& program, const std::vector<std::string>& args, const std::string& input = "",
                       const std::string& streams = "") {
  const std::string folder = temporary_folder();
  std::string command = quoted(std::string(KAIJU_PROGRAM_DIR) + "/" + program);
  for (const std::string& arg : args) command += " " + quoted(arg);
  command += " <" + quoted(write_file("in", input)) + " >" + quoted(folder + "/out") + " 2>" + quoted(folder + "/err") +
             " " + streams;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 200, slurp(folder + "/out"), slurp(folder + "/err")};
}

inline const std::string& short_card() {
  static const std::string path = write_file("short.card", "name: Ann\ngreeting: hello\n\nthe world.\n");
  return path;
}

inline Run chat(std::vector<std::string> args, const std::string& input = "", const std::string& streams = "") {
  for (const char* more : {"--model", chat_model_file().c_str(), "--threads", "1"}) args.push_back(more);
  return run_program("kaiju-chat", args, input, streams);
}

inline Run short_chat(std::vector<std::string> args, const std::string& input = "", const std::string& streams = "") {
  for (const char* more : {"--character", short_card().c_str(), "--max-tokens", "12"}) args.push_back(more);
  return chat(std::move(args), input, streams);
}

}  // namespace kaiju::tests
