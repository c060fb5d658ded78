// The parts of the fleet's simulation, each against a plain model of it: ranks, caches, loads, the ring and the rules.
#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <random>

#include "bench/fleet/router.hpp"
#include "catch.hpp"

using namespace kaiju::fleet;

namespace {

// Of all ranks: the first thousand added up, the rest by Euler and Maclaurin's integral.
double weights(uint64_t count, double exponent) {
  const uint64_t added = std::min<uint64_t>(count, 1000);
  double sum = 0;
  for (uint64_t rank = 1; rank <= added; ++rank) sum += std::pow(static_cast<double>(rank), -exponent);
  const double from = static_cast<double>(added) + 0.5, to = static_cast<double>(count) + 0.5;
  if (exponent == 1) return sum + std::log(to / from);
  return sum + (std::pow(to, 1 - exponent) - std::pow(from, 1 - exponent)) / (1 - exponent);
}

}  // namespace

TEST_CASE("ranks come as often as Zipf's law says, of a hundred million") {
  struct Case {
    uint64_t count;
    double exponent;
  };
  for (const Case& one : {Case{100'000'000, 1}, Case{100'000'000, 1.3}, Case{1000, 0.5}, Case{50, 0}}) {
    const double sum = weights(one.count, one.exponent);
    kaiju::Dice dice(7, 0);
    const Zipf zipf(one.count, one.exponent);
    constexpr int kDraws = 400'000;
    std::array<int, 5> seen = {};
    for (int i = 0; i < kDraws; ++i) {
      const uint64_t rank = zipf.draw(dice);
      REQUIRE((rank >= 1 && rank <= one.count));
      if (rank <= seen.size()) ++seen[rank - 1];
    }
    for (size_t rank = 1; rank <= seen.size(); ++rank) {
      const double expected = kDraws * std::pow(static_cast<double>(rank), -one.exponent) / sum;
      INFO(one.count << " " << one.exponent << " rank " << rank);
      CHECK(std::abs(seen[rank - 1] - expected) <= 5 * std::sqrt(expected) + 1);
    }
  }
}

namespace {

// What Caches should do, without its indices.
struct PlainCache {
  struct Copy {
    Item item;
    int32_t tokens;
  };
  std::list<Copy> copies;  // the most recently used first
  void put(Item item, int32_t tokens, double memory, const KvBytes& bytes) {
    copies.remove_if([&](const Copy& copy) { return copy.item == item; });
    copies.push_front({item, tokens});
    double used = 0;
    for (const Copy& copy : copies) used += bytes(copy.tokens);
    while (used > memory && copies.size() > 1) {
      used -= bytes(copies.back().tokens);
      copies.pop_back();
    }
  }
  int32_t found(Item item) const {
    for (const Copy& copy : copies)
      if (copy.item == item) return copy.tokens;
    return 0;
  }
};

}  // namespace

TEST_CASE("caches keep what a least-recently-used list keeps, and know who holds what") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  constexpr int32_t kMachines = 4;
  constexpr uint64_t kItems = 60;
  const KvBytes bytes = {1, 10};
  constexpr double kMemory = 800;
  Caches caches(kMachines, kMemory, bytes);
  std::vector<PlainCache> plain(kMachines);
  for (int i = 0; i < 20000; ++i) {
    const auto machine = static_cast<int32_t>(random() % kMachines);
    if (random() % 500 == 0) {
      caches.clear(machine);
      plain[static_cast<size_t>(machine)].copies.clear();
    }
    const Item item = random() % kItems;
    const auto tokens = static_cast<int32_t>(1 + random() % 50);
    caches.put(item, machine, tokens);
    plain[static_cast<size_t>(machine)].put(item, tokens, kMemory, bytes);
    const Item asked = random() % kItems;
    int32_t holders = 0, copies = 0;
    for (int32_t m = 0; m < kMachines; ++m) {
      const int32_t expected = plain[static_cast<size_t>(m)].found(asked);
      REQUIRE(caches.found(asked, m) == expected);
      holders += expected > 0;
      copies += static_cast<int32_t>(plain[static_cast<size_t>(m)].copies.size());
    }
    int32_t visited = 0;
    caches.for_holders(asked, [&](int32_t m, int32_t held) {
      ++visited;
      REQUIRE(held == plain[static_cast<size_t>(m)].found(asked));
    });
    REQUIRE(visited == holders);
    REQUIRE(caches.copy_count() == copies);
  }
}

