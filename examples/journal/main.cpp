// kaiju-replay: computes the replies of a journal again, each alone, and says which are equal.
#include <fmt/chrono.h>

#include <deque>

#include "../tools/name_from.hpp"
#include "../tools/number_from.hpp"
#include "../tools/program.hpp"
#include "journal.hpp"
#include "kaiju/kaiju.hpp"
#include "kaiju/records.hpp"

namespace {

using namespace kaiju;
using tools::print;

struct Arguments {
  std::string journal, key, model, head, user, erase;
  ExecutorOptions executor;
  size_t newest = 0;
  bool refused = false, list = false, quiet = false;
};

struct Recorded {
  journal::Entry entry;
  ReplyRecord record;
};

const char* name_of(DoneReason reason) {
  constexpr const char* kNames[] = {"none",     "stop token",  "length", "cancelled",
                                    "deadline", "stop string", "loop",   "refused"};
  const auto index = static_cast<size_t>(reason);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

std::string time_of(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(seconds));
}

std::string heading(const Recorded& recorded) {
  return fmt::format("{}  {}  {:>6} + {:>4} tokens  {}", time_of(recorded.entry.unix_ms),
                     recorded.entry.user.substr(0, 8), recorded.record.prompt_tokens,
                     recorded.record.tokens->size() - static_cast<size_t>(recorded.record.prompt_tokens),
                     name_of(recorded.record.reason));
}

// The entries that were asked for, the oldest first.
Status collect(const Arguments& arguments, const std::string& key, std::deque<Recorded>& found,
               journal::ReadCounts& counts) {
  const std::string user = arguments.user.empty() ? "" : journal::pseudonym(key, arguments.user);
  Status wrong;
  KAIJU_TRY(journal::read(
      arguments.journal, key,
      [&](journal::Entry& entry) {
        if (!user.empty() && entry.user != user) return true;
        Result<ReplyRecord> record = decode_record(entry.record);
        if (!record.ok()) return wrong = record.status(), false;
        if (arguments.refused && record->reason != DoneReason::kRefused) return true;
        found.push_back({std::move(entry), std::move(*record)});
        if (arguments.newest > 0 && found.size() > arguments.newest) found.pop_front();
        return true;
      },
      counts));
  return wrong;
}

class Replays {
 public:
  Replays(std::shared_ptr<const Model> model, std::shared_ptr<Engine> engine)
      : model_(std::move(model)), engine_(std::move(engine)) {}

  Status compute(const Recorded& recorded) {
    ++count_;
    Result<Replayed> replayed = replay(*engine_, recorded.record);
    if (!replayed.ok() && replayed.status().code() == StatusCode::kUnsupported) return ++beyond_, Status();
    if (!replayed.ok()) return replayed.status();
    const bool equal = replayed->differs_at < 0;
    equal_ += equal, others_ += !replayed->same_model, wrong_ += !equal && replayed->same_model;
    if (!equal) print("{}\n  {}\n", heading(recorded), difference(recorded, *replayed));
    if (recorded.record.reason == DoneReason::kRefused) compare_verdict(recorded, *replayed);
    return {};
  }

  int report() const {
    print("{} replies: {} equal, {} differ", count_, equal_, count_ - equal_ - beyond_);
    if (beyond_ > 0) print(", {} cannot be computed again (guided, or with a logits hook)", beyond_);
    print("\n");
    if (others_ > 0) print("{} are of another model or other scales, so theirs may differ\n", others_);
    if (refused_ > 0) print("{} refused replies: {} would be refused again\n", refused_, refused_again_);
    return wrong_ > 0 ? 1 : 0;
  }

 private:
  std::string text_of(const std::vector<int32_t>& tokens, size_t at) const {
    auto tokenizer = model_->tokenizer();
    if (at >= tokens.size()) return "the end";
    if (!tokenizer.ok()) return fmt::format("token {}", tokens[at]);
    return fmt::format("token {} \"{}\"", tokens[at], tools::printable(std::string((*tokenizer)->piece(tokens[at]))));
  }

  std::string difference(const Recorded& recorded, const Replayed& replayed) const {
    const auto at = static_cast<size_t>(replayed.differs_at);
    const auto prompt = static_cast<size_t>(recorded.record.prompt_tokens);
    return fmt::format("differs at token {} of the reply: {} was recorded, now {}{}", at,
                       text_of(*recorded.record.tokens, prompt + at), text_of(replayed.reply, at),
                       replayed.same_model ? "" : " (another model)");
  }

  // What the verdict was, and what the classifier says now.
  void compare_verdict(const Recorded& recorded, const Replayed& replayed) {
    ++refused_, refused_again_ += replayed.refused;
    const std::vector<std::string>& labels = model_->config().labels;
    const auto label = std::find(labels.begin(), labels.end(), recorded.record.label);
    std::string now = "the model has no such label";
    if (const auto index = static_cast<size_t>(label - labels.begin()); index < replayed.statistics.size())
      now = fmt::format("now {:.3f}", static_cast<double>(replayed.statistics[index].maximum));
    print("{}\n  {} {:.3f}, {}: {}\n", heading(recorded), recorded.record.label,
          static_cast<double>(recorded.record.probability), now, replayed.refused ? "refused again" : "passes");
  }

