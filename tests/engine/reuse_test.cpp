// Reports of reuse: how much of a prompt was found, where that ended, and why. Every reason is brought about once, and
// random conversations are compared with a search of everything that was computed.
#include <random>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

ExecutorInfo without_window() {
  ExecutorInfo info = small_facts();
  info.window = 0;
  return info;
}

RequestOptions with_salt(const std::string& salt, int32_t max_tokens = 3) {
  return test::in_scope("", 0, salt, max_tokens);
}

void check(const Reply& reply, ReuseEnd end, int32_t cached, ReuseEnd known_end, int32_t known) {
  CHECK(static_cast<int>(reply.reuse.end) == static_cast<int>(end));
  CHECK(reply.counts.cached_tokens == cached);
  CHECK(static_cast<int>(reply.reuse.known_end) == static_cast<int>(known_end));
  CHECK(reply.reuse.known_tokens == known);
}

Reply& run_history(Harness& h, SessionId session, const std::vector<int32_t>& history, const RequestOptions& options) {
  const RequestId request = h.engine->submit_history(session, history, options).value();
  h.drain();
  return h.replies[request];
}

}  // namespace

TEST_CASE("a report says where reuse ended and why: new, whole, different") {
  Harness h(without_window());
  const SessionId session = h.session();
  const std::vector<int32_t> prompt = tokens_from(1, 300);
  check(h.run(session, prompt, with_salt("a")), ReuseEnd::kNew, 0, ReuseEnd::kNew, 0);
  // The reply's last token was never computed.
  check(h.run(session, tokens_from(2, 50), with_salt("a")), ReuseEnd::kNew, 302, ReuseEnd::kNew, 302);
  check(h.run(h.session(), prompt, with_salt("a")), ReuseEnd::kWhole, 299, ReuseEnd::kWhole, 299);
  std::vector<int32_t> edited = prompt;
  edited[200] ^= 1;
  check(h.run(h.session(), edited, with_salt("a")), ReuseEnd::kDifferent, 200, ReuseEnd::kDifferent, 200);
  edited = prompt;
  edited[192] ^= 1;  // the first of a block
  check(h.run(h.session(), edited, with_salt("a")), ReuseEnd::kDifferent, 192, ReuseEnd::kDifferent, 192);
}

TEST_CASE("a report tells the lack of a window from the difference behind it") {
  EngineOptions options;
  options.cache.retention.turns = 0;
  options.cache.retention.branch_points = false;
  ExecutorInfo info = small_facts();
  info.block_count[1] = 9;  // for little more than one window
  Harness h(info, options);
  std::vector<int32_t> prompt = tokens_from(1, 1500);
  h.run(h.session(), prompt, with_salt("a"));
  prompt[1000] ^= 1;
  const Reply& reply = h.run(h.session(), prompt, with_salt("a"));
  CHECK(reply.reuse.end == ReuseEnd::kNoWindow);
  CHECK(reply.counts.cached_tokens < 1000);
  CHECK(reply.reuse.known_tokens == 1000);
  CHECK(reply.reuse.known_end == ReuseEnd::kDifferent);
}

TEST_CASE("a report says that what comes next was evicted") {
  ExecutorInfo info = without_window();
  info.block_count[0] = 20;
  Harness h(info);
  const std::vector<int32_t> prompt = tokens_from(1, 640);
  h.run(h.session(), prompt, with_salt("a"));
  h.run(h.session(), tokens_from(2, 1000), with_salt("b"));
  const Reply& reply = h.run(h.session(), prompt, with_salt("a"));
  CHECK(reply.reuse.end == ReuseEnd::kEvicted);
  CHECK(reply.reuse.known_tokens == reply.counts.cached_tokens);
  CHECK(reply.counts.cached_tokens < 640);
}

