// kaiju-head: writes the classifier of a checkpoint as a file of its own, for a model that is to have another
// classifier while its weights stay as they are.
#include "kaiju/format/head.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "kaiju/format/checkpoint.hpp"
#include "output_files.hpp"
#include "program.hpp"

static int run(int argc, char** argv) {
  CLI::App app("Writes the classifier of a checkpoint as a file of its own.", "kaiju-head");
  std::string model, head, out;
  app.add_option("FILE", model, "checkpoint")->required();
  app.add_option("--head", head, "give the checkpoint this head first, to check that it fits")->type_name("FILE");
  app.add_option("--out", out, "the file to write; an existing file is replaced once the new one is complete")
      ->type_name("FILE");
  app.footer(
      "Examples:\n  kaiju-head model.safetensors --out head.safetensors\n  kaiju-head model.safetensors --head "
      "head.safetensors\n  kaiju-server --model model.safetensors --head head.safetensors");
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  if (head.empty() && out.empty())
    return kaiju::tools::fail(app, 2, "nothing to do: give --out, or --head to check a head");

  if (!out.empty()) {
    const kaiju::tools::NamedFile read[] = {{"FILE " + model, model}, {"--head " + head, head.empty() ? model : head}};
    const std::string problem = kaiju::tools::output_problem("--out", out, read);
    if (!problem.empty()) return kaiju::tools::fail(app, 1, problem);
  }

  auto checkpoint = kaiju::Checkpoint::open(model);
  if (checkpoint.ok() && !head.empty()) checkpoint = kaiju::with_head(std::move(checkpoint).value(), head);
  if (!checkpoint.ok()) return kaiju::tools::fail(app, 1, checkpoint.status().message());
  if (!out.empty())
    if (const kaiju::Status status = kaiju::write_head(**checkpoint, out); !status.ok())
      return kaiju::tools::fail(app, 1, status.message());
  std::string labels;
  for (const std::string& label : (*checkpoint)->config().labels) labels += (labels.empty() ? "" : ", ") + label;
  kaiju::tools::print("{}: head of {} with the labels {}\n", out.empty() ? head : out, (*checkpoint)->digest(), labels);
  return 0;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-head", run, argc, argv); }
