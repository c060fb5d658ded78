// What events say about the cache, and text that changes every turn, in the C interface.
#include <algorithm>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

kaiju_event done_of(Host& host) {
  kaiju_event done{};
  host.drain(&done);
  return done;
}

kaiju_message message(int32_t role, const char* text) {
  kaiju_message made{};
  made.role = role;
  made.content = text;
  made.content_size = std::strlen(text);
  return made;
}

}  // namespace

TEST_CASE("an event says why no more of its prompt was cached") {
  Host host;
  host.submit({1, 20, 21, 22});
  const kaiju_event first = done_of(host);
  CHECK(first.cached_tokens == 0);
  CHECK(first.reuse_end == KAIJU_REUSE_NEW);
  CHECK(first.known_tokens == 0);
  host.submit({23, 24});
  const kaiju_event second = done_of(host);
  CHECK(second.cached_tokens == 11);  // 4 + 8 tokens, of which the last was never computed
  CHECK(second.reuse_end == KAIJU_REUSE_NEW);
  CHECK(second.known_tokens == 11);
  Host::check(ask([&](kaiju_error** e) { return kaiju_session_truncate(host.session, 6, e); }));
  host.submit({25, 26, 27});
  const kaiju_event third = done_of(host);
  CHECK(third.cached_tokens == 6);
  CHECK(third.reuse_end == KAIJU_REUSE_DIFFERENT);
  CHECK(third.known_end == KAIJU_REUSE_DIFFERENT);
}

TEST_CASE("text that changes every turn is placed, and its cost is told") {
  Host host;
  const kaiju_message messages[] = {message(KAIJU_ROLE_CARD, "hello\nworld"), message(KAIJU_ROLE_USER, "one"),
                                    message(KAIJU_ROLE_CHARACTER, "two"), message(KAIJU_ROLE_USER, "three")};
  const auto place = [&](const char* text, int32_t depth, std::vector<int32_t>& tokens) {
    kaiju_volatile placed{sizeof placed, text, std::strlen(text), depth, 0, -1, -1, -1, 0};
    tokens.resize(256);
    size_t count = 0;
    Host::check(ask([&](kaiju_error** e) {
      return kaiju_chat_format_volatile(host.model, messages, sizeof messages[0], 4, KAIJU_CHAT_REPLY, &placed,
                                        tokens.data(), tokens.size(), &count, e);
    }));
    tokens.resize(count);
    CHECK(placed.prompt_tokens == static_cast<int32_t>(count));
    return placed;
  };
  std::vector<int32_t> noon, night;
  for (const int32_t depth : {0, 1, 3}) {
    const kaiju_volatile placed = place("noon", depth, noon);
    place("dusk", depth, night);
    const auto same = std::mismatch(noon.begin(), noon.end(), night.begin(), night.end()).first - noon.begin();
    CHECK(placed.stable_tokens == same);
    CHECK((depth == 3) == (placed.stable_tokens < placed.stable_behind_history));
  }
  kaiju_volatile wrong{sizeof wrong, "x", 1, -1, 0, 0, 0, 0, 0};
  const auto format = [&](kaiju_volatile* text) {
    return ask([&](kaiju_error** e) {
      return kaiju_chat_format_volatile(host.model, messages, sizeof messages[0], 4, 0, text, nullptr, 0, nullptr, e);
    });
  };
  CHECK(format(&wrong).says("depth is -1"));
  CHECK(format(nullptr).says("text is NULL"));
  wrong.struct_size = 8;
  CHECK(format(&wrong).says("struct_size"));
}
