// Saved sessions: what is restored goes on as if it had never left, and nothing else is ever restored.
#include <cstring>
#include <fstream>
#include <new>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

using Bytes = std::vector<std::byte>;

Bytes saved(Harness& harness, SessionId session, const SaveOptions& options = {}) {
  Bytes bytes;
  const Status status = harness.engine->save_session(session, options, [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status();
  });
  REQUIRE(status.message() == "");
  return bytes;
}

Result<SessionId> restored(Harness& harness, const Bytes& bytes, const RestoreOptions& options = {},
                           size_t* read = nullptr) {
  size_t at = 0;
  Result<SessionId> session =
      harness.engine->restore_session(options, [&](std::span<std::byte> piece) -> Result<size_t> {
        const size_t count = std::min({piece.size(), bytes.size() - at, size_t{1000}});  // in small pieces
        if (count > 0) std::memcpy(piece.data(), bytes.data() + at, count);
        at += count;
        return count;
      });
  if (read) *read = at;
  return session;
}

EngineOptions of_model(const std::string& identity) {
  EngineOptions options;
  options.cache.identity = identity;
  return options;
}

// Not a MAC; the tests of the library's own are in tests/capi.
Sealer toy_key(uint64_t key) {
  return [key](std::span<const std::byte> bytes, SealTag& tag) {
    uint64_t word = key;
    for (const std::byte byte : bytes) word = mix(word ^ static_cast<uint64_t>(byte));
    for (size_t i = 0; i < tag.size(); ++i) tag[i] = static_cast<std::byte>(word >> (i % 8 * 8));
    return true;
  };
}

RequestOptions in_scope(const Scope& scope, int32_t max_tokens) {
  RequestOptions options = asking(max_tokens);
  options.scope = scope;
  return options;
}

}  // namespace

TEST_CASE("a restored session goes on with the same tokens and computes none of its history again") {
  const uint64_t seed = 20261120;
  for (const int32_t length : {1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 500, 777}) {
    INFO("seed " << seed << ", length " << length);
    Harness before(small_facts(), of_model("m"));
    const SessionId session = before.session();
    const std::vector<int32_t> prompt = tokens_from(seed + static_cast<uint64_t>(length), static_cast<size_t>(length));
    before.run(session, prompt, asking(20));
    const std::vector<int32_t> history = before.engine->session_tokens(session).value();
    const Bytes bytes = saved(before, session);

    Harness after(small_facts(), of_model("m"));
    size_t read = 0;
    const Result<SessionId> again = restored(after, bytes, {}, &read);
    REQUIRE(again.status().message() == "");
    CHECK(read == bytes.size());
    CHECK(after.engine->session_tokens(again.value()).value() == history);
    REQUIRE(after.engine->check_ledger().message() == "");
    const std::vector<int32_t> more = tokens_from(seed, 30);
    const Reply& reply = after.run(again.value(), more, asking(40));
    CHECK(reply.tokens == after.reference(history + more, 40));
    CHECK(reply.counts.cached_tokens == static_cast<int32_t>(history.size()) - 1);
    REQUIRE(after.engine->destroy_session(again.value()).ok());
    after.step();
    CHECK(after.used(BlockKind::kGlobal) == 0);
    CHECK(after.used(BlockKind::kWindow) == 0);
  }
}

