// Args: the options of kaiju-chat's command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "conversation.hpp"

namespace chat {

struct Args {
  std::string model;      // path
  std::string character;  // file or name; empty: the first one
  std::string characters_folder;
  std::string backend = "auto", products_file;
  std::string swipe_log;  // path; empty: none
  int64_t threads = 0;
  std::vector<std::string> say;
  bool json = false;
  bool verbose = false;
  bool list = false;
  bool seed_given = false;
  Sampling sampling;
};

// The exit code to stop with at once. Help goes to stdout, a mistake as one line to stderr.
std::optional<int> parse_args(int argc, char** argv, Args& args);

// The bundled model and characters: beside the program, in ../share/kaiju, or in the source folder.
std::string bundled(const std::string& name);

}  // namespace chat
