// The three ways to chat: on a terminal, line by line from a pipe, or as scripted turns.
#include "console.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "../tools/standard_streams.hpp"
#include "../tools/text_input.hpp"
#include "printer.hpp"
#include "terminal.hpp"
#include "transcript.hpp"

namespace chat {
namespace {

using kaiju::tools::LineRead, kaiju::tools::output_failed, kaiju::tools::print;

constexpr size_t kMostLineBytes = size_t{1} << 20;  // far beyond any model's context

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

std::string counted(size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string status_line(const Reply& reply) {
  std::string line = fmt::format("[{:.0f} tokens/s · {} of {} prompt tokens reused", reply.decode_rate(),
                                 reply.cached_tokens, reply.prompt_tokens);
  if (reply.finish == "length") line += fmt::format(" · cut at {} tokens", reply.generated_tokens);
  if (reply.finish == "cancelled") line += " · stopped";
  if (reply.finish == "circle") line += " · ended where it began to repeat itself";
  if (reply.turns_dropped > 0)
    line += fmt::format(" · the oldest {} left the context", counted(reply.turns_dropped, "turn"));
  return line + "]";
}

std::string stats(const Conversation& talk, const Totals& totals, kaiju_model* model) {
  const char* name = "";
  const char* digest = "";
  kaiju_model_text(model, KAIJU_MODEL_NAME, &name, nullptr);
  kaiju_model_text(model, KAIJU_MODEL_DIGEST, &digest, nullptr);
  const auto rate = [](double count, double seconds) { return seconds > 0 ? count / seconds : 0; };
  std::string out = fmt::format("  model      {} ({:.1f} M int8 weights, {:.8})\n", name,
                                static_cast<double>(kaiju_model_number(model, KAIJU_MODEL_PARAMETERS)) * 1e-6, digest);
  out += fmt::format("  context    {} of {} tokens, exchanges: {}, turns dropped: {}\n", talk.tokens_in_context(),
                     talk.context(), talk.exchanges().size(), talk.dropped());
  out += fmt::format("  prompts    {} tokens, {} of them reused, {:.0f} tokens/s\n", totals.prompt_tokens,
                     totals.cached_tokens,
                     rate(static_cast<double>(totals.prompt_tokens - totals.cached_tokens), totals.prefill_seconds));
  out += fmt::format("  replies    {} tokens, {:.0f} tokens/s\n", totals.generated_tokens,
                     rate(totals.decoded, totals.decode_seconds));
  return out + fmt::format("  seed       {}\n", talk.seed());
}

void print_json(const Reply& reply, const Conversation& talk) {
  const nlohmann::ordered_json line = {{"turn", talk.exchanges().size()},
                                       {"seed", talk.seed()},
                                       {"retries", talk.exchanges().back().retries},
                                       {"reply", reply.text},
                                       {"prompt_tokens", reply.prompt_tokens},
                                       {"cached_tokens", reply.cached_tokens},
                                       {"prefill_tokens_per_second", std::round(reply.prefill_rate() * 10) / 10},
                                       {"decode_tokens_per_second", std::round(reply.decode_rate() * 10) / 10},
                                       {"finish", reply.finish}};
  print("{}\n", line.dump());
  std::fflush(stdout);
}

bool blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

// A path as a shell would read it.
std::string path_of(const std::string& path) {
  const char* home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return home && path.starts_with("~/") ? home + path.substr(1) : path;
}

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
  // `reader`: of the terminal; null for a pipe.
  Loop(Console& console, Conversation talk, const LineReader* reader)
      : console_(console),
        talk_(std::move(talk)),
        reader_(reader),
        terminal_(reader != nullptr),
        printer_(terminal_ && wants_colours(), terminal_) {}

  void greet() {
    if (!terminal_) return;
    note(fmt::format("You are talking to {}. /help lists the commands, Ctrl-D leaves.\n", talk_.card().name));
    if (!talk_.card().greeting.empty()) {
      speaker();
      printer_.print(talk_.card().greeting);
      printer_.end_line();
    }
    std::fputc('\n', stdout);
  }

  // Something went wrong that need not end the chat.
  void complain(const Problem& problem) {
    printer_.end_line();
    note(fmt::format("  {}\n\n", problem.what()), 2);
  }

  // False to leave.
  bool line(const std::string& text) {
    if (blank(text)) return true;
    if (text[0] == '/') return command(text);
    reply([&](const Conversation::OnText& on_text) { return talk_.say(text, on_text); });
    return true;
  }

  // What the next line to read begins with: /edit fetches the last message back.
  std::string take_begun() { return std::exchange(begun_, ""); }

 private:
  struct Command {
    const char* name;
    const char* argument;
    const char* help;
    void (Loop::*run)(const std::string& argument);
  };
  static std::span<const Command> commands();

  bool command(const std::string& text) {
    const auto [name, rest] = command_of(text);
    const auto takes_none = [&] {
      if (!rest.empty()) throw Problem(fmt::format("{} takes no argument; /help lists the commands", name));
    };
    if (name == "/quit" || name == "/exit" || name == "/q") {
      takes_none();
      return false;
    }
    for (const Command& each : commands()) {
      if (name != each.name) continue;
      if (*each.argument == '\0') takes_none();
      (this->*each.run)(rest);
      return true;
    }
    throw Problem(fmt::format("no command {}; /help lists them", name));
  }

  void help(const std::string&) {
    const auto entry = [&](const std::string& name, const char* text) {
      note(fmt::format("  {:<18}{}\n", name, text), 20);
    };
    for (const Command& each : commands()) entry(fmt::format("{} {}", each.name, each.argument), each.help);
    entry("/quit", "leave (Ctrl-D does too); Ctrl-C stops a reply");
  }

  void retry(const std::string&) {
    reply([&](const Conversation::OnText& on_text) { return talk_.retry(on_text); });
  }

  void edit(const std::string& text) {
    if (!text.empty()) return reply([&](const Conversation::OnText& on_text) { return talk_.edit(text, on_text); });
    if (!reader_ || !reader_->edits()) throw Problem("give the new message after /edit");
    begun_ = "/edit " + talk_.last_question();
  }

  void undo(const std::string&) { note(fmt::format("  Forgotten: {}\n", talk_.undo()), 2); }

  void save(const std::string& file) {
    if (file.empty()) throw Problem("give a file: /save chat.json");
    save_transcript({talk_.card(), talk_.seed(), talk_.exchanges_with_tokens()}, path_of(file));
    note(fmt::format("  Saved: {}\n", file), 2);
  }

  void load(const std::string& file) {
    if (file.empty()) throw Problem("give a file that /save wrote: /load chat.json");
    Transcript transcript = load_transcript(path_of(file));
    Sampling sampling = console_.args.sampling;
    sampling.seed = transcript.seed;
    Conversation talk(console_.model, console_.engine, std::move(transcript.card), sampling, file);
    const size_t misspelt = talk.restore(transcript.exchanges);
    talk_ = std::move(talk);
    note(fmt::format("  Loaded: {} with {}.\n", counted(transcript.exchanges.size(), "exchange"), talk_.card().name),
         2);
    if (misspelt > 0)
      note(fmt::format("  The saved tokens of {} do not spell the text with this model. The text is tokenised anew; "
                       "replies may differ from those without the break.\n",
                       misspelt == 1 ? "1 reply" : fmt::format("{} replies", misspelt)),
           2);
    if (console_.args.seed_given && transcript.seed != console_.args.sampling.seed)
      note(fmt::format("  It continues with the saved seed {}, not with --seed {}.\n", transcript.seed,
                       console_.args.sampling.seed),
           2);
    if (!terminal_) return;
    if (transcript.exchanges.empty()) return greet();
    const Exchange& last = transcript.exchanges.back();
    note("\nYou: ");
    printer_.print(last.question);
    printer_.end_line();
    speaker();
    printer_.print(last.reply);
    printer_.end_line();
    std::fputc('\n', stdout);
  }

  void character(const std::string& name) {
    const std::string& folder = console_.args.characters_folder;
    if (name.empty())
      return note(fmt::format("  You are talking to {}. Characters: {}\n", talk_.card().name, names(folder)), 2);
    const std::string file = find_card(name, folder);
    talk_ = Conversation(console_.model, console_.engine, read_card(file), console_.args.sampling, file);
    greet();
  }

  void statistics(const std::string&) { note(stats(talk_, totals_, console_.model), 13); }

  template <class Ask>
  void reply(const Ask& ask) {
    bool begun = false;
    take_interrupt();
    const Reply reply = ask([&](std::string_view text) {
      if (!text.empty()) {
        if (!begun && terminal_) speaker();
        begun = true;
        if (!console_.args.json) printer_.print(text);
      }
      return !take_interrupt() && !output_failed();
    });
    totals_.add(reply);
    if (console_.args.json) return print_json(reply, talk_);
    if (!begun && terminal_) speaker();
    printer_.end_line();
    if (!begun && !terminal_) std::fputc('\n', stdout);
    if (terminal_) note(status_line(reply) + "\n\n");
  }

  void speaker() {
    printer_.colour(Colour::kCharacter);
    printer_.print(talk_.card().name + ": ");
    printer_.colour(Colour::kNone);
  }

  // What the chat itself says. Beside lines of JSON it goes to stderr.
  void note(const std::string& text, int hang = 0) {
    if (console_.args.json) return print(stderr, "{}", text);
    printer_.hang(hang);
    printer_.colour(Colour::kDim);
    printer_.print(text);
    printer_.colour(Colour::kNone);
    printer_.hang(0);
    std::fflush(stdout);
  }

  Console& console_;
  Conversation talk_;
  const LineReader* reader_;
  bool terminal_;
  Printer printer_;
  Totals totals_;
  std::string begun_;
};

std::span<const Loop::Command> Loop::commands() {
  static constexpr Command kCommands[] = {
      {"/retry", "", "another reply to your last message", &Loop::retry},
      {"/edit", "[TEXT]", "replace your last message by TEXT; without TEXT, edit it", &Loop::edit},
      {"/undo", "", "forget your last message and its reply", &Loop::undo},
      {"/save", "FILE", "save this chat to a file", &Loop::save},
      {"/load", "FILE", "continue a saved chat", &Loop::load},
      {"/character", "[NAME]", "list the characters; with a NAME or FILE, start a new chat", &Loop::character},
      {"/stats", "", "tokens, speed and seed of this chat", &Loop::statistics},
      {"/help", "", "this list", &Loop::help},
  };
  return kCommands;
}

}  // namespace

int Console::run() {
  const std::vector<std::string> files = card_files(args.characters_folder);
  if (args.character.empty() && files.empty())
    throw Problem(fmt::format("no characters in {}; give one with --character FILE", args.characters_folder));
  const std::string file = args.character.empty() ? files.front() : find_card(args.character, args.characters_folder);
  Conversation talk(model, engine, read_card(file), args.sampling, file);
  if (!args.say.empty()) return run_script(std::move(talk));
  return on_terminal() && !args.json ? run_terminal(std::move(talk)) : run_lines(std::move(talk));
}

int Console::run_script(Conversation talk) {
  for (const std::string& text : args.say) {
    if (output_failed()) break;
    const Reply reply = talk.say(text, [](std::string_view) { return true; });
    if (args.json)
      print_json(reply, talk);
    else
      Printer(false, false).print(reply.text + "\n");
    std::fflush(stdout);
  }
  return 0;
}

int Console::run_lines(Conversation talk) {
  Loop loop(*this, std::move(talk), nullptr);
  std::string text;
  for (size_t number = 1; !output_failed(); ++number) {
    const LineRead read = kaiju::tools::read_line(std::cin, text, kMostLineBytes);
    if (read == LineRead::kEnd) break;
    if (read == LineRead::kTooLong)
      throw Problem(
          fmt::format("line {} is longer than {} bytes, the most that a line may have", number, kMostLineBytes));
    if (number == 1) kaiju::tools::skip_byte_order_mark(text);
    if (text.ends_with('\r')) text.pop_back();
    try {
      if (!loop.line(text)) break;
    } catch (const Problem& problem) {
      throw Problem(fmt::format("line {}: {}", number, problem.what()));
    }
  }
  if (std::ferror(stdin)) throw Problem("cannot read the standard input: is it open?");
  return 0;
}

int Console::run_terminal(Conversation talk) {
  const CatchInterrupt catch_interrupt;
  LineReader reader("You:", wants_colours());
  Loop loop(*this, std::move(talk), &reader);
  loop.greet();
  while (const auto text = reader.read(loop.take_begun())) {
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
