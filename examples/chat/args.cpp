// Parses the command line of kaiju-chat.
#include "args.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "../tools/bundled_file.hpp"
#include "../tools/name_from.hpp"
#include "../tools/number_from.hpp"
#include "../tools/program.hpp"
#include "utf8.hpp"

namespace chat {
namespace {

namespace fs = std::filesystem;
using kaiju::tools::number_from, kaiju::tools::whole_number, kaiju::tools::Zero;

constexpr double kGuidance = 20;

constexpr const char* kFooter = R"(Examples:
  kaiju-chat                                   talk to the first of the bundled characters
  kaiju-chat --character silas                 to another one (--list shows them)
  kaiju-chat --character my.card               to your own: lines 'name: ...', 'greeting: ...' and
                                               'ask: ...', an empty line, then a description
  kaiju-chat --say 'Hello!' --say 'And you?'   two turns, no terminal needed
  kaiju-chat --say 'Hello!' --json --seed 7    one line of JSON a turn
  echo 'Hello!' | kaiju-chat                   one turn a line
  kaiju-chat --safety-tier minor               end replies at the limits of a tier; /scores shows why
While chatting: /help lists the commands. Several lines in one turn: end a line with \, press Alt-Enter, or
paste them. Ctrl-C stops a reply, Ctrl-D leaves. Colours: off with NO_COLOR=1.)";

}  // namespace

std::string bundled(const std::string& name) { return kaiju::tools::bundled_file(name, KAIJU_CHAT_FOLDER); }

std::optional<int> parse_args(int argc, char** argv, Args& args) {
  CLI::App app("Chat with a character played by a language model.", "kaiju-chat");
  app.footer(kFooter);
  args.characters_folder = bundled("characters");
  Sampling& sampling = args.sampling;
  const auto text = [](double value) { return fmt::format("{:g}", value); };
  // `value` is what --help calls it.
  const auto option = [&](const char* name, auto& target, const char* value, const std::string& help) {
    return app.add_option(name, target, help)->option_text(value);
  };
  app.option_defaults()->group("Chat");
  CLI::Option* character = option("--character", args.character, "NAME|FILE",
                                  "bundled character or card file (default: the first bundled one)");
  option("--model", args.model, "FILE", "model file (default: the bundled kaiju-nano)");
  CLI::Option* list = app.add_flag("--list", args.list, "list the bundled characters and exit")->option_text(" ");
  CLI::Option* say = option("--say", args.say, "TEXT", "say this and print the reply; repeatable, a turn for each")
                         ->take_all()
                         ->allow_extra_args(false)
                         ->check([](const std::string& text) {
                           if (text.find_first_not_of(" \t\r\n") == std::string::npos)
                             return std::string("there is nothing to say");
                           return not_utf8(text);
                         });
  CLI::Option* json = app.add_flag("--json", args.json, "print one line of JSON for each turn")->option_text(" ");
  list->excludes(option("--swipe-log", args.swipe_log, "FILE",
                        "append what you retried, and what came of it, for training (default: no log)"));
  app.add_flag("--verbose", args.verbose, "show the machine, and tokens and speed after each turn");
  app.option_defaults()->group("Replies");
  option("--max-tokens", sampling.max_tokens, "N", fmt::format("longest reply (default: {})", sampling.max_tokens))
      ->check(whole_number(1, 1 << 24));
  CLI::Option* seed =
      option("--seed", sampling.seed, "N", "the same seed gives the same replies (default: 0; on a terminal random)")
          ->check(whole_number());
  CLI::Option* temperature =
      option("--temperature", sampling.temperature, "X",
             fmt::format("0: always the likeliest word (default: {})", text(sampling.temperature)))
          ->check(number_from(0.001, 100, Zero::kToo));
  CLI::Option* top_p =
      option("--top-p", sampling.top_p, "X",
             fmt::format("keep the likeliest words of this total probability (default: {})", text(sampling.top_p)))
          ->check(number_from(1e-6, 1));
  CLI::Option* min_p =
      option("--min-p", sampling.min_p, "X",
             fmt::format("drop words below this share of the likeliest one's (default: {})", text(sampling.min_p)))
          ->check(number_from(0, 1));
  CLI::Option* top_k = option("--top-k", sampling.top_k, "K", "keep the K likeliest words (default: 0, all)")
                           ->check(whole_number(0, 1 << 30));
  CLI::Option* penalty =
      option("--repetition-penalty", sampling.repetition_penalty, "X",
             fmt::format("above 1: avoid words already used (default: {})", text(sampling.repetition_penalty)))
          ->check(number_from(0.01, 100));
  CLI::Option* guidance = app.add_option_function<double>(
      "--guidance", [&](double weight) { sampling.guidance = weight; },
      fmt::format("best of {} replies, the classifier's scores weighing so much (default: {})", kBeams,
                  text(kGuidance)));
  guidance->option_text("[WEIGHT]")
      ->expected(0, 1)
      ->default_str(text(kGuidance))
      ->check(number_from(0.001, 1000, Zero::kToo));
  for (CLI::Option* each : {temperature, top_p, min_p, top_k, penalty}) guidance->excludes(each);
  option("--safety-tier", sampling.tier, "NAME",
         "adult or minor: limits of the classifier that end a reply (default: none)")
      ->check(kaiju::tools::name_from({"adult", "minor"}));
  app.add_flag("--circles", sampling.circles, "let a reply repeat itself over and over (default: end it)");
  app.option_defaults()->group("Machine");
  option("--threads", args.threads, "N", "threads (default: one for each physical core)")->check(whole_number(1, 256));
  option("--backend", args.backend, "NAME",
         "(default: auto) cuda, amx, avx512, avxvnni, avx2, i8mm, neon, portable or reference")
      ->check(kaiju::tools::backend_name());
  option("--products-file", args.products_file, "FILE",
         "on a GPU with cuBLASLt: file for its fastest algorithms (default: none)");
  for (CLI::Option* each : {character, say, json}) list->excludes(each);
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return stop;
  args.seed_given = seed->count() > 0;
  if (args.model.empty()) args.model = bundled("model/kaiju-nano.safetensors");
  return std::nullopt;
}

}  // namespace chat
