// The command line of kaiju-server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "http.hpp"
#include "parameters.hpp"

namespace kaiju::server {

struct Options {
  std::string store = "kaiju-server.sqlite", characters, kv;
  std::string model, head, model_name, address = "127.0.0.1", keys, log = "-", backend = "auto";
  std::string tls_certificate, tls_key;
  std::vector<std::string> origins, hosts;  // more than our own
  std::vector<std::string> label_limits;    // TIER:LABEL=LIMIT
  std::vector<int32_t> devices;             // empty: the backend's first
  std::string tier, gate = "none", blocked_log = "none", swipe_log = "none", journal = "none", journal_key, canaries,
                    heads, scales, checkpoints;
  std::vector<std::string> peers;  // addresses of the other servers
  std::string peer_key;
  std::string kv_events, kv_replay, kv_format = "map", kv_topic;
  bool gate_even_time = false, kv_private = false;
  int32_t port = 8080, threads = 0, replicas = 1, max_running = 0, drain_seconds = 60, request_seconds = 600,
          canary_seconds = 60, scales_hours = 4, scales_window = 128, warm = 0;
  double hot_share = 0.1;
  int64_t cache_mib = 0, host_mib = 0, kv_mib = 1024, journal_mib = 1024, scrub_mib = 16, candidate_mib = 0;
  Limits limits;
  Defaults defaults;
};

// Fills in the options, or returns the exit code.
std::optional<int> parse(int argc, char** argv, Options& options);

}  // namespace kaiju::server
