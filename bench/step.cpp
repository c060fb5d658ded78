// kaiju-bench step: times whole prefill and decode steps of a model and compares them with the ceilings. First it
// compares logits with the reference backend's, and the tokens that many streams draw together with those that they
// draw in small batches.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>

#include "bench.hpp"
#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "gpu.hpp"
#include "gpu_options.hpp"
#include "kaiju/arith/float32.hpp"
#include "kaiju/backend/batch.hpp"
#include "kaiju/base/detail/core_count.hpp"
#include "kaiju/format/detail/layer_tensors.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju::bench {
namespace step_command {
namespace {

struct Options {
  std::string model;
  std::string backend = "auto", products = "auto", products_file;
  std::vector<int32_t> devices;
  int32_t threads = core_count();
  std::vector<int32_t> streams = {1, 4, 16, 32};
  std::vector<int32_t> prompts = {512, 2048};  // tokens
  int32_t context = 512;                       // positions before a timed decode step
  bool context_given = false;                  // else as many as a short context has room for
  int32_t chunk = 256;                         // most tokens of a prefill step
  std::vector<int32_t> after;   // tokens in the cache and tokens beyond them, in pairs: the time to the first token
  std::vector<int32_t> beside;  // tokens of a prompt computed in the same step as every number of streams
  int32_t beside_after = 0;     // behind so many of the prompt that are in the cache
  bool skip_zeros = false, large_pages = false;  // ExecutorOptions
  bool guided = false;         // also decode steps in which every sequence has a mask of allowed tokens
  std::vector<int32_t> moved;  // sequences that go to the host, and as many that come back, beside every decode step
  double seconds = 1.0;
  bool median = false;  // of the repeated runs, in place of the fastest
  int32_t buffer_mib = 1024;
  bool json = false;

  // Where remarks go: with --json, standard output has the JSON alone.
  std::FILE* remarks() const { return json ? stderr : stdout; }
};

constexpr double kQuickReference =
    200e6;  // bytes of weights up to which the scalar reference checks the answer; above, the fastest CPU backend

// Blocks of `kind` that a conversation of so many tokens keeps: its window ends within a block. None of a kind that no
// layer of the model has.
int32_t kept_blocks(const ExecutorInfo& info, int32_t kind, int32_t tokens) {
  if (info.block_count[kind] == 0) return 0;
  const auto blocks = [](int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; };
  return static_cast<BlockKind>(kind) == BlockKind::kGlobal ? blocks(tokens)
                                                            : std::min(blocks(tokens), blocks(info.window) + 1);
}
int64_t conversation_bytes(const ExecutorInfo& info, int32_t tokens) {
  int64_t bytes = 0;
  for (int32_t kind = 0; kind < kBlockKinds; ++kind) bytes += info.block_bytes[kind] * kept_blocks(info, kind, tokens);
  return bytes;
}

// One executor and hand-written plans over it: sequence s owns its own blocks, window blocks in a ring.
class Steps {
 public:
  // Room for `positions` of each of `sequences`, in steps of at most `step_tokens`; prompts are computed `chunk` at a
  // time. Of `moved` more sequences there may be blocks on their way to the host, of as many on their way back.
  Steps(std::shared_ptr<const Checkpoint> checkpoint, const std::string& backend, int32_t threads, int32_t sequences,
        int32_t positions, int32_t chunk, int32_t step_tokens, const Options& made_with = {}, int32_t moved = 0)
      : chunk_(chunk), computed_(sequences), sequences_(sequences + 2 * moved) {
    ExecutorOptions options;
    options.backend = backend;
    options.threads = threads;
    options.slot_count = sequences_;
    options.step_tokens = step_tokens;
    options.products = made_with.products;
    options.devices = made_with.devices;
    options.skip_zeros = made_with.skip_zeros;
    options.large_pages = made_with.large_pages;
    options.products_file = made_with.products_file;
    options.cache_bytes = sequences_ * global_bytes(checkpoint->config(), positions);
    Result<std::unique_ptr<Executor>> made = make_executor(std::move(checkpoint), options);
    if (!made.ok()) throw Failed{made.status()};
    executor_ = std::move(made).value();
    if (moved > 0)
      host_ = value_of(executor_->host_memory(static_cast<size_t>(2 * moved * conversation_bytes(info(), positions)),
                                              "sequences on their way"));
  }

