// kaiju-encode: the tokens of texts, or of conversations, for check_tokenizer.py and other scripts. Each text comes as
// a line of its length in bytes, then its bytes; its tokens, or why there are none, go out as a line. A conversation is
// the JSON text [{"role": "user", "content": "Hello", "name": "Ann"}, ...]; its tokens are those of the prompt for a
// reply.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "../tools/program.hpp"
#include "../tools/text_input.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "kaiju/text/chat.hpp"
#include "kaiju/text/tokenizer.hpp"

namespace {

namespace tools = kaiju::tools;

constexpr size_t kMostTokenizerBytes = size_t{256} << 20;
constexpr int32_t kMostVocabulary = 1 << 20;

kaiju::Result<std::vector<int32_t>> encode_conversation(const kaiju::ChatFormat& chat, const std::string& text) try {
  const auto conversation = nlohmann::json::parse(text);
  std::vector<kaiju::ChatMessage> messages;
  for (const auto& each : conversation) {
    const auto& role = each.at("role").get_ref<const std::string&>();
    kaiju::ChatMessage& message = messages.emplace_back();
    message.role = role == "system" ? kaiju::ChatRole::kSystem
                   : role == "user" ? kaiju::ChatRole::kUser
                                    : kaiju::ChatRole::kCharacter;
    message.text = each.at("content").get_ref<const std::string&>();
    if (each.contains("name")) message.name = each.at("name").get_ref<const std::string&>();
  }
  const bool begin = messages.empty() || messages.front().role != kaiju::ChatRole::kSystem;
  std::vector<int32_t> tokens;
  KAIJU_TRY(chat.format(messages, {.begin = begin, .reply = true}, tokens));
  return tokens;
} catch (const nlohmann::json::exception& problem) {
  return kaiju::invalid_argument(problem.what());
}

// The chat format alone is no config: the rest is made up.
kaiju::Result<kaiju::ChatFormat> read_chat_format(const std::string& json,
                                                  const std::shared_ptr<const kaiju::Tokenizer>& tokenizer) {
  auto config = kaiju::config_from_json(fmt::format(
      R"({{"name":"","vocab_size":{},"d_model":64,"n_heads":1,"n_kv_heads":1,"head_dim":64,"d_ff":64,"context":64,)"
      R"("norm_eps":1e-5,"layers":[{{"kind":"global","kv_slot":0,"rope":0}}],"chat_format":{}}})",
      kMostVocabulary, json));
  if (!config.ok()) return config.status();
  return kaiju::ChatFormat::create(config.value(), tokenizer);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Prints the tokens of each text that comes as LENGTH newline BYTES.\n\nExample: printf '5\\nhello' | "
      "kaiju-encode tokenizer.kaiju.json",
      "kaiju-encode");
  std::string path, chat_path;
  bool special = false;
  app.add_option("TOKENIZER", path, "a checkpoint's tokenizer, as examples/import/tokenizer.py writes it")->required();
  CLI::Option* flag = app.add_flag("--special", special, "find special tokens in the texts");
  app.add_option("--chat", chat_path,
                 "a chat format, as examples/import/chat_format.py writes it: the texts are conversations")
      ->type_name("FILE")
      ->excludes(flag);
  if (const auto code = tools::parse(app, argc, argv)) return *code;
  const auto file = tools::read_text_file(path, kMostTokenizerBytes);
  if (!file.problem.empty()) return tools::fail(app, 1, file.problem);
  const auto loaded = kaiju::Tokenizer::load(std::as_bytes(std::span(file.text)), kMostVocabulary);
  if (!loaded.ok()) return tools::fail(app, 1, path + ": " + loaded.status().message());
  const kaiju::Tokenizer& tokenizer = *loaded.value();
  std::optional<kaiju::ChatFormat> chat;
  if (!chat_path.empty()) {
    const auto format = tools::read_text_file(chat_path, kMostTokenizerBytes);
    if (!format.problem.empty()) return tools::fail(app, 1, format.problem);
    auto made = read_chat_format(format.text, loaded.value());
    if (!made.ok()) return tools::fail(app, 1, chat_path + ": " + made.status().message());
    chat = std::move(made).value();
  }
  std::string text, line;
  while (tools::read_line(std::cin, line, 20) == tools::LineRead::kLine) {
    const unsigned long size = std::strtoul(line.c_str(), nullptr, 10);
    if (size > 4 * kaiju::Tokenizer::kMaxTextBytes) return tools::fail(app, 1, "a text of " + line + " bytes");
    text.resize(size);
    if (!std::cin.read(text.data(), static_cast<std::streamsize>(size)))
      return tools::fail(app, 1, "a text ends early");
    const auto tokens = chat      ? encode_conversation(*chat, text)
                        : special ? tokenizer.encode_with_special_tokens(text)
                                  : tokenizer.encode(text);
    if (tokens.ok())
      tools::print("{}\n", fmt::join(tokens.value(), " "));
    else
      tools::print("{}\n", tokens.status().message());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-encode", run, argc, argv); }