TEST_CASE("500 random conversations saved and restored at random give the tokens of one-at-a-time decoding") {
  const uint64_t seed = 77;
  INFO("seed " << seed);
  uint64_t state = seed;
  const auto draw = [&](uint64_t below) { return mix(++state) % below; };
  int conversations = 0;
  while (conversations < 500) {
    Harness harness(small_facts(), of_model("m"));
    std::vector<std::pair<SessionId, Scope>> sessions;
    const RestoreOptions keyed{toy_key(1), {}};
    for (int turn = 0; turn < 60; ++turn) {
      if (sessions.size() < 4 || draw(4) == 0) {
        Scope scope;
        if (draw(2)) scope.salt = "salt " + std::to_string(draw(2));
        sessions.push_back({harness.session(), scope});
        ++conversations;
      }
      const size_t which = draw(sessions.size());
      auto& [session, scope] = sessions[which];
      const std::vector<int32_t> history = harness.engine->session_tokens(session).value();
      const std::vector<int32_t> more = tokens_from(draw(5), 1 + draw(200));  // few seeds: beginnings meet
      if (history.size() + more.size() + 30 > 1500) {
        REQUIRE(harness.engine->destroy_session(session).ok());
        sessions.erase(sessions.begin() + static_cast<std::ptrdiff_t>(which));
        continue;
      }
      const auto count = static_cast<int32_t>(1 + draw(20));
      const Reply& reply = harness.run(session, more, in_scope(scope, count));
      REQUIRE(reply.tokens == harness.reference(history + more, count));
      if (draw(3) > 0) continue;
      if (draw(2)) REQUIRE(harness.engine->truncate_session(session, draw(history.size() + more.size())).ok());
      if (harness.engine->session_tokens(session).value().empty()) continue;
      const Bytes bytes = saved(harness, session, {keyed.key, draw(4) > 0});
      REQUIRE(harness.engine->destroy_session(session).ok());
      const Result<SessionId> again = restored(harness, bytes, {keyed.key, scope});
      REQUIRE(again.status().message() == "");
      session = again.value();
      REQUIRE(harness.engine->check_ledger().message() == "");
    }
  }
}

TEST_CASE("a saved session that was truncated or changed in any bit is refused, and nothing of it stays") {
  ExecutorInfo info = small_facts();
  info.window = 64;
  Harness harness(info, of_model("m"));
  const SessionId session = harness.session();
  harness.run(session, tokens_from(1, 40), asking(4));
  for (const Sealer& key : {Sealer(), toy_key(5)}) {
    const Bytes good = saved(harness, session, {key, true});
    const int32_t used[2] = {harness.used(BlockKind::kGlobal), harness.used(BlockKind::kWindow)};
    const auto refused = [&](const Bytes& bytes) {
      const Result<SessionId> answer = restored(harness, bytes, {key, {}});
      const bool named = answer.status().code() == StatusCode::kBadModel ||
                         answer.status().code() == StatusCode::kUnsupported ||
                         answer.status().code() == StatusCode::kInvalidArgument;
      return !answer.ok() && named && !answer.status().message().empty();
    };
    INFO(good.size() << " bytes");
    for (size_t size = 0; size < good.size(); ++size)
      if (!refused(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))))
        FAIL("truncated to " << size);
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      Bytes bad = good;
      bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      if (!refused(bad)) FAIL("bit " << bit);
    }
    CHECK(harness.used(BlockKind::kGlobal) == used[0]);
    CHECK(harness.used(BlockKind::kWindow) == used[1]);
    CHECK(harness.engine->metrics().sessions == 1);
    REQUIRE(harness.engine->check_ledger().message() == "");
    const Result<SessionId> again = restored(harness, good, {key, {}});
    REQUIRE(again.status().message() == "");
    REQUIRE(harness.engine->destroy_session(again.value()).ok());
    harness.step();
  }
}

TEST_CASE("blocks of one saved session cannot be put into another, nor swapped") {
  Harness harness(small_facts(), of_model("m"));
  const auto made = [&](uint64_t seed) {
    const SessionId session = harness.session();
    harness.run(session, tokens_from(seed, 200), asking(4));
    return saved(harness, session);
  };
  const Bytes one = made(1), other = made(2);
  REQUIRE(one.size() == other.size());
  const size_t block = 8 + static_cast<size_t>(harness.info.block_bytes[0] + harness.info.block_bytes[1]) + 32;
  Bytes mixed = one;
  std::copy(other.end() - static_cast<std::ptrdiff_t>(block), other.end(),
            mixed.end() - static_cast<std::ptrdiff_t>(block));
  CHECK(restored(harness, mixed).status().message().find("changed since") != std::string::npos);
  Bytes swapped = one;
  std::swap_ranges(swapped.end() - static_cast<std::ptrdiff_t>(block), swapped.end(),
                   swapped.end() - static_cast<std::ptrdiff_t>(2 * block));
  CHECK(restored(harness, swapped).status().message().find("changed since") != std::string::npos);
}

