// The three ways to chat: on a terminal, line by line from a pipe, or as scripted turns.
#include "console.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <span>
#include <utility>
#include <vector>

#include "../tools/nearest.hpp"
#include "../tools/standard_streams.hpp"
#include "../tools/text_input.hpp"
#include "printer.hpp"
#include "report.hpp"
#include "swipe_log.hpp"
#include "terminal.hpp"
#include "transcript.hpp"

namespace chat {
namespace {

using kaiju::tools::LineRead, kaiju::tools::output_failed, kaiju::tools::print;

constexpr size_t kMostLineBytes = size_t{1} << 20;  // far beyond any model's context

bool blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

// A path as a shell would read it.
std::string path_of(const std::string& path) {
  const char* home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return home && path.starts_with("~/") ? home + path.substr(1) : path;
}

// Splits "/character  silas " into its words; the second may hold spaces.
std::pair<std::string, std::string> command_of(const std::string& line) {
  const size_t space = line.find_first_of(" \t\n");
  if (space == std::string::npos) return {line, ""};
  const size_t rest = line.find_first_not_of(" \t\n", space);
  if (rest == std::string::npos) return {line.substr(0, space), ""};
  return {line.substr(0, space), line.substr(rest, line.find_last_not_of(" \t\r\n") - rest + 1)};
}

std::string names(const std::string& folder) {
  std::string out;
  for (const std::string& file : card_files(folder)) out += (out.empty() ? "" : ", ") + stem_of(file);
  return out.empty() ? "none" : out;
}

constexpr const char* kSaveFirst = "Save this chat first?";

// "[stopped · 50 tokens/s ...]"; empty where there is nothing to tell.
std::string about_reply(const Reply& reply, bool verbose) {
  std::string text = ending(reply);
  if (verbose) text = figures(reply) + (text.empty() ? "" : " · ") + text;
  return text.empty() ? "" : "[" + text + "]";
}

// What a script prints of a reply.
std::string spoken(const Reply& reply) {
  if (reply.finish != "refused") return reply.text + "\n";
  return (reply.text.empty() ? "" : reply.text + "\n") + about_reply(reply, false) + "\n";
}

// The file for a chat that has none yet: of a name that no file has.
std::string free_file(const std::string& character) {
  std::string stem;
  for (const char c : character)
    if (std::isalnum(static_cast<unsigned char>(c)))
      stem += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (stem.empty()) stem = "chat";
  std::string file = stem + ".json";
  std::error_code ignored;
  for (int number = 2; std::filesystem::exists(file, ignored); ++number) file = fmt::format("{}-{}.json", stem, number);
  return file;
}

// A conversation that a terminal or a pipe commands.
class Loop {
 public:
  // `reader`: of the terminal; null for a pipe.
  Loop(Console& console, Conversation talk, LineReader* reader)
      : console_(console),
        talk_(std::move(talk)),
        reader_(reader),
        terminal_(reader != nullptr),
        printer_(terminal_ && wants_colours(), terminal_) {}

  void first_screen() {
    if (!terminal_) return;
    note(about_model(console_.model) + "\n");
    if (console_.args.verbose) note(fmt::format("It runs on {}.\n", about_machine(console_.engine)));
    greet("Others: /character. ");
  }

  // `others`: how to talk to another one.
  void greet(const char* others = "") {
    if (!terminal_) return;
    note(fmt::format("You are talking to {}. {}All commands: /help. Ctrl-D leaves.\n", talk_.card().name, others));
    if (!talk_.card().asks.empty()) note(fmt::format("Try: {}\n", fmt::join(talk_.card().asks, "  ")), 5);
    std::fputc('\n', stdout);
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
    if (terminal_ && (text == "quit" || text == "exit" || text == "help"))
      throw Problem(fmt::format("the command is /{0}; to say \"{0}\", put a space before it", text));
    log_swiped();
    reply([&](const Conversation::OnText& on_text) { return talk_.say(text, on_text); });
    return true;
  }

  // What the next text to read begins with: /edit fetches back what was said.
  std::string take_begun() { return std::exchange(begun_, ""); }

