// A rollout: sessions are shared between two checkpoints as it promises, nobody's reply changes but of those who move,
// and both ways end with one engine.
#include "kaiju/rollout.hpp"

#include <malloc.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>

#include "catch.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"

namespace {

using namespace kaiju;

std::shared_ptr<const Model> model_of(uint64_t seed, int32_t vocab_size = 272, int32_t context = 512) {
  ModelConfig config = test::small_config("rollout", false);
  config.vocab_size = vocab_size;
  config.context = context;
  return Model::create(test::random_checkpoint(config, seed)).value();
}

std::shared_ptr<Engine> engine_of(const Model& model, const std::string& backend = "auto") {
  RunOptions options;
  options.executor.backend = backend;
  options.executor.threads = 2;
  options.executor.slot_count = 4;
  options.engine.check_ledger = true;
  auto engine = model.create_engine(options);
  INFO(engine.status().message());
  REQUIRE(engine.ok());
  return *engine;
}

// The current model and a candidate, not begun.
struct Pair {
  explicit Pair(const std::string& backend = "auto", bool move = false)
      : old_engine(engine_of(*old_model, backend)), new_engine(engine_of(*new_model, backend)) {
    auto made = Rollout::create(old_model, old_engine, {move});
    REQUIRE(made.ok());
    rollout = std::move(made).value();
  }
  void begin() { REQUIRE(rollout->begin(new_model, new_engine).ok()); }
  // All new sessions are the candidate's.
  void begin_whole() {
    begin();
    REQUIRE(rollout->set_share(kWholeShare).ok());
  }

  std::shared_ptr<const Model> old_model = model_of(1), new_model = model_of(2);
  std::shared_ptr<Engine> old_engine, new_engine;
  std::unique_ptr<Rollout> rollout;
};

std::vector<int32_t> prompt_of(int32_t first, int32_t count = 70) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < count; ++i) prompt.push_back((first * 31 + i * 7) % 250);
  return prompt;
}

// The tokens of a turn's reply.
std::vector<int32_t> turn(Session& session, int32_t number, const Scope& scope = {}) {
  RequestOptions options;
  options.max_tokens = 6;
  options.scope = scope;
  const std::vector<int32_t> prompt = prompt_of(number, 9), before = session.tokens().value();
  const auto done = session.generate(prompt, options);
  INFO(done.status().message());
  REQUIRE(done.ok());
  const std::vector<int32_t> after = session.tokens().value();
  return {after.begin() + static_cast<std::ptrdiff_t>(before.size() + prompt.size()), after.end()};
}

std::string key_of(int i) { return "user " + std::to_string(i); }

bool is_code(const Status& status, StatusCode code, const std::string& words) {
  INFO(status.message());
  CHECK(status.code() == code);
  CHECK(status.message().find(words) != std::string::npos);
  return status.code() == code;
}

}  // namespace

TEST_CASE("a share of the keys is the candidate's, a growing share only adds keys, and a smaller one takes them back") {
  Pair pair;
  pair.begin();
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  constexpr int kKeys = 20000;
  const auto key = [&](int i) { return std::to_string(seed) + "/" + std::to_string(i); };
  std::vector<bool> before(kKeys, false);
  for (const int32_t share : {0, 1, 100, 1000, 5000, 9999, kWholeShare, 5000, 100, 0}) {
    REQUIRE(pair.rollout->set_share(share).ok());
    int count = 0;
    std::vector<bool> now(kKeys);
    for (int i = 0; i < kKeys; ++i) count += now[i] = pair.rollout->engine_for(key(i)) == pair.new_engine;
    const double p = static_cast<double>(share) / kWholeShare;
    INFO("share " << share << ": " << count);
    CHECK(std::abs(count - kKeys * p) <= 6 * std::sqrt(kKeys * p * (1 - p)));
    const bool grew = count >= std::count(before.begin(), before.end(), true);
    for (int i = 0; i < kKeys; ++i)
      if (now[i] != before[i]) REQUIRE(now[i] == grew);
    before = now;
  }
}

TEST_CASE("machines with the same candidate give a key the same side, and another candidate another choice of keys") {
  Pair one, two;
  one.begin();
  two.begin();
  auto third = Rollout::create(one.old_model, one.old_engine).value();
  const auto other_model = model_of(9);
  const auto other = engine_of(*other_model);
  REQUIRE(third->begin(other_model, other).ok());
  for (Rollout* rollout : {one.rollout.get(), two.rollout.get(), third.get()}) REQUIRE(rollout->set_share(5000).ok());
  int differ = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool is_new = one.rollout->engine_for(key_of(i)) == one.new_engine;
    REQUIRE(is_new == (two.rollout->engine_for(key_of(i)) == two.new_engine));
    differ += is_new != (third->engine_for(key_of(i)) == other);
  }
  CHECK(differ > 300);
}