  std::shared_ptr<const Model> model_;
  std::shared_ptr<Engine> engine_;
  size_t count_ = 0, equal_ = 0, beyond_ = 0, others_ = 0, wrong_ = 0, refused_ = 0, refused_again_ = 0;
};

Status replay_all(const Arguments& arguments, const std::deque<Recorded>& found, int& code) {
  ModelOptions loading;
  loading.head = arguments.head;
  Result<std::shared_ptr<const Model>> model = Model::load(arguments.model, loading);
  if (!model.ok()) return model.status();
  RunOptions running;
  running.executor = arguments.executor;
  running.executor.slot_count = kMaxBeams;
  Result<std::shared_ptr<Engine>> engine = (*model)->create_engine(running);
  if (!engine.ok()) return engine.status();
  Replays replays(*model, *engine);
  const bool shows_progress = !arguments.quiet && ::isatty(STDERR_FILENO);
  for (size_t i = 0; i < found.size(); ++i) {
    if (shows_progress) print(stderr, "\r\033[K{} of {}", i + 1, found.size());
    if (Status status = replays.compute(found[i]); !status.ok())
      return {status.code(), heading(found[i]) + ": " + status.message()};
  }
  if (shows_progress) print(stderr, "\r\033[K");
  code = replays.report();
  return {};
}

Status erase(const Arguments& arguments, const std::string& key) {
  Result<std::unique_ptr<journal::Writer>> writer = journal::Writer::open({arguments.journal, key});
  if (!writer.ok()) return writer.status();
  Result<bool> erased = (*writer)->erase(arguments.erase);
  if (!erased.ok()) return erased.status();
  if (!*erased) return {StatusCode::kNotFound, "the journal has no user \"" + arguments.erase + "\""};
  print("nobody can read the entries of {} any more\n", arguments.erase);
  return {};
}

Status work(const Arguments& arguments, int& code) {
  Result<std::string> key = journal::read_key(arguments.key);
  if (!key.ok()) return key.status();
  if (!arguments.erase.empty()) return erase(arguments, *key);
  std::deque<Recorded> found;
  journal::ReadCounts counts;
  KAIJU_TRY(collect(arguments, *key, found, counts));
  if (counts.erased > 0) print("{} entries are erased\n", counts.erased);
  if (counts.damaged > 0) print("{} entries are damaged or cut off\n", counts.damaged);
  if (found.empty()) return {StatusCode::kNotFound, "the journal has no such entry"};
  if (!arguments.list) return replay_all(arguments, found, code);
  for (const Recorded& recorded : found) print("{}\n", heading(recorded));
  return {};
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app("Computes the replies of a journal again, each alone, and says which are equal.", "kaiju-replay");
  Arguments arguments;
  app.add_option("JOURNAL", arguments.journal, "folder that kaiju-server --journal writes")->required();
  app.add_option("--key", arguments.key, "file with the journal's key")->type_name("FILE")->required();
  app.add_option("--model", arguments.model, "checkpoint; another one than the journal's shows where replies part")
      ->type_name("FILE");
  app.add_option("--head", arguments.head, "file with another classifier (kaiju-head)")->type_name("FILE");
  app.add_option("--user", arguments.user,
                 "only of this user: NAME of the API key (everybody, without keys), or NAME/USER of the request")
      ->type_name("NAME");
  app.add_flag("--refused", arguments.refused, "only replies that a verdict ended; tells what the classifier says now");
  app.add_option("--newest", arguments.newest, "only so many, the newest")
      ->check(tools::whole_number(1, 1'000'000'000));
  app.add_flag("--list", arguments.list, "say which entries there are, and compute nothing");
  app.add_option("--erase", arguments.erase, "make the entries of this user unreadable for ever")->type_name("NAME");
  app.add_option("--backend", arguments.executor.backend, "backend to compute with")
      ->check(tools::backend_name())
      ->capture_default_str();
  app.add_option("--threads", arguments.executor.threads, "threads; 0: one per core")
      ->check(tools::whole_number(0, 256))
      ->capture_default_str();
  app.add_flag("--quiet", arguments.quiet, "no progress");
  app.footer(
      "Exits with 1 if a reply of the same model differs.\n"
      "Examples:\n"
      "  kaiju-replay journal --key journal.key --model model.safetensors --newest 1000\n"
      "  kaiju-replay journal --key journal.key --model model.safetensors --head new.safetensors --refused\n"
      "  kaiju-replay journal --key journal.key --erase anna");
  if (const auto stop = tools::parse(app, argc, argv)) return *stop;
  if (arguments.model.empty() && !arguments.list && arguments.erase.empty())
    return tools::fail(app, 2, "give --model, --list or --erase");
  int code = 0;
  if (const Status status = work(arguments, code); !status.ok()) return tools::fail(app, 1, status.message());
  return code;
}

int main(int argc, char** argv) { return tools::run_main("kaiju-replay", run, argc, argv); }
