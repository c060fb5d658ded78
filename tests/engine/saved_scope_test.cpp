// KV of tokens whose session is gone: how much of it there is, and saved in the scope of the requests that computed it.
#include <cstring>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

using Bytes = std::vector<std::byte>;

// What a new session with these tokens saves of the KV of a scope.
Bytes saved_in(Harness& harness, const std::vector<int32_t>& tokens, const std::optional<Scope>& scope) {
  const SessionId session = harness.session();
  REQUIRE(harness.engine->set_session_tokens(session, tokens).ok());
  Bytes bytes;
  SaveOptions options;
  options.scope = scope;
  REQUIRE(harness.engine
              ->save_session(session, options,
                             [&](std::span<const std::byte> piece) {
                               bytes.insert(bytes.end(), piece.begin(), piece.end());
                               return Status();
                             })
              .ok());
  REQUIRE(harness.engine->destroy_session(session).ok());
  return bytes;
}

Result<SessionId> restored(Harness& harness, const Bytes& bytes, const Scope& scope) {
  RestoreOptions options;
  options.scope = scope;
  size_t at = 0;
  return harness.engine->restore_session(options, [&](std::span<std::byte> piece) -> Result<size_t> {
    const size_t count = std::min(piece.size(), bytes.size() - at);
    if (count > 0) std::memcpy(piece.data(), bytes.data() + at, count);
    at += count;
    return count;
  });
}

}  // namespace

TEST_CASE("KV is counted and saved by tokens and scope, and by no other scope") {
  Scope scope;
  scope.salt = "ann";
  Harness from;
  const SessionId session = from.session();
  RequestOptions options = asking(5);
  options.scope = scope;
  const std::vector<int32_t> prompt = tokens_from(3, 300);
  from.run(session, prompt, options);
  const std::vector<int32_t> history = from.engine->session_tokens(session).value();
  REQUIRE(from.engine->destroy_session(session).ok());

  Scope other = scope;
  other.salt = "bob";
  CHECK(from.engine->cached_tokens(history, scope).value() == 304);  // all but the token drawn last
  CHECK(from.engine->cached_tokens(prompt, scope).value() >= 256);
  CHECK(from.engine->cached_tokens(history, other).value() == 0);
  CHECK(from.engine->cached_tokens({}, scope).value() == 0);

  Harness to;
  REQUIRE(restored(to, saved_in(from, history, other), scope).ok());
  CHECK(to.engine->cached_tokens(history, scope).value() == 0);
  REQUIRE(restored(to, saved_in(from, history, std::nullopt), scope).ok());
  CHECK(to.engine->cached_tokens(history, scope).value() == 0);
  REQUIRE(restored(to, saved_in(from, history, scope), scope).ok());
  CHECK(to.engine->cached_tokens(history, scope).value() == 304);
  const std::vector<int32_t> next = history + tokens_from(4, 20);
  const Reply& reply = to.run(to.session(), next, options);
  CHECK(reply.counts.cached_tokens == 304);
  CHECK(reply.tokens == to.reference(next, 5));
}