TEST_CASE("a session that stays has the replies of an engine that never changed, on every backend") {
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    Pair pair(backend);
    Session stays = pair.rollout->create_session("a").value();
    Session lone = Session::create(engine_of(*pair.old_model, backend)).value();
    const auto same_turn = [&](int32_t number) {
      CHECK_FALSE(pair.rollout->next_turn(stays, "a").value());
      CHECK(stays.engine() == pair.old_engine);
      CHECK(turn(stays, number) == turn(lone, number));
    };
    same_turn(1);
    pair.begin_whole();
    same_turn(2);
    Session fresh = pair.rollout->create_session("a").value();
    CHECK(fresh.engine() == pair.new_engine);
    Session new_lone = Session::create(engine_of(*pair.new_model, backend)).value();
    CHECK(turn(fresh, 3) == turn(new_lone, 3));
    REQUIRE(pair.rollout->promote().ok());
    same_turn(4);
    CHECK_FALSE(pair.rollout->next_turn(fresh, "a").value());
  }
}

TEST_CASE("after a rollback a session of the candidate goes on with its tokens on the current engine") {
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    Pair pair(backend);
    pair.begin_whole();
    Session session = pair.rollout->create_session("a").value();
    turn(session, 1);
    const std::vector<int32_t> tokens = session.tokens().value();
    REQUIRE(pair.rollout->rollback().ok());
    CHECK(pair.rollout->engine_for("a") == pair.old_engine);
    CHECK(pair.rollout->take_drained() == nullptr);
    REQUIRE(pair.rollout->next_turn(session, "a").value());
    CHECK(session.engine() == pair.old_engine);
    CHECK(session.tokens().value() == tokens);
    CHECK_FALSE(pair.rollout->next_turn(session, "a").value());
    Session lone = Session::create(engine_of(*pair.old_model, backend)).value();
    REQUIRE(lone.engine()->set_session_tokens(lone.id(), tokens).ok());
    CHECK(turn(session, 2) == turn(lone, 2));
    CHECK(pair.rollout->take_drained() == pair.new_engine);
    CHECK(pair.rollout->state().phase == RolloutPhase::kSteady);
  }
}

TEST_CASE("with `move`, sessions follow their key at their next turn, and none loses its tokens") {
  Pair pair("auto", true);
  std::vector<Session> sessions;
  for (int i = 0; i < 40; ++i) {
    sessions.push_back(pair.rollout->create_session(key_of(i)).value());
    turn(sessions.back(), i);
  }
  pair.begin();
  const auto turns = [&](int32_t number) {
    int on_new = 0;
    for (int i = 0; i < 40; ++i) {
      Session& session = sessions[static_cast<size_t>(i)];
      const std::vector<int32_t> before = session.tokens().value();
      const bool changes = session.engine() != pair.rollout->engine_for(key_of(i));
      CHECK(pair.rollout->next_turn(session, key_of(i)).value() == changes);
      CHECK(session.tokens().value() == before);
      turn(session, number);
      on_new += session.engine() == pair.new_engine;
    }
    return on_new;
  };
  CHECK(turns(1) == 0);
  REQUIRE(pair.rollout->set_share(5000).ok());
  const int half = turns(2);
  CHECK((half > 5 && half < 35));
  REQUIRE(pair.rollout->set_share(0).ok());
  CHECK(turns(3) == 0);
  REQUIRE(pair.rollout->set_share(5000).ok());
  CHECK(turns(4) == half);
  REQUIRE(pair.rollout->promote().ok());
  CHECK(turns(5) == 40);
  CHECK(pair.rollout->take_drained() == pair.old_engine);
}

