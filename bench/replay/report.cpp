#include "bench/replay/report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kaiju::replay {
namespace {

constexpr double kGib = 1 << 30;

std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }

}  // namespace

std::string to_table(const Report& report) {
  std::string out = fmt::format("{}\n{} requests measured, {:.2f} G prompt tokens; all conversations together hold {:.1f} GiB of KV\n\n", report.source, report.requests,
                                1e-9 * static_cast<double>(report.prompt_tokens), report.footprint_bytes / kGib);
  out += fmt::format("{:>8}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "memory", "GiB", "infinite", "Belady", "(farthest", "priced)");
  for (const Point& point : report.points)
    out += fmt::format("{:>8}{:>12.1f}{:>12}{:>12}{:>12}{:>12}\n", fmt::format("{:.0f}%", 100 * point.memory_share), point.memory_bytes / kGib, percent(point.infinite),
                       percent(point.belady), percent(point.farthest_next_use), percent(point.priced));
  return out;
}

std::string to_json(const Report& report) {
  nlohmann::ordered_json out;
  out["source"] = report.source;
  out["requests"] = report.requests;
  out["prompt_tokens"] = report.prompt_tokens;
  out["footprint_bytes"] = report.footprint_bytes;
  for (const Point& point : report.points)
    out["points"].push_back({{"memory_share", point.memory_share},
                             {"memory_bytes", point.memory_bytes},
                             {"token_hit_rate_infinite", point.infinite},
                             {"token_hit_rate_belady", point.belady},
                             {"token_hit_rate_farthest_next_use", point.farthest_next_use},
                             {"token_hit_rate_priced", point.priced}});
  return out.dump(2);
}

}  // namespace kaiju::replay
