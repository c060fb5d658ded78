// Router: to which machine a message goes, by the rules of routers that exist.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bench/fleet/caches.hpp"
#include "bench/fleet/loads.hpp"
#include "bench/fleet/ring.hpp"

namespace kaiju::fleet {

enum class Rule {
  kRoundRobin,        // HAProxy's roundrobin
  kLeastConnections,  // HAProxy's leastconn
  kHash,              // HAProxy's consistent hashing by character
  kHashBounded,       // the same with hash-balance-factor
  kHashChat,          // the same by chat: a client that sends its chat's name as the key
  kKvAware,           // vllm-router's kv_aware: the longest cached prefix, whatever the load; without one, least loaded
  kLoadAware,         // vLLM production-stack's loadaware: matched / prompt - beta (load - mean) / max(1, mean)
  kOneCache           // one machine with the memory of all: what no routing can beat
};

struct RuleName {
  Rule rule;
  const char* name;
};
inline constexpr RuleName kRules[] = {
    {Rule::kRoundRobin, "round-robin"},
    {Rule::kLeastConnections, "least-connections"},
    {Rule::kHash, "hash"},
    {Rule::kHashBounded, "hash-bounded"},
    {Rule::kHashChat, "hash-chat"},
    {Rule::kKvAware, "kv-aware"},
    {Rule::kLoadAware, "load-aware"},
    {Rule::kOneCache, "one-cache"},
};

struct Message {
  uint64_t character = 0, chat = 0;
  int32_t card_tokens = 0, history_tokens = 0, new_tokens = 0;
  int32_t prompt_tokens() const { return card_tokens + history_tokens + new_tokens; }
};

// Of a message's prompt, what a machine has in its cache. A history is worth nothing without the card before it.
struct Found {
  int32_t card = 0, history = 0;
  int32_t tokens() const { return card + history; }
};
Found found_at(const Caches& caches, const Message& message, int32_t machine);

struct RouterOptions {
  int32_t ring_points = 160;     // of each machine
  int32_t balance_factor = 125;  // percent of the mean load
  double beta = 1;               // of kLoadAware: what a load of twice the mean costs, in whole prompts
};

class Router {
 public:
  Router(Rule rule, const RouterOptions& options, const Caches& caches, const Loads& loads);
  int32_t choose(const Message& message);
  void machines_changed();

 private:
  int32_t take_turn();
  int32_t longest_prefix(const Message& message) const;
  int32_t best_score(const Message& message) const;

  Rule rule_;
  RouterOptions options_;
  const Caches& caches_;
  const Loads& loads_;
  Ring ring_;
  int32_t turn_ = 0;
};

}  // namespace kaiju::fleet