  // Computes positions [from, from + count) of the first `sequences` sequences in one step, and `beside` positions of
  // the last one from `beside_from` on.
  const StepResult& step(int32_t sequences, int32_t from, int32_t count, bool all_logits = false, int32_t beside = 0,
                         int32_t beside_from = 0) {
    plan_.clear();
    for (int32_t s = 0; s < sequences; ++s) add(s, from, count, all_logits);
    if (beside > 0) add(computed_ - 1, beside_from, beside, false);
    plan_.transfers = transfers_;
    return run();
  }
  // From now on `positions` of so many sequences go to the host beside every step, and of as many come from there.
  void move(int32_t count, int32_t positions) {
    transfers_.clear();
    std::byte* host = host_.get();
    for (int32_t s = 0; s < 2 * count; ++s)
      for (int32_t kind = 0; kind < kBlockKinds; ++kind)
        for (int32_t i = 0; i < kept_blocks(info(), kind, positions); ++i, host += info().block_bytes[kind])
          transfers_.push_back({s < count ? BlockTransfer::Way::kDown : BlockTransfer::Way::kUp,
                                static_cast<BlockKind>(kind), (computed_ + s) * ring(kind) + i, host});
  }
  // The last sequence's first positions.
  void prefill_last(int32_t tokens) {
    for (int32_t s = 0; s < tokens; s += chunk_) step(0, 0, 0, false, std::min(chunk_, tokens - s), s);
  }

  // From now on every sequence may draw the tokens of this mask only; an empty one ends that.
  void guide(std::vector<uint32_t> allowed) {
    guide_ = allowed.empty() ? nullptr : std::make_shared<const TokenGuide>(TokenGuide{std::move(allowed), {}});
  }

  // What sequences [first, first + count) draw behind position `position`, computed in one step.
  std::vector<SampledToken> drawn(int32_t first, int32_t count, int32_t position) {
    plan_.clear();
    for (int32_t s = first; s < first + count; ++s) add(s, position, 1, false);
    return run().sampled;
  }
  // Whether the executor gives the reference's bits: those of the programs that measure what exactness costs do not,
  // and say so.
  bool exact() const { return !executor_->info().kv_layout.ends_with("inexact"); }

  // Gives the first `sequences` sequences the same `tokens` positions, each in blocks of its own: the first one's are
  // computed, the others' copied.
  void fill(int32_t sequences, int32_t tokens) {
    prefill(1, tokens);
    plan_.clear();
    for (int32_t s = 1; s < sequences; ++s) {
      add_blocks(s, 0, tokens);
      for (int32_t kind = 0; kind < kBlockKinds; ++kind)
        for (int32_t i = 0; i < std::min(ring(kind), (tokens + kBlockTokens - 1) / kBlockTokens); ++i)
          plan_.copies.push_back({static_cast<BlockKind>(kind), i, s * ring(kind) + i, kBlockTokens});
    }
    run();
  }

  const ExecutorInfo& info() const { return executor_->info(); }

  void prefill(int32_t sequences, int32_t tokens) {
    const int32_t chunk = std::max(chunk_ / sequences, 1);
    for (int32_t s = 0; s < tokens; s += chunk) step(sequences, s, std::min(chunk, tokens - s));
  }

 private:
  int32_t ring(int32_t kind) const { return executor_->info().block_count[kind] / sequences_; }

  // A sequence's blocks for positions [from, from + count).
  void add_blocks(int32_t s, int32_t from, int32_t count) {
    if (from == 0) plan_.starts.push_back({s, {}, {}});
    for (int32_t kind = 0; kind < kBlockKinds; ++kind)
      for (int32_t i = (from + kBlockTokens - 1) / kBlockTokens;
           ring(kind) > 0 && i <= (from + count - 1) / kBlockTokens; ++i)
        plan_.table_edits.push_back({s, static_cast<BlockKind>(kind), i, s * ring(kind) + i % ring(kind)});
  }

