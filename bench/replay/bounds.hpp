// Bounds: how many prompt tokens of a trace the best possible cache of a given size could find if it knew the future.
// They are computed from the trace's texts, without an engine.
//
// There are two upper bounds for every cache; the smaller one is reported.
// - Farthest next use: only global KV takes memory; window blocks take none. When memory is short, the text whose next
//   use is latest is evicted first. This is optimal for pieces of one size (Belady, "A study of replacement algorithms
//   for a virtual-storage computer", 1966).
// - Priced: keeping KV from one use to the next costs its bytes times the seconds. A request that finds any KV needs
//   the window before the point where it resumes, which is charged to the deepest piece that it finds. Pieces with the
//   most tokens per byte-second are kept first, until memory times time is spent (a fractional knapsack). So the
//   average over time cannot exceed the memory, but a moment can.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/replay/trace.hpp"

namespace kaiju::replay {

// What KV costs.
struct KvSizes {
  double global_bytes = 0;  // of a token, in all global slots
  double window_bytes = 0;  // of a token, in all window slots
  int32_t window = 0;       // tokens before a resume point whose window KV is needed
};

// Bytes of KV that all conversations of the trace hold when it ends: every character's prompt once, every
// conversation's own tokens, and a resume point for each of both.
double whole_footprint(const Trace& trace, const KvSizes& sizes);

class Bounds {
 public:
  explicit Bounds(const Trace& trace);

  uint64_t prompt_tokens() const { return prompt_tokens_; }  // of measured requests, as are all figures here
  // Found by a cache that forgets nothing. A prompt found whole still computes its last token.
  uint64_t infinite() const { return infinite_; }
  uint64_t farthest_next_use(double memory_bytes, const KvSizes& sizes) const;
  uint64_t priced(double memory_bytes, const KvSizes& sizes) const;
  uint64_t belady(double memory_bytes, const KvSizes& sizes) const;  // the smaller one

 private:
  // Neighbouring texts of one prompt between two uses of them.
  struct Reuse {
    int32_t from = 0, to = 0;  // requests
    int32_t tokens = 0;
    bool deepest = false;  // of all that `to` finds
  };
  struct Use {
    double seconds = 0;
    int32_t prompt_tokens = 0;
    int32_t found = 0;  // by the infinite cache, before the last token is taken off
    bool measured = false;
  };
  void find_reuses(const Trace& trace);

  std::vector<Use> uses_;      // one a request
  std::vector<Reuse> reuses_;  // by `from`
  double measured_from_ = 0;
  uint64_t prompt_tokens_ = 0, infinite_ = 0;
};

}  // namespace kaiju::replay
