// Prefixes that are warmed and pinned, through kaiju.h.
#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

using Tokens = std::vector<int32_t>;

Tokens card_of(int32_t first) {
  Tokens tokens;
  for (int32_t i = 0; i < 130; ++i) tokens.push_back((first + 7 * i) % kTinyVocabulary);
  return tokens;
}

// A host whose cache holds one context, and a character's card.
struct Cards : Host {
  const Tokens card = card_of(20);
  Bag sharing;
  kaiju_prefix* prefix = nullptr;

  explicit Cards(int64_t contexts) {
    Host::check(sharing.set(KAIJU_SESSION_CHARACTER, std::string("Ann, version 1")));
    kaiju_session_destroy(std::exchange(session, nullptr));
    kaiju_engine_destroy(std::exchange(engine, nullptr));
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_MAX_RUNNING, contexts, nullptr);
    Host::check(ask([&](kaiju_error** e) { return kaiju_engine_create(model, engine_options, &engine, e); }));
    Host::check(ask([&](kaiju_error** e) { return kaiju_session_create(engine, &session, e); }));
  }
  ~Cards() { kaiju_prefix_destroy(prefix); }

  Answer warm(const kaiju_options* options) {
    return ask([&](kaiju_error** e) {
      return kaiju_prefix_warm(engine, card.data(), card.size(), options, nullptr, &prefix, nullptr, e);
    });
  }
  Answer pin(size_t* tokens = nullptr) {
    return ask([&](kaiju_error** e) { return kaiju_prefix_pin(prefix, tokens, e); });
  }
  // Computes prompts of other sessions, which stay until they have filled the cache many times.
  void fill_the_cache() {
    const Bag bag;
    Host::check(bag.set(KAIJU_GENERATE_MAX_TOKENS, int64_t{1}));
    std::vector<kaiju_session*> others(200);
    for (size_t i = 0; i < others.size(); ++i) {
      REQUIRE(kaiju_session_create(engine, &others[i], nullptr) == KAIJU_OK);
      Tokens prompt;
      for (size_t j = 0; j < 400; ++j)
        prompt.push_back(static_cast<int32_t>((11 * i + 3 * j + i * j) % static_cast<size_t>(kTinyVocabulary)));
      REQUIRE(kaiju_engine_submit(engine, others[i], prompt.data(), prompt.size(), bag.handle, nullptr, nullptr,
                                  nullptr) == KAIJU_OK);
      drain();
    }
    for (kaiju_session* other : others) kaiju_session_destroy(other);
  }
  // Tokens of the card that a new session of the character finds in the cache.
  int32_t found() {
    kaiju_session* other = nullptr;
    REQUIRE(kaiju_session_create(engine, &other, nullptr) == KAIJU_OK);
    Host::check(sharing.set(KAIJU_SESSION_SHARED_TOKENS, static_cast<int64_t>(card.size())));
    Tokens prompt = card;
    prompt.push_back(5);
    REQUIRE(kaiju_engine_submit(engine, other, prompt.data(), prompt.size(), sharing.handle, nullptr, nullptr,
                                nullptr) == KAIJU_OK);
    kaiju_event done{};
    drain(&done);
    kaiju_session_destroy(other);
    return done.cached_tokens;
  }
};

}  // namespace

TEST_CASE("a prefix that was warmed is found by other sessions of the character") {
  Cards host(8);
  REQUIRE(host.warm(host.sharing.handle).status == KAIJU_OK);
  kaiju_event done{};
  CHECK(host.drain(&done).empty());
  CHECK(done.kind == KAIJU_EVENT_DONE);
  CHECK(done.generated_tokens == 0);
  CHECK(host.found() == 130);
}

TEST_CASE("a pinned prefix stays in the cache whatever else is computed, until it is destroyed") {
  Cards host(3);
  REQUIRE(host.warm(host.sharing.handle).status == KAIJU_OK);
  host.drain();
  size_t tokens = 0;
  REQUIRE(host.pin(&tokens).status == KAIJU_OK);
  CHECK(tokens == 130);
  REQUIRE(host.pin().status == KAIJU_OK);  // once more is no more
  host.fill_the_cache();
  CHECK(host.found() == 130);
  kaiju_prefix_destroy(std::exchange(host.prefix, nullptr));
  for (int times = 0; times < 4; ++times) host.fill_the_cache();  // what was used is kept longer than what was not
  CHECK(host.found() == 0);
}

TEST_CASE("a prefix that nobody could use, that is not computed yet or that would fill the cache is refused") {
  Cards host(1);
  const Answer useless = host.warm(nullptr);
  CHECK(useless.status == KAIJU_INVALID_ARGUMENT);
  CHECK(useless.says("session.character"));
  REQUIRE(host.warm(host.sharing.handle).status == KAIJU_OK);
  CHECK(host.pin().status == KAIJU_BUSY);
  host.drain();
  const Answer full = host.pin();
  INFO(full.message);
  CHECK(full.status == KAIJU_OUT_OF_MEMORY);
  host.fill_the_cache();  // nothing was pinned
  CHECK(host.pin().status == KAIJU_NOT_FOUND);
  kaiju_prefix_destroy(nullptr);
  CHECK(ask([&](kaiju_error** e) { return kaiju_prefix_pin(nullptr, nullptr, e); }).says("prefix is NULL"));
}
