// The rules. Those that ask caches look at the machines that hold something of the prompt and at the least loaded one:
// all others have nothing of it and a higher load.
#include "bench/fleet/router.hpp"

#include <algorithm>

namespace kaiju::fleet {

Found found_at(const Caches& caches, const Message& message, int32_t machine) {
  Found found;
  found.card = std::min(message.card_tokens, caches.found(card_of(message.character), machine));
  if (found.card > 0 && message.history_tokens > 0)
    found.history = std::min(message.history_tokens, caches.found(history_of(message.chat), machine));
  return found;
}

Router::Router(Rule rule, const RouterOptions& options, const Caches& caches, const Loads& loads)
    : rule_(rule),
      options_(options),
      caches_(caches),
      loads_(loads),
      ring_(loads.machine_count(), options.ring_points) {}

void Router::machines_changed() {
  std::vector<bool> up;
  for (int32_t m = 0; m < loads_.machine_count(); ++m) up.push_back(loads_.up(m));
  ring_.restart(up);
}

int32_t Router::choose(const Message& message) {
  switch (rule_) {
    case Rule::kRoundRobin:
      return take_turn();
    case Rule::kLeastConnections:
      return loads_.least_loaded();
    case Rule::kHash:
      return ring_.choose(card_of(message.character), loads_, 0);
    case Rule::kHashBounded:
      return ring_.choose(card_of(message.character), loads_, options_.balance_factor);
    case Rule::kHashChat:
      return ring_.choose(history_of(message.chat), loads_, options_.balance_factor);
    case Rule::kKvAware:
      return longest_prefix(message);
    case Rule::kLoadAware:
      return best_score(message);
    case Rule::kOneCache:
      break;
  }
  return 0;
}

int32_t Router::take_turn() {
  while (!loads_.up(turn_)) turn_ = (turn_ + 1) % loads_.machine_count();
  const int32_t chosen = turn_;
  turn_ = (turn_ + 1) % loads_.machine_count();
  return chosen;
}

// Of equals the last in the order of machines, as Rust's max_by_key has it.
int32_t Router::longest_prefix(const Message& message) const {
  int32_t best = Loads::kNone, longest = 0;
  const auto consider = [&](int32_t machine, int32_t known) {
    if (known > longest || (known > 0 && known == longest && machine > best)) best = machine, longest = known;
  };
  caches_.for_holders(card_of(message.character),
                      [&](int32_t machine, int32_t card) { consider(machine, std::min(message.card_tokens, card)); });
  caches_.for_holders(history_of(message.chat), [&](int32_t machine, int32_t) {
    consider(machine, found_at(caches_, message, machine).tokens());
  });
  return best == Loads::kNone ? loads_.least_loaded() : best;
}

int32_t Router::best_score(const Message& message) const {
  const double mean = loads_.mean();
  const auto score = [&](int32_t machine, int32_t known) {
    return static_cast<double>(known) / message.prompt_tokens() -
           options_.beta * (loads_.load(machine) - mean) / std::max(1.0, mean);
  };
  int32_t best = loads_.least_loaded();
  double highest = score(best, found_at(caches_, message, best).tokens());
  const auto consider = [&](int32_t machine, int32_t known) {
    const double one = score(machine, known);
    if (one > highest) best = machine, highest = one;
  };
  caches_.for_holders(card_of(message.character),
                      [&](int32_t machine, int32_t card) { consider(machine, std::min(message.card_tokens, card)); });
  caches_.for_holders(history_of(message.chat), [&](int32_t machine, int32_t) {
    consider(machine, found_at(caches_, message, machine).tokens());
  });
  return best;
}

}  // namespace kaiju::fleet