TEST_CASE(
    "a saved session is refused by another model, another epoch, without its key, with a wrong key, and beyond the "
    "context") {
  Harness harness(small_facts(), of_model("one"));
  const SessionId session = harness.session();
  harness.run(session, tokens_from(3, 300), asking(4));
  const Bytes plain = saved(harness, session), keyed = saved(harness, session, {toy_key(1), true});
  const auto says = [](const Result<SessionId>& answer, StatusCode code, const char* text) {
    INFO(answer.status().message());
    return answer.status().code() == code && answer.status().message().find(text) != std::string::npos;
  };
  Harness other(small_facts(), of_model("two"));
  CHECK(says(restored(other, plain), StatusCode::kUnsupported, "saved with the model one; this engine's is two"));
  CHECK(says(restored(harness, keyed), StatusCode::kInvalidArgument, "give the same one"));
  CHECK(says(restored(harness, plain, {toy_key(1), {}}), StatusCode::kInvalidArgument, "without a key"));
  CHECK(says(restored(harness, keyed, {toy_key(2), {}}), StatusCode::kBadModel, "the key is another"));
  ExecutorInfo shorter = small_facts();
  shorter.context = 256;
  Harness small(shorter, of_model("one"));
  CHECK(says(restored(small, plain), StatusCode::kBadModel, "the context is 256"));
  const_cast<PrefixTree&>(harness.engine->cache()).set_epoch(9);
  CHECK(says(restored(harness, plain), StatusCode::kUnsupported, "epoch 0"));
}

TEST_CASE("KV in another layout is not used: the session is restored and computes its history again") {
  Harness before(small_facts(), of_model("m"));
  const SessionId session = before.session();
  before.run(session, tokens_from(3, 300), asking(4));
  const std::vector<int32_t> history = before.engine->session_tokens(session).value();
  ExecutorInfo other = small_facts();
  other.kv_layout = "otherwise";
  Harness after(other, of_model("m"));
  const Result<SessionId> again = restored(after, saved(before, session));
  REQUIRE(again.status().message() == "");
  CHECK(after.used(BlockKind::kGlobal) == 0);
  const Reply& reply = after.run(again.value(), {5}, asking(9));
  CHECK(reply.counts.cached_tokens == 0);
  CHECK(reply.tokens == after.reference(history + std::vector<int32_t>{5}, 9));
}

TEST_CASE("restored KV is found under its own salt and never under another one") {
  Harness before(small_facts(), of_model("m"));
  const SessionId session = before.session();
  Scope mine;
  mine.salt = "mine";
  const std::vector<int32_t> prompt = tokens_from(8, 400);
  before.run(session, prompt, in_scope(mine, 4));
  const Bytes bytes = saved(before, session);
  Harness after(small_facts(), of_model("m"));
  REQUIRE(restored(after, bytes, {{}, mine}).ok());
  Scope theirs;
  theirs.salt = "theirs";
  CHECK(after.run(after.session(), prompt, in_scope(mine, 2)).counts.cached_tokens >= 384);
  CHECK(after.run(after.session(), prompt, in_scope(theirs, 2)).counts.cached_tokens == 0);
  CHECK(after.run(after.session(), prompt, asking(2)).counts.cached_tokens == 0);
}

TEST_CASE("only a key lets restored KV into a character's shared region") {
  Harness before(small_facts(), of_model("m"));
  const SessionId session = before.session();
  Scope scope;
  scope.character = "c/1";
  scope.shared_tokens = 256;
  const std::vector<int32_t> prompt = tokens_from(8, 400);
  before.run(session, prompt, in_scope(scope, 4));
  const Bytes plain = saved(before, session), keyed = saved(before, session, {toy_key(1), true});
  Harness without(small_facts(), of_model("m")), with(small_facts(), of_model("m"));
  REQUIRE(restored(without, plain, {{}, scope}).ok());
  CHECK(without.used(BlockKind::kGlobal) == 0);
  REQUIRE(restored(with, keyed, {toy_key(1), scope}).ok());
  CHECK(with.run(with.session(), prompt, in_scope(scope, 2)).counts.cached_tokens == 256);
  // Where the region is known already, what is behind it is restored without a key, too.
  without.run(without.session(), prompt, in_scope(scope, 2));
  const Result<SessionId> again = restored(without, plain, {{}, scope});
  REQUIRE(again.ok());
  CHECK(without.run(again.value(), {1}, in_scope(scope, 2)).counts.cached_tokens == 403);
}

