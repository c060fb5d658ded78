// The text of --help, alike in all programs: an option's name and value on the left; on the right what it is, then in
// brackets its range, its default and the options that it needs or excludes.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace kaiju::tools {

class Help : public CLI::Formatter {
 public:
  Help() {
    for (const char* name : {"Positionals", "POSITIONALS"}) label(name, "Arguments");  // CLI11's versions differ
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = filled(app->get_description(), 0) + "\n" + make_usage(app, name) + make_positionals(app) +
                       make_groups(app, mode) + make_subcommands(app, mode);
    for (size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) text.erase(at, 1);
    return app->get_footer().empty() ? text : text + "\n" + app->get_footer() + "\n";
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string name = is_positional ? option->get_name(true, false) : option->get_name(false, true);
    if (!option->get_option_text().empty())  // the program says all of it
      return row(name + " " + option->get_option_text(), option->get_description());
    std::vector<std::string> remarks;
    const std::string value = value_of(*option, remarks);
    std::string text = option->get_description();
    if (!remarks.empty()) text += fmt::format(" ({})", fmt::join(remarks, "; "));
    return row(is_positional || value.empty() ? name : name + " " + value, text);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return row(command->get_name(), command->get_description());
  }

 private:
  static constexpr size_t kColumn = 30, kLine = 110;

  // What stands for the option's value. Appends to `remarks` what is known of it.
  static std::string value_of(const CLI::Option& option, std::vector<std::string>& remarks) {
    std::string value;
    if (option.get_type_size() != 0) {  // not a flag
      // The type's name, which may have colons, then what a check says of itself: "INT:1 to 256", "TEXT:NAME".
      value = option.get_type_name();
      const size_t colon = value.rfind(':');
      const std::string check = colon == std::string::npos ? "" : value.substr(colon + 1);
      const bool is_range = !check.empty() && (check[0] == '-' || std::isdigit(static_cast<unsigned char>(check[0])));
      if (is_range) remarks.push_back(check);
      if (is_range || check == "NAME" || check == "SIZE" || check == "DIR" || check.starts_with('{'))
        value.erase(colon);
      if (value == "INT" || value == "UINT") value = "N";
      if (value == "FLOAT") value = "X";
      if (check == "SIZE" || (check == "NAME" && value == "TEXT")) value = check;
      if (option.get_delimiter() != '\0') value += ",...";
      std::string standard = option.get_default_str();
      if (standard.starts_with('[')) standard = standard.substr(1, standard.size() - 2);  // a list
      if (!standard.empty()) remarks.push_back("default: " + standard);
      if (option.get_required() && option.nonpositional()) remarks.push_back("required");
    }
    const auto add = [&](const char* text, const std::set<CLI::Option*>& others) {
      if (others.empty() || others.size() > kNamed) return;
      std::set<std::string> names;
      for (const CLI::Option* other : others) names.insert(other->get_name());
      remarks.push_back(fmt::format("{} {}", text, fmt::join(names, ", ")));
    };
    add("needs", option.get_needs());
    add("not with", option.get_excludes());
    return value;
  }
  static constexpr size_t kNamed = 3;  // one that excludes more is named by each of those

  // Two columns, of which the right one has `text`.
  static std::string row(std::string name, const std::string& text) {
    while (name.ends_with(' ')) name.pop_back();
    std::string out = "  " + name;
    if (out.size() + 2 > kColumn) out += "\n" + std::string(kColumn, ' ');
    if (!out.ends_with(' ')) out.append(kColumn - out.size(), ' ');
    return out + filled(text, kColumn) + "\n";
  }

  // In lines of at most kLine characters, which begin after `indent` blanks; those of the first line are there already.
  static std::string filled(const std::string& text, size_t indent) {
    std::string out;
    size_t used = indent;  // of the line
    std::istringstream words(text);
    for (std::string word; words >> word; out += word) {
      if (used > indent && used + 1 + word.size() > kLine) {
        out += "\n" + std::string(indent, ' ');
        used = indent;
      } else if (used > indent) {
        out += " ";
        ++used;
      }
      used += word.size();
    }
    return out;
  }
};

}  // namespace kaiju::tools
