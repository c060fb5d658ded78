// Code that all programs share: they read the command line, report an error in one line, and succeed only if their
// output was written. Exit codes: 0 success; 1 failure; 2 wrong command line, as far as it can be judged without
// opening a file.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "help.hpp"
#include "kaiju.h"
#include "nearest.hpp"
#include "standard_streams.hpp"

namespace kaiju::tools {

inline int fail(const CLI::App& app, int code, const std::string& message) {
  std::fputs((app.get_name() + ": " + printable(message) + "\n").c_str(), stderr);
  return code;
}

inline constexpr const char* kEmptyValue = "the value is empty: give one";

// An empty value is most often a shell variable that is not set: it must not stand for the default.
inline void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() > 0)
      option->check([](const std::string& given) { return given.empty() ? kEmptyValue : ""; });
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*command);
}

// "--model" where an argument is "--model=": CLI11 would take the next argument as its value.
inline std::string option_without_value(std::span<char* const> arguments) {
  for (const std::string argument : arguments)
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1)
      return argument.substr(0, argument.size() - 1);
  return "";
}

// The option whose list has an empty item, as in "--memory 4,,2": CLI11 drops such items. Empty: there is none.
inline std::string list_with_empty_item(CLI::App& app, std::span<char* const> arguments) {
  CLI::App* command = &app;
  const CLI::Option* list = nullptr;  // whose values are being read
  for (std::string argument : arguments) {
    if (argument.starts_with("--")) {
      const size_t value = argument.find('=');
      const CLI::Option* option = command->get_option_no_throw(argument.substr(0, value));
      list = option && option->get_delimiter() != '\0' ? option : nullptr;
      if (value == std::string::npos) continue;
      argument.erase(0, value + 1);
    } else if (!list) {
      for (CLI::App* each : app.get_subcommands([&](CLI::App* any) { return any->get_name() == argument; }))
        command = each;
    }
    if (!list) continue;
    const char comma = list->get_delimiter();
    if (argument.find(comma) != std::string::npos && (argument.front() == comma || argument.back() == comma ||
                                                      argument.find(std::string(2, comma)) != std::string::npos))
      return list->get_name();
  }
  return "";
}

// The first option that no command knows; empty: there is none.
inline std::string unknown_option(const CLI::App& app) {
  for (const std::string& argument : app.remaining(true))
    if (argument.starts_with("--")) return argument.substr(0, argument.find('='));
  return "";
}

// ": did you mean --seed?" for that option; empty: none is like it.
inline std::string option_meant(const CLI::App& app) {
  const std::string given = unknown_option(app);
  if (given.empty()) return "";
  std::vector<std::string> known;
  const auto add = [&](const CLI::App& command) {
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  };
  add(app);
  for (const CLI::App* command : app.get_subcommands()) add(*command);  // those on the command line
  return did_you_mean(given, known);
}

// Says what nothing takes, in the order in which it was given (CLI11 tells it in reverse), and which option was meant.
inline std::string unexpected(const CLI::App& app, std::span<char* const> arguments) {
  std::vector<std::string> extras = app.remaining(true);
  const auto place = [&](const std::string& extra) { return std::find(arguments.begin(), arguments.end(), extra); };
  std::stable_sort(extras.begin(), extras.end(),
                   [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
  std::string message = fmt::format("The following argument{} not expected: {}", extras.size() == 1 ? " was" : "s were",
                                    fmt::join(extras, " "));
  const std::string meant = option_meant(app);
  if (!meant.empty() && extras.size() > 1) message += "; " + unknown_option(app);
  return message + meant;
}

// "kaiju-bench step", whose --help has the options of this command line.
inline std::string command_of(const CLI::App& app, std::span<char* const> arguments) {
  const auto commands = app.get_subcommands([](const CLI::App* any) { return !any->get_name().empty(); });
  for (const std::string argument : arguments.subspan(std::min<size_t>(1, arguments.size())))
    for (const CLI::App* command : commands)
      if (command->get_name() == argument) return app.get_name() + " " + argument;
  return app.get_name();
}

// Gives a program or a subcommand the help of all, and --version.
inline void prepare_help(CLI::App& app, const std::shared_ptr<Help>& help) {
  app.formatter(help);
  CLI::Option* version = app.set_version_flag("--version", kaiju_version_string(), "print the version and exit");
  if (CLI::Option* asks = app.get_help_ptr()) {
    asks->description("print this help and exit");
    version->group(asks->get_group());
  }
}

// The exit code to stop with at once: 0 after --help and --version, 2 for a wrong command line. `app` has been given
// the program's name.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  const std::span<char* const> arguments(argv, static_cast<size_t>(argc));
  const auto help = std::make_shared<Help>();
  prepare_help(app, help);
  for (CLI::App* command : app.get_subcommands([](CLI::App* any) { return !any->get_name().empty(); }))
    prepare_help(*command, help);
  refuse_empty_values(app);
  const auto wrong = [&](const std::string& message) {
    return fail(app, 2, message + " (see " + command_of(app, arguments) + " --help)");
  };
  if (const std::string option = option_without_value(arguments); !option.empty())
    return wrong(option + ": " + kEmptyValue);
  if (const std::string option = list_with_empty_item(app, arguments); !option.empty())
    return wrong(option + ": an item of the list is empty");
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::ExtrasError*>(&error)) return wrong(unexpected(app, arguments));
    if (dynamic_cast<const CLI::RequiredError*>(&error)) return wrong(error.what() + option_meant(app));
    if (error.get_exit_code() != 0) return wrong(error.what());
    std::ostringstream asked_for;
    const int code = app.exit(error, asked_for, asked_for);
    print("{}", asked_for.str());
    return code;
  }
}

// The last thing a program does: a full disk or a closed pipe is a failure, not a success with nothing said.
inline int finish(const std::string& name, int code) {
  if (std::fflush(stdout) == 0 && !output_failed()) return code;
  std::fprintf(stderr, "%s: cannot write to the standard output: is it open, and is there room on the disk?\n",
               name.c_str());
  return 1;
}

// What main does: what is thrown, for want of memory say, is a failure that is told like any other.
inline int run_main(const char* name, int (*run)(int argc, char** argv), int argc, char** argv) {
  prepare_streams();
  int code = 1;
  try {
    code = run(argc, argv);
  } catch (const std::exception& problem) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", name, printable(problem.what()).c_str());
  }
  return finish(name, code);
}

}  // namespace kaiju::tools