TEST_CASE("a candidate's prefixes are computed a few tokens at a time, and requests find them in the cache") {
  Pair pair;
  pair.begin();
  const std::vector<int32_t> card = prompt_of(5, 200), other = prompt_of(6, 130);
  Scope scope, salted;
  scope.character = "wren/1";
  salted.salt = "secret";
  CHECK(is_code(pair.rollout->add_prefix(card, {}), StatusCode::kInvalidArgument, "character or a salt"));
  CHECK(is_code(pair.rollout->add_prefix(prompt_of(1, 600), scope), StatusCode::kInvalidArgument, "context is 512"));
  REQUIRE(pair.rollout->add_prefix(card, scope).ok());
  REQUIRE(pair.rollout->add_prefix(other, salted).ok());
  CHECK(pair.rollout->state().warm_left == 330);
  CHECK(is_code(pair.rollout->set_share(1), StatusCode::kBusy, "330 tokens"));
  CHECK(is_code(pair.rollout->promote(), StatusCode::kBusy, "330 tokens"));
  int64_t left = 330;
  while (left > 0) {
    const uint64_t before = pair.new_engine->metrics().tokens_prefilled;
    const int64_t now = pair.rollout->warm(48).value();
    CHECK(left - now <= 48);
    CHECK(pair.new_engine->metrics().tokens_prefilled - before <= 48);
    left = now;
  }
  CHECK(pair.new_engine->metrics().sessions == 0);
  REQUIRE(pair.rollout->set_share(kWholeShare).ok());
  const auto cached_of = [&](std::vector<int32_t> prompt, const Scope& of) {
    prompt.push_back(7);
    Session session = pair.rollout->create_session("a").value();
    RequestOptions options;
    options.max_tokens = 1;
    options.scope = of;
    return session.generate(prompt, options)->counts.cached_tokens;
  };
  scope.shared_tokens = 200;
  CHECK(cached_of(card, scope) == 200);
  CHECK(cached_of(other, salted) == 130);
}

TEST_CASE("a candidate can be rolled back in any state, also while another thread warms it") {
  Pair pair;
  Scope scope;
  scope.character = "wren/1";
  for (int round = 0; round < 20; ++round) {
    pair.begin();
    for (int i = 0; i < 8; ++i) REQUIRE(pair.rollout->add_prefix(prompt_of(round * 8 + i, 300), scope).ok());
    std::thread warms([&] {
      while (pair.rollout->warm(16).ok()) {
      }
    });
    Session session = Session::create(pair.old_engine).value();
    turn(session, round);
    REQUIRE(pair.rollout->rollback().ok());
    warms.join();
    REQUIRE(pair.rollout->take_drained() == pair.new_engine);
  }
}

TEST_CASE("an engine that drains is taken after its last session, and only then the next candidate may come") {
  Pair pair;
  std::optional<Session> session = pair.rollout->create_session("a").value();
  turn(*session, 1);
  pair.begin_whole();
  CHECK(is_code(pair.rollout->begin(pair.old_model, pair.old_engine), StatusCode::kBusy, "roll it back"));
  CHECK(pair.rollout->take_drained() == nullptr);
  REQUIRE(pair.rollout->promote().ok());
  CHECK(pair.rollout->state().phase == RolloutPhase::kDraining);
  CHECK(pair.rollout->take_drained() == nullptr);
  CHECK(is_code(pair.rollout->begin(pair.old_model, engine_of(*pair.old_model)), StatusCode::kBusy, "drains"));
  session.reset();
  CHECK(pair.rollout->take_drained() == pair.old_engine);
  CHECK(pair.rollout->take_drained() == nullptr);
  CHECK(pair.rollout->begin(pair.old_model, pair.old_engine).ok());
}

TEST_CASE("a wrong call of a rollout is refused and changes nothing", "[malformed]") {
  Pair pair;
  Scope scope;
  scope.character = "wren/1";
  CHECK(is_code(Rollout::create(nullptr, pair.old_engine).status(), StatusCode::kInvalidArgument, "no model"));
  CHECK(is_code(Rollout::create(pair.old_model, nullptr).status(), StatusCode::kInvalidArgument, "no engine"));
  for (const Status& status : {pair.rollout->set_share(1), pair.rollout->promote(), pair.rollout->rollback(),
                               pair.rollout->warm(1).status(), pair.rollout->add_prefix(prompt_of(1), scope)})
    is_code(status, StatusCode::kNotFound, "no candidate");
  is_code(pair.rollout->begin(nullptr, pair.new_engine), StatusCode::kInvalidArgument, "no model");
  is_code(pair.rollout->begin(pair.old_model, pair.old_engine), StatusCode::kInvalidArgument, "the current engine");
  const auto wider = model_of(3, 288);
  is_code(pair.rollout->begin(wider, engine_of(*wider)), StatusCode::kUnsupported, "288 tokens");
  pair.begin();
  for (const int32_t share : {-1, kWholeShare + 1, INT32_MAX, INT32_MIN})
    is_code(pair.rollout->set_share(share), StatusCode::kInvalidArgument, "must be from 0 to 10000");
  for (const int32_t tokens : {0, -5}) is_code(pair.rollout->warm(tokens).status(), StatusCode::kInvalidArgument, "1");
  CHECK(pair.rollout->state().share == 0);
  CHECK(pair.rollout->state().current == pair.old_engine);
}

