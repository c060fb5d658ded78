// Metrics: what the server counts, in the text form of Prometheus, under vLLM's names and our own.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kaiju/engine/calibration.hpp"
#include "kaiju/engine/metrics.hpp"
#include "kaiju/step/executor_info.hpp"
#include "kv_events.hpp"
#include "shares.hpp"

namespace kaiju::server {

// A histogram of seconds.
class Histogram {
 public:
  void add(double seconds);
  std::string text(const std::string& name, const std::string& help, const std::string& labels) const;
  // The samples alone.
  std::string samples(const std::string& name, const std::string& labels) const;

 private:
  static constexpr std::array<double, 18> kBounds = {0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                                     0.2,    0.5,    1,     2,     5,     10,   20,   60,   600};
  std::array<uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

struct Surprise {
  double nats = 0;
  uint64_t tokens = 0;
};

struct Metrics {
  static constexpr size_t kMostCharacters = 1000;                 // the others are counted together, as "others"
  Histogram waited, first_token, between_tokens, a_token, whole;  // seconds; a_token: the mean of a request
  Histogram event_to_socket;                                      // seconds, of text in a stream
  std::map<std::string, uint64_t> finished;                       // requests by finish_reason
  std::map<std::pair<std::string, int>, uint64_t> answers;        // by the path's pattern and status
  std::map<std::array<std::string, 3>, uint64_t> blocked;         // by who, the tier and the label
  std::map<std::string, Surprise> surprise;                       // of replies, by character; "-": by none
  uint64_t disconnects = 0;
  uint64_t gate_messages = 0;  // that the gate judged
  double gate_seconds = 0;     // the time that it took
};

// Of one checkpoint, to tell a worse one from a better one.
struct CheckpointCounts {
  Histogram first_token;                     // seconds
  std::map<std::string, uint64_t> finished;  // requests by finish_reason
  Surprise surprise;                         // of replies
};

struct ShownCheckpoint {
  std::string name, digest, state;
  double share = 0;  // of new chats
  size_t unfinished = 0;
  const CheckpointCounts& counts;
};

struct ShownReplica {
  size_t unfinished = 0;
  uint64_t requests = 0;  // that ended
  bool works = true;
};

struct JournalCounts {
  uint64_t replies = 0, bytes = 0, lost = 0;
};

struct WatchCounts {
  uint64_t scrubbed_bytes = 0, scrub_passes = 0, canaries = 0, canaries_wrong = 0;
  int64_t last_pass = 0;  // Unix time at which the weights had all been looked at; 0: not yet
  bool damaged = false;
};

struct ScalesCounts {
  bool watched = false;
  CalibrationFigures figures;
};

// Of KV that came from peers, or went to them, or was computed before it was asked for.
struct MoveCounts {
  std::map<std::pair<std::string, std::string>, uint64_t> moves;  // by what and how it ended
  uint64_t bytes_in = 0, bytes_out = 0;
  size_t warm_left = 0, hot = 0;  // characters
};

// What /metrics shows beside them.
struct Shown {
  std::string model;  // its name
  kaiju::Metrics engine;
  ExecutorInfo info;
  size_t connections, unfinished;
  JournalCounts journal;
  WatchCounts watch;
  ScalesCounts scales;
  KvEventCounts kv_events;
  MoveCounts moves;
  const std::map<std::string, Account>& accounts;  // by the name of their key
  std::map<std::string, ShareUsage> shares;        // of the keys that have floors or ceilings
  std::vector<ShownCheckpoint> checkpoints;
  std::vector<ShownReplica> replicas;  // of the current checkpoint
  bool by_key;                         // accounts one by one, else their sum alone
};
std::string text_of(const Metrics& metrics, const Shown& shown);

}  // namespace kaiju::server