  // Asks whether to save a chat that would be lost, on a terminal. False where the user goes on with it instead.
  bool may_leave() { return may_lose("Save this chat before leaving?", true); }

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
    const auto takes_none = [&, &name = name, &rest = rest] {
      if (!rest.empty()) throw Problem(fmt::format("{} takes no argument; /help lists the commands", name));
    };
    if (name == "/quit" || name == "/exit" || name == "/q") {
      takes_none();
      return !may_leave();
    }
    for (const Command& each : commands()) {
      if (name != each.name) continue;
      if (*each.argument == '\0') takes_none();
      (this->*each.run)(rest);
      return true;
    }
    std::vector<std::string> known = {"/quit", "/exit"};
    for (const Command& each : commands()) known.emplace_back(each.name);
    const std::string meant = kaiju::tools::did_you_mean(name, known);
    throw Problem(fmt::format("unknown command {}{}", name, meant.empty() ? "; /help lists the commands" : meant));
  }

  void help(const std::string&) {
    const auto entry = [&](const std::string& name, const char* text) {
      note(fmt::format("  {:<19}{}\n", name, text), 21);
    };
    for (const Command& each : commands()) entry(fmt::format("{} {}", each.name, each.argument), each.help);
    entry("/quit", "leave; Ctrl-D does too");
    answer(
        "  Several lines in one turn: end a line with \\, or press Alt-Enter, or paste them.\n"
        "  To say a text that begins with /, put a space before it. Ctrl-C stops a reply.\n",
        2);
  }

  // The user goes on: the reply before is the one that was kept.
  void log_swiped() {
    const std::vector<std::string> swiped = std::exchange(swiped_, {});
    if (!console_.args.swipe_log.empty() && !swiped.empty())
      log_swipes(path_of(console_.args.swipe_log), talk_.card(), talk_.turns(), swiped);
  }

  void retry(const std::string&) {
    const std::string before = talk_.turns().empty() ? "" : talk_.turns().back().reply;
    reply([&](const Conversation::OnText& on_text) { return talk_.retry(on_text); });
    if (!before.empty() && talk_.turns().back().reply != before) swiped_.push_back(before);
    if (terminal_ && talk_.turns().back().reply == before)
      note("  The same reply came again. With a higher --temperature replies differ more.\n\n", 2);
  }

  void edit(const std::string& text) {
    if (!text.empty()) {
      reply([&](const Conversation::OnText& on_text) { return talk_.edit(text, on_text); });
      return swiped_.clear();
    }
    if (!reader_ || !reader_->edits()) throw Problem("give the new text after /edit");
    begun_ = "/edit " + talk_.last_said();
  }

  void undo(const std::string&) {
    answer(fmt::format("  Forgotten: {}\n", talk_.undo()), 2);
    swiped_.clear();
    unsaved_ = true;
  }

  void save(const std::string& given) {
    const std::string file = given.empty() ? file_ : given;
    if (file.empty()) throw Problem("give a file: /save chat.json");
    save_transcript({talk_.card(), talk_.seed(), talk_.turns_with_tokens()}, path_of(file));
    file_ = file;
    unsaved_ = false;
    answer(fmt::format("  Saved: {} ({}); /load continues it\n", file, counted(talk_.turns().size(), "turn")), 2);
  }

  // Ctrl-C at the question keeps the chat, and so does Ctrl-D unless the user is `leaving`.
  bool may_lose(const std::string& question, bool leaving) {
    while (terminal_ && unsaved_ && !talk_.turns().empty()) {
      bool interrupted = false;
      auto answer = reader_->ask(question + " [y/N/FILE]", interrupted);
      if (interrupted || (!answer && !leaving)) return false;
      if (!answer) break;
      answer = command_of("x " + *answer).second;
      const auto is_one_of = [&](std::initializer_list<const char*> words) {
        return std::any_of(words.begin(), words.end(),
                           [&](const char* word) { return strcasecmp(answer->c_str(), word) == 0; });
      };
      if (answer->empty() || is_one_of({"n", "no"})) break;
      const bool yes = is_one_of({"y", "yes"});
      try {
        save(!yes ? *answer : file_.empty() ? free_file(talk_.card().name) : file_);
      } catch (const Problem& problem) {
        complain(problem);
      }
    }
    return true;
  }

