// kaiju-encode: the tokens of texts, for check_tokenizer.py and other scripts. Each text comes as a line of its length
// in bytes, then its bytes; its tokens, or why there are none, go out as a line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "../tools/program.hpp"
#include "../tools/text_input.hpp"
#include "kaiju/text/tokenizer.hpp"

namespace {

namespace tools = kaiju::tools;

constexpr size_t kMostTokenizerBytes = size_t{256} << 20;
constexpr int32_t kMostVocabulary = 1 << 20;

int run(int argc, char** argv) {
  CLI::App app(
      "Prints the tokens of each text that comes as LENGTH newline BYTES.\n\nExample: printf '5\\nhello' | "
      "kaiju-encode tokenizer.kaiju.json",
      "kaiju-encode");
  std::string path;
  bool special = false;
  app.add_option("TOKENIZER", path, "a checkpoint's tokenizer, as examples/import/tokenizer.py writes it")->required();
  app.add_flag("--special", special, "find special tokens in the texts");
  if (const auto code = tools::parse(app, argc, argv)) return *code;
  const auto file = tools::read_text_file(path, kMostTokenizerBytes);
  if (!file.problem.empty()) return tools::fail(app, 1, file.problem);
  const auto loaded = kaiju::Tokenizer::load(std::as_bytes(std::span(file.text)), kMostVocabulary);
  if (!loaded.ok()) return tools::fail(app, 1, path + ": " + loaded.status().message());
  const kaiju::Tokenizer& tokenizer = *loaded.value();
  std::string text, line;
  while (tools::read_line(std::cin, line, 20) == tools::LineRead::kLine) {
    const unsigned long size = std::strtoul(line.c_str(), nullptr, 10);
    if (size > 4 * kaiju::Tokenizer::kMaxTextBytes) return tools::fail(app, 1, "a text of " + line + " bytes");
    text.resize(size);
    if (!std::cin.read(text.data(), static_cast<std::streamsize>(size)))
      return tools::fail(app, 1, "a text ends early");
    const auto tokens = special ? tokenizer.encode_with_special_tokens(text) : tokenizer.encode(text);
    if (tokens.ok())
      tools::print("{}\n", fmt::join(tokens.value(), " "));
    else
      tools::print("{}\n", tokens.status().message());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-encode", run, argc, argv); }
