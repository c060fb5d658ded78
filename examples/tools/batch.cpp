// kaiju-batch: replies to a file of prompts, as many at a time as the engine has room for.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "interrupted.hpp"
#include "kaiju/kaiju.hpp"
#include "name_from.hpp"
#include "number_from.hpp"
#include "program.hpp"
#include "text_input.hpp"

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostLineBytes = size_t{4} << 20;
constexpr const char* kSalt = "kaiju-batch";  // all prompts are of one host: they share their KV

kaiju::Status wrong_line(size_t line, const std::string& what) {
  return kaiju::invalid_argument(fmt::format("line {}: {}", line, what));
}

// One line of the prompts: {"messages": [{"role": "system", "content": "..."}, ...]}.
struct Prompt {
  std::vector<std::string> texts;
  std::vector<kaiju::ChatMessage> messages;  // refer to `texts`
};

kaiju::Result<Prompt> read_prompt(const std::string& text, size_t line) {
  const Json given = Json::parse(text, nullptr, false);
  if (!given.is_object() || !given.contains("messages") || !given["messages"].is_array() || given["messages"].empty())
    return wrong_line(line, "is not a JSON object with a list of \"messages\"");
  Prompt prompt;
  prompt.texts.reserve(given["messages"].size());
  for (const Json& message : given["messages"]) {
    const std::string role = message.is_object() ? message.value("role", "") : "";
    const auto known = role == "system"                             ? kaiju::ChatRole::kSystem
                       : role == "card"                             ? kaiju::ChatRole::kCard
                       : role == "user"                             ? kaiju::ChatRole::kUser
                       : role == "assistant" || role == "character" ? kaiju::ChatRole::kCharacter
                                                                    : kaiju::ChatRole{};
    if (known == kaiju::ChatRole{} || !message.contains("content") || !message["content"].is_string())
      return wrong_line(line, "a message has a \"role\" (system, card, user or assistant) and a text as \"content\"");
    prompt.texts.push_back(message["content"].get<std::string>());
    prompt.messages.push_back({known, prompt.texts.back(), {}});
  }
  return prompt;
}

// The lines that an output file answers already.
std::unordered_set<size_t> answered_lines(const std::string& path) {
  std::unordered_set<size_t> answered;
  std::ifstream in(path);
  std::string text;
  while (kaiju::tools::read_line(in, text, kMostLineBytes) == kaiju::tools::LineRead::kLine) {
    const Json reply = Json::parse(text, nullptr, false);
    if (reply.is_object() && reply.contains("line") && reply["line"].is_number_unsigned())
      answered.insert(reply["line"].get<size_t>());
  }
  return answered;
}

