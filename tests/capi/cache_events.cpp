// What a router is told of the cache, in the C interface.
#include <map>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

using Name = std::pair<uint64_t, uint64_t>;

struct Told {
  kaiju_cache_event event;
  std::vector<int32_t> tokens;
  Name name() const { return {event.name_high, event.name_low}; }
};

std::vector<Told> told_by(Host& host, decltype(kaiju_engine_poll_cache)* call) {
  std::vector<kaiju_cache_event> events(64);
  size_t count = 0;
  Host::check(ask(
      [&](kaiju_error** e) { return call(host.engine, events.data(), sizeof events[0], events.size(), &count, e); }));
  std::vector<Told> told;
  for (size_t i = 0; i < count; ++i)
    told.push_back({events[i], {events[i].tokens, events[i].tokens + events[i].token_count}});
  return told;
}

void with_events(kaiju_options* options, int64_t most, bool of_private) {
  Host::check(kaiju_options_set_int(options, KAIJU_ENGINE_CACHE_EVENTS, most, nullptr));
  Host::check(kaiju_options_set_int(options, KAIJU_ENGINE_CACHE_EVENT_TOKENS, 1, nullptr));
  Host::check(kaiju_options_set_int(options, KAIJU_ENGINE_CACHE_EVENTS_PRIVATE, of_private, nullptr));
}

std::vector<int32_t> prompt_of(size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(20 + i % 50);
  return tokens;
}

}  // namespace

TEST_CASE("cache events tell of the blocks of a prompt, each after its parent") {
  Host host(chat_model_file(), "auto", [](kaiju_options* options) { with_events(options, 1000, true); });
  const std::vector<int32_t> prompt = prompt_of(140);
  host.submit(prompt);
  host.drain();
  std::map<Name, Told> stored;
  for (const Told& told : told_by(host, kaiju_engine_poll_cache)) {
    CHECK(told.event.tier == KAIJU_CACHE_DEVICE);
    if (told.event.kind == KAIJU_CACHE_STORED) stored[told.name()] = told;
    if (told.event.kind == KAIJU_CACHE_REMOVED) stored.erase(told.name());  // a tail that grew
  }
  std::vector<int32_t> found;
  Name parent;
  const std::vector<Told> cached = told_by(host, kaiju_engine_cached_blocks);
  for (const Told& told : cached) {
    CHECK(told.event.kind == KAIJU_CACHE_STORED);
    CHECK(told.event.is_private == 1);
    CHECK(Name{told.event.parent_high, told.event.parent_low} == parent);
    CHECK(told.event.block_tokens == static_cast<int32_t>(told.tokens.size()));
    REQUIRE(stored.count(told.name()) == 1);
    CHECK(stored[told.name()].tokens == told.tokens);
    found.insert(found.end(), told.tokens.begin(), told.tokens.end());
    parent = told.name();
  }
  CHECK(cached.size() == stored.size());
  REQUIRE(found.size() >= prompt.size());
  CHECK(std::equal(prompt.begin(), prompt.end(), found.begin()));
  CHECK(told_by(host, kaiju_engine_poll_cache).empty());
}

TEST_CASE("private blocks are not told unless asked for, and lost events are told as cleared") {
  Host shared(chat_model_file(), "auto", [](kaiju_options* options) { with_events(options, 1000, false); });
  shared.submit(prompt_of(140));
  shared.drain();
  CHECK(told_by(shared, kaiju_engine_poll_cache).empty());
  CHECK(told_by(shared, kaiju_engine_cached_blocks).empty());

  Host narrow(chat_model_file(), "auto", [](kaiju_options* options) { with_events(options, 1, true); });
  narrow.submit(prompt_of(140));
  narrow.drain();
  const std::vector<Told> told = told_by(narrow, kaiju_engine_poll_cache);
  REQUIRE_FALSE(told.empty());
  CHECK(told[0].event.kind == KAIJU_CACHE_CLEARED);
}

TEST_CASE("cache events that were not asked for are refused by what asks for them") {
  Host host;
  size_t count = 0;
  kaiju_cache_event event;
  const auto poll = [&](size_t size, size_t* out) {
    return ask([&](kaiju_error** e) { return kaiju_engine_poll_cache(host.engine, &event, size, 1, out, e); });
  };
  CHECK(poll(sizeof event, &count).status == KAIJU_INVALID_ARGUMENT);
  CHECK(poll(sizeof event - 8, &count).status == KAIJU_INVALID_ARGUMENT);
  CHECK(poll(sizeof event, nullptr).status == KAIJU_INVALID_ARGUMENT);
  const auto all = ask(
      [&](kaiju_error** e) { return kaiju_engine_cached_blocks(host.engine, nullptr, sizeof event, 0, &count, e); });
  CHECK(all.status == KAIJU_INVALID_ARGUMENT);
}
