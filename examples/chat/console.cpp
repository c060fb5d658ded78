// The three ways to chat.
#include "console.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "terminal.hpp"

namespace chat {
namespace {

constexpr const char* kHelp =
    "  /retry            another reply to your last message\n"
    "  /undo             forget your last message and its reply\n"
    "  /character        who there is; /character NAME or FILE begins anew with someone\n"
    "  /stats            tokens, speed and seed of this chat\n"
    "  /help             this list\n"
    "  /quit             leave (Ctrl-D does too); Ctrl-C stops a reply\n";

struct Totals {
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0, decoded = 0;

  void add(const Reply& reply) {
    prompt_tokens += reply.prompt_tokens;
    cached_tokens += reply.cached_tokens;
    generated_tokens += reply.generated_tokens;
    prefill_seconds += reply.prefill_seconds;
    decode_seconds += reply.decode_seconds;
    decoded += std::max(reply.generated_tokens - 1, 0);
  }
};

std::string status_line(const Reply& reply) {
  std::string line = fmt::format("[{:.0f} tokens/s · {} of {} prompt tokens reused", reply.decode_rate(), reply.cached_tokens,
                                 reply.prompt_tokens);
  if (reply.finish == "length") line += fmt::format(" · cut at {} tokens", reply.generated_tokens);
  if (reply.finish == "cancelled") line += " · stopped";
  if (reply.turns_dropped > 0) line += fmt::format(" · the oldest {} turns left the context", reply.turns_dropped);
  return line + "]";
}

std::string stats(const Conversation& talk, const Totals& totals, kaiju_model* model, int64_t seed) {
  const char* name = "";
  const char* digest = "";
  kaiju_model_text(model, KAIJU_MODEL_NAME, &name, nullptr);
  kaiju_model_text(model, KAIJU_MODEL_DIGEST, &digest, nullptr);
  const auto rate = [](double count, double seconds) { return seconds > 0 ? count / seconds : 0; };
  std::string out = fmt::format("  model      {} ({:.1f} M int8 weights, {:.8})\n", name,
                                static_cast<double>(kaiju_model_number(model, KAIJU_MODEL_PARAMETERS)) * 1e-6, digest);
  out += fmt::format("  context    {} of {} tokens, exchanges: {}, turns dropped: {}\n", talk.tokens_in_context(), talk.context(),
                     talk.exchanges(), talk.dropped());
  out += fmt::format("  prompts    {} tokens, {} of them reused, {:.0f} tokens/s\n", totals.prompt_tokens, totals.cached_tokens,
                     rate(static_cast<double>(totals.prompt_tokens - totals.cached_tokens), totals.prefill_seconds));
  out += fmt::format("  replies    {} tokens, {:.0f} tokens/s\n", totals.generated_tokens, rate(totals.decoded, totals.decode_seconds));
  return out + fmt::format("  seed       {}\n", seed);
}

void print_json(const Reply& reply) {
  const nlohmann::ordered_json line = {{"reply", reply.text},
                                       {"prompt_tokens", reply.prompt_tokens},
                                       {"cached_tokens", reply.cached_tokens},
                                       {"prefill_tokens_per_second", std::round(reply.prefill_rate() * 10) / 10},
                                       {"decode_tokens_per_second", std::round(reply.decode_rate() * 10) / 10},
                                       {"finish", reply.finish}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

bool blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

// Splits "/character  silas " into its words; the second may hold spaces.
std::pair<std::string, std::string> command_of(const std::string& line) {
  const size_t space = line.find_first_of(" \t");
  if (space == std::string::npos) return {line, ""};
  const size_t rest = line.find_first_not_of(" \t", space);
  if (rest == std::string::npos) return {line.substr(0, space), ""};
  return {line.substr(0, space), line.substr(rest, line.find_last_not_of(" \t\r") - rest + 1)};
}

std::string names(const std::string& folder) {
  std::string out;
  for (const std::string& file : card_files(folder)) out += (out.empty() ? "" : ", ") + stem_of(file);
  return out.empty() ? "none" : out;
}

// A conversation that a terminal or a pipe commands.
class Loop {
 public:
  Loop(Console& console, Conversation talk, bool terminal)
      : console_(console), talk_(std::move(talk)), terminal_(terminal), printer_(terminal && wants_colours(), terminal) {}

  const Conversation& talk() const { return talk_; }

  void greet() {
    if (!terminal_) return;
    const Card& card = talk_.card();
    say(Colour::kDim, fmt::format("You are talking to {}. /help lists the commands, /character the others.\n", card.name));
    if (!card.greeting.empty()) {
      speaker();
      printer_.print(card.greeting);
      printer_.end_line();
    }
    std::fputc('\n', stdout);
  }

  // Something went wrong that need not end the chat.
  void complain(const Problem& problem) {
    printer_.end_line();
    say(Colour::kDim, fmt::format("  {}\n\n", problem.what()));
  }

  // False to leave.
  bool line(const std::string& text) {
    if (blank(text)) return true;
    if (text[0] == '/') return command(text);
    reply([&](const Conversation::OnText& on_text) { return talk_.say(text, on_text); });
    return true;
  }

 private:
  bool command(const std::string& text) {
    const auto [name, rest] = command_of(text);
    if (name == "/quit" || name == "/exit" || name == "/q") return false;
    if (name == "/help" || name == "/?") {
      say(Colour::kDim, kHelp);
    } else if (name == "/retry") {
      reply([&](const Conversation::OnText& on_text) { return talk_.retry(on_text); });
    } else if (name == "/undo") {
      say(Colour::kDim, fmt::format("  Forgotten: {}\n", talk_.undo()));
    } else if (name == "/stats") {
      say(Colour::kDim, stats(talk_, totals_, console_.model, console_.args.sampling.seed));
    } else if (name == "/character" && rest.empty()) {
      say(Colour::kDim, fmt::format("  You are talking to {}. There are: {}\n", talk_.card().name, names(console_.args.characters_folder)));
    } else if (name == "/character") {
      const std::string file = find_card(rest, console_.args.characters_folder);
      talk_ = Conversation(console_.model, console_.engine, read_card(file), console_.args.sampling, file);
      greet();
    } else {
      throw Problem(fmt::format("no command {}; /help lists them", name));
    }
    return true;
  }

  template <class Ask>
  void reply(const Ask& ask) {
    bool begun = false;
    std::optional<QuietInput> quiet;
    if (terminal_) quiet.emplace();
    const Reply reply = ask([&](std::string_view text) {
      if (!text.empty()) {
        if (!begun && terminal_) speaker();
        begun = true;
        if (!console_.args.json) printer_.print(text);
      }
      return !take_interrupt();
    });
    if (console_.args.json) return print_json(reply);
    if (!begun && terminal_) speaker();
    printer_.end_line();
    if (!begun) std::fputc('\n', stdout);
    totals_.add(reply);
    if (terminal_) say(Colour::kDim, status_line(reply) + "\n\n");
  }

  void speaker() {
    printer_.colour(Colour::kCharacter);
    printer_.print(talk_.card().name + ": ");
    printer_.colour(Colour::kNone);
  }

  void say(Colour colour, const std::string& text) {
    printer_.colour(colour);
    printer_.print(text);
    printer_.colour(Colour::kNone);
    std::fflush(stdout);
  }

  Console& console_;
  Conversation talk_;
  bool terminal_;
  Printer printer_;
  Totals totals_;
};

}  // namespace

int Console::run() {
  const std::vector<std::string> files = card_files(args.characters_folder);
  if (args.character.empty() && files.empty())
    throw Problem(fmt::format("no characters in {}; give one with --character FILE", args.characters_folder));
  const std::string file = args.character.empty() ? files.front() : find_card(args.character, args.characters_folder);
  Conversation talk(model, engine, read_card(file), args.sampling, file);
  if (!args.say.empty()) return run_script(std::move(talk));
  return on_terminal() ? run_terminal(std::move(talk)) : run_lines(std::move(talk));
}

int Console::run_script(Conversation talk) {
  for (const std::string& text : args.say) {
    const Reply reply = talk.say(text, [](std::string_view) { return true; });
    if (args.json)
      print_json(reply);
    else
      fmt::print("{}\n", reply.text);
    std::fflush(stdout);
  }
  return 0;
}

int Console::run_lines(Conversation talk) {
  Loop loop(*this, std::move(talk), false);
  for (std::string text; std::getline(std::cin, text);) {
    if (text.ends_with('\r')) text.pop_back();
    if (!loop.line(text)) break;
  }
  return 0;
}

int Console::run_terminal(Conversation talk) {
  const CatchInterrupt catch_interrupt;
  Loop loop(*this, std::move(talk), true);
  LineReader reader("You:", wants_colours());
  loop.greet();
  while (const auto text = reader.read()) {
    try {
      if (!loop.line(*text)) return 0;
    } catch (const Problem& problem) {
      loop.complain(problem);
    }
  }
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace chat