  void load(const std::string& file) {
    if (file.empty()) throw Problem("give a file that /save wrote: /load chat.json");
    Transcript transcript = load_transcript(path_of(file));
    if (!may_lose(kSaveFirst, false)) return;
    Sampling sampling = console_.args.sampling;
    sampling.seed = transcript.seed;
    Conversation talk(console_.model, console_.engine, std::move(transcript.card), sampling, file);
    const size_t misspelt = talk.restore(transcript.turns);
    begin(std::move(talk), file);
    note(fmt::format("  Loaded: {} with {}.\n", counted(transcript.turns.size(), "turn"), talk_.card().name), 2);
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
    if (transcript.turns.empty()) return greet();
    const Turn& last = transcript.turns.back();
    note("\nYou: ");
    printer_.print(last.said);
    printer_.end_line();
    speaker();
    printer_.print(last.reply);
    printer_.end_line();
    std::fputc('\n', stdout);
  }

  void character(const std::string& name) {
    const std::string& folder = console_.args.characters_folder;
    if (name.empty())
      return answer(fmt::format("  You are talking to {}. Characters: {}\n", talk_.card().name, names(folder)), 2);
    const std::string file = find_card(name, folder);
    Conversation talk(console_.model, console_.engine, read_card(file), console_.args.sampling, file);
    if (!may_lose(kSaveFirst, false)) return;
    begin(std::move(talk), "");
    greet();
  }

  void begin(Conversation talk, const std::string& file) {
    talk_ = std::move(talk);
    swiped_.clear();
    file_ = file;
    unsaved_ = false;
  }

  void scores(const std::string&) {
    if (scores_.empty()) throw Problem("there are no scores: say something first, to a model with a classifier");
    answer(score_table(scores_), 2);
  }

  void statistics(const std::string&) { answer(stats(talk_, totals_, console_.model, console_.engine), 13); }

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
    scores_ = reply.scores;
    unsaved_ = true;
    if (console_.args.json) {
      print("{}\n", json_line(reply, talk_));
      std::fflush(stdout);
      return;
    }
    if (!begun && terminal_) speaker();
    printer_.end_line();
    const bool refused = reply.finish == "refused";
    if (!begun && !terminal_ && !refused) std::fputc('\n', stdout);
    if (terminal_) {
      const std::string text = about_reply(reply, console_.args.verbose);
      note(text.empty() ? "\n" : text + "\n\n");
      if (refused) note("  The turn is part of the chat until /undo takes it back.\n\n", 2);
    } else if (refused) {
      note(about_reply(reply, false) + "\n");
    }
    if (!terminal_ && console_.args.verbose) print(stderr, "{}\n", about_reply(reply, true));
  }

  void speaker() {
    printer_.colour(Colour::kCharacter);
    printer_.print(talk_.card().name + ": ");
    printer_.colour(Colour::kNone);
  }

  // What a command answers: on a terminal an empty line follows.
  void answer(const std::string& text, int hang) { note(terminal_ ? text + "\n" : text, hang); }

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
  LineReader* reader_;
  bool terminal_;
  Printer printer_;
  Totals totals_;
  std::vector<LabelScore> scores_;   // of the last reply
  std::vector<std::string> swiped_;  // replies that were retried since the user said something
  std::string begun_;
  std::string file_;      // that this chat was saved to or loaded from
  bool unsaved_ = false;  // has changed since
};

std::span<const Loop::Command> Loop::commands() {
  static constexpr Command kCommands[] = {
      {"/retry", "", "another reply for the last turn", &Loop::retry},
      {"/edit", "[TEXT]", "say TEXT instead in the last turn (default: edit what you said)", &Loop::edit},
      {"/undo", "", "take the last turn back", &Loop::undo},
      {"/save", "[FILE]", "save this chat (default: where it was saved before)", &Loop::save},
      {"/load", "FILE", "continue a saved chat", &Loop::load},
      {"/character", "[NAME]", "start a chat with another one, NAME or FILE (default: list them)", &Loop::character},
      {"/scores", "", "what the model's classifier says of the last turn", &Loop::scores},
      {"/stats", "", "model, machine, tokens, speed and seed", &Loop::statistics},
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
      print("{}\n", json_line(reply, talk));
    else
      Printer(false, false).print(spoken(reply));
    std::fflush(stdout);
    if (args.verbose && !args.json) print(stderr, "{}\n", about_reply(reply, true));
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
  loop.first_screen();
  while (true) {
    const auto text = reader.read(loop.take_begun());
    if (!text) std::fputc('\n', stdout);
    try {
      if (text ? !loop.line(*text) : loop.may_leave()) return 0;
    } catch (const Problem& problem) {
      loop.complain(problem);
    }
  }
}

}  // namespace chat
