// Reasons for misses: evicted tokens are told from new ones, as far as the memory of evicted names reaches.
#include <random>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

EvictedNames memory_of(size_t names) {
  return EvictedNames(std::move(Buffer<uint64_t>::make(EvictedNames::words_for(names), "names")).value());
}
BlockName name_of(uint64_t i) { return {mix(2 * i), mix(2 * i + 1)}; }

// Conversations that come back in random order, in memory for few of them. Every prompt begins with all that was
// computed of its conversation before, so the exact counts are known.
struct Traffic {
  explicit Traffic(int64_t evicted_names) : h(info(), options(evicted_names)) {
    std::mt19937_64 random(7);
    std::vector<SessionId> sessions;
    for (uint64_t i = 0; i < 40; ++i) sessions.push_back(h.session());
    for (uint64_t turn = 0; turn < 400; ++turn) {
      const size_t who = random() % sessions.size(), history = h.engine->session_tokens(sessions[who])->size();
      std::vector<int32_t> input = tokens_from(turn, (history == 0 ? 64 : 0) + 1 + random() % 50);
      if (history == 0) input[0] = static_cast<int32_t>(who);  // none begins like another, not even by chance
      if (history > 0) known += history - 1;                   // the last token drawn was never computed
      prompt_tokens += history + input.size();
      RequestOptions asked = asking(3);
      asked.scope.salt = "salt";
      h.run(sessions[who], input, asked);
    }
    stats = h.engine->metrics().cache;
    CHECK(stats.blocks_evicted[0] > 500);
    CHECK(stats.prompt_tokens == prompt_tokens);
    CHECK(prompt_tokens == stats.hits() + stats.miss_new + stats.miss_evicted + stats.miss_window + stats.miss_last);
  }
  static ExecutorInfo info() {
    ExecutorInfo info = small_facts();
    info.window = 0;
    info.block_count[0] = 40;
    return info;
  }
  static EngineOptions options(int64_t evicted_names) {
    EngineOptions options;
    options.cache.evicted_names = evicted_names;
    return options;
  }

  Harness h;
  uint64_t known = 0, prompt_tokens = 0;
  CacheStats stats;
};

}  // namespace

TEST_CASE("every token computed before counts as a hit or as evicted, and no other token does") {
  const Traffic traffic(1 << 16);
  CHECK(traffic.stats.hits() + traffic.stats.miss_evicted == traffic.known);
  CHECK(traffic.stats.miss_new == traffic.prompt_tokens - traffic.known);
}

TEST_CASE("a prompt found whole computes one token, which counts as its last, whatever its length") {
  for (const int32_t window : {0, 128})
    for (const size_t length : {2, 19, 63, 64, 65, 127, 128, 200, 320}) {
      CAPTURE(window, length);
      ExecutorInfo info = small_facts();
      info.window = window;
      Harness h(info);
      RequestOptions asked = asking(3);
      asked.scope.salt = "salt";
      const std::vector<int32_t> prompt = tokens_from(7, length);
      h.run(h.session(), prompt, asked);
      const CacheStats first = h.engine->metrics().cache;
      CHECK(first.miss_new == length);
      const Reply& again = h.run(h.session(), prompt, asked);
      const CacheStats stats = h.engine->metrics().cache;
      CHECK(stats.miss_new == first.miss_new);
      CHECK(stats.miss_last == 1);
      CHECK(stats.miss_evicted == 0);
      CHECK(stats.hits() + stats.miss_window == length - 1);
      CHECK(static_cast<uint64_t>(again.counts.cached_tokens) == stats.hits());
    }
}

TEST_CASE("evicted tokens whose names are forgotten count as new, and no new token counts as evicted") {
  const Traffic all(1 << 16), few(64);
  CHECK(few.stats.hits() > all.stats.hits() * 8 / 10);  // what is kept is learned, from these names too
  CHECK(few.stats.miss_evicted < all.stats.miss_evicted);
  CHECK(few.stats.miss_evicted > 0);
  CHECK(few.stats.miss_new > all.stats.miss_new);
}

TEST_CASE("a name that is removed or added again leaves the others remembered") {
  EvictedNames names = memory_of(8);
  for (uint64_t i = 0; i < 8; ++i) names.add(name_of(i));
  names.add(name_of(2));  // again
  names.remove(name_of(5));
  names.remove(name_of(99));
  for (uint64_t i = 0; i < 8; ++i) CHECK(names.has(name_of(i)) == (i != 5));
  names.add(name_of(8));
  CHECK(names.has(name_of(0)));
  names.add(name_of(9));
  CHECK_FALSE(names.has(name_of(0)));  // the oldest
  for (const uint64_t i : {1, 2, 3, 4, 6, 7, 8, 9}) CHECK(names.has(name_of(i)));
}

TEST_CASE("nearly all of the newest half of the names that fit are remembered, and no name that never came") {
  EvictedNames names = memory_of(4096);
  for (uint64_t i = 0; i < 100000; ++i) names.add(name_of(i));
  int remembered = 0;
  for (uint64_t i = 100000 - 2048; i < 100000; ++i) remembered += names.has(name_of(i));
  CHECK(remembered > 2048 * 97 / 100);
  for (uint64_t i = 100000; i < 200000; ++i) CHECK_FALSE(names.has(name_of(i)));
}

TEST_CASE("evicted_names sets the memory of evicted names, is checked by name and counts among the books") {
  const auto made = [](int64_t names) {
    return Engine::create(std::make_unique<ScriptedExecutor>(small_facts()), nullptr, Traffic::options(names));
  };
  CHECK(made(-1).status().message().find("evicted_names is -1") != std::string::npos);
  const size_t few = made(1024).value()->cache().bookkeeping_bytes(),
               many = made(1 << 20).value()->cache().bookkeeping_bytes();
  CHECK(many - few == 8 * ((1 << 20) - 1024));
}