TEST_CASE("a transfer that fails is a miss for a restore and an error for a save, whichever it is") {
  Harness before(small_facts(), of_model("m"));
  const SessionId session = before.session();
  before.run(session, tokens_from(3, 300), asking(4));
  const std::vector<int32_t> history = before.engine->session_tokens(session).value();
  const Bytes bytes = saved(before, session);
  const size_t count = before.executor->transfers;
  REQUIRE(count > 5);
  for (size_t broken = 0; broken < count; ++broken) {
    for (const bool from_then_on : {false, true}) {
      INFO("transfer " << broken);
      size_t seen = 0;
      const auto fails = [&](const BlockTransfer&) {
        const size_t now = seen++;
        return now == broken || (from_then_on && now > broken);
      };
      before.executor->fails_transfer = fails;
      CHECK(before.engine->save_session(session, {}, [](std::span<const std::byte>) { return Status(); }).code() ==
            StatusCode::kIo);
      before.executor->fails_transfer = nullptr;
      seen = 0;
      Harness after(small_facts(), of_model("m"));
      after.executor->fails_transfer = fails;
      const Result<SessionId> again = restored(after, bytes);
      REQUIRE(again.status().message() == "");
      REQUIRE(after.engine->check_ledger().message() == "");
      after.poison_free();
      CHECK(after.run(again.value(), {7}, asking(9)).tokens == after.reference(history + std::vector<int32_t>{7}, 9));
    }
  }
}

TEST_CASE("an error of a callback is returned, whenever it comes, and nothing of the session stays") {
  Harness harness(small_facts(), of_model("m"));
  const SessionId session = harness.session();
  harness.run(session, tokens_from(3, 300), asking(4));
  const Bytes bytes = saved(harness, session);
  const int32_t used = harness.used(BlockKind::kGlobal);
  for (size_t broken = 0, calls = 1; broken < calls; ++broken) {
    calls = 0;
    const Status saving = harness.engine->save_session(session, {}, [&](std::span<const std::byte>) {
      return calls++ == broken ? Status(StatusCode::kIo, "the disk is full") : Status();
    });
    if (calls <= broken) break;
    CHECK(saving.message() == "the disk is full");
    calls = broken + 2;
  }
  for (size_t limit = 0; limit < bytes.size(); limit += 97) {
    size_t at = 0;
    const Result<SessionId> answer =
        harness.engine->restore_session({}, [&](std::span<std::byte> piece) -> Result<size_t> {
          const size_t count = std::min(piece.size(), bytes.size() - at);
          if (at + count > limit) return Status(StatusCode::kIo, "the disk is gone");
          std::memcpy(piece.data(), bytes.data() + at, count);
          at += count;
          return count;
        });
    CHECK(answer.status().message() == "the disk is gone");
    CHECK(harness.used(BlockKind::kGlobal) == used);
  }
  REQUIRE(harness.engine->check_ledger().message() == "");
}

