// Shares: what a tenant or a character is promised of memory and steps stays, whatever others do, and no more is taken
// than a ceiling allows.
#include <random>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

RequestOptions of_tenant(const std::string& tenant, int32_t max_tokens = 3) {
  RequestOptions options = test::in_scope("", 0, "salt of " + tenant, max_tokens);
  options.scope.tenant = tenant;
  return options;
}

int64_t bytes_of(Harness& h, const std::string& tenant) {
  return h.engine->share_usage(ShareOf::kTenant, tenant)->cache_bytes;
}

ExecutorInfo memory_of(int32_t globals, int32_t windows) {
  ExecutorInfo info = small_facts();
  info.window = windows > 0 ? info.window : 0;
  info.block_count[0] = globals;
  info.block_count[1] = windows;
  info.context = 512;
  return info;
}

void set(Harness& h, const std::string& tenant, const ShareLimits& limits) {
  REQUIRE(h.engine->set_share(ShareOf::kTenant, tenant, limits).message() == "");
  h.step();
}

// Ann computes a history, Bob scans prompts of his own, and Ann comes back: how many of her tokens are found.
int32_t found_after_a_scan(const ExecutorInfo& info, int64_t floor, uint64_t seed) {
  Harness h(info);
  if (floor > 0) set(h, "ann", {.cache_floor_bytes = floor});
  const SessionId ann = h.session();
  h.run(ann, tokens_from(seed, 300), of_tenant("ann"));
  for (uint64_t i = 0; i < 60; ++i) h.run(h.session(), tokens_from(seed + 100 + i, 400), of_tenant("bob"));
  CHECK(h.engine->metrics().cache.blocks_over_floors == 0);
  if (floor > 0) CHECK(bytes_of(h, "ann") > 0);
  return h.run(ann, tokens_from(seed + 1, 20), of_tenant("ann")).counts.cached_tokens;
}

}  // namespace

TEST_CASE("one tenant's scan does not evict what another was promised") {
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  ExecutorInfo slabs = memory_of(0, 0);
  slabs.window = 128;
  slabs.slab_blocks[0] = 3, slabs.slab_blocks[1] = 2;
  slabs.block_count[0] = 24 * 3, slabs.block_count[1] = 24 * 2;
  for (const ExecutorInfo& info : {memory_of(24, 0), memory_of(24, 16), slabs}) {
    const int64_t block = info.block_bytes[0];
    CHECK(found_after_a_scan(info, 0, seed) < 302);
    CHECK(found_after_a_scan(info, 12 * block, seed) == 302);
  }
}

TEST_CASE("what a character was promised of its shared region stays") {
  const auto found = [](int64_t floor) {
    Harness h(memory_of(24, 0));
    if (floor > 0)
      REQUIRE(h.engine->set_share(ShareOf::kCharacter, "wren/1", {.cache_floor_bytes = floor}).message() == "");
    h.step();
    const std::vector<int32_t> card = tokens_from(1, 256);
    h.run(h.session(), card + tokens_from(2, 30), test::in_scope("wren/1", 256, "a"));
    for (uint64_t i = 0; i < 60; ++i) h.run(h.session(), tokens_from(100 + i, 400), of_tenant("bob"));
    return h.run(h.session(), card + tokens_from(3, 30), test::in_scope("wren/1", 256, "b")).counts.cached_tokens;
  };
  CHECK(found(0) < 256);
  CHECK(found(4 * small_facts().block_bytes[0]) == 256);
}

TEST_CASE("a tenant with a ceiling keeps no more, even while memory is idle, and others keep theirs") {
  Harness h(memory_of(128, 0));
  const int64_t block = h.info.block_bytes[0];
  set(h, "bob", {.cache_ceiling_bytes = 10 * block});
  const SessionId ann = h.session();
  h.run(ann, tokens_from(1, 400), of_tenant("ann"));
  for (uint64_t i = 0; i < 20; ++i) {
    h.run(h.session(), tokens_from(100 + i, 300), of_tenant("bob"));
    CHECK(bytes_of(h, "bob") <= 10 * block);
  }
  CHECK(bytes_of(h, "bob") > 4 * block);
  CHECK(h.run(ann, tokens_from(2, 20), of_tenant("ann")).counts.cached_tokens == 402);
  CHECK(h.count(BlockKind::kGlobal, BlockState::kFree) > 80);
}