  void add(int32_t s, int32_t from, int32_t count, bool all_logits) {
    add_blocks(s, from, count);
    Segment segment;
    segment.slot = s;
    segment.position = from;
    segment.first_token = static_cast<int32_t>(plan_.tokens.size());
    segment.token_count = count;
    segment.sample_count = 1;
    segment.all_logits = all_logits;
    if (guide_) {
      segment.guide = static_cast<int32_t>(plan_.guides.size());
      plan_.guides.push_back(guide_);
    }
    plan_.segments.push_back(segment);
    for (int32_t i = 0; i < count; ++i)
      plan_.tokens.push_back((7 + 131 * (from + i) + 17 * s) % executor_->info().vocab_size);
  }

  const StepResult& run() {
    const Status ran = executor_->run(plan_, result_);
    if (!ran.ok()) throw Failed{ran};
    return result_;
  }

  // KV bytes of the global layers for so many positions, in whole blocks and one to spare.
  static int64_t global_bytes(const ModelConfig& config, int32_t positions) {
    std::set<int32_t> slots;
    int64_t block_bytes = 0;
    for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
      if (const LayerConfig& at = config.layers[static_cast<size_t>(layer)];
          at.kind == LayerKind::kGlobal && slots.insert(at.kv_slot).second)
        block_bytes +=
            config.kv_heads_of(layer) * KvSlot::head_bytes(config.head_dim_of(layer), config.arithmetic() == 2);
    return block_bytes * ((positions + kBlockTokens - 1) / kBlockTokens + 1);
  }

  int32_t chunk_, computed_, sequences_;
  std::unique_ptr<Executor> executor_;
  HostMemory host_;
  std::vector<BlockTransfer> transfers_;
  std::shared_ptr<const TokenGuide> guide_;
  StepPlan plan_;
  StepResult result_;
};

// Bytes of the matrices a step reads, and products a token costs in them (2 operations each); the logits' share apart.
struct Cost {
  double weights = 0, logits = 0;
};
Cost cost_of(const ModelConfig& config) {
  const double d_model = config.d_model;
  Cost cost{config.label_count() * d_model, config.vocab_size * d_model};
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    for (const LayerMatmul& matmul : matmuls_of(config, layer)) cost.weights += double{1} * matmul.out * matmul.in;
  return cost;
}

// So many sequences of a step, each of which brings positions [from, from + count).
struct Rows {
  int32_t sequences, from, count;
};

// Bytes that each of several GPUs sends the others in a step of so many rows: twice in a layer its sums of every row to
// all; or to the one that adds them up, which sends what becomes of them to all.
double sent_bytes(const ModelConfig& config, double rows, int32_t gpus) {
  const double others = gpus - 1, result = config.arithmetic() == 1 ? 1 : 4,
               bytes = std::min(4 * others, (4 + result) * others / gpus);
  return 2 * static_cast<double>(config.layers.size()) * rows * config.d_model * bytes;
}

// Bytes of rows that version 2 of the arithmetic passes over twice: quantising by the largest value of a row needs all
// of the row first. A value is written and read again, as a bf16.
double second_pass_bytes(const ModelConfig& config, int32_t layer, double rows) {
  if (config.arithmetic() == 1 || has_static_steps(config.shape)) return 0;
  const double values = double{1} * config.width_of(Width::kQuery, layer) + config.width_of(Width::kFfn, layer);
  return 2 * sizeof(arith::bf16) * values * rows;
}

// Seconds of a step at the ceilings of `gpus` GPUs that share the model: the longer of reading and of multiplying for
// the layers' products, for the logits (of a row of each sequence) and for every layer's attention, one after the
// other, second passes over rows, and then what the GPUs send each other. 0 where the ceilings are not known.
double floor_of(const ModelConfig& config, const Cost& whole, const GpuCeilings& gpu, const std::vector<Rows>& step,
                int32_t gpus) {
  if (gpu.bytes_per_second == 0) return 0;
  const Cost cost{whole.weights / gpus, whole.logits / gpus};
  const auto longer = [&](double bytes, double operations, double per_second) {
    return std::max(bytes / gpu.bytes_per_second, operations / per_second);
  };
  double rows = 0, drawn = 0;
  for (const Rows& part : step) rows += double{1} * part.sequences * part.count, drawn += part.sequences;
  const double logit_rows = config.shape.wide_logits ? 2 * drawn : drawn;
  double seconds = longer(cost.weights, 2 * cost.weights * rows, gpu.int8_per_second) +
                   longer(cost.logits, 2 * cost.logits * logit_rows, gpu.int8_per_second);
  for (int32_t index = 0; index < static_cast<int32_t>(config.layers.size()); ++index) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(index)];
    double read = 0, seen = 0;  // keys, of one KV head
    for (const Rows& part : step) {
      const int32_t end = part.from + part.count, window = layer.kind == LayerKind::kWindow ? layer.window : end;
      read += double{1} * part.sequences * std::min(end, window + part.count - 1);
      for (int32_t i = part.from; i < end; ++i) seen += double{1} * part.sequences * std::min(i + 1, window);
    }
    const int32_t kv_heads = config.kv_heads_of(index), head_dim = config.width_of(Width::kHead, index);
    const auto key_bytes = static_cast<double>(KvSlot::head_bytes(head_dim, config.arithmetic() == 2)) / kBlockTokens;
    const double query_width = double{1} * config.width_of(Width::kQuery, index) / gpus;
    seconds +=
        longer(read * std::max(1, kv_heads / gpus) * key_bytes, 4 * seen * query_width, gpu.attention_per_second) +
        second_pass_bytes(config, index, rows) / gpus / gpu.bytes_per_second;
  }
  return seconds + sent_bytes(config, rows, gpus) / gpu.link_bytes_per_second;
}

