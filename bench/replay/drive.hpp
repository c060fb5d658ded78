// Drive: runs a trace through an engine in virtual time. Requests arrive at the times of the trace, a step takes the
// time of DriveOptions::step_seconds, and time jumps to the next arrival while the engine has nothing to do.
#pragma once

#include <functional>
#include <vector>

#include "bench/replay/trace.hpp"
#include "kaiju/engine/engine.hpp"

namespace kaiju::replay {

// Steps of one kind, in the measured time.
struct Steps {
  uint64_t count = 0, decoded = 0, prefilled = 0;  // tokens drawn; prompt tokens
  double seconds = 0;
};

// Of measured requests.
struct Figures {
  uint64_t requests = 0, prompt_tokens = 0, generated = 0;
  uint64_t found_shared = 0;           // in the character's prompt
  uint64_t found_own = 0;              // behind it: the conversation's
  uint64_t found_other = 0;            // in a trace that does not tell the two apart
  CacheStats cache;                    // the cache's own account of the measured time; its hits are split otherwise
  PerKind<BlockMetrics> blocks;        // at the end
  TierStats host;                      // what it holds likewise, what moved in the measured time
  std::vector<double> first_token_ms;  // from arrival to the first token, sorted
  double seconds = 0;                  // virtual, measured
  double busy_seconds = 0;             // of those, in steps
  Steps decode_steps, prompt_steps;    // without and with prompt tokens in them
  uint64_t steps = 0;                  // all from here on, not only measured
  double host_seconds = 0;             // real time spent in the engine, executor excluded
  uint64_t decoded = 0, prefilled = 0;

  uint64_t found() const { return found_shared + found_own + found_other; }
  double first_token_ms_at(double quantile) const;  // 0 when there is none
};

// A measured request as it ran, to be asked again of an engine that has cached nothing.
struct Sample {
  std::vector<int32_t> prompt, reply;
  SamplingParams sampling;
};

struct DriveOptions {
  std::function<double()> step_seconds;  // of the step that just ran; empty: what the engine really took
  // Called with every token: the request's index, when it arrived, when the token came.
  std::function<void(int32_t request, double arrived, double now)> on_token;
  // Called after every step and its tokens; false ends the drive there.
  std::function<bool(double now, const Metrics& metrics)> on_step;
  SamplingParams sampling;           // of every request; the seed is its reply's own
  bool replies_from_engine = false;  // prompts repeat the replies of the engine; else those of the trace
  int32_t sample_every = 0;          // keeps one in so many measured requests with a reply; 0: none
  int32_t sample_below = INT32_MAX;  // of conversations with lower numbers
};

struct Driven {
  Figures figures;
  std::vector<Sample> samples;
};

// Runs the whole trace, or until on_step ends it. Fails as the engine does.
Result<Driven> drive(const Trace& trace, Engine& engine, const DriveOptions& options);

// Asks `engine` each sample again, in a session of its own that shares nothing. Returns how many replies differ.
Result<int32_t> count_differing(const std::vector<Sample>& samples, Engine& engine);

}  // namespace kaiju::replay
