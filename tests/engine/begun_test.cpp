// Replies that another engine began: RequestOptions::begun_tokens.
#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

RequestOptions begun(RequestOptions options, int32_t count) {
  options.begun_tokens = count;
  options.max_tokens -= count;
  return options;
}

std::vector<int32_t> first(const std::vector<int32_t>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("a reply that another engine began goes on with the same tokens, text and end") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Harness one;
    const auto prompt = tokens_from(seed, 20);
    RequestOptions options = asking(60);
    options.sampling.temperature = 1;
    options.sampling.seed = seed;
    options.loop_guard = seed % 3 == 0;
    const std::string plain = one.run(one.session(), prompt, options).text;
    if (seed % 2 == 1 && is_utf8(plain.substr(plain.size() / 2, 3)))
      options.stop_strings = {plain.substr(plain.size() / 2, 3)};
    const Reply whole = one.run(one.session(), prompt, options);
    for (size_t count = 1; count < whole.tokens.size(); ++count) {
      Harness other;
      INFO("seed " << seed << ", " << count << " of " << whole.tokens.size() << " tokens");
      const Reply& rest =
          other.run(other.session(), prompt + first(whole.tokens, count), begun(options, static_cast<int32_t>(count)));
      CHECK(first(whole.tokens, count) + rest.tokens == whole.tokens);
      CHECK(rest.text == whole.text);
      CHECK(rest.reason == whole.reason);
      CHECK(rest.stop == whole.stop);
    }
  }
}

TEST_CASE("a begun reply may lie in the session's history, and is shown from its beginning on") {
  Harness h;
  const SessionId session = h.session();
  const Reply whole = h.run(h.session(), tokens_from(3, 30), asking(20));
  REQUIRE(h.engine->set_session_tokens(session, tokens_from(3, 30) + first(whole.tokens, 8)).ok());
  const Reply& rest = h.run(session, {}, begun(asking(20), 8));
  CHECK(rest.text == whole.text);
  CHECK(rest.counts.generated == 12);
  CHECK(rest.counts.prompt_tokens == 38);
}

TEST_CASE("what tokens alone cannot continue is refused") {
  Harness h;
  const SessionId session = h.session();
  const auto refused = [&](auto change, StatusCode code, const std::string& word) {
    RequestOptions options = begun(asking(20), 2);
    change(options);
    const Status status = h.engine->submit(session, std::vector<int32_t>{1, 2, 9, 9}, options).status();
    INFO(status.message());
    CHECK(status.code() == code);
    CHECK(status.message().find(word) != std::string::npos);
  };
  refused([](auto& o) { o.begun_tokens = -1; }, StatusCode::kInvalidArgument, "begun_tokens");
  refused([](auto& o) { o.begun_tokens = 4; }, StatusCode::kInvalidArgument, "behind at least one");
  refused([](auto& o) { o.stop_tokens = std::vector<int32_t>{9}; }, StatusCode::kInvalidArgument, "has ended");
  refused([](auto& o) { o.banned_phrases = {"x"}; }, StatusCode::kUnsupported, "banned phrases");
  refused([](auto& o) { o.beams.width = 2; }, StatusCode::kUnsupported, "beams");
  refused([](auto& o) { o.sampling.samplers = {{SamplerKind::kMirostat, {5.0, 0.1}}}; }, StatusCode::kUnsupported,
          "mirostat");
}
