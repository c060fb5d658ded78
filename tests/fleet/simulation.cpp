// The fleet's simulation: the same figures for a seed, and what formulas say where there are any.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "bench/fleet/report.hpp"
#include "bench/fleet/simulate.hpp"
#include "catch.hpp"

using namespace kaiju::fleet;

namespace {

FleetOptions small_fleet() {
  FleetOptions options;
  options.machines = 20;
  options.characters = 100'000;
  options.messages_per_second = 200;
  options.every_seconds = 10;
  options.turns = 8;
  options.warm_up_seconds = 40;
  options.seconds = 30;
  return options;
}

double share(uint64_t some, uint64_t all) { return static_cast<double>(some) / static_cast<double>(all); }

}  // namespace

TEST_CASE("a seed gives the same figures every time, and another seed gives others") {
  FleetOptions options = small_fleet();
  options.lost_machines = 3;
  options.back_after = 5;
  for (const RuleName& rule : kRules) {
    INFO(rule.name);
    options.seed = 1;
    const std::string first = to_json(options, {simulate(rule.rule, options)});
    CHECK(to_json(options, {simulate(rule.rule, options)}) == first);
    options.seed = 2;
    CHECK(to_json(options, {simulate(rule.rule, options)}) != first);
  }
}

TEST_CASE("no rule finds more than one cache of all machines' memory, and affinity finds more than turns") {
  const FleetOptions options = small_fleet();
  const double most = simulate(Rule::kOneCache, options).all.hit_rate();
  for (const RuleName& rule : kRules) CHECK(simulate(rule.rule, options).all.hit_rate() <= most + 0.01);
  const double turns = simulate(Rule::kRoundRobin, options).all.hit_rate();
  CHECK(simulate(Rule::kHash, options).all.hit_rate() > turns + 0.1);
  CHECK(simulate(Rule::kKvAware, options).all.hit_rate() > turns + 0.1);
}

TEST_CASE("turns give each machine the same number of messages, and hashing by character does not") {
  const FleetOptions options = small_fleet();
  const Outcome turns = simulate(Rule::kRoundRobin, options);
  CHECK(turns.message_balance < 1.01);
  CHECK(turns.balance > 1);
  const Outcome hashed = simulate(Rule::kHash, options);
  CHECK(hashed.message_balance > 1.5);  // the most popular character alone has a twelfth of all messages
  CHECK(simulate(Rule::kHashBounded, options).message_balance < hashed.message_balance / 1.2);
}

// A message goes to any of N machines with equal probability, whatever came before. The machine last saw this chat d
// messages ago with the probability (1/N)(1-1/N)^(d-1), and has the history up to there.
TEST_CASE("round robin finds of a history what independent choices among N machines find") {
  for (const int32_t machines : {2, 5, 16}) {
    FleetOptions options = small_fleet();
    options.machines = machines;
    options.turns = 6;
    options.messages_per_second = 2000;
    options.memory_bytes = 1e15;
    options.warm_up_seconds = 200;  // of the chats under way none began before the simulation
    const Outcome outcome = simulate(Rule::kRoundRobin, options);
    const double n = machines, leave = 1 / options.turns, grows = options.user_tokens + options.reply_tokens;
    double found = 0, all = 0;
    for (int k = 0; k < 400; ++k) {
      const double probability = leave * std::pow(1 - leave, k);
      all += probability * k * grows;
      for (int d = 1; d <= k; ++d) found += probability / n * std::pow(1 - 1 / n, d - 1) * grows * (k - d + 1);
    }
    const double expected = found / (all + options.card_tokens + options.user_tokens);
    INFO(machines << " machines: " << share(outcome.all.history, outcome.all.prompt) << " for " << expected);
    CHECK(std::abs(share(outcome.all.history, outcome.all.prompt) / expected - 1) < 0.04);
  }
}

