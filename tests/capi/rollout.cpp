// The C interface of a rollout, and of the memory that an engine would take.
#include <string_view>
#include <utility>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

// The tiny model with other weights.
const std::string& other_model_file() {
  static const std::string path = [] {
    const std::string plain = temporary_folder() + "/other-plain.safetensors",
                      chat = temporary_folder() + "/other.safetensors";
    if (!kaiju::write_random_checkpoint(plain, tiny_config(kTinyVocabulary, kTinyContext), 2).ok())
      throw std::runtime_error("no other model");
    add_tokenizer(plain, chat, tiny_model().bytes(), kTinyChat);
    return chat;
  }();
  return path;
}

// A rollout of one host's engine, with another host's as the candidate.
struct Swap {
  Host current, candidate{other_model_file()};
  kaiju_rollout* rollout = nullptr;

  explicit Swap(int32_t move = 0) {
    Host::check(ask([&](kaiju_error** e) { return kaiju_rollout_create(current.engine, move, &rollout, e); }));
    kaiju_session_destroy(std::exchange(candidate.session, nullptr));
  }
  ~Swap() { kaiju_rollout_destroy(rollout); }

  Answer begin() {
    return ask([&](kaiju_error** e) { return kaiju_rollout_begin(rollout, candidate.engine, e); });
  }
  Answer share(int32_t share) {
    return ask([&](kaiju_error** e) { return kaiju_rollout_set_share(rollout, share, e); });
  }
  Answer next_turn(kaiju_session* session, int32_t* moved) {
    return ask([&](kaiju_error** e) { return kaiju_rollout_next_turn(rollout, session, "a", 1, moved, e); });
  }
  kaiju_rollout_info info() const {
    kaiju_rollout_info info{};
    info.struct_size = sizeof info;
    REQUIRE(kaiju_rollout_describe(rollout, &info) == KAIJU_OK);
    return info;
  }
};

}  // namespace

TEST_CASE("C: a candidate gets a share, becomes the current engine, and the one before is given back") {
  Swap swap;
  CHECK(swap.info().phase == KAIJU_ROLLOUT_STEADY);
  REQUIRE(swap.begin().status == KAIJU_OK);
  REQUIRE(swap.share(KAIJU_WHOLE_SHARE).status == KAIJU_OK);
  CHECK(swap.info().phase == KAIJU_ROLLOUT_CANDIDATE);
  CHECK(swap.info().share == KAIJU_WHOLE_SHARE);
  CHECK(swap.info().current == swap.current.engine);
  CHECK(swap.info().other == swap.candidate.engine);
  CHECK(kaiju_rollout_engine_for(swap.rollout, "a", 1) == swap.candidate.engine);
  int32_t moved = -1;
  CHECK(swap.next_turn(swap.current.session, &moved).status == KAIJU_OK);
  CHECK(moved == 0);
  REQUIRE(ask([&](kaiju_error** e) { return kaiju_rollout_promote(swap.rollout, e); }).status == KAIJU_OK);
  CHECK(swap.info().phase == KAIJU_ROLLOUT_DRAINING);
  CHECK(kaiju_rollout_take_drained(swap.rollout) == nullptr);
  kaiju_session_destroy(std::exchange(swap.current.session, nullptr));
  CHECK(kaiju_rollout_take_drained(swap.rollout) == swap.current.engine);
  CHECK(swap.info().current == swap.candidate.engine);
  CHECK(swap.info().other == nullptr);
}

TEST_CASE("C: a session moves back after a rollback, with its tokens") {
  Swap swap;
  REQUIRE(swap.begin().status == KAIJU_OK);
  REQUIRE(swap.share(KAIJU_WHOLE_SHARE).status == KAIJU_OK);
  Host::check(ask([&](kaiju_error** e) {
    return kaiju_session_create(kaiju_rollout_engine_for(swap.rollout, "a", 1), &swap.candidate.session, e);
  }));
  swap.candidate.submit({5, 6, 7});
  int32_t moved = -1;
  REQUIRE(ask([&](kaiju_error** e) { return kaiju_rollout_roll_back(swap.rollout, e); }).status == KAIJU_OK);
  CHECK(swap.next_turn(swap.candidate.session, &moved).status == KAIJU_BUSY);
  swap.candidate.drain();
  const std::vector<int32_t> before = swap.candidate.history();
  REQUIRE(swap.next_turn(swap.candidate.session, &moved).status == KAIJU_OK);
  CHECK(moved == 1);
  CHECK(swap.candidate.history() == before);
  CHECK(kaiju_rollout_take_drained(swap.rollout) == swap.candidate.engine);
  std::swap(swap.current.session, swap.candidate.session);  // it is the current engine's now
  kaiju_session_destroy(std::exchange(swap.candidate.session, nullptr));
  swap.current.submit({8});
  CHECK_FALSE(swap.current.drain().empty());
}

TEST_CASE("C: handles may be destroyed in any order") {
  Swap swap;
  REQUIRE(swap.begin().status == KAIJU_OK);
  REQUIRE(swap.share(KAIJU_WHOLE_SHARE).status == KAIJU_OK);
  kaiju_engine_destroy(std::exchange(swap.candidate.engine, nullptr));
  CHECK(kaiju_rollout_engine_for(swap.rollout, "a", 1) == nullptr);
  CHECK(swap.info().other == nullptr);
  CHECK(ask([&](kaiju_error** e) { return kaiju_rollout_roll_back(swap.rollout, e); }).status == KAIJU_OK);
  CHECK(kaiju_rollout_take_drained(swap.rollout) == nullptr);
  CHECK(kaiju_rollout_engine_for(swap.rollout, "a", 1) == swap.current.engine);
  CHECK(swap.info().phase == KAIJU_ROLLOUT_STEADY);
}

