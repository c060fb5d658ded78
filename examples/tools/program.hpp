// What every program here does alike: read the command line, say in one line what is wrong, and succeed only when its
// output has arrived. Exit codes: 0 done, 1 could not do it, 2 asked for something that makes no sense.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "kaiju.h"
#include "standard_streams.hpp"

namespace kaiju::tools {

inline int fail(const CLI::App& app, int code, const std::string& message) {
  std::fputs((app.get_name() + ": " + message + "\n").c_str(), stderr);
  return code;
}

// The exit code to stop with at once: 0 after --help and --version, 2 for a wrong command line. `app` has been given
// the program's name.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version", kaiju_version_string());
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(app, 2, std::string(error.what()) + " (see " + app.get_name() + " --help)");
  }
}

// The last thing a program does: a full disk or a closed pipe is a failure, not a success with nothing said.
inline int finish(const CLI::App& app, int code = 0) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return fail(app, 1, "cannot write to the standard output: is the disk full?");
  return code;
}

// What main does: what is thrown, for want of memory say, is a failure that is told like any other.
inline int run_main(const char* name, int (*run)(int argc, char** argv), int argc, char** argv) {
  hold_closed_streams();
  try {
    return run(argc, argv);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s: %s\n", name, problem.what());
    return 1;
  }
}

}  // namespace kaiju::tools