// All streams together draw what they draw sixteen at a time, and the first sixteen what each draws alone, with the
// same log-probabilities, which all logits of a row go into. Other numbers of rows are other kernels' or other tiles'
// work.
void check_draws(Steps& steps, int32_t streams, int32_t position) {
  constexpr int32_t kFew = 16;
  const auto check = [&](int32_t count, int32_t at_once) {
    const std::vector<SampledToken> together = steps.drawn(0, count, position);
    for (int32_t first = 0; first < count; first += at_once) {
      const std::vector<SampledToken> apart = steps.drawn(first, std::min(at_once, count - first), position);
      for (size_t i = 0; i < apart.size(); ++i) {
        const SampledToken& token = together[static_cast<size_t>(first) + i];
        if (token.token != apart[i].token || token.logprob != apart[i].logprob)
          throw Failed{internal_error(fmt::format(
              "stream {} of {} draws token {} ({}), but {} ({}) if {} are computed at once, so nothing was timed",
              token.slot, count, token.token, token.logprob, apart[i].token, apart[i].logprob, at_once))};
      }
    }
  };
  if (streams > kFew) check(streams, kFew);
  if (streams > 1) check(std::min(streams, kFew), 1);
}

// A mask of every token changes nothing that is drawn.
void check_guided_draws(Steps& steps, int32_t streams, int32_t position) {
  const std::vector<SampledToken> plain = steps.drawn(0, streams, position);
  steps.guide(std::vector<uint32_t>(static_cast<size_t>(mask_words(steps.info().vocab_size)), ~0u));
  const std::vector<SampledToken> masked = steps.drawn(0, streams, position);
  steps.guide({});
  const auto same = [](const SampledToken& a, const SampledToken& b) {
    return a.token == b.token && a.logprob == b.logprob;
  };
  if (!std::equal(plain.begin(), plain.end(), masked.begin(), masked.end(), same))
    throw Failed{internal_error("a mask that allows every token changes what is drawn, so nothing was timed")};
}

// The widest difference of logits, as a share of the largest logit.
float widest(const std::vector<float>& found, const std::vector<float>& expected) {
  float difference = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    difference = std::max(difference, std::abs(found[i] - expected[i])),
    largest = std::max(largest, std::abs(expected[i]));
  return difference / largest;
}

// The best backend that computes on the processor.
std::string cpu_backend() {
  for (const std::string& name : backend_names())
    if (name != "cuda") return name;
  return "reference";
}

// Decode steps are timed at so many positions behind the context, in turn; at fewer where the model's context ends.
constexpr int32_t kDecoded = 64;
// Positions whose logits are compared with the reference's before anything is timed.
constexpr int32_t kChecked = 24;

