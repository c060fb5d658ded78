// The bounds of kaiju-bench replay, on traces that can be computed by hand, and against exhaustive search.
#include "bench/replay/bounds.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "catch.hpp"

using namespace kaiju::replay;

namespace {

constexpr KvSizes kTokenBytes = {1, 0, 0};  // a token is a byte, windows cost nothing

struct Story {
  Trace trace;
  int32_t text(int32_t before, int32_t tokens) {
    return trace.add(before, tokens, static_cast<int32_t>(trace.texts.size()));
  }
  void ask(double seconds, int32_t prompt, int32_t reply = kNone) {
    Request request;
    request.seconds = seconds;
    request.prompt = prompt;
    request.reply = reply;
    request.conversation = trace.conversation_count++;
    trace.requests.push_back(request);
  }
};

// Three prompts of ten tokens, each asked twice, one a second.
Trace a_b_c_twice() {
  Story story;
  const int32_t a = story.text(kNone, 10), b = story.text(kNone, 10), c = story.text(kNone, 10);
  double second = 0;
  for (const int32_t prompt : {a, b, c, a, b, c}) story.ask(second++, prompt);
  return story.trace;
}

}  // namespace

TEST_CASE("an infinite cache finds everything that came before, except the last token of a prompt found whole") {
  const Bounds bounds(a_b_c_twice());
  CHECK(bounds.prompt_tokens() == 60);
  CHECK(bounds.infinite() == 27);
}

TEST_CASE("when memory is short, the text whose next use is farthest is dropped") {
  const Bounds bounds(a_b_c_twice());
  CHECK(bounds.farthest_next_use(30, kTokenBytes) == 27);
  CHECK(bounds.farthest_next_use(20, kTokenBytes) == 18);  // c goes
  CHECK(bounds.farthest_next_use(25, kTokenBytes) == 23);  // half of c goes
  CHECK(bounds.farthest_next_use(0, kTokenBytes) == 0);
}

TEST_CASE("a reply is kept for the turn that continues it") {
  Story story;
  const int32_t prompt = story.text(kNone, 8), reply = story.text(prompt, 5), next = story.text(reply, 3);
  story.ask(0, prompt, reply);
  story.ask(1, next);
  const Bounds bounds(story.trace);
  CHECK(bounds.prompt_tokens() == 8 + 16);
  CHECK(bounds.infinite() == 13);
  CHECK(bounds.farthest_next_use(13, kTokenBytes) == 13);
}

TEST_CASE("memory is priced by the byte and the second, and the deepest piece a request finds pays for a window") {
  Story story;
  const int32_t character = story.text(kNone, 10);
  const int32_t history = story.text(character, 20);
  story.ask(0, history);
  story.ask(5, story.text(character, 4));  // another conversation: finds the character, used 5 s ago
  story.ask(10, story.text(history, 4));   // finds the character, used 5 s ago, and the history, used 10 s ago
  const Bounds bounds(story.trace);
  CHECK(bounds.infinite() == 10 + 30);
  const KvSizes sizes = {1, 4, 2};
  // Byte-seconds: 5 (10 + 8) = 90 for 10 tokens, 5 * 10 = 50 for 10, 10 (20 + 8) = 280 for 20; best bargain first, of
  // 10 s times the memory.
  CHECK(bounds.priced(42, sizes) == 40);
  CHECK(bounds.priced(14, sizes) == 20);
  CHECK(bounds.priced(28, sizes) == 30);
  CHECK(bounds.priced(5, sizes) == 10);
  CHECK(bounds.belady(28, sizes) == std::min(bounds.priced(28, sizes), bounds.farthest_next_use(28, sizes)));
}

TEST_CASE("requests before the measured time fill the cache and are not counted") {
  Trace trace = a_b_c_twice();
  trace.measured_from = 4;
  const Bounds bounds(trace);
  CHECK(bounds.prompt_tokens() == 20);
  CHECK(bounds.infinite() == 18);
  // What was needed before it costs nothing; b was kept for no measured second, c for one.
  CHECK(bounds.priced(30, kTokenBytes) == 27 - 9);
  trace.requests[2].kind = RequestKind::kEarlier;
  CHECK(Bounds(trace).infinite() == 18);
}

