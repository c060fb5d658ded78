// Writes a report as a table and as JSON.
#include "bench/replay/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kaiju::replay {
namespace {

constexpr double kGoal = 0.95, kGoalBehindBelady = 0.02;

double part(uint64_t some, uint64_t all) { return all == 0 ? 0 : static_cast<double>(some) / static_cast<double>(all); }
double hit_rate(const Figures& figures) { return part(figures.found(), figures.prompt_tokens); }
std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }
std::string size_text(double bytes) {
  return bytes < 0x1p30 ? fmt::format("{:.1f} MiB", bytes / 0x1p20) : fmt::format("{:.1f} GiB", bytes / 0x1p30);
}
double bytes_held(const Report& report, const Figures& figures, BlockKind kind) {
  return (figures.blocks[kind].cached + figures.blocks[kind].live) * report.block_bytes[kind];
}
std::string memory_name(const Point& point) { return fmt::format("{:.0f}%", 100 * point.memory_share); }

std::string row(const std::string& name, const std::string& value, const std::string& note = {}) {
  return note.empty() ? fmt::format("  {:<26}{:>12}\n", name, value)
                      : fmt::format("  {:<26}{:>12}   {}\n", name, value, note);
}

std::string in_detail(const Report& report, const Point& point) {
  const Figures& f = point.engine;
  const auto share = [&](uint64_t tokens) { return percent(part(tokens, f.prompt_tokens)); };
  const auto held = [&](BlockKind kind) { return size_text(bytes_held(report, f, kind)); };
  std::string out = fmt::format("memory for {} of that: {}\n", memory_name(point), size_text(point.memory_bytes));
  out += row("found", percent(hit_rate(f)),
             fmt::format("goal {:.0f}%, and within {:.0f} points of Belady's", 100 * kGoal, 100 * kGoalBehindBelady));
  out += row("  shared prefix", share(f.found_shared));
  out += row("  own history", share(f.found_own));
  out += row("  other", share(f.found_other));
  if (f.host.bytes > 0) {
    out += row("  on the device", share(f.found() - std::min(f.found(), f.cache.hit_host)));
    out += row("  in host memory", share(f.cache.hit_host),
               fmt::format("of {}; {} blocks went down, {} came up", size_text(static_cast<double>(f.host.bytes)),
                           f.host.blocks_in, f.host.blocks_out));
  }
  out += row("Belady bound", percent(point.belady),
             fmt::format("farthest next use {}, priced {}", percent(point.farthest_next_use), percent(point.priced)));
  out += row("infinite cache", percent(point.infinite));
  out += row("missed", percent(1 - hit_rate(f)));
  out += row("  new", share(f.cache.miss_new));
  out += row("  evicted", share(f.cache.miss_evicted),
             "one more kept point, with its blocks, for each request would have found it");
  out += row("  no window near", share(f.cache.miss_window),
             "one more kept point for each request would have found it: its blocks are here");
  out += row("  last token", share(f.cache.miss_last));
  out += row("first token, p50", fmt::format("{:.1f} ms", f.first_token_ms_at(0.5)));
  out += row("first token, p90", fmt::format("{:.1f} ms", f.first_token_ms_at(0.9)));
  out += row("first token, p99", fmt::format("{:.1f} ms", f.first_token_ms_at(0.99)));
  out += row("busy", percent(f.busy_seconds / std::max(f.seconds, 1e-9)),
             fmt::format("{} tokens prefilled, {} generated, in {} steps", f.prefilled, f.decoded, f.steps));
  out += row("evicted, global blocks", fmt::format("{}", f.cache.blocks_evicted[BlockKind::kGlobal]));
  out += row("evicted, window blocks", fmt::format("{}", f.cache.blocks_evicted[BlockKind::kWindow]));
  out += row("held, global", held(BlockKind::kGlobal));
  out += row("held, window", held(BlockKind::kWindow));
  out += row("host time",
             fmt::format("{:.0f} us", 1e6 * f.host_seconds / static_cast<double>(std::max<uint64_t>(1, f.requests))),
             "a request, all its steps, one thread of this machine");
  return out;
}

