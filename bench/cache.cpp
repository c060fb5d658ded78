// kaiju-bench cache: measures the time and memory of the prefix cache's bookkeeping and compares them with the goals of
// docs/cache.md. It needs no model: it fills a tree with a million blocks, and runs a scheduler with an executor that
// computes nothing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "kaiju/base/random.hpp"
#include "kaiju/engine/detail/scheduler.hpp"
#include "kaiju/format/presets.hpp"
#include "kaiju/run/slots.hpp"

namespace kaiju::bench {
namespace cache_command {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int32_t blocks = 1 << 20;
  int32_t prompt_blocks = 128;  // an 8k prompt
  int32_t rows = 256;
  double seconds = 1.0;
  bool json = false;
};

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  double goal = 0;  // at most
};

std::vector<int32_t> tokens_of(uint64_t conversation, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i)
    tokens[static_cast<size_t>(i)] =
        static_cast<int32_t>(random_bits(conversation, 0, static_cast<uint64_t>(i)) % 65536);
  return tokens;
}

// ExecutorInfo of a model's executor, the KV itself left out. Memory for so many blocks of each kind.
Result<ExecutorInfo> facts_of(const char* shape, int32_t global_blocks, int32_t window_blocks, int32_t slots,
                              int32_t step_tokens) {
  Result<ModelConfig> config = preset(shape);
  if (!config.ok()) return config.status();
  ExecutorSizes sizes;
  sizes.slot_count = slots, sizes.step_tokens = step_tokens, sizes.share_memory = true;
  sizes.block_count[0] = global_blocks, sizes.block_count[1] = window_blocks;
  Slots layout;
  layout.create(*config, sizes);
  return layout.info();
}

// One prompt through a lease: found or inserted, computed, left behind.
int32_t pass(PrefixTree& tree, const Regions& regions, const std::vector<int32_t>& prompt, int32_t ticket,
             StepPlan& plan) {
  Lease lease;
  plan.clear();
  const LeaseRequest request{
      prompt, static_cast<int32_t>(prompt.size()), static_cast<int32_t>(prompt.size()), regions, 1, ticket};
  const EditSink sink{&plan, 0};
  if (lease.start(tree, request, Reuse::kAll, sink) != Lease::Outcome::kStarted) return -1;
  const int32_t found = lease.next();
  while (lease.next() < static_cast<int32_t>(prompt.size())) {
    lease.prepare(tree, sink);
    const int32_t count = lease.room(tree, static_cast<int32_t>(prompt.size()) - lease.next());
    if (count < 1 || !lease.extend(tree, lease.next() + count, sink)) return -1;
    lease.commit(tree, prompt, count);
  }
  lease.finish(tree, prompt);
  return found;
}

Result<std::vector<Figure>> lookup_and_insert(const Options& options) {
  Result<ExecutorInfo> info = facts_of("small", options.blocks, options.blocks / 16, 8, 256);
  if (!info.ok()) return info.status();
  info->window = 0;  // one kind: a million nodes
  info->slab_blocks[0] = info->slab_blocks[1] = info->block_count[1] = 0;
  info->block_count[0] = options.blocks;
  PrefixTree tree(*info, {});
  Regions regions;
  regions.shared = tree.domains().hold(DomainKind::kShared, "c", tree.namer());
  regions.own = tree.domains().hold(DomainKind::kSalt, "s", tree.namer());
  const int32_t conversations = options.blocks / options.prompt_blocks,
                positions = options.prompt_blocks * kBlockTokens;
  StepPlan plan;
  int32_t ticket = 0;
  for (int32_t i = 0; i < conversations; ++i)
    if (const int32_t found = pass(tree, regions, tokens_of(static_cast<uint64_t>(i), positions), ++ticket, plan);
        found < 0 || found >= kBlockTokens)
      return internal_error(fmt::format("conversation {} is new, and {} of its tokens were found", i, found));
  if (tree.node_count() < options.blocks - options.prompt_blocks) return internal_error("the tree did not fill");
  // Full from here on: each new conversation evicts an old one. Then the same ones again, all found.
  double inserting = 1e30, finding = 1e30;
  const auto start = Clock::now();
  for (uint64_t round = 0; round < 5 || std::chrono::duration<double>(Clock::now() - start).count() < options.seconds;
       ++round) {
    constexpr int32_t kBatch = 32;
    std::vector<std::vector<int32_t>> prompts;
    for (uint64_t i = 0; i < kBatch; ++i) prompts.push_back(tokens_of(1000000 + round * kBatch + i, positions));
    for (const bool again : {false, true}) {
      const auto before = Clock::now();
      for (const auto& prompt : prompts) {
        const int32_t found = pass(tree, regions, prompt, ++ticket, plan);
        if (again ? found != positions - 1 : found < 0 || found >= kBlockTokens)
          return internal_error(fmt::format("a hit of {} tokens", found));
      }
      double& best = again ? finding : inserting;
      best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - before).count() /
                                (kBatch * options.prompt_blocks));
    }
  }
  return std::vector<Figure>{
      {fmt::format("lookup + insert + evict, {} blocks", tree.node_count()), inserting, "us a block", 1.5},
      {"lookup + hold + let go, all found", finding, "us a block", 1.5}};
}