TEST_CASE("a request larger than its tenant's ceiling runs") {
  Harness h(memory_of(32, 16));
  set(h, "bob", {.cache_ceiling_bytes = h.info.block_bytes[0]});
  const std::vector<int32_t> prompt = tokens_from(1, 450);
  CHECK(h.run(h.session(), prompt, of_tenant("bob", 5)).tokens == h.reference(prompt, 5));
}

TEST_CASE("a request waits rather than evict what another share was promised, while something runs") {
  Harness h(memory_of(24, 0));
  const int64_t block = h.info.block_bytes[0];
  set(h, "ann", {.cache_floor_bytes = 14 * block});
  const SessionId ann = h.session();
  h.run(ann, tokens_from(1, 440), of_tenant("ann"));
  h.run(h.session(), tokens_from(2, 440), of_tenant("ann"));
  const RequestId first = h.submit(h.session(), tokens_from(3, 300), of_tenant("bob", 100));
  const RequestId second = h.submit(h.session(), tokens_from(4, 300), of_tenant("bob", 100));
  h.step();
  h.step();
  CHECK(h.engine->metrics().requests_running == 1);
  h.drain();
  CHECK(h.replies[first].done);
  CHECK(h.replies[second].done);
  CHECK(h.engine->metrics().cache.blocks_over_floors == 0);
  CHECK(bytes_of(h, "ann") == 14 * block);
}

TEST_CASE("a step gives each share its floor and no share more than its ceiling") {
  std::vector<int32_t> grants;
  const StepLimits limits{.step_tokens = 64, .chunk_tokens = 64, .prefill_tokens = 64};
  // Of share 0 a long prompt comes first; share 1 has a floor of 16, share 2 a ceiling of 8.
  const std::vector<StepShare> shares = {{0, 64}, {16, 64}, {0, 8}};
  share_step({{100, false, 0}, {100, false, 1}, {100, false, 2}}, limits, 0, grants, shares);
  CHECK(grants == std::vector<int32_t>{48, 16, 0});
  share_step({{20, false, 0}, {100, false, 2}}, limits, 0, grants, shares);
  CHECK(grants == std::vector<int32_t>{20, 8});
  // Ten replies of share 2 take turns at eight tokens.
  std::vector<Demand> replies(10, {1, true, 2});
  std::vector<int32_t> sum(10);
  for (size_t turn = 0; turn < 10; ++turn) {
    share_step(replies, limits, turn * 8, grants, shares);
    CHECK(std::count(grants.begin(), grants.end(), 1) == 8);
    for (size_t i = 0; i < 10; ++i) sum[i] += grants[i];
  }
  CHECK(*std::min_element(sum.begin(), sum.end()) >= 7);
  share_step({{100, false, 0}, {1, true, 1}}, {.step_tokens = 64, .chunk_tokens = 64, .prefill_tokens = 10}, 0, grants,
             shares);
  CHECK(grants == std::vector<int32_t>{10, 1});
}

TEST_CASE("a flood of one tenant leaves the places that another was promised, and no more than its ceiling") {
  Harness h;  // four places
  set(h, "ann", {.step_floor = 0.25});
  set(h, "bob", {.step_ceiling = 0.5});
  for (uint64_t i = 0; i < 30; ++i) h.submit(h.session(), tokens_from(i, 100), of_tenant("bob", 50));
  for (uint64_t i = 0; i < 30; ++i) h.submit(h.session(), tokens_from(50 + i, 100), of_tenant("eve", 50));
  const auto running = [&](const std::string& tenant) {
    return h.engine->share_usage(ShareOf::kTenant, tenant)->running;
  };
  for (int step = 0; step < 5; ++step) h.step();
  CHECK(running("bob") == 2);
  CHECK(h.engine->metrics().requests_running == 3);
  const RequestId late = h.submit(h.session(), tokens_from(99, 30), of_tenant("ann", 2));
  for (int step = 0; step < 4; ++step) {
    h.step();
    CHECK(running("bob") <= 2);
  }
  CHECK(h.replies[late].done);
  h.drain();
  CHECK(h.engine->share_usage(ShareOf::kTenant, "ann")->tokens_computed >= 31);
}

TEST_CASE("a beam search is limited by no share's places") {
  Harness h;
  set(h, "ann", {.step_floor = 0.5});
  set(h, "bob", {.step_ceiling = 0.25});
  RequestOptions options = of_tenant("bob", 6);
  options.beams.width = 4;
  CHECK(h.run(h.session(), tokens_from(1, 50), options).done);
}

