#include "metrics.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kaiju/step/kinds.hpp"

namespace server {

void Histogram::add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<size_t>(bound - kBounds.begin())];
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name, const std::string& help, const std::string& labels) const {
  std::string out = fmt::format("# HELP {} {}\n# TYPE {} histogram\n", name, help, name);
  uint64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels,
                       i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf", count);
  }
  return out + fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, count);
}

std::string Metrics::text(const std::string& model, const kaiju::Metrics& engine, const kaiju::ExecutorInfo& info,
                          size_t connections, size_t unfinished) const {
  std::string escaped;
  for (const char c : model) escaped += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  const std::string labels = fmt::format("model_name=\"{}\"", escaped);
  std::string out;
  const auto value = [&](const char* name, const char* type, const char* help, double number) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n{}{{{}}} {}\n", name, help, name, type, name, labels, number);
  };
  const auto& global = engine.blocks[static_cast<int32_t>(kaiju::BlockKind::kGlobal)];
  const auto& window = engine.blocks[static_cast<int32_t>(kaiju::BlockKind::kWindow)];
  const int32_t total = global.total + window.total, idle = global.free + global.cached + window.free + window.cached;
  const double used = total > 0 ? 1.0 - static_cast<double>(idle) / total : 0;
  value("vllm:num_requests_running", "gauge", "Requests that are computed.",
        static_cast<double>(engine.requests_running));
  value("vllm:num_requests_waiting", "gauge", "Requests that wait.",
        static_cast<double>(engine.requests_waiting + engine.requests_suspended));
  value("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", used);
  value("vllm:gpu_cache_usage_perc", "gauge", "The same under its older name.", used);
  value("vllm:prefix_cache_queries_total", "counter", "Prompt tokens.",
        static_cast<double>(engine.cache.prompt_tokens));
  value("vllm:prefix_cache_hits_total", "counter", "Prompt tokens whose KV was cached.",
        static_cast<double>(engine.tokens_from_cache));
  value("vllm:prompt_tokens_total", "counter", "Prompt tokens of finished requests.",
        static_cast<double>(prompt_tokens));
  value("vllm:generation_tokens_total", "counter", "Generated tokens.", static_cast<double>(generated_tokens));
  out += "# HELP vllm:request_success_total Finished requests.\n# TYPE vllm:request_success_total counter\n";
  for (const auto& [reason, count] : finished)
    out += fmt::format("vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels, reason, count);
  out += fmt::format(
      "# HELP vllm:cache_config_info The KV cache.\n# TYPE vllm:cache_config_info gauge\n"
      "vllm:cache_config_info{{block_size=\"{}\",num_gpu_blocks=\"{}\",enable_prefix_caching=\"True\"}} 1\n",
      kaiju::kBlockTokens, global.total);
  out += first_token.text("vllm:time_to_first_token_seconds", "Seconds to the first token.", labels);
  out += between_tokens.text("vllm:inter_token_latency_seconds", "Seconds between two tokens.", labels);
  out += whole.text("vllm:e2e_request_latency_seconds", "Seconds of a whole request.", labels);
  out += event_to_socket.text("kaiju_server_event_to_socket_seconds",
                              "Seconds from an event of the engine until its text was written to the socket.", labels);
  value("kaiju_steps_total", "counter", "Steps of the engine.", static_cast<double>(engine.steps));
  value("kaiju_step_seconds_total", "counter", "Time inside steps.", 1e-9 * static_cast<double>(engine.step_ns));
  value("kaiju_tokens_prefilled_total", "counter", "Prompt tokens that were computed.",
        static_cast<double>(engine.tokens_prefilled));
  value("kaiju_tokens_decoded_total", "counter", "Tokens that were generated.",
        static_cast<double>(engine.tokens_decoded));
  value("kaiju_cache_miss_new_total", "counter", "Prompt tokens that were never seen.",
        static_cast<double>(engine.cache.miss_new));
  value("kaiju_cache_miss_evicted_total", "counter", "Prompt tokens whose KV was evicted.",
        static_cast<double>(engine.cache.miss_evicted));
  value("kaiju_cache_miss_window_total", "counter", "Prompt tokens without KV of a window near.",
        static_cast<double>(engine.cache.miss_window));
  value("kaiju_requests_failed_total", "counter", "Requests that failed.", static_cast<double>(engine.requests_failed));
  value("kaiju_connections", "gauge", "Open connections.", static_cast<double>(connections));
  value("kaiju_requests_unfinished", "gauge", "Requests whose last event did not come yet.",
        static_cast<double>(unfinished));
  value("kaiju_disconnects_total", "counter", "Clients that left before their answer.",
        static_cast<double>(disconnects));
  value("kaiju_context_tokens", "gauge", "The model's context.", info.context);
  out += "# HELP kaiju_http_answers_total Answers by path and status.\n# TYPE kaiju_http_answers_total counter\n";
  for (const auto& [key, count] : answers)
    out += fmt::format("kaiju_http_answers_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  return out;
}

}  // namespace server
