// kaiju-chat: loads the model, creates an engine, and starts the console.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "../tools/program.hpp"
#include "args.hpp"
#include "console.hpp"
#include "safety.hpp"
#include "terminal.hpp"

namespace {

using namespace chat;

// A line that appears only when loading takes a while.
struct Progress {
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  bool shown = false;

  static int32_t tell(double done, void* self_pointer) {
    auto* self = static_cast<Progress*>(self_pointer);
    if (isatty(STDERR_FILENO) && std::chrono::steady_clock::now() - self->began > std::chrono::milliseconds(400)) {
      kaiju::tools::print(stderr, "\rloading {:3.0f} %", done * 100);
      self->shown = true;
    }
    return 0;
  }
  ~Progress() {
    if (shown) std::fputs("\r             \r", stderr);
  }
};

ModelHandle load_model(const std::string& path) {
  Progress progress;
  return make<ModelHandle>([&](kaiju_model** out, kaiju_error** error) {
    return kaiju_model_load(nullptr, path.c_str(), nullptr, &Progress::tell, &progress, out, error);
  });
}

EngineHandle make_engine(kaiju_model* model, const Args& args) {
  OptionsHandle options =
      make<OptionsHandle>([](kaiju_options** out, kaiju_error**) { return kaiju_options_create(out); });
  const auto set_int = [&](kaiju_option option, int64_t value) {
    must([&](kaiju_error** error) { return kaiju_options_set_int(options.get(), option, value, error); });
  };
  // One person, one reply at a time; the rest keeps the card's KV.
  set_int(KAIJU_ENGINE_MAX_RUNNING, 1 + (args.sampling.guidance ? kBeams : 1));
  set_int(KAIJU_ENGINE_THREADS, args.threads);
  const auto set_string = [&](kaiju_option option, const std::string& value) {
    must([&](kaiju_error** error) {
      return kaiju_options_set_string(options.get(), option, value.data(), value.size(), error);
    });
  };
  set_string(KAIJU_ENGINE_BACKEND, args.backend);
  set_string(KAIJU_ENGINE_PRODUCTS_FILE, args.products_file);
  return make<EngineHandle>(
      [&](kaiju_engine** out, kaiju_error** error) { return kaiju_engine_create(model, options.get(), out, error); });
}

int list(const Args& args) {
  int failed = 0;
  for (const std::string& file : card_files(args.characters_folder)) {
    try {
      const Card card = read_card(file);
      kaiju::tools::print("{:<14} {:<14} {}\n", stem_of(file), card.name, card.greeting);
    } catch (const Problem& problem) {
      kaiju::tools::print(stderr, "kaiju-chat: {}\n", problem.what());
      failed = 1;
    }
  }
  return failed;
}

int run(int argc, char** argv) {
  Args args;
  if (const auto stop = parse_args(argc, argv, args)) return *stop;
  use_utf8_locale();
  if (args.list) return list(args);
  if (args.say.empty() && on_terminal() && !args.seed_given) args.sampling.seed = std::random_device()();
  const ModelHandle model = load_model(args.model);
  const EngineHandle engine = make_engine(model.get(), args);
  if (!args.sampling.tier.empty()) set_limits(engine.get(), model.get(), args.sampling.tier);
  if (args.sampling.guidance && labels_of(model.get()).empty())
    throw Problem("--guidance needs a model with a classifier, such as the bundled one");
  Console console{model.get(), engine.get(), args};
  return console.run();
}

}  // namespace

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-chat", run, argc, argv); }
