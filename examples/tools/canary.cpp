// kaiju-canary: makes the canaries of a model, and checks a machine by them.
#include "canary.hpp"

#include <CLI/CLI.hpp>

#include "name_from.hpp"
#include "number_from.hpp"
#include "output_files.hpp"
#include "program.hpp"

namespace {

using namespace kaiju;
using tools::Canary;
using tools::CanaryDigest;

// Short ones, some that fill several blocks, one that is longer than most windows; as far as the context goes.
std::vector<Canary> new_canaries(int32_t context) {
  constexpr int32_t kPrompts[] = {3, 65, 190, 700, 1500, 3000};
  constexpr int32_t kReply = 24;
  std::vector<Canary> made;
  for (const int32_t prompt : kPrompts)
    if (made.empty() || prompt + kReply <= context)
      made.push_back({static_cast<uint32_t>(made.size()), prompt, std::min(kReply, context - prompt), ""});
  return made;
}

Result<std::string> digest_of(const std::shared_ptr<Engine>& engine, const Canary& canary) {
  Result<SessionId> session = engine->create_session();
  if (!session.ok()) return session.status();
  const std::vector<int32_t> prompt = tools::prompt_of(canary, engine->info().vocab_size);
  const Result<RequestId> request = engine->submit(*session, prompt, tools::options_of(canary));
  if (!request.ok()) return request.status();
  CanaryDigest digest;
  while (engine->pending() > 0) {
    KAIJU_TRY(engine->step());
    for (Event event; engine->poll(event);) digest.take(event);
  }
  KAIJU_TRY(engine->destroy_session(*session));
  return digest.text();
}

void write(const std::string& path, const tools::CanaryFile& file) {
  nlohmann::ordered_json canaries = nlohmann::ordered_json::array();
  for (const Canary& canary : file.canaries)
    canaries.push_back({{"number", canary.number},
                        {"prompt_tokens", canary.prompt_tokens},
                        {"reply_tokens", canary.reply_tokens},
                        {"digest", canary.digest}});
  const nlohmann::ordered_json json = {{"model", file.model}, {"canaries", canaries}};
  std::ofstream out(path);
  out << json.dump(1) << "\n";
  if (!out.flush()) throw std::runtime_error(path + ": cannot be written");
}

struct Arguments {
  std::string model, out, check;
  ExecutorOptions executor;
};

int work(const CLI::App& app, const Arguments& arguments) {
  const auto fail = [&](const Status& status) { return tools::fail(app, 1, status.message()); };
  const Result<std::shared_ptr<const Model>> model = Model::load(arguments.model);
  if (!model.ok()) return fail(model.status());
  RunOptions running;
  running.executor = arguments.executor;
  const Result<std::shared_ptr<Engine>> engine = (*model)->create_engine(running);
  if (!engine.ok()) return fail(engine.status());
  const std::string& digest = (*model)->checkpoint()->digest();
  tools::CanaryFile file{digest, {}};
  if (arguments.check.empty())
    file.canaries = new_canaries((*engine)->info().context);
  else
    file = tools::read_canaries(arguments.check);
  if (file.model != digest)
    return tools::fail(
        app, 1, fmt::format("{} has the canaries of the model {}; this is {}", arguments.check, file.model, digest));
  size_t wrong = 0;
  for (Canary& canary : file.canaries) {
    const Result<std::string> found = digest_of(*engine, canary);
    if (!found.ok()) return fail(found.status());
    if (arguments.check.empty()) canary.digest = *found;
    const bool differs = *found != canary.digest;
    wrong += differs;
    tools::print("{:>5} + {} tokens  {}{}\n", canary.prompt_tokens, canary.reply_tokens, *found,
                 differs ? fmt::format("  DIFFERS from {}", canary.digest) : "");
  }
  if (!arguments.out.empty()) write(arguments.out, file);
  if (wrong > 0)
    return tools::fail(
        app, 1,
        fmt::format("{} of {} differ: this machine does not compute what it should", wrong, file.canaries.size()));
  return 0;
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app("Makes the canaries of a model (fixed prompts with the digests of their replies), or checks them.",
               "kaiju-canary");
  Arguments arguments;
  app.add_option("FILE", arguments.model, "checkpoint")->required();
  CLI::Option* const out = app.add_option("--out", arguments.out, "file to write the canaries to")->type_name("FILE");
  app.add_option("--check", arguments.check, "file of canaries to check; exits with 1 if one differs")
      ->type_name("FILE")
      ->excludes(out);
  app.add_option("--backend", arguments.executor.backend, "backend to compute with")
      ->check(tools::backend_name())
      ->capture_default_str();
  app.add_option("--threads", arguments.executor.threads, "threads; 0: one per core")
      ->check(tools::whole_number(0, 256))
      ->capture_default_str();
  app.footer(
      "Examples:\n  kaiju-canary model.safetensors --out canaries.json\n  kaiju-canary model.safetensors --check "
      "canaries.json --backend cuda\n"
      "  kaiju-server --model model.safetensors --canaries canaries.json");
  if (const auto stop = tools::parse(app, argc, argv)) return *stop;
  return work(app, arguments);
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-canary", run, argc, argv); }