// What the timed steps need of the executor.
struct Sizes {
  std::vector<int32_t> prompts;  // those that fit the model's context
  int32_t positions = 0;         // of a sequence
  int32_t streams = 0;           // decoded at once, at most
  int32_t sequences = 0;         // with the one whose prompt joins decode steps
  int32_t step_tokens = 0;
  int32_t moved = 0;  // sequences that go to the host in a step, at most
};
Sizes sizes_of(const Options& options, const ModelConfig& config) {
  const auto most = [](const std::vector<int32_t>& values) {
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  };
  if (config.context < 2)
    throw Failed{invalid_argument("the model's context of 1 has no position for a decode step after a prompt")};
  if (options.context >= config.context)
    throw Failed{invalid_argument(
        fmt::format("the model's context is {}: choose --context at most {}", config.context, config.context - 1))};
  Sizes sizes;
  std::copy_if(options.prompts.begin(), options.prompts.end(), std::back_inserter(sizes.prompts),
               [&](int32_t tokens) { return tokens <= config.context; });
  sizes.positions = std::max(std::min(options.context + kDecoded, config.context), most(sizes.prompts));
  for (size_t i = 0; i + 1 < options.after.size(); i += 2)
    sizes.positions = std::max(sizes.positions, options.after[i] + options.after[i + 1]);
  if (sizes.positions > config.context)
    throw Failed{
        invalid_argument(fmt::format("--after: a pair is together at most the model's context of {}", config.context))};
  const int32_t beside = most(options.beside);
  if (beside > 0) sizes.positions = std::max(sizes.positions, options.beside_after + beside);
  if (sizes.positions > config.context)
    throw Failed{invalid_argument(
        fmt::format("the sum of --beside-after and --beside is at most the model's context of {}", config.context))};
  sizes.streams = most(options.streams);
  sizes.sequences = sizes.streams + (beside > 0 ? 1 : 0);
  sizes.step_tokens = std::max({options.chunk, sizes.sequences + beside, std::min(kChecked, config.context)});
  for (size_t i = 1; i < options.after.size(); i += 2)
    sizes.step_tokens = std::max(sizes.step_tokens, options.after[i]);  // one step
  sizes.moved = most(options.moved);
  return sizes;
}

// The logits of the first `count` positions, [count, vocab_size], from the reference; of a large model from the fastest
// CPU backend.
std::vector<float> expected_logits(const std::shared_ptr<const Checkpoint>& checkpoint, const Options& options,
                                   const Cost& cost, int32_t count) {
  const bool quick = cost.weights + cost.logits < kQuickReference;
  return Steps(checkpoint, quick ? "reference" : cpu_backend(), quick ? 1 : options.threads, 1, count, count, count)
      .step(1, 0, count, true)
      .logits;
}

// The first `count` positions against the expected logits: together, and where one stream is timed one by one, since
// that may take another path.
void check_logits(Steps& steps, const std::vector<float>& expected, int32_t count, const Options& options) {
  const auto check = [&](const std::vector<float>& logits, const char* whose) {
    if (!steps.exact())
      tools::print(options.remarks(),
                   "inexact: the logits of {} differ from the reference's by up to {:.2f}% of the largest\n", whose,
                   100 * widest(logits, expected));
    else if (logits != expected)
      throw Failed{
          internal_error(fmt::format("the logits of {} are not the reference's bits, so nothing was timed", whose))};
  };
  check(steps.step(1, 0, count, true).logits, "a prompt");
  if (std::count(options.streams.begin(), options.streams.end(), 1) == 0) return;
  std::vector<float> one_by_one;
  for (int32_t i = 0; i < count; ++i) {
    const std::vector<float>& row = steps.step(1, i, 1, true).logits;
    one_by_one.insert(one_by_one.end(), row.begin(), row.end());
  }
  check(one_by_one, "single rows");
}

Ceilings cpu_ceilings(const Options& options) {
  ThreadPool pool(options.threads);
  return measure_ceilings(pool, int64_t{options.buffer_mib} << 20, backend_called(options.backend) == "amx");
}

// Of the GPU that was as `before` until `steps` put the model on it.
GpuMemory memory_of(const Steps& steps, const Cost& cost, const Gpu& before, int32_t context) {
  GpuMemory memory;
  memory.weights = static_cast<int64_t>(cost.weights + cost.logits);
  memory.cache = steps.info().cache_bytes();
  memory.free = first_gpu().free_bytes;
  memory.others = before.free_bytes - memory.free - memory.weights - memory.cache;
  memory.context = context;
  memory.conversation = conversation_bytes(steps.info(), context);
  return memory;
}

