// kaiju-bench step: whole steps of a model, prefill and decode, beside the ceilings. The logits are compared with the reference backend's first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>

#include "bench.hpp"
#include "kaiju/run/executors.hpp"

namespace kaiju::bench {
namespace {

struct Options {
  std::string model;
  std::string backend = "auto";
  int32_t threads = std::clamp(static_cast<int32_t>(std::thread::hardware_concurrency()), 1, 8);
  std::vector<int32_t> streams = {1, 4, 16, 32};
  int32_t context = 512;  // positions before a timed decode step
  double seconds = 1.0;
  int32_t buffer_mib = 1024;
  bool json = false;
};

struct Failed {
  Status status;
};

constexpr int32_t kChunk = 256;  // tokens of a prefill step

// One executor and hand-written plans over it: sequence s owns its own blocks, window blocks in a ring.
class Steps {
 public:
  Steps(std::shared_ptr<const Checkpoint> checkpoint, const std::string& backend, int32_t threads, int32_t sequences) {
    ExecutorOptions options;
    options.backend = backend;
    options.threads = threads;
    options.slot_count = sequences;
    options.step_tokens = std::max(kChunk, sequences);
    Result<std::unique_ptr<Executor>> made = make_executor(std::move(checkpoint), options);
    if (!made.ok()) throw Failed{made.status()};
    executor_ = std::move(made).value();
    sequences_ = sequences;
  }

  // Computes positions [from, from + count) of the first `sequences` sequences in one step.
  const StepResult& step(int32_t sequences, int32_t from, int32_t count, bool all_logits = false) {
    const Facts& facts = executor_->facts();
    plan_.clear();
    for (int32_t s = 0; s < sequences; ++s) {
      if (from == 0) plan_.starts.push_back({s, {}, {}});
      for (int32_t kind = 0; kind < kBlockKinds; ++kind) {
        const int32_t ring = facts.block_count[kind] / sequences_;
        for (int32_t i = (from + kBlockTokens - 1) / kBlockTokens; ring > 0 && i <= (from + count - 1) / kBlockTokens; ++i)
          plan_.table_edits.push_back({s, static_cast<BlockKind>(kind), i, s * ring + i % ring});
      }
      Segment segment;
      segment.slot = s;
      segment.position = from;
      segment.first_token = static_cast<int32_t>(plan_.tokens.size());
      segment.token_count = count;
      segment.sample = true;
      segment.all_logits = all_logits;
      plan_.segments.push_back(segment);
      for (int32_t i = 0; i < count; ++i) plan_.tokens.push_back((7 + 131 * (from + i) + 17 * s) % facts.vocab_size);
    }
    const Status ran = executor_->run(plan_, result_);
    if (!ran.ok()) throw Failed{ran};
    return result_;
  }

  void prefill(int32_t sequences, int32_t tokens) {
    for (int32_t s = 0; s < tokens; s += kChunk / sequences) step(sequences, s, std::min(kChunk / sequences, tokens - s));
  }

 private:
  std::unique_ptr<Executor> executor_;
  int32_t sequences_ = 0;
  StepPlan plan_;
  StepResult result_;
};

// Bytes of the matrices a step reads, and products a token costs in them (2 operations each); the logits' share apart.
struct Cost {
  double weights = 0, logits = 0;
};
Cost cost_of(const Checkpoint& checkpoint) {
  Cost cost;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.dtype != DType::kI8) continue;
    (tensor.name == "embed.weight" ? cost.logits : cost.weights) += static_cast<double>(tensor.bytes.size());
  }
  return cost;
}