TEST_CASE("a session with an unfinished request does not move, and one that does not fit stays as it was") {
  Pair pair;
  pair.begin_whole();
  Session session = pair.rollout->create_session("a").value();
  const std::vector<int32_t> prompt = prompt_of(1);
  REQUIRE(session.submit(prompt, {}).ok());
  REQUIRE(pair.rollout->rollback().ok());
  is_code(pair.rollout->next_turn(session, "a").status(), StatusCode::kBusy, "unfinished");
  CHECK(session.engine() == pair.new_engine);
  while (pair.new_engine->pending() > 0) {
    REQUIRE(pair.new_engine->step().ok());
    for (Event event; pair.new_engine->poll(event);) {
    }
  }
  CHECK(pair.rollout->next_turn(session, "a").value());

  const auto shorter = model_of(1, 272, 128);
  auto rollout = Rollout::create(shorter, engine_of(*shorter)).value();
  REQUIRE(rollout->begin(pair.new_model, pair.new_engine).ok());
  REQUIRE(rollout->set_share(kWholeShare).ok());
  Session longer = rollout->create_session("a").value();
  REQUIRE(longer.engine()->set_session_tokens(longer.id(), prompt_of(1, 200)).ok());
  REQUIRE(rollout->rollback().ok());
  is_code(rollout->next_turn(longer, "a").status(), StatusCode::kInvalidArgument, "the context of 128");
  CHECK(longer.tokens().value() == prompt_of(1, 200));
  CHECK(rollout->state().current->metrics().sessions == 0);
}

TEST_CASE("an engine takes no more memory than was said, and one that would take too much is refused with figures") {
  const auto model = model_of(4);
  RunOptions options;
  options.executor.backend = "portable";
  options.executor.threads = 1;
  for (const int32_t slots : {1, 8, 32}) {
    options.executor.slot_count = slots;
    options.executor.cache_bytes = 8 << 20;
    options.engine.cache.host_bytes = 1 << 20;
    const MemoryNeed need = model->memory_need(options).value();
    const auto held = [] {
      const auto now = mallinfo2();
      return static_cast<int64_t>(now.uordblks + now.hblkhd);
    };
    const int64_t before = held();
    const auto engine = model->create_engine(options).value();
    const int64_t taken = held() - before;
    CHECK(need.kv == engine->info().cache_bytes());
    CHECK(need.on_device() == need.weights + need.kv + need.workspace + need.host_tier);
    INFO(slots << " slots: taken " << taken << ", said " << need.on_device());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    constexpr int64_t kSmall = 2 << 20;  // tables of slots and blocks
    CHECK(taken > need.kv);
    CHECK(taken <= need.on_device() + kSmall);
    CHECK(taken >= need.kv + need.workspace / 2);
#endif
    options.memory_limit = need.on_device();
    CHECK(model->create_engine(options).ok());
    options.memory_limit = need.on_device() - 1;
    is_code(model->create_engine(options).status(), StatusCode::kOutOfMemory, "and the limit is");
    options.memory_limit = kFreeMemory;
    CHECK(model->create_engine(options).ok());
  }
  options.executor.cache_bytes = int64_t{1} << 42;
  options.executor.slot_count = 1;
  is_code(model->create_engine(options).status(), StatusCode::kOutOfMemory, "has free");
  options.executor.slot_count = -1;
  is_code(model->memory_need(options).status(), StatusCode::kInvalidArgument, "live sequences");
}

// KAIJU_SWAPS: how often, 10^4 before a release.
TEST_CASE("swaps leak nothing") {
  const char* const wanted = std::getenv("KAIJU_SWAPS");
  const int swaps = wanted ? std::atoi(wanted) : 100;
  Pair pair;
  pair.old_engine.reset();
  pair.new_engine.reset();
  Scope scope;
  scope.character = "wren/1";
  int64_t most = 0;  // bytes held, of the first swaps
  for (int i = 0; i < swaps; ++i) {
    const auto& model = i % 2 == 0 ? pair.new_model : pair.old_model;
    REQUIRE(pair.rollout->begin(model, engine_of(*model)).ok());
    REQUIRE(pair.rollout->add_prefix(prompt_of(i, 100), scope).ok());
    while (pair.rollout->warm(64).value() > 0) {
    }
    REQUIRE(pair.rollout->set_share(kWholeShare).ok());
    {
      Session session = pair.rollout->create_session("a").value();
      turn(session, i);
    }
    REQUIRE((i % 3 == 0 ? pair.rollout->rollback() : pair.rollout->promote()).ok());
    REQUIRE(pair.rollout->take_drained() != nullptr);
    const auto now = mallinfo2();
    const auto held = static_cast<int64_t>(now.uordblks + now.hblkhd);
    if (i < 20) most = std::max(most, held);
    INFO("swap " << i << ": " << held << " bytes, " << most << " in the first 20");
    REQUIRE(held <= most + (64 << 10));
  }
}
