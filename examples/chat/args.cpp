// Parses the command line of kaiju-chat.
#include "args.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "../tools/name_from.hpp"
#include "../tools/number_from.hpp"
#include "../tools/program.hpp"
#include "utf8.hpp"

namespace chat {
namespace {

namespace fs = std::filesystem;
using kaiju::tools::number_from, kaiju::tools::whole_number, kaiju::tools::Zero;

constexpr const char* kFooter = R"(Examples:
  kaiju-chat                                   talk to the first of the bundled characters
  kaiju-chat --character silas                 to another one (--list shows them)
  kaiju-chat --character my.card               to your own: lines 'name: ...' and 'greeting: ...',
                                               an empty line, then a description
  kaiju-chat --say 'Hello!' --say 'And you?'   two turns, no terminal needed
  kaiju-chat --say 'Hello!' --json --seed 7    one line of JSON a turn
  echo 'Hello!' | kaiju-chat                   one turn a line
While chatting: /help. Ctrl-C stops a reply, Ctrl-D leaves. Colours: off with NO_COLOR=1.)";

}  // namespace

std::string bundled(const std::string& name) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& folder : {program, program / ".." / "share" / "kaiju", fs::path(KAIJU_CHAT_FOLDER)})
    if (!folder.empty() && fs::exists(folder / name, error)) return (folder / name).lexically_normal().string();
  return (fs::path(KAIJU_CHAT_FOLDER) / name).string();
}

std::optional<int> parse_args(int argc, char** argv, Args& args) {
  CLI::App app("Chat with a character played by a Kaiju model.", "kaiju-chat");
  app.footer(kFooter);
  args.characters_folder = bundled("characters");
  Sampling& sampling = args.sampling;
  const auto text = [](double value) { return fmt::format("{:g}", value); };
  app.add_option("--model", args.model, "model file (default: the bundled one)")->type_name("FILE");
  CLI::Option* character = app.add_option("--character", args.character, "card file, or name of a bundled character")
                               ->type_name("FILE|NAME");
  CLI::Option* list = app.add_flag("--list", args.list, "list the bundled characters and exit");
  CLI::Option* say = app.add_option("--say", args.say, "say this and print the reply; repeatable, one turn for each")
                         ->type_name("TEXT")
                         ->take_all()
                         ->allow_extra_args(false)
                         ->check([](const std::string& text) {
                           if (text.find_first_not_of(" \t\r\n") == std::string::npos)
                             return std::string("there is nothing to say");
                           return not_utf8(text);
                         });
  CLI::Option* json = app.add_flag("--json", args.json, "print one line of JSON for each turn");
  CLI::Option* seed =
      app.add_option("--seed", sampling.seed, "the same seed gives the same replies (default: 0; random on a terminal)")
          ->type_name("N")
          ->check(whole_number());
  app.add_option("--max-tokens", sampling.max_tokens,
                 fmt::format("longest reply in tokens (default: {})", sampling.max_tokens))
      ->type_name("N")
      ->check(whole_number(1, 1 << 24));
  app.add_option("--temperature", sampling.temperature,
                 "0: always the likeliest word (default: " + text(sampling.temperature) + ")")
      ->type_name("X")
      ->check(number_from(0.001, 100, Zero::kToo));
  app.add_option("--top-p", sampling.top_p,
                 "keep the likeliest words of this total mass (default: " + text(sampling.top_p) + ")")
      ->type_name("X")
      ->check(number_from(1e-6, 1));
  app.add_option("--min-p", sampling.min_p,
                 "keep words with at least this share of the likeliest one's probability (default: " +
                     text(sampling.min_p) + ")")
      ->type_name("X")
      ->check(number_from(0, 1));
  app.add_option("--top-k", sampling.top_k, "keep the K likeliest words; 0: all (default: 0)")
      ->type_name("K")
      ->check(whole_number(0, 1 << 30));
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "above 1: avoid words already used (default: " + text(sampling.repetition_penalty) + ")")
      ->type_name("X")
      ->check(number_from(0.01, 100));
  app.add_flag("--circles", sampling.circles, "do not end a reply that repeats itself over and over");
  app.add_option("--threads", args.threads, "number of threads (default: one per core, at most 8)")
      ->type_name("N")
      ->check(whole_number(1, 256));
  app.add_option("--backend", args.backend,
                 "auto, cuda, avx512, avxvnni, avx2, neon, portable or reference (default: auto)")
      ->type_name("NAME")
      ->check(kaiju::tools::backend_name());
  app.add_option("--products-file", args.products_file,
                 "on a GPU where cuBLASLt computes the matmuls: file that keeps its fastest algorithms, measured once")
      ->type_name("FILE");
  for (CLI::Option* each : {character, say, json}) list->excludes(each);
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return stop;
  args.seed_given = seed->count() > 0;
  if (args.model.empty()) args.model = bundled("model/kaiju-nano.safetensors");
  return std::nullopt;
}

}  // namespace chat