int run(const Options& options) {
  auto opened = Checkpoint::open(options.model);
  if (!opened.ok()) throw Failed{opened.status()};
  const std::shared_ptr<const Checkpoint> checkpoint = *opened;
  const ModelConfig& config = checkpoint->config();
  const int32_t most = *std::max_element(options.streams.begin(), options.streams.end());
  if (options.context + 64 > config.context) throw Failed{invalid_argument(fmt::format("the model's context is {}: choose --context at most {}", config.context, config.context - 64))};

  // The answer first: 24 positions against the reference.
  const int32_t checked = std::min(24, config.context);
  const std::vector<float> expected = Steps(checkpoint, "reference", 1, 1).step(1, 0, checked, true).logits;
  Steps steps(checkpoint, options.backend, options.threads, most);
  if (steps.step(1, 0, checked, true).logits != expected) throw Failed{internal_error("the logits are not the reference's bits; nothing is timed that is wrong")};

  const Ceilings ceilings = [&] {
    ThreadPool pool(options.threads);
    return measure_ceilings(pool, int64_t{options.buffer_mib} << 20);
  }();
  const Cost cost = cost_of(*checkpoint);
  std::vector<Line> lines;
  const std::string group = fmt::format("{}, {:.1f} MB of weights", config.name, 1e-6 * (cost.weights + cost.logits));
  for (const int32_t tokens : {512, 2048}) {
    if (tokens > config.context) continue;
    const double seconds = best_seconds(options.seconds, [&] { steps.prefill(1, tokens); });
    // The logits of a chunk's last row alone are computed. Attention is not counted: the share is of the products' floor.
    const double gops = 2e-9 * cost.weights * tokens / seconds;
    lines.push_back({group, "prefill", fmt::format("{} tokens", tokens), tokens, 1e6 * seconds, tokens / seconds, "tokens/s",
                     ceilings.int8_gops > 0 ? gops / ceilings.int8_gops : 0, "int8"});
  }
  const bool cached = ceilings.cached_gb_per_s > 0 && cost.weights + cost.logits < 48e6;
  for (const int32_t streams : options.streams) {
    steps.prefill(streams, options.context);
    int32_t position = options.context;
    const double seconds = best_seconds(options.seconds, [&] {
      steps.step(streams, position, 1);
      if (++position >= std::min(config.context, options.context + 64)) position = options.context;  // the same positions again: written anew each time
    });
    const double bandwidth = 1e-9 * (cost.weights + cost.logits) / seconds;
    lines.push_back({group, "decode", fmt::format("{} stream{}, context {}", streams, streams == 1 ? "" : "s", options.context), streams, 1e6 * seconds,
                     streams / seconds, "tokens/s", ceilings.read_gb_per_s > 0 ? bandwidth / ceilings.read_gb_per_s : 0, "read"});
    if (cached) lines.push_back({group, "", "the same", streams, 1e6 * seconds, bandwidth, "GB/s", bandwidth / ceilings.cached_gb_per_s, "cached read"});
  }
  if (options.json) fmt::print("{}\n", to_json(ceilings, lines));
  else print_table(ceilings, lines);
  return 0;
}

}  // namespace

void add_step(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("step", "prefill and decode of a whole model");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->model, "checkpoint")->required();
  command->add_option("--backend", options->backend, "auto, avx512, avxvnni, avx2, neon, portable or reference")->capture_default_str();
  command->add_option("--threads", options->threads, "threads, the caller's included")->check(CLI::Range(1, 256))->capture_default_str();
  command->add_option("--streams", options->streams, "numbers of sequences decoded at once")->check(CLI::Range(1, 256))->delimiter(',');
  command->add_option("--context", options->context, "positions before the timed decode steps")->check(CLI::Range(1, 1 << 24))->capture_default_str();
  command->add_option("--seconds", options->seconds, "time spent on each line")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--buffer-mib", options->buffer_mib, "memory for the bandwidth ceiling")->check(CLI::Range(64, 65536))->capture_default_str();
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  command->footer("Example:\n  kaiju-bench step examples/chat/model/kaiju-nano.safetensors --threads 2");
  command->callback([options, &status] {
    try {
      status = run(*options);
    } catch (const Failed& failed) {
      fmt::print(stderr, "kaiju-bench: {}\n", failed.status.message());
      status = 1;
    }
  });
}

}  // namespace kaiju::bench
