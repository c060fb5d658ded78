// What the cache tells a router: it may know less than the cache has, never more.
#include <algorithm>
#include <array>
#include <set>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

// An engine whose router polls now and then, and what the router believes.
struct Routed : Harness {
  explicit Routed(size_t event_capacity) : Harness(info(), with(event_capacity)) {}

  static ExecutorInfo info() {
    ExecutorInfo info = small_facts();
    info.block_count[0] = 10;
    info.block_count[1] = 11;
    return info;
  }
  static EngineOptions with(size_t event_capacity) {
    EngineOptions options;
    options.cache.event_capacity = event_capacity;
    return options;
  }
  PrefixTree& cache() { return const_cast<PrefixTree&>(engine->cache()); }
  void serve(uint64_t what) {
    RequestOptions options = asking(2);
    options.scope = {"wren", 64 * static_cast<int32_t>(what % 4), "a"};
    const SessionId one = session();
    run(one, tokens_from(what, 300), options);
    CHECK(engine->destroy_session(one).ok());
  }
  // How many events there were.
  size_t poll() {
    std::vector<CacheEvent> events;
    REQUIRE(engine->poll_cache(events, SIZE_MAX).ok());
    for (const CacheEvent& event : events) {
      const std::array<uint64_t, 2> name = {event.name.low, event.name.high};
      if (event.kind == CacheEventKind::kCleared) {
        believed.clear();
        ++cleared;
      } else if (event.kind == CacheEventKind::kStored) {
        believed.insert(name);
      } else {
        believed.erase(name);
      }
    }
    return events.size();
  }

  std::set<std::array<uint64_t, 2>> believed;
  int cleared = 0;
};

}  // namespace

TEST_CASE("a router that polls too late is told to forget everything, and never expects a block that was removed") {
  Routed late(4), prompt(10000);
  size_t most = 0;
  bool behind = false;
  for (uint64_t round = 0; round < 60; ++round) {
    for (uint64_t i = 0; i <= round % 5; ++i) {
      late.serve(round * 7 + i);
      prompt.serve(round * 7 + i);
    }
    CHECK(late.poll() <= 5);  // what the queue holds, and the word to forget
    prompt.poll();
    CHECK(std::includes(prompt.believed.begin(), prompt.believed.end(), late.believed.begin(), late.believed.end()));
    most = std::max(most, late.believed.size());
    behind = behind || late.believed.size() < prompt.believed.size();
  }
  CHECK(late.cleared > 10);
  CHECK(prompt.cleared == 0);
  CHECK(most > 0);
  CHECK(behind);
}

TEST_CASE("a new scale epoch makes routers forget every name") {
  Routed h(10000);
  for (uint64_t i = 0; i < 4; ++i) h.serve(i);
  h.poll();
  const auto before = h.believed;
  CHECK(!before.empty());
  h.cache().set_epoch(9);
  CHECK(h.poll() == 1);
  CHECK(h.cleared == 1);
  CHECK(h.believed.empty());
  h.serve(1);
  h.poll();
  CHECK(!h.believed.empty());
  for (const auto& name : h.believed) CHECK(before.count(name) == 0);
}
