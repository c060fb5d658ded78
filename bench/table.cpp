// Prints the results of kaiju-bench: as a table for readers or as JSON for programs.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench.hpp"
#include "examples/tools/standard_streams.hpp"

namespace kaiju::bench {

void print_table(const Ceilings& ceilings, const std::vector<Line>& lines) {
  if (ceilings.int8_gops > 0)
    tools::print("ceilings, {} thread{}: read {:.1f} GB/s (32 MiB: {:.1f}), int8 {:.0f} GOP/s, fp32 {:.0f} GFLOP/s\n",
                 ceilings.threads, ceilings.threads == 1 ? "" : "s", ceilings.read_gb_per_s, ceilings.cached_gb_per_s,
                 ceilings.int8_gops, ceilings.fp32_gflops);
  size_t width = 30;
  for (const Line& line : lines) width = std::max(width, line.shape.size() + 1);
  std::string group;
  for (const Line& line : lines) {
    if (line.group != group) {
      group = line.group;
      tools::print("\n{:<{}}{:>6}{:>12}{:>18}   share of ceiling\n", group, 16 + width, "rows", "time", "rate");
    }
    const std::string time = line.microseconds < 1000 ? fmt::format("{:.1f} us", line.microseconds)
                                                      : fmt::format("{:.2f} ms", line.microseconds / 1000);
    const std::string share =
        line.share > 0 ? fmt::format("{:>5.0f}% of {}", 100 * line.share, line.ceiling) : std::string();
    tools::print("  {:<14}{:<{}}{:>6}{:>12}{:>18}  {}\n", line.operation, line.shape, width, line.rows, time,
                 fmt::format("{:.1f} {}", line.amount, line.unit), share);
  }
}

void print_memory(const GpuMemory& memory) {
  tools::print(
      "\nmemory of the GPU: weights {:.1f} GB, KV cache {:.1f}, others {:.1f}; free {:.1f}, which is KV of {} "
      "conversations of {} tokens ({:.1f} MB each)\n",
      1e-9 * memory.weights, 1e-9 * memory.cache, 1e-9 * memory.others, 1e-9 * memory.free,
      memory.free / memory.conversation, memory.context, 1e-6 * memory.conversation);
}

std::string to_json(const Ceilings& ceilings, const std::vector<Line>& lines, const GpuMemory& memory) {
  nlohmann::ordered_json out;
  out["ceilings"] = nlohmann::ordered_json::object();  // those that are known
  if (ceilings.threads > 0) out["ceilings"]["threads"] = ceilings.threads;
  for (const auto& [name, value] : {std::pair{"read_gb_per_s", ceilings.read_gb_per_s},
                                    {"cached_gb_per_s", ceilings.cached_gb_per_s},
                                    {"int8_gops", ceilings.int8_gops},
                                    {"fp32_gflops", ceilings.fp32_gflops}})
    if (value > 0) out["ceilings"][name] = value;
  if (memory.conversation > 0)
    out["memory"] = {{"weights_bytes", memory.weights},       {"cache_bytes", memory.cache},
                     {"other_bytes", memory.others},          {"free_bytes", memory.free},
                     {"conversation_tokens", memory.context}, {"conversation_bytes", memory.conversation}};
  out["lines"] = nlohmann::ordered_json::array();
  for (const Line& line : lines)
    out["lines"].push_back({{"group", line.group},
                            {"operation", line.operation},
                            {"shape", line.shape},
                            {"rows", line.rows},
                            {"microseconds", line.microseconds},
                            {"rate", line.amount},
                            {"unit", line.unit},
                            {"share", line.share},
                            {"ceiling", line.ceiling}});
  return out.dump(2);
}

}  // namespace kaiju::bench
