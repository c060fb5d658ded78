// kaiju-bench: measures speed and compares it with the machine's ceilings. Every result is checked before it is timed.
#include <CLI/CLI.hpp>

#include "bench.hpp"
#include "examples/tools/program.hpp"

#if KAIJU_CUDA
#include <cstdlib>

#include "cuda/device.hpp"
#endif

// After the figures. tests/run.sh builds the programs without optimisation, with which ceilings are measured too low.
static void warn_if_unoptimised() {
#if defined(KAIJU_UNOPTIMISED) || !defined(__OPTIMIZE__)
  kaiju::tools::print(stderr,
                      "kaiju-bench: built without optimisation, so the figures say nothing about kaiju: "
                      "configure with -DCMAKE_BUILD_TYPE=Release\n");
#endif
}

static int run(int argc, char** argv) {
  CLI::App app("Measures kaiju on this machine and compares it with the machine's ceilings.", "kaiju-bench");
  app.footer(
      "Examples:\n  kaiju-bench ops --threads 2\n  kaiju-bench ops --only attend --json\n  kaiju-bench step "
      "examples/chat/model/kaiju-nano.safetensors");
  app.require_subcommand(0, 1);
#if KAIJU_CUDA  // as in the tests
  if (const char* capability = std::getenv("KAIJU_TEST_CAPABILITY"))
    kaiju::cuda::Device::limit_capability(std::atoi(capability));
#endif
  int status = 0;
  kaiju::bench::add_ops(app, status);
  kaiju::bench::add_step(app, status);
  kaiju::bench::add_cache(app, status);
  kaiju::bench::add_chains(app, status);
  kaiju::bench::add_replay(app, status);
  kaiju::bench::add_serve(app, status);
  kaiju::bench::add_hour(app, status);
  kaiju::bench::add_policies(app, status);
  kaiju::bench::add_fleet(app, status);
  kaiju::bench::add_peers(app, status);
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  if (app.get_subcommands().empty())
    return kaiju::tools::fail(app, 2, "name what to measure: one of the subcommands of kaiju-bench --help");
  if (status == 0) warn_if_unoptimised();
  return status;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-bench", run, argc, argv); }