TEST_CASE("farthest next use is optimal for pieces of one size") {
  const uint32_t seed = 20240611;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    constexpr int32_t kTexts = 5, kTokens = 10;
    Story story;
    for (int32_t i = 0; i < kTexts; ++i) story.text(kNone, kTokens);
    std::vector<int32_t> asked;
    for (int32_t i = 0; i < 14; ++i) {
      asked.push_back(static_cast<int32_t>(random() % kTexts));
      story.ask(i, story.text(asked.back(), 1));  // a word of its own: what is found is found whole
    }
    const int32_t room = static_cast<int32_t>(random() % (kTexts + 1));
    // best[set] = most texts found so far with `set` in the cache.
    std::map<uint32_t, int32_t> best = {{0, 0}};
    for (const int32_t text : asked) {
      std::map<uint32_t, int32_t> after;
      for (const auto& [set, found] : best) {
        const int32_t now = found + static_cast<int32_t>(set >> text & 1);
        const uint32_t with = set | 1u << text;
        for (uint32_t kept = with;; kept = (kept - 1) & with) {
          if (__builtin_popcount(kept) <= room) {
            auto& most = after[kept];
            most = std::max(most, now);
          }
          if (kept == 0) break;
        }
      }
      best = after;
    }
    int32_t most = 0;
    for (const auto& [set, found] : best) most = std::max(most, found);
    CHECK(Bounds(story.trace).farthest_next_use(room * kTokens, kTokenBytes) == static_cast<uint64_t>(most * kTokens));
  }
}

TEST_CASE("a cache that drops the least recently used text never beats a bound") {
  const uint32_t seed = 20240612;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    Story story;
    for (int32_t i = 0; i < 40; ++i) {
      const auto count = static_cast<int32_t>(story.trace.texts.size());
      const int32_t before =
          count == 0 || random() % 5 == 0 ? kNone : static_cast<int32_t>(random() % static_cast<uint32_t>(count));
      story.ask(i, story.text(before, 1 + static_cast<int32_t>(random() % 30)));
    }
    const Trace& trace = story.trace;
    const int32_t room = 20 + static_cast<int32_t>(random() % 200);
    std::vector<int32_t> recent;  // texts, the most recently used last; behind a text there is nothing older
    int64_t found = 0;
    for (const Request& request : trace.requests) {
      int32_t hit = 0;
      for (int32_t text = request.prompt; text != kNone; text = trace.texts[static_cast<size_t>(text)].before) {
        const auto place = std::find(recent.begin(), recent.end(), text);
        if (place != recent.end()) {
          hit += trace.token_count(text);
          recent.erase(place);
        }
        recent.push_back(text);
      }
      found += std::min(hit, trace.prompt_tokens(request) - 1);
      int32_t tokens = 0;
      size_t keep = recent.size();
      while (keep > 0 && tokens + trace.token_count(recent[keep - 1]) <= room)
        tokens += trace.token_count(recent[--keep]);
      recent.erase(recent.begin(), recent.begin() + static_cast<std::ptrdiff_t>(keep));
    }
    const Bounds bounds(trace);
    CHECK(found <= static_cast<int64_t>(bounds.belady(room, kTokenBytes)));
    CHECK(bounds.belady(room, kTokenBytes) <= bounds.infinite());
  }
}

TEST_CASE("the whole footprint counts a character once and a resume point for each that needs one") {
  Story story;
  story.trace.characters = true;
  const int32_t character = story.text(kNone, 10);
  story.ask(0, story.text(character, 20));
  story.ask(1, story.text(character, 30));
  CHECK(whole_footprint(story.trace, {1, 0, 0}) == 60);
  CHECK(whole_footprint(story.trace, {1, 4, 2}) == 60 + 3 * 8);
}