TEST_CASE("the least and the most loaded machine are known at any time") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  constexpr int32_t kMachines = 7;
  Loads loads(kMachines);
  std::vector<int32_t> plain(kMachines, 0);  // -1: down
  for (int i = 0; i < 20000; ++i) {
    const auto m = static_cast<int32_t>(random() % kMachines);
    int32_t& load = plain[static_cast<size_t>(m)];
    if (load < 0) {
      loads.start(m);
      load = 0;
    } else if (random() % 50 == 0 && loads.up_count() > 1) {
      loads.stop(m);
      load = -1;
    } else if (load > 0 && random() % 2 == 0) {
      loads.end(m);
      --load;
    } else {
      loads.begin(m);
      ++load;
    }
    int32_t least = 1 << 30, most = 0, sum = 0;
    for (const int32_t one : plain) {
      if (one < 0) continue;
      least = std::min(least, one);
      most = std::max(most, one);
      sum += one;
    }
    REQUIRE(loads.load(loads.least_loaded()) == least);
    REQUIRE(loads.up(loads.least_loaded()));
    REQUIRE(loads.most() == most);
    REQUIRE(loads.in_flight() == sum);
  }
}

TEST_CASE("a loss moves the keys of the lost machine alone: its share of all, one in N") {
  constexpr int32_t kMachines = 50, kKeys = 20000, kLost = 17;
  Ring ring(kMachines, 160);
  const Loads loads(kMachines);
  std::vector<int32_t> before;
  for (uint64_t key = 0; key < kKeys; ++key) before.push_back(ring.choose(key, loads, 0));
  std::vector<bool> up(kMachines, true);
  up[kLost] = false;
  ring.restart(up);
  int32_t moved = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const int32_t now = ring.choose(key, loads, 0);
    CHECK(now != kLost);
    if (now == before[key]) continue;
    CHECK(before[key] == kLost);
    ++moved;
  }
  CHECK(moved > 0.6 * kKeys / kMachines);  // 160 points: a share differs by about 1 / sqrt(160) = 8%
  CHECK(moved < 1.4 * kKeys / kMachines);
  up[kLost] = true;
  ring.restart(up);
  for (uint64_t key = 0; key < kKeys; ++key) CHECK(ring.choose(key, loads, 0) == before[key]);
}

TEST_CASE("the keys of popular characters, small numbers, are spread as all others are") {
  constexpr int32_t kMachines = 10;
  for (const int32_t points : {160, 1600}) {
    const Ring ring(kMachines, points);
    const Loads loads(kMachines);
    std::vector<int32_t> keys(kMachines, 0);
    for (uint64_t key = 0; key < 1000; ++key) ++keys[static_cast<size_t>(ring.choose(key, loads, 0))];
    for (const int32_t count : keys) CHECK((count > 50 && count < 160));
  }
}

TEST_CASE("bounded loads: one key asked for without end spreads, and no machine exceeds its bound") {
  constexpr int32_t kMachines = 20, kFactor = 125;
  const Ring ring(kMachines, 16);
  Loads loads(kMachines);
  for (int i = 0; i < 5000; ++i) {
    const int32_t chosen = ring.choose(42, loads, kFactor);
    REQUIRE(loads.load(chosen) < ring.bound(chosen, loads, kFactor));
    loads.begin(chosen);
    REQUIRE(loads.most() <= std::ceil(1.25 * loads.mean()) + 1);
  }
  int64_t slots = 0;
  for (int32_t m = 0; m < kMachines; ++m) slots += ring.bound(m, loads, kFactor);
  CHECK(slots == (loads.in_flight() + 1) * 125 / 100 + ((loads.in_flight() + 1) * 125 % 100 != 0));
}

TEST_CASE("rules that ask caches choose what comparing all machines would") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  constexpr int32_t kMachines = 12;
  Caches caches(kMachines, 1e4, {1, 0});
  Loads loads(kMachines);
  RouterOptions options;
  options.beta = 0.5;
  Router longest(Rule::kKvAware, options, caches, loads), scored(Rule::kLoadAware, options, caches, loads);
  for (int i = 0; i < 5000; ++i) {
    const auto some = static_cast<int32_t>(random() % kMachines);
    Message message;
    message.character = 1 + random() % 5;
    message.chat = 1 + random() % 10;
    message.card_tokens = 100;
    message.history_tokens = static_cast<int32_t>(random() % 300);
    message.new_tokens = 30;
    caches.put(random() % 2 ? card_of(message.character) : history_of(message.chat), some, message.card_tokens);
    if (random() % 20 == 0) caches.clear(some);
    if (random() % 2) loads.begin(some);
    if (random() % 2 && loads.load(some) > 0) loads.end(some);
    const auto known = [&](int32_t m) { return found_at(caches, message, m).tokens(); };
    const auto score = [&](int32_t m) {
      return static_cast<double>(known(m)) / message.prompt_tokens() -
             options.beta * (loads.load(m) - loads.mean()) / std::max(1.0, loads.mean());
    };
    int32_t most_known = 0;
    double highest = -1e300;
    for (int32_t m = 0; m < kMachines; ++m) {
      most_known = std::max(most_known, known(m));
      highest = std::max(highest, score(m));
    }
    const int32_t chosen = longest.choose(message);
    REQUIRE(known(chosen) == most_known);
    if (most_known == 0) REQUIRE(loads.load(chosen) == loads.load(loads.least_loaded()));
    REQUIRE(score(scored.choose(message)) == highest);
  }
}
