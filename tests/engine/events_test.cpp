// What the cache tells a router: it may know less than the cache has, never more.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

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
  static EngineOptions with(size_t event_capacity, bool tokens = false, bool of_private = false) {
    EngineOptions options;
    options.cache.event_capacity = event_capacity;
    options.cache.event_tokens = tokens;
    options.cache.publish_private = of_private;
    return options;
  }
  explicit Routed(const EngineOptions& options) : Harness(info(), options) {}
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

TEST_CASE("a router that has had all events knows the blocks that are listed, their tokens, and which are private") {
  Routed h(Routed::with(10000, true, true));
  std::map<std::array<uint64_t, 2>, CacheEvent> known;
  bool any_private = false, any_shared = false;
  for (uint64_t round = 0; round < 40; ++round) {
    h.serve(round % 13);
    std::vector<CacheEvent> events;
    REQUIRE(h.engine->poll_cache(events, SIZE_MAX).ok());
    for (const CacheEvent& event : events) {
      const std::array<uint64_t, 2> name = {event.name.low, event.name.high};
      if (event.kind == CacheEventKind::kStored)
        known[name] = event;
      else
        CHECK(known.erase(name) == 1);
    }
    const auto listed = h.engine->cached_blocks();
    REQUIRE(listed.ok());
    CHECK(listed->size() == known.size());
    std::set<std::array<uint64_t, 2>> before;
    for (const CacheEvent& block : *listed) {
      const std::array<uint64_t, 2> name = {block.name.low, block.name.high},
                                    parent = {block.parent.low, block.parent.high};
      REQUIRE(known.count(name) == 1);
      CHECK(known[name].tokens == block.tokens);
      CHECK(known[name].is_private == block.is_private);
      CHECK(block.tokens.size() == static_cast<size_t>(block.token_count));
      CHECK((block.parent == BlockName() || before.count(parent) == 1));
      before.insert(name);
      any_private = any_private || block.is_private;
      any_shared = any_shared || !block.is_private;
    }
  }
  CHECK(any_private);
  CHECK(any_shared);
}

TEST_CASE("private blocks are not told, and tokens only where they were asked for") {
  for (const bool tokens : {false, true}) {
    Routed h(Routed::with(10000, tokens));
    for (uint64_t what = 0; what < 8; ++what) h.serve(what);
    std::vector<CacheEvent> events;
    REQUIRE(h.engine->poll_cache(events, SIZE_MAX).ok());
    CHECK(!events.empty());
    const auto listed = h.engine->cached_blocks();
    REQUIRE(listed.ok());
    events.insert(events.end(), listed->begin(), listed->end());
    for (const CacheEvent& event : events) {
      CHECK(!event.is_private);
      CHECK(event.token_count == kBlockTokens);  // a tail is never in a shared region
      if (event.kind == CacheEventKind::kStored)
        CHECK(event.tokens.size() == (tokens ? static_cast<size_t>(kBlockTokens) : 0));
    }
  }
}

TEST_CASE("an engine that records no cache events says so") {
  Routed h(size_t{0});
  std::vector<CacheEvent> events;
  CHECK(h.engine->poll_cache(events, 10).code() == StatusCode::kInvalidArgument);
  CHECK(h.engine->cached_blocks().status().code() == StatusCode::kInvalidArgument);
}