// Times steps and keeps a line of each.
class Stopwatch {
 public:
  Stopwatch(Steps& steps, const Options& options, const ModelConfig& config, const Ceilings& ceilings,
            const GpuCeilings& gpu)
      : steps_(steps), options_(options), config_(config), ceilings_(ceilings), gpu_(gpu) {}

  const std::vector<Line>& lines() const { return lines_; }

  // The logits of a chunk's last row alone are computed. Of a processor attention is not counted: the share is of the
  // products' floor.
  void prompt(int32_t tokens) {
    const double seconds = timed([&] { steps_.prefill(1, tokens); });
    const double gops = 2e-9 * cost_.weights * tokens / seconds;
    double least = 0;
    for (int32_t s = 0; s < tokens; s += options_.chunk) least += floor({{1, s, std::min(options_.chunk, tokens - s)}});
    add({group_, "prefill", fmt::format("{} tokens", tokens), tokens, 1e6 * seconds, tokens / seconds, "tokens/s",
         ceilings_.int8_gops > 0 ? gops / ceilings_.int8_gops : 0, "int8"},
        least);
  }

  void first_token(int32_t known, int32_t tokens) {
    steps_.prefill(1, known);
    const double seconds = timed([&] { steps_.step(1, known, tokens); });
    add({group_, "first token", fmt::format("{} tokens after {} in the cache", tokens, known), tokens, 1e6 * seconds,
         tokens / seconds, "tokens/s", 0, ""},
        floor({{1, known, tokens}}));
  }

  // The next three: a token of each of `streams` sequences that have the context.
  void decode(int32_t streams) {
    const int32_t context = options_.context;
    int32_t position = context;
    const double seconds = timed([&] {
      steps_.step(streams, position, 1);
      if (++position >= std::min(config_.context, context + kDecoded))
        position = context;  // the same positions again: written anew each time
    });
    const double bandwidth = 1e-9 * (cost_.weights + cost_.logits) / seconds;
    add({group_, "decode", fmt::format("{}, context {}", named(streams), context), streams, 1e6 * seconds,
         streams / seconds, "tokens/s", ceilings_.read_gb_per_s > 0 ? bandwidth / ceilings_.read_gb_per_s : 0, "read"},
        floor({{streams, context, 1}}));
    if (ceilings_.cached_gb_per_s > 0 && cost_.weights + cost_.logits < 48e6)
      add({group_, "", "the same", streams, 1e6 * seconds, bandwidth, "GB/s", bandwidth / ceilings_.cached_gb_per_s,
           "cached read"},
          0);
  }
  void decode_and_move(int32_t streams, int32_t moved) {
    const int32_t context = options_.context;
    steps_.move(moved, context);
    const double seconds = timed([&] { steps_.step(streams, context, 1); });
    steps_.move(0, 0);
    const auto bytes = static_cast<double>(moved * conversation_bytes(steps_.info(), context));
    add({group_, "moving", fmt::format("{}, {} down and up", named(streams), moved), streams, 1e6 * seconds,
         1e-9 * bytes / seconds, "GB/s a way", 0, ""},
        floor({{streams, context, 1}}));
  }
  // With and without a mask of half of the tokens, in turn.
  void decode_guided(int32_t streams) {
    constexpr int kRounds = 5;
    std::vector<uint32_t> half(static_cast<size_t>(mask_words(steps_.info().vocab_size)), 0x3c96a55au);
    double plain = HUGE_VAL, guided = HUGE_VAL;
    const auto time = [&] {
      return best_seconds(options_.seconds / kRounds, [&] { steps_.step(streams, options_.context, 1); });
    };
    for (int i = 0; i < kRounds; ++i) {
      plain = std::min(plain, time());
      steps_.guide(half);
      guided = std::min(guided, time());
      steps_.guide({});
    }
    add({group_, "guided", fmt::format("{}, a mask each", named(streams)), streams, 1e6 * guided, streams / guided,
         "tokens/s", plain / guided, "the same unmasked"},
        0);
  }
  void decode_and_prefill(int32_t streams, int32_t tokens) {
    const int32_t context = options_.context, after = options_.beside_after;
    const double seconds = timed([&] { steps_.step(streams, context, 1, false, tokens, after); });
    add({group_, "mixed",
         fmt::format("{}, context {}, and {} tokens of a prompt{}", named(streams), context, tokens,
                     after > 0 ? fmt::format(" after {}", after) : ""),
         streams + tokens, 1e6 * seconds, streams / seconds, "tokens/s", 0, ""},
        floor({{streams, context, 1}, {1, after, tokens}}));
  }

