// kaiju-make: writes a valid checkpoint with random weights and the shape of a preset or a config file, tensor by
// tensor.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "interrupted.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "kaiju/format/presets.hpp"
#include "kaiju/format/random_model.hpp"
#include "kaiju/run/shared_model.hpp"
#include "number_from.hpp"
#include "output_files.hpp"
#include "program.hpp"
#include "text_input.hpp"

namespace {

using kaiju::ModelConfig;
using kaiju::Result;
using kaiju::Status;
using kaiju::StatusCode;

Result<ModelConfig> config_from_file(const std::string& path) {
  const kaiju::tools::TextFile read = kaiju::tools::read_text_file(path, kaiju::kMostConfigBytes);
  if (!read.problem.empty()) return Status(StatusCode::kIo, read.problem);
  // A config file may end in a new line or begin with one; the parser wants the object.
  const size_t begin = read.text.find_first_not_of(" \t\r\n");
  auto config = kaiju::config_from_json(begin == std::string::npos ? "" : std::string_view(read.text).substr(begin));
  if (!config.ok()) return Status(config.status().code(), path + ": " + config.status().message());
  return config;
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app("Writes a valid Kaiju checkpoint with random weights, for tests and benchmarks. It cannot chat.",
               "kaiju-make");
  std::string preset_name, config_path, out;
  int32_t layers = 0, labels = 0, part = 1;
  uint64_t seed = 0;
  auto* preset_option =
      app.add_option("--preset", preset_name, "nano (34 M parameters), small (13 B), medium (34 B) or large (110 B)");
  auto* config_option =
      app.add_option("--config", config_path,
                     fmt::format("a JSON file of a config (docs/checkpoint.md), at most {} KiB, instead of a preset",
                                 kaiju::kMostConfigBytes >> 10))
          ->type_name("FILE");
  auto* layers_option = app.add_option("--layers", layers, "number of layers; the preset's pattern is cut or repeated")
                            ->check(kaiju::tools::whole_number(1, kaiju::kMostLayers));
  auto* labels_option = app.add_option("--labels", labels, "add a classifier with this number of labels to the preset")
                            ->check(kaiju::tools::whole_number(1, kaiju::kMostLabels));
  app.add_option("--part", part,
                 "the shape of what each of this number of GPUs computes of the model when they share it: what a step "
                 "takes there without their exchange")
      ->check(kaiju::tools::whole_number(1, 64))
      ->capture_default_str();
  app.add_option("--seed", seed, "the same seed gives the same bytes (default 0)")
      ->check(kaiju::tools::whole_number())
      ->type_name("N");
  int32_t threads = 0;
  app.add_option("--threads", threads, "threads that draw the weights, which change no byte; 0: one per core")
      ->check(kaiju::tools::whole_number(0, 1024))
      ->capture_default_str();
  app.add_option("--out", out, "the file to write; an existing file is replaced once the new one is complete")
      ->type_name("FILE")
      ->required();
  preset_option->excludes(config_option);
  layers_option->excludes(config_option);
  labels_option->excludes(config_option);
  app.footer(
      "Examples:\n"
      "  kaiju-make --preset nano --seed 1 --out nano.safetensors\n"
      "  kaiju-make --preset small --layers 14 --seed 7 --out small14.safetensors\n"
      "  kaiju-make --config shape.json --seed 3 --out shape.safetensors");
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  if (preset_option->count() + config_option->count() == 0)
    return kaiju::tools::fail(app, 2, "give --preset or --config (see kaiju-make --help)");
  auto config = preset_option->count() ? kaiju::preset(preset_name, layers) : config_from_file(config_path);
  if (config_option->count() > 0) {
    const kaiju::tools::NamedFile read = {"--config " + config_path, config_path};
    const std::string problem = kaiju::tools::output_problem("--out", out, {&read, 1});
    if (!problem.empty()) return kaiju::tools::fail(app, 1, problem);
  }
  if (!config.ok()) return kaiju::tools::fail(app, preset_option->count() ? 2 : 1, config.status().message());

  if (part > 1) {
    config = kaiju::config_of_part(*config, part);
    config->vocab_size /= part;
    if (const Status divided = kaiju::check_config(*config); !divided.ok())
      return kaiju::tools::fail(app, 2, fmt::format("--part {}: {}", part, divided.message()));
  }
  for (int32_t i = 0; i < labels; ++i) config->labels.push_back(fmt::format("label {}", i));

  kaiju::tools::give_up_on_signals();  // the file has its whole size as soon as it is begun
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto report = [&](double done) {
    if (terminal) std::fputs(fmt::format("\r{}: {:3.0f}%", kaiju::tools::printable(out), done * 100).c_str(), stderr);
    return static_cast<int>(kaiju::tools::interrupted);
  };
  if (threads == 0) threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  const Status status = kaiju::write_random_checkpoint(out, config.value(), seed, report, threads);
  if (terminal) std::fputs("\r\033[K", stderr);
  if (status.code() == StatusCode::kCancelled)
    return kaiju::tools::fail(app, 1, out + ": interrupted; no part of the file is left");
  if (!status.ok()) return kaiju::tools::fail(app, 1, status.message());
  return 0;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-make", run, argc, argv); }