Result<std::vector<Figure>> planning(const Options& options) {
  // Blocks of a sequence, more than it needs: its window and a step's tokens.
  const int32_t global = 80, window = std::max(40, 20 + options.rows / kBlockTokens);
  Result<ExecutorInfo> info =
      facts_of("small", options.rows * global, options.rows * window, options.rows, options.rows);
  if (!info.ok()) return info.status();
  StepLimits limits;
  limits.step_tokens = limits.chunk_tokens = limits.prefill_tokens = limits.max_running = options.rows;
  Scheduler scheduler(*info, limits, {});
  for (int32_t i = 0; i < options.rows; ++i) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = std::make_shared<Request>();
    sequence->request->id = sequence->request->session = static_cast<uint64_t>(i) + 1;
    sequence->request->prompt_count = 200;
    sequence->request->max_tokens = 3000;
    sequence->request->sequences.resize(1);
    *sequence->tokens = tokens_of(static_cast<uint64_t>(i), 200);
    scheduler.add(std::move(sequence));
  }
  StepPlan plan;
  std::optional<double> best;  // of the steps in which every sequence decodes
  for (int32_t steps = 0; steps < 3000; ++steps) {
    const auto before = Clock::now();
    KAIJU_TRY(scheduler.plan(plan, before));
    const double planned = std::chrono::duration<double, std::micro>(Clock::now() - before).count();
    if (plan.segments.empty()) return internal_error("nothing to compute");
    const bool decode = static_cast<int32_t>(plan.segments.size()) == options.rows;
    const auto committing = Clock::now();
    for (const auto& sequence : scheduler.running()) {
      if (sequence->granted == 0) continue;
      scheduler.commit(*sequence, sequence->granted);
      if (sequence->remaining() == 0) sequence->tokens->push_back(steps % 1000);
    }
    const double committed = std::chrono::duration<double, std::micro>(Clock::now() - committing).count();
    if (decode) best = std::min(best.value_or(planned + committed), planned + committed);
    if (scheduler.running().front()->token_count() > 2000) break;
  }
  if (!best) return internal_error(fmt::format("no step decoded all {} rows", options.rows));
  return std::vector<Figure>{{fmt::format("plan + commit of {} decode rows", options.rows), *best, "us a step", 60}};
}

Result<std::vector<Figure>> bookkeeping(const Options& options) {
  Result<ExecutorInfo> info = facts_of("small", options.blocks, options.blocks / 16, 8, 256);
  if (!info.ok()) return info.status();
  const PrefixTree tree(*info, {});
  return std::vector<Figure>{
      {"books, preset small",
       100.0 * static_cast<double>(tree.bookkeeping_bytes()) / static_cast<double>(info->cache_bytes()), "% of the KV",
       2}};
}

int run(const Options& options) {
  std::vector<Figure> figures;
  for (const auto& measure : {lookup_and_insert, planning, bookkeeping}) {
    Result<std::vector<Figure>> some = measure(options);
    if (!some.ok()) {
      tools::print(stderr, "kaiju-bench: {}\n", some.status().message());
      return 1;
    }
    figures.insert(figures.end(), some->begin(), some->end());
  }
  if (options.json) {
    nlohmann::ordered_json out;
    for (const Figure& figure : figures)
      out["figures"].push_back(
          {{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}, {"goal_at_most", figure.goal}});
    tools::print("{}\n", out.dump(2));
  } else {
    for (const Figure& figure : figures)
      tools::print("{:<46}{:>9.3f} {:<12}goal: at most {}\n", figure.name, figure.value, figure.unit, figure.goal);
  }
  return 0;
}

}  // namespace
}  // namespace cache_command

void add_cache(CLI::App& app, int& status) {
  using namespace cache_command;
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("cache", "times the prefix cache's bookkeeping and compares it with goals; needs no model");
  command->add_option("--blocks", options->blocks, "number of blocks in the tree")
      ->check(tools::whole_number(1 << 12, 1 << 24))
      ->capture_default_str();
  command->add_option("--rows", options->rows, "number of sequences that decode")
      ->check(tools::whole_number(1, 4096))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "least time for the lookups")
      ->check(tools::number_from(0, 600))
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON");
  command->footer("Examples:\n  kaiju-bench cache\n  kaiju-bench cache --blocks 65536 --rows 64 --seconds 0.1 --json");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