// Of C cards that are asked for equally often and independently, a least-recently-used cache of K finds K in C.
TEST_CASE("a full cache finds its share of cards that are equally popular") {
  FleetOptions options = small_fleet();
  options.machines = 1;
  options.characters = 1000;
  options.zipf = 0;
  options.turns = 1.001;  // each chat sends once
  options.user_tokens = 1, options.reply_tokens = 1;
  options.kv = {1, 0};
  options.memory_bytes = 300 * 6002;  // a card, and a history of two tokens that nobody asks for again
  const Outcome outcome = simulate(Rule::kRoundRobin, options);
  CHECK(std::abs(share(outcome.all.card, outcome.all.prompt) - 0.3) < 0.02);
}

// Each chat of the lost machines misses once, at its next message; gaps are exponential. So of what was found before,
// the part f e^(-t/T) is missing after t seconds.
TEST_CASE("after a loss the hit rate comes back as the chats' next messages do") {
  FleetOptions options = small_fleet();
  options.machines = 200;
  options.characters = 100'000'000;
  options.zipf = 0;  // no two chats share a card
  options.messages_per_second = 4000;
  options.every_seconds = 20;
  options.turns = 1000;
  options.warm_up_seconds = 120;
  options.seconds = 60;
  options.reply_seconds = 0.05;  // next to nothing is in flight, so next to nothing is sent again
  options.lost_machines = 60;
  options.lost_after = 15;
  const Outcome outcome = simulate(Rule::kHash, options);
  REQUIRE(outcome.event);
  CHECK(outcome.hit_lowest < 0.75 * outcome.hit_before);
  for (const size_t after : {3u, 10u, 20u, 40u}) {
    double hit = 0;
    for (size_t s = 13 + after; s < 18 + after; ++s) hit += outcome.seconds[s].tokens.hit_rate() / 5;
    const double missing = 1 - hit / outcome.hit_before;
    INFO(after << " s: " << missing);
    // 160 points on the ring: what 60 machines own differs by some 1%.
    CHECK(std::abs(missing - 0.3 * std::exp(-(static_cast<double>(after) + 0.5) / options.every_seconds)) < 0.015);
  }
  CHECK(outcome.sent_again > 0);
}

TEST_CASE("machines that come back get their characters again, and are used") {
  FleetOptions options = small_fleet();
  options.lost_machines = 10;
  options.lost_after = 5;
  options.back_after = 5;
  const Outcome back = simulate(Rule::kHashBounded, options);
  options.back_after = 1e300;
  const Outcome gone = simulate(Rule::kHashBounded, options);
  REQUIRE(back.seconds.size() == 30);
  // Moved once more: at the moment of their return more is missed than without it.
  CHECK(back.seconds[10].tokens.hit_rate() < gone.seconds[10].tokens.hit_rate() - 0.02);
}

TEST_CASE(
    "a sudden character's messages are its users', drown one machine by affinity alone, and are spread by a bound") {
  FleetOptions options = small_fleet();
  options.sudden_users = 2000;  // as many as all others together
  options.sudden_after = 10;
  const Outcome turns = simulate(Rule::kRoundRobin, options);
  REQUIRE(turns.event);
  REQUIRE(turns.seconds.size() == 30);
  uint64_t before = 0, after = 0;
  for (size_t s = 0; s < 30; ++s) (s < 10 ? before : after) += turns.seconds[s].tokens.messages;
  // Poisson, four standard deviations: 2,000 messages in 10 s, then 8,000 in 20 s.
  CHECK(std::abs(static_cast<double>(before) - 2000) < 4 * std::sqrt(2000));
  CHECK(std::abs(static_cast<double>(after) - 8000) < 4 * std::sqrt(8000));
  const Outcome hashed = simulate(Rule::kHash, options), bounded = simulate(Rule::kHashBounded, options);
  CHECK(hashed.copies_of_sudden == 1);
  CHECK(hashed.balance_most > hashed.balance_before + 5);  // half of all requests are at one of twenty machines
  CHECK(bounded.balance_most < 1.5);
  CHECK(bounded.copies_of_sudden > 5);
  CHECK(bounded.hit_lowest > 0.5 * bounded.hit_before);
  options.sudden_users = 0;
  CHECK_FALSE(simulate(Rule::kHash, options).event);
}