TEST_CASE("shares that cannot be kept are refused with the numbers") {
  Harness h(memory_of(24, 0));
  const auto refusal = [&](const std::string& name, const ShareLimits& limits) {
    return h.engine->set_share(ShareOf::kTenant, name, limits).message();
  };
  const auto says = [](const std::string& message, const char* what) {
    INFO(message);
    return message.find(what) != std::string::npos;
  };
  const int64_t block = h.info.block_bytes[0];
  CHECK(says(refusal("", {}), "needs the name"));
  CHECK(says(refusal("ann", {.cache_floor_bytes = -1}), "0 bytes or more"));
  CHECK(says(refusal("ann", {.cache_floor_bytes = 3, .cache_ceiling_bytes = 2}), "above its ceiling"));
  CHECK(says(refusal("ann", {.step_floor = 1.5}), "from 0 to 1"));
  CHECK(says(refusal("ann", {.step_floor = 0.5, .step_ceiling = 0.25}), "above its ceiling"));
  CHECK(says(refusal("ann", {.cache_floor_bytes = 17 * block}), "lower the floors"));
  CHECK(refusal("ann", {.cache_floor_bytes = 10 * block, .step_floor = 0.5}) == "");
  CHECK(says(refusal("bob", {.cache_floor_bytes = 10 * block}), "lower the floors"));
  CHECK(says(refusal("bob", {.step_floor = 0.5}), "one must be left"));
  CHECK(refusal("ann", {}) == "");
  CHECK(refusal("bob", {.cache_floor_bytes = 10 * block, .step_floor = 0.5}) == "");
  CHECK(h.engine->share_usage(ShareOf::kTenant, "eve").status().code() == StatusCode::kNotFound);
}

TEST_CASE("with shares of all kinds, random traffic gives the replies that it gives alone, and the books agree") {
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  ExecutorInfo info = small_facts();
  info.slab_blocks[0] = 3, info.slab_blocks[1] = 2;
  info.block_count[0] = 40 * 3, info.block_count[1] = 40 * 2;
  info.context = 700;
  Harness h(info);
  const std::string names[] = {"ann", "bob", "eve", ""};
  std::vector<SessionId> sessions;
  for (int i = 0; i < 12; ++i) sessions.push_back(h.session());
  std::map<RequestId, std::pair<std::vector<int32_t>, int32_t>> asked;
  for (int turn = 0; turn < 150; ++turn) {
    if (below(10) == 0) {
      const int64_t floor = static_cast<int64_t>(below(15)) * info.block_bytes[0];
      const Status set = h.engine->set_share(
          below(2) ? ShareOf::kTenant : ShareOf::kCharacter, below(2) ? "ann" : "bob",
          {.cache_floor_bytes = floor,
           .cache_ceiling_bytes = below(2) ? floor + static_cast<int64_t>(below(30)) * info.block_bytes[0] : 0,
           .step_floor = below(2) ? 0.25 : 0.0,
           .step_ceiling = below(2) ? 0.5 : 0.0});
      INFO(set.message());
      CHECK((set.ok() || set.code() == StatusCode::kInvalidArgument));
    }
    const SessionId session = sessions[below(sessions.size())];
    if (h.engine->unfinished_request(session).value() == 0) {
      std::vector<int32_t> prompt = h.engine->session_tokens(session).value();
      if (prompt.size() > 450) prompt.clear();  // the context has room for 200 more and a reply
      const auto more = tokens_from(random(), 1 + below(200));
      prompt.insert(prompt.end(), more.begin(), more.end());
      const std::string name = names[below(4)];
      RequestOptions options =
          test::in_scope(below(2) ? "bob" : "", below(2) ? 64 : 0, name, static_cast<int32_t>(1 + below(30)));
      options.scope.shared_tokens = std::min(options.scope.shared_tokens, static_cast<int32_t>(prompt.size()));
      options.scope.tenant = name;
      auto request = h.engine->submit_history(session, prompt, options);
      REQUIRE(request.status().message() == "");
      asked[*request] = {prompt, options.max_tokens};
    }
    for (size_t steps = below(6); steps > 0; --steps) h.step();
  }
  h.drain();
  for (const auto& [request, what] : asked) CHECK(h.replies[request].tokens == h.reference(what.first, what.second));
}
