// Simulate: a fleet of machines, chats with characters by Zipf's law, one router's rule, machines that fail and come
// back, and a character that suddenly is everybody's. Discrete events, nothing computed.
//
// A chat under way sends a message every so often (exponential gaps), and after each message its sitting ends with the
// probability 1 / turns; another chat, with nothing of its history in a cache, takes its place. In the first
// `every_seconds` each chat that is under way sends exactly once, so that caches are warm when measuring begins. A
// message occupies its machine for the reply and for what of its prompt is not in the cache; machines do not slow down
// under load, so a machine's load says how unevenly a rule routes, not how late its replies are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/fleet/router.hpp"

namespace kaiju::fleet {

struct FleetOptions {
  uint64_t seed = 1;
  int32_t machines = 10000;
  uint64_t characters = 100'000'000;
  double zipf = 1;
  double messages_per_second = 20000;
  double every_seconds = 60;  // from a chat's message to its next, mean
  double turns = 30;          // of a sitting, mean
  bool fresh = false;         // chats begin with the simulation; else they are in the middle of their sittings
  int32_t card_tokens = 6000, user_tokens = 30, reply_tokens = 100;
  double memory_bytes = 125e9;  // KV that a machine holds: one H200 with preset `small`
  KvBytes kv;
  double reply_seconds = 2;
  double prefill_per_second = 44100;  // tokens
  RouterOptions router;
  double warm_up_seconds = 60, seconds = 60;  // the first are not measured
  int32_t lost_machines = 0;
  double lost_after = 15, back_after = 1e300;  // seconds of the measured time; they come back empty
  // Users who begin to talk with a character that nobody knew, besides all others; seconds of the measured time.
  int32_t sudden_users = 0;
  double sudden_after = 15;
};

struct Tokens {
  uint64_t messages = 0, prompt = 0, card = 0, history = 0;  // the last two: found
  double hit_rate() const {
    return prompt == 0 ? 0 : static_cast<double>(card + history) / static_cast<double>(prompt);
  }
  void add(const Message& message, const Found& found) {
    ++messages;
    prompt += static_cast<uint64_t>(message.prompt_tokens());
    card += static_cast<uint64_t>(found.card);
    history += static_cast<uint64_t>(found.history);
  }
};

// Characters by rank: up to 100, 10,000, 1,000,000, and all others.
inline constexpr std::array<uint64_t, 3> kRankLimits = {100, 10'000, 1'000'000};

struct Second {
  Tokens tokens;
  double balance = 0;  // at its end: most requests in flight at a machine, divided by the mean
};

struct Outcome {
  Rule rule = Rule::kRoundRobin;
  Tokens all;
  std::array<Tokens, kRankLimits.size() + 1> by_rank;
  std::vector<Second> seconds;
  double balance = 0;          // mean over the seconds
  double message_balance = 0;  // messages that the busiest machine got in the measured time, divided by the mean
  double prefill_balance = 0;  // tokens that the busiest machine computed for prompts, divided by the mean
  double copies_of_card = 0;   // machines that hold the most popular card, at the end
  uint64_t sent_again = 0;     // messages that were in flight at machines that failed
  int64_t copy_count = 0;      // in all caches at the end
  // Of the event, a loss or a sudden character, the earlier one if there are both.
  bool event = false;                           // the figures below are of one
  double hit_before = 0, hit_lowest = 0;        // of a second
  double recovered_seconds = 0;                 // until it is 99% of before again; -1: not in the measured time
  double balance_before = 0, balance_most = 0;  // of a second
  double copies_of_sudden = 0;                  // machines that hold the sudden character's card, at the end
};

Outcome simulate(Rule rule, const FleetOptions& options);

}  // namespace kaiju::fleet