 private:
  template <class Work>
  double timed(Work&& work) const {
    return options_.median ? median_seconds(options_.seconds, work) : best_seconds(options_.seconds, work);
  }
  // On a GPU the share is of the floor of a whole step, or of several, in seconds.
  void add(Line line, double floor) {
    if (floor > 0)
      line.share = 1e6 * floor / line.microseconds, line.ceiling = fmt::format("the floor, {:.2f} ms", 1e3 * floor);
    lines_.push_back(line);
    if (options_.json)
      tools::print(stderr, "{} {}: {:.3f} ms\n", line.operation, line.shape,
                   1e-3 * line.microseconds);  // what is measured stays known when the rest fails
  }
  // In seconds; 0 where the ceilings are not known.
  double floor(const std::vector<Rows>& step) const {
    return floor_of(config_, cost_, gpu_, step, std::max<int32_t>(1, static_cast<int32_t>(options_.devices.size())));
  }
  static std::string named(int32_t streams) { return fmt::format("{} stream{}", streams, streams == 1 ? "" : "s"); }

  Steps& steps_;
  const Options& options_;
  const ModelConfig& config_;
  Ceilings ceilings_;
  GpuCeilings gpu_;
  Cost cost_ = cost_of(config_);
  std::string group_ = fmt::format("{}, {:.1f} MB of weights", config_.name, 1e-6 * (cost_.weights + cost_.logits));
  std::vector<Line> lines_;
};

void time_steps(Stopwatch& stopwatch, Steps& steps, const Options& options, const std::vector<int32_t>& prompts) {
  for (const int32_t tokens : prompts) stopwatch.prompt(tokens);
  for (size_t i = 0; i < options.after.size(); i += 2) stopwatch.first_token(options.after[i], options.after[i + 1]);
  if (!options.beside.empty()) steps.prefill_last(options.beside_after);
  for (const int32_t streams : options.streams) {
    steps.fill(streams, options.context);
    if (steps.exact()) check_draws(steps, streams, options.context);
    stopwatch.decode(streams);
    if (options.guided) {
      if (steps.exact()) check_guided_draws(steps, streams, options.context);
      stopwatch.decode_guided(streams);
    }
    for (const int32_t moved : options.moved) stopwatch.decode_and_move(streams, moved);
    for (const int32_t tokens : options.beside) stopwatch.decode_and_prefill(streams, tokens);
  }
}

int run(Options options) {
  if (options.after.size() % 2 != 0) throw CLI::ValidationError("--after", "give pairs of numbers");
  options.backend = backend_called(options.backend);
  const std::shared_ptr<const Checkpoint> checkpoint = value_of(Checkpoint::open(options.model));
  const ModelConfig& config = checkpoint->config();
  if (!options.context_given) options.context = std::clamp(config.context - kDecoded, 1, options.context);
  const Sizes sizes = sizes_of(options, config);
  const Cost cost = cost_of(config);

  // The answer first: a few positions against the reference.
  const int32_t checked = std::min(kChecked, config.context);
  const std::vector<float> expected = expected_logits(checkpoint, options, cost, checked);
  const bool on_gpu = options.backend == "cuda";
  const Gpu before = on_gpu ? first_gpu() : Gpu{};
  Steps steps(checkpoint, options.backend, options.threads, sizes.sequences, sizes.positions, options.chunk,
              sizes.step_tokens, options, sizes.moved);
  const bool is_first_gpu = on_gpu && (options.devices.empty() || options.devices == std::vector<int32_t>{1});
  const GpuMemory memory = is_first_gpu ? memory_of(steps, cost, before, options.context) : GpuMemory{};
  check_logits(steps, expected, checked, options);

  // The processor's ceilings say nothing about a GPU.
  const Ceilings ceilings = on_gpu ? Ceilings{} : cpu_ceilings(options);
  const GpuCeilings gpu = gpu_ceilings(before.name);
  Stopwatch stopwatch(steps, options, config, ceilings, gpu);
  time_steps(stopwatch, steps, options, sizes.prompts);

  if (sizes.streams > 1 && steps.exact())
    tools::print(
        options.remarks(),
        "checked: streams that are timed together draw what they draw sixteen at a time, and the first sixteen "
        "what each draws alone\n");
  if (options.json) {
    const Ceilings told =
        on_gpu ? Ceilings{0, 1e-9 * gpu.bytes_per_second, 0, 1e-9 * gpu.int8_per_second, 0} : ceilings;
    tools::print("{}\n", to_json(told, stopwatch.lines(), memory));
  } else {
    print_table(ceilings, stopwatch.lines());
    if (is_first_gpu) print_memory(memory);
  }
  return 0;
}

}  // namespace
}  // namespace step_command