std::string curve(const Report& report) {
  std::string out = fmt::format("\n{:>8}{:>12}{:>10}{:>10}{:>10}{:>12}{:>12}{:>12}{:>10}\n", "memory", "", "found",
                                "Belady", "infinite", "p50", "p99", "evicted", "host");
  for (const Point& point : report.points)
    out += fmt::format("{:>8}{:>12}{:>10}{:>10}{:>10}{:>12}{:>12}{:>12}{:>10}\n", memory_name(point),
                       size_text(point.memory_bytes), percent(hit_rate(point.engine)), percent(point.belady),
                       percent(point.infinite), fmt::format("{:.1f} ms", point.engine.first_token_ms_at(0.5)),
                       fmt::format("{:.1f} ms", point.engine.first_token_ms_at(0.99)),
                       percent(part(point.engine.cache.miss_evicted, point.engine.prompt_tokens)),
                       percent(part(point.engine.cache.hit_host, point.engine.prompt_tokens)));
  return out;
}

nlohmann::ordered_json to_json(const Report& report, const Point& point) {
  const Figures& f = point.engine;
  const auto share = [&](uint64_t tokens) { return part(tokens, f.prompt_tokens); };
  return {{"memory_share", point.memory_share},
          {"memory_bytes", point.memory_bytes},
          {"token_hit_rate", hit_rate(f)},
          {"token_hit_rate_shared", share(f.found_shared)},
          {"token_hit_rate_own", share(f.found_own)},
          {"token_hit_rate_other", share(f.found_other)},
          {"token_hit_rate_host", share(f.cache.hit_host)},
          {"host_bytes", f.host.bytes},
          {"host_blocks_in", f.host.blocks_in},
          {"host_blocks_out", f.host.blocks_out},
          {"token_hit_rate_infinite", point.infinite},
          {"token_hit_rate_belady", point.belady},
          {"token_hit_rate_farthest_next_use", point.farthest_next_use},
          {"token_hit_rate_priced", point.priced},
          {"token_miss_rate_new", share(f.cache.miss_new)},
          {"token_miss_rate_evicted", share(f.cache.miss_evicted)},
          {"token_miss_rate_window", share(f.cache.miss_window)},
          {"token_miss_rate_last", share(f.cache.miss_last)},
          {"ttft_p50_ms", f.first_token_ms_at(0.5)},
          {"ttft_p90_ms", f.first_token_ms_at(0.9)},
          {"ttft_p99_ms", f.first_token_ms_at(0.99)},
          {"seconds", f.seconds},
          {"busy_seconds", f.busy_seconds},
          {"steps", f.steps},
          {"tokens_prefilled", f.prefilled},
          {"tokens_decoded", f.decoded},
          {"global_blocks_evicted", f.cache.blocks_evicted[BlockKind::kGlobal]},
          {"window_blocks_evicted", f.cache.blocks_evicted[BlockKind::kWindow]},
          {"global_bytes_held", bytes_held(report, f, BlockKind::kGlobal)},
          {"window_bytes_held", bytes_held(report, f, BlockKind::kWindow)},
          {"host_us_per_request", 1e6 * f.host_seconds / static_cast<double>(std::max<uint64_t>(1, f.requests))}};
}

}  // namespace

std::string to_table(const Report& report) {
  std::string out =
      fmt::format("{}\n{}\n{} requests measured, {:.1f} M prompt tokens; all conversations together hold {} of KV\n\n",
                  report.source, report.machine, report.requests, 1e-6 * static_cast<double>(report.prompt_tokens),
                  size_text(report.footprint_bytes));
  out += in_detail(report, report.points.front());
  if (report.checked > 0)
    out += row("replies checked", fmt::format("{}", report.checked),
               fmt::format("{} differ from one-at-a-time decoding without a cache", report.differing));
  if (report.points.size() > 1) out += curve(report);
  return out;
}

std::string to_json(const Report& report) {
  nlohmann::ordered_json out = to_json(report, report.points.front());
  out["source"] = report.source;
  out["machine"] = report.machine;
  out["requests"] = report.requests;
  out["prompt_tokens"] = report.prompt_tokens;
  out["footprint_bytes"] = report.footprint_bytes;
  out["replies_checked"] = report.checked;
  out["replies_differing"] = report.differing;
  for (const Point& point : report.points) out["points"].push_back(to_json(report, point));
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);  // a path may hold any bytes
}

}  // namespace kaiju::replay