TEST_CASE("C: prefixes are warmed before there is a share") {
  Swap swap;
  REQUIRE(swap.begin().status == KAIJU_OK);
  std::vector<int32_t> card(100, 5);
  const Bag sharing;
  const auto add = [&] {
    return ask([&](kaiju_error** e) {
      return kaiju_rollout_add_prefix(swap.rollout, card.data(), card.size(), sharing.handle, e);
    });
  };
  CHECK(add().says("character or a salt"));
  Host::check(sharing.set(KAIJU_SESSION_CHARACTER, std::string("wren/1")));
  REQUIRE(add().status == KAIJU_OK);
  CHECK(swap.share(1).status == KAIJU_BUSY);
  uint64_t left = 100;
  for (int calls = 0; left > 0; ++calls) {
    REQUIRE(calls < 4);
    REQUIRE(ask([&](kaiju_error** e) { return kaiju_rollout_warm(swap.rollout, 40, &left, e); }).status == KAIJU_OK);
  }
  CHECK(swap.info().warm_left == 0);
  CHECK(swap.share(1).status == KAIJU_OK);
}

TEST_CASE("C: a model says what an engine would take, and the option memory_limit refuses one that takes more") {
  const Host host;
  kaiju_memory_need need{};
  need.struct_size = sizeof need;
  REQUIRE(ask([&](kaiju_error** e) {
            return kaiju_model_memory_need(host.model, host.engine_options, &need, e);
          }).status == KAIJU_OK);
  kaiju_engine_info info{};
  info.struct_size = sizeof info;
  REQUIRE(kaiju_engine_describe(host.engine, &info) == KAIJU_OK);
  CHECK(need.kv_bytes == info.cache_bytes);
  CHECK(need.weight_bytes > 0);
  CHECK(need.workspace_bytes > 0);
  kaiju_engine* engine = nullptr;
  const auto create = [&](int64_t limit) {
    kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_MEMORY_LIMIT, limit, nullptr);
    const Answer answer =
        ask([&](kaiju_error** e) { return kaiju_engine_create(host.model, host.engine_options, &engine, e); });
    kaiju_engine_destroy(std::exchange(engine, nullptr));
    return answer;
  };
  const auto all = static_cast<int64_t>(need.weight_bytes + need.kv_bytes + need.workspace_bytes);
  CHECK(create(all).status == KAIJU_OK);
  CHECK(create(KAIJU_FREE_MEMORY).status == KAIJU_OK);
  CHECK(create(all - 1).status == KAIJU_OUT_OF_MEMORY);
  CHECK(create(all - 1).says("and the limit is"));
}

TEST_CASE("C: a wrong call of a rollout is refused", "[malformed]") {
  Swap swap;
  kaiju_rollout* none = nullptr;
  kaiju_rollout_info info{};
  kaiju_memory_need need{};
  int32_t moved = 0;
  CHECK(ask([&](kaiju_error** e) { return kaiju_rollout_create(nullptr, 0, &none, e); }).says("engine is NULL"));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_rollout_create(swap.current.engine, 0, nullptr, e);
        }).says("out is NULL"));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_rollout_create(swap.current.engine, 2, &none, e);
        }).says("must be 0 or 1"));
  CHECK(ask([&](kaiju_error** e) { return kaiju_rollout_begin(nullptr, swap.candidate.engine, e); }).says("rollout"));
  CHECK(ask([&](kaiju_error** e) { return kaiju_rollout_begin(swap.rollout, nullptr, e); }).says("candidate is NULL"));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_rollout_begin(swap.rollout, swap.current.engine, e);
        }).says("the current engine"));
  for (const auto call : {kaiju_rollout_promote, kaiju_rollout_roll_back}) {
    CHECK(ask([&](kaiju_error** e) { return call(nullptr, e); }).says("rollout is NULL"));
    CHECK(ask([&](kaiju_error** e) { return call(swap.rollout, e); }).status == KAIJU_NOT_FOUND);
  }
  CHECK(ask([&](kaiju_error** e) { return kaiju_rollout_set_share(nullptr, 1, e); }).says("rollout is NULL"));
  CHECK(ask([&](kaiju_error** e) { return kaiju_rollout_warm(nullptr, 1, nullptr, e); }).says("rollout is NULL"));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_rollout_add_prefix(swap.rollout, nullptr, 3, nullptr, e);
        }).says("tokens is NULL"));
  CHECK(kaiju_rollout_take_drained(nullptr) == nullptr);
  CHECK(kaiju_rollout_engine_for(nullptr, "a", 1) == nullptr);
  CHECK(kaiju_rollout_engine_for(swap.rollout, nullptr, 1) == nullptr);
  CHECK(kaiju_rollout_engine_for(swap.rollout, nullptr, 0) == swap.current.engine);
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_rollout_next_turn(swap.rollout, nullptr, "a", 1, &moved, e);
        }).says("session is NULL"));
  CHECK(kaiju_rollout_describe(swap.rollout, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_rollout_describe(swap.rollout, &info) == KAIJU_INVALID_ARGUMENT);
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_model_memory_need(swap.current.model, nullptr, &need, e);
        }).says("struct_size"));
  kaiju_rollout_destroy(nullptr);
}