void add_step(CLI::App& app, int& status) {
  using namespace step_command;
  CLI::App* command = app.add_subcommand("step", "times prefill and decode steps of a whole model");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->model, "checkpoint")->required();
  command
      ->add_option("--backend", options->backend,
                   "auto, amx, avx512, avxvnni, avx2, i8mm, neon, portable, reference or cuda")
      ->check(tools::backend_name())
      ->capture_default_str();
  add_devices(*command, options->devices);
  add_products(*command, options->products, options->products_file);
  command->add_option("--threads", options->threads, "number of threads, the calling thread included")
      ->check(tools::whole_number(1, 256))
      ->capture_default_str();
  command->add_option("--streams", options->streams, "numbers of sequences to decode at once")
      ->check(tools::whole_number(1, 4096))
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--prompts", options->prompts,
                   "lengths of prompts to prefill; lengths beyond the model's context are skipped")
      ->check(tools::whole_number(1, 1 << 24))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--chunk", options->chunk, "most tokens in a prefill step")
      ->check(tools::whole_number(1, 65536))
      ->capture_default_str();
  const CLI::Option* context =
      command
          ->add_option(
              "--context", options->context,
              "number of positions before the timed decode steps; unless given, fewer if the model's context is short")
          ->check(tools::whole_number(1, 1 << 24))
          ->capture_default_str();
  command
      ->add_option("--after", options->after,
                   "pairs of numbers: tokens in the cache, and tokens after them; times a step to the first token")
      ->check(tools::whole_number(1, 1 << 24))
      ->delimiter(',');
  command
      ->add_option("--beside", options->beside,
                   "tokens of a prompt that are prefilled in every decode step, shown on separate lines")
      ->check(tools::whole_number(1, 1 << 16))
      ->delimiter(',');
  command->add_option("--beside-after", options->beside_after, "tokens of the --beside prompt that are in the cache")
      ->needs("--beside")
      ->check(tools::whole_number(0, 1 << 24))
      ->capture_default_str();
  command->add_flag("--skip-zeros", options->skip_zeros,
                    "on a CPU: copies the matrices `down`, which decode of few streams reads only where it needs them");
  command->add_flag("--large-pages", options->large_pages, "on a CPU: asks for pages of 2 MiB for the KV cache");
  command->add_flag("--guided", options->guided,
                    "also times decode steps in which every sequence has a mask of allowed tokens, on separate lines");
  command
      ->add_option("--moved", options->moved,
                   "sequences of --context that are copied to the host, and as many copied from there, during every "
                   "decode step, shown on separate lines")
      ->check(tools::whole_number(1, 256))
      ->delimiter(',');
  command->add_option("--seconds", options->seconds, "time spent on each line")
      ->check(tools::number_from(0.0001, 86400))
      ->capture_default_str();
  command->add_flag("--median", options->median, "tells the median of a line's repeated runs, in place of the fastest");
  command
      ->add_option("--buffer-mib", options->buffer_mib,
                   "memory for the bandwidth ceiling, several times the last-level cache")
      ->check(tools::whole_number(64, 65536))
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  command->footer("Example:\n  kaiju-bench step examples/chat/model/kaiju-nano.safetensors --threads 2");
  command->callback([options, context, &status] {
    options->context_given = context->count() > 0;
    status = run(*options);
  });
}

}  // namespace kaiju::bench