bool line_end_missing(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

const char* name_of(kaiju::DoneReason reason) {
  return reason == kaiju::DoneReason::kLength ? "length" : reason == kaiju::DoneReason::kLoop ? "loop" : "stop";
}

class Batch {
 public:
  Batch(const kaiju::Model& model, std::shared_ptr<kaiju::Engine> engine, const kaiju::RequestOptions& options,
        std::FILE* out)
      : model_(model), engine_(std::move(engine)), options_(options), out_(out) {
    options_.scope.salt = kSalt;
  }

  size_t running() const { return running_.size(); }
  size_t replies() const { return replies_; }
  uint64_t generated() const { return generated_; }
  uint64_t prompt_tokens() const { return prompt_tokens_; }
  uint64_t cached_tokens() const { return cached_tokens_; }

  // A line samples with its number as the variant: the same reply, whatever runs beside it.
  kaiju::Status submit(const Prompt& prompt, size_t line) {
    auto chat = model_.chat();
    if (!chat.ok()) return chat.status();
    std::vector<int32_t> tokens;
    KAIJU_TRY((*chat)->format(prompt.messages, {.reply = true}, tokens));
    auto session = engine_->create_session();
    if (!session.ok()) return session.status();
    options_.sampling.variant = static_cast<uint32_t>(line);
    auto request = engine_->submit(*session, tokens, options_);
    if (!request.ok()) {
      (void)engine_->destroy_session(*session);
      return wrong_line(line, request.status().message());
    }
    running_.emplace(*request, Running{line, *session, {}});
    return {};
  }

  kaiju::Status step() {
    KAIJU_TRY(engine_->step());
    kaiju::Event event;
    while (engine_->poll(event)) {
      const auto found = running_.find(event.request);
      if (found == running_.end()) continue;
      found->second.reply += event.text;
      if (event.kind == kaiju::EventKind::kFailed) return wrong_line(found->second.line, event.status.message());
      if (event.kind != kaiju::EventKind::kDone) continue;
      KAIJU_TRY(write(found->second, event));
      (void)engine_->destroy_session(found->second.session);
      running_.erase(found);
    }
    return {};
  }

 private:
  struct Running {
    size_t line;
    kaiju::SessionId session;
    std::string reply;
  };

  kaiju::Status write(const Running& done, const kaiju::Event& event) {
    ++replies_;
    generated_ += static_cast<uint64_t>(event.counts.generated);
    prompt_tokens_ += static_cast<uint64_t>(event.counts.prompt_tokens);
    cached_tokens_ += static_cast<uint64_t>(event.counts.cached_tokens);
    const Json reply = {{"line", done.line},
                        {"reply", done.reply},
                        {"finish_reason", name_of(event.reason)},
                        {"tokens", event.counts.generated}};
    const std::string text = reply.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (std::fwrite(text.data(), 1, text.size(), out_) != text.size())
      return {kaiju::StatusCode::kIo, "cannot write a reply: is there room on the disk?"};
    return {};
  }

  const kaiju::Model& model_;
  std::shared_ptr<kaiju::Engine> engine_;
  kaiju::RequestOptions options_;
  std::FILE* out_;
  std::unordered_map<kaiju::RequestId, Running> running_;
  size_t replies_ = 0;
  uint64_t generated_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
};

struct Arguments {
  std::string model, prompts, out;
  bool resume = false;
  kaiju::RunOptions run;
  kaiju::RequestOptions request;
  int64_t cache_mib = 4096;
  double minutes = 0.0;
};

// Says how far it is, at most every other second, on a terminal over the line before.
class Progress {
 public:
  explicit Progress(const Batch& batch) : batch_(batch) {}

  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  std::string text() const {
    return fmt::format("{} replies, {} tokens, {:.0f} tokens/s, {:.1f}% of {} prompt tokens from the cache",
                       batch_.replies(), batch_.generated(), static_cast<double>(batch_.generated()) / seconds(),
                       100.0 * static_cast<double>(batch_.cached_tokens()) /
                           static_cast<double>(std::max<uint64_t>(batch_.prompt_tokens(), 1)),
                       batch_.prompt_tokens());
  }
  void show() {
    const double now = seconds();
    if (now < shown_ + (terminal_ ? 2 : 20)) return;
    shown_ = now;
    kaiju::tools::print(stderr, "{}{}{}", terminal_ ? "\r\033[K" : "", text(), terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const Batch& batch_;
  const Clock::time_point began_ = Clock::now();
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  double shown_ = 0.0;
};

kaiju::Status answer(Batch& batch, Progress& progress, std::istream& in, const Arguments& arguments, size_t running,
                     const std::unordered_set<size_t>& answered) {
  std::string text;
  bool more = true;
  for (size_t line = 0; more || batch.running() > 0;) {
    more =
        more && !kaiju::tools::interrupted && (arguments.minutes == 0 || progress.seconds() < arguments.minutes * 60);
    while (more && batch.running() < running) {
      const auto read = kaiju::tools::read_line(in, text, kMostLineBytes);
      if (read == kaiju::tools::LineRead::kTooLong)
        return wrong_line(line + 1, fmt::format("is longer than {} bytes", kMostLineBytes));
      if (read == kaiju::tools::LineRead::kEnd) {
        more = false;
        break;
      }
      ++line;
      if (text.empty() || answered.contains(line)) continue;
      auto prompt = read_prompt(text, line);
      if (!prompt.ok()) return prompt.status();
      KAIJU_TRY(batch.submit(*prompt, line));
    }
    if (batch.running() > 0) KAIJU_TRY(batch.step());
    progress.show();
  }
  return {};
}

int run(int argc, char** argv) {
  CLI::App app("Replies to a file of prompts, many at a time.", "kaiju-batch");
  Arguments given;
  given.request.max_tokens = 256;
  given.request.loop_guard = true;
  given.run.executor.slot_count = 64;
  app.add_option("FILE", given.model, "checkpoint with a chat format")->required();
  app.add_option("--prompts", given.prompts, "JSON lines, each with \"messages\" as in OpenAI's API")
      ->type_name("FILE")
      ->required();
  app.add_option("--out", given.out, "JSON lines: line, reply, finish_reason, tokens; in the order in which they end")
      ->type_name("FILE")
      ->required();
  app.add_flag("--resume", given.resume, "keep the replies that --out has, and add the others");
  app.add_option("--backend", given.run.executor.backend, "backend to compute with")
      ->check(kaiju::tools::backend_name())
      ->capture_default_str();
  app.add_option("--threads", given.run.executor.threads, "threads; 0: one per core")
      ->check(kaiju::tools::whole_number(0, 256))
      ->capture_default_str();
  app.add_option("--device", given.run.executor.devices, "number of the GPU")->expected(1);
  app.add_option("--running", given.run.executor.slot_count, "replies at a time")
      ->check(kaiju::tools::whole_number(1, 4096))
      ->capture_default_str();
  app.add_option("--cache-mib", given.cache_mib, "memory for KV, in MiB; at least one context of the model")
      ->check(kaiju::tools::whole_number(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--max-tokens", given.request.max_tokens, "longest reply, in tokens")
      ->check(kaiju::tools::whole_number(1, 1 << 20))
      ->capture_default_str();
  auto& sampling = given.request.sampling;
  app.add_option("--temperature", sampling.temperature, "0: the likeliest token")->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "1: off")->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "0: off")->capture_default_str();
  app.add_option("--min-p", sampling.min_p, "0: off")->capture_default_str();
  app.add_option("--repetition-penalty", sampling.repetition_penalty, "1: off")->capture_default_str();
  app.add_option("--seed", sampling.seed, "the same seed and line give the same reply")->capture_default_str();
  app.add_option("--minutes", given.minutes, "begin no reply after so long; 0: no limit")->capture_default_str();
  app.footer(
      "Example:\n  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}' > prompts.jsonl\n"
      "  kaiju-batch model.safetensors --prompts prompts.jsonl --out replies.jsonl");
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  const auto fail = [&app](const kaiju::Status& status) { return kaiju::tools::fail(app, 1, status.message()); };

  if (std::error_code none; std::filesystem::equivalent(given.prompts, given.out, none))
    return fail(kaiju::invalid_argument("--out: " + given.out + " is the same file as --prompts"));
  std::ifstream in(given.prompts);
  if (!in) return fail({kaiju::StatusCode::kIo, "cannot read " + given.prompts});
  const auto answered = given.resume ? answered_lines(given.out) : std::unordered_set<size_t>{};
  auto model = kaiju::Model::load(given.model);
  if (!model.ok()) return fail(model.status());
  const auto running = static_cast<size_t>(given.run.executor.slot_count);
  given.run.executor.cache_bytes = given.cache_mib << 20;
  given.run.engine.max_events = static_cast<int32_t>(std::max<size_t>(16384, running * 64));
  auto engine = (*model)->create_engine(given.run);
  if (!engine.ok()) return fail(engine.status());
  std::FILE* out = std::fopen(given.out.c_str(), given.resume ? "ab" : "wb");
  if (!out) return fail({kaiju::StatusCode::kIo, "cannot write " + given.out});
  kaiju::tools::give_up_on_signals();
  if (given.resume) std::fputs(line_end_missing(given.out) ? "\n" : "", out);  // of a reply that was cut off

  Batch batch(**model, *engine, given.request, out);
  Progress progress(batch);
  kaiju::Status status = answer(batch, progress, in, given, running, answered);
  if (std::fclose(out) != 0 && status.ok()) status = {kaiju::StatusCode::kIo, "cannot write " + given.out};
  if (!status.ok()) return fail({status.code(), given.prompts + ": " + status.message()});
  kaiju::tools::print("{} ({:.1f} s)\n", progress.text(), progress.seconds());
  return kaiju::tools::interrupted ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-batch", run, argc, argv); }