TEST_CASE("a session whose salt, character or shared region changed is told so, and one whose scope stayed is not") {
  Harness h(without_window());
  const std::vector<int32_t> prompt = tokens_from(1, 300);
  const SessionId session = h.session();
  h.run(session, prompt, test::in_scope("wren/1", 128, "a"));
  check(run_history(h, session, prompt, test::in_scope("wren/2", 128, "a")), ReuseEnd::kOtherScope, 0,
        ReuseEnd::kOtherScope, 0);
  check(run_history(h, session, prompt, test::in_scope("wren/2", 128, "b")), ReuseEnd::kOtherScope, 128,
        ReuseEnd::kOtherScope, 128);
  check(run_history(h, session, prompt, test::in_scope("wren/2", 64, "b")), ReuseEnd::kOtherScope, 64,
        ReuseEnd::kOtherScope, 64);
  check(run_history(h, session, prompt, test::in_scope("wren/2", 64, "b")), ReuseEnd::kWhole, 299, ReuseEnd::kWhole,
        299);
}

TEST_CASE("a report says nothing about what other scopes hold") {
  const std::vector<int32_t> prompt = tokens_from(1, 300);
  const auto report_beside = [&](const std::string& other) {
    Harness h(without_window());
    h.run(h.session(), prompt, with_salt(other));
    h.run(h.session(), prompt, asking(3));  // in a session of its own
    return h.run(h.session(), prompt, with_salt("mine"));
  };
  check(report_beside("theirs"), ReuseEnd::kNew, 0, ReuseEnd::kNew, 0);
  check(report_beside("mine"), ReuseEnd::kWhole, 299, ReuseEnd::kWhole, 299);
}

TEST_CASE("a report says that cached KV of the prompt had to go for the prompt's sake") {
  ExecutorInfo info = without_window();
  info.block_count[0] = 12;
  Harness h(info);
  std::vector<int32_t> prompt = tokens_from(1, 650);
  h.run(h.session(), prompt, with_salt("a", 1));
  prompt.resize(630);
  // 12 blocks: the copy of a partly filled block finds no place beside the block itself.
  const Reply& reply = h.run(h.session(), prompt, with_salt("a", 139));
  CHECK(reply.reuse.end == ReuseEnd::kNoRoom);
  CHECK(reply.reuse.known_tokens == 576);  // then only whole blocks are looked for
}

TEST_CASE("reports of random conversations agree with a search of everything that was computed") {
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  ExecutorInfo info = without_window();
  info.block_count[0] = 4096;
  Harness h(info);
  std::vector<std::vector<int32_t>> computed;
  for (uint64_t i = 0; i < 60; ++i) {
    std::vector<int32_t> prompt;
    if (!computed.empty()) prompt = computed[random() % computed.size()];
    if (!prompt.empty()) prompt.resize(1 + random() % prompt.size());
    const std::vector<int32_t> more = tokens_from(random(), 2 + random() % 150);
    prompt.insert(prompt.end(), more.begin(), more.end());
    if (prompt.size() > 1500) prompt.resize(1500);
    const auto limit = static_cast<int32_t>(prompt.size()) - 1;
    int32_t known = 0;
    bool goes_on = false;  // a text that agrees as far has more tokens
    for (const std::vector<int32_t>& text : computed) {
      const auto same = static_cast<int32_t>(
          std::mismatch(text.begin(), text.end(), prompt.begin(), prompt.end()).first - text.begin());
      if (same > known) known = same, goes_on = false;
      if (same == known && same > 0 && std::ssize(text) > same) goes_on = true;
    }
    const Reply& reply = h.run(h.session(), prompt, with_salt("a", 2));
    // Of children of one block only the newest few are compared.
    if (reply.reuse.known_tokens < known / kBlockTokens * kBlockTokens) FAIL("whole blocks were not found");
    CHECK(reply.reuse.known_tokens <= std::min(known, limit));
    CHECK(reply.counts.cached_tokens == reply.reuse.known_tokens);
    if (reply.reuse.known_tokens == known && known < limit)
      CHECK(reply.reuse.end == (goes_on ? ReuseEnd::kDifferent : ReuseEnd::kNew));
    if (known >= limit) CHECK(reply.reuse.end == ReuseEnd::kWhole);
    prompt.push_back(reply.tokens[0]);
    computed.push_back(std::move(prompt));
  }
}