TEST_CASE("a refused restore adds nothing that sessions of its salt could find, and removes nothing that they had") {
  for (const size_t known : {0, 130}) {
    INFO(known << " tokens known");
    Harness before(small_facts(), of_model("m"));
    const SessionId session = before.session();
    Scope scope;
    scope.salt = "salt";
    const std::vector<int32_t> prompt = tokens_from(3, 700);
    before.run(session, prompt, in_scope(scope, 4));
    const Bytes whole = saved(before, session);
    const Bytes cut(whole.begin(), whole.end() - 100);
    Harness after(small_facts(), of_model("m"));
    if (known > 0)
      after.run(after.session(), {prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(known)},
                in_scope(scope, 0));
    const int32_t used[2] = {after.used(BlockKind::kGlobal), after.used(BlockKind::kWindow)};
    CHECK(restored(after, cut).status().code() == StatusCode::kBadModel);
    CHECK(restored(after, cut, {{}, scope}).status().code() == StatusCode::kBadModel);
    REQUIRE(after.engine->check_ledger().message() == "");
    CHECK(after.used(BlockKind::kGlobal) == used[0]);
    CHECK(after.used(BlockKind::kWindow) == used[1]);
    const Reply& reply = after.run(after.session(), prompt, in_scope(scope, 4));
    CHECK(reply.counts.cached_tokens == static_cast<int32_t>(known));
    CHECK(reply.tokens == after.reference(prompt, 4));
  }
}

TEST_CASE("a cache too full for what was saved restores what fits") {
  Harness before(small_facts(), of_model("m"));
  const SessionId session = before.session();
  before.run(session, tokens_from(3, 1200), asking(4));
  const std::vector<int32_t> history = before.engine->session_tokens(session).value();
  const Bytes bytes = saved(before, session);
  for (const int32_t blocks : {0, 1, 7, 19, 30}) {
    ExecutorInfo info = small_facts();
    info.block_count[0] = 40;
    Harness after(info, of_model("m"));
    const RequestId busy =
        after.submit(after.session(), tokens_from(9, static_cast<size_t>(64 * blocks + 1)), asking(100));
    after.step();
    const Result<SessionId> again = restored(after, bytes);
    REQUIRE(again.status().message() == "");
    REQUIRE(after.engine->check_ledger().message() == "");
    after.drain();
    CHECK(after.replies[busy].tokens == after.reference(tokens_from(9, static_cast<size_t>(64 * blocks + 1)), 100));
    CHECK(after.run(again.value(), {7}, asking(9)).tokens == after.reference(history + std::vector<int32_t>{7}, 9));
  }
}

TEST_CASE("a session that is busy, unknown or between a step and its repetition is not saved") {
  Harness harness(small_facts(), of_model("m"));
  const SessionId session = harness.session();
  const auto nowhere = [](std::span<const std::byte>) { return Status(); };
  CHECK(harness.engine->save_session(999, {}, nowhere).code() == StatusCode::kNotFound);
  harness.submit(session, tokens_from(3, 300), asking(4));
  CHECK(harness.engine->save_session(session, {}, nowhere).code() == StatusCode::kBusy);
  harness.executor->before_run = [](const StepPlan&) { return Status(StatusCode::kBusy, "later"); };
  CHECK(harness.engine->step().code() == StatusCode::kBusy);
  CHECK(harness.engine->save_session(session, {}, nowhere).message().find("step first") != std::string::npos);
  harness.executor->before_run = [&](const StepPlan&) {
    CHECK(harness.engine->save_session(session, {}, nowhere).code() == StatusCode::kBusy);
    return Status();
  };
  harness.drain();
  harness.executor->before_run = nullptr;
  CHECK(harness.engine->save_session(session, {}, nowhere).ok());
}

TEST_CASE(
    "another model's session is refused by name whatever its length, and what its file says is shown as plain text") {
  ExecutorInfo long_context = small_facts(), short_context = small_facts();
  short_context.context = 300;
  const std::string name = "m\x1b[2J\n\xFF" + std::string(1, '\0') + "1";
  Harness from(long_context, of_model(name)), to(short_context, of_model("m2"));
  for (const size_t count : {size_t{400}, size_t{100}}) {
    const SessionId session = from.session();
    from.run(session, tokens_from(1, count), asking(0));
    const Status refused = restored(to, saved(from, session)).status();
    CHECK(refused.code() == StatusCode::kUnsupported);
    CHECK(refused.message() ==
          "the session was saved with the model m\\x1B[2J\\x0A\\xFF\\x001; this engine's is m2: restore it there");
  }
}
