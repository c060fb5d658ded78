// Blocks and tables on their own.
#include <random>

#include "kaiju/cache/table.hpp"
#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

TEST_CASE("a pool hands out each block once and knows its ledger") {
  BlockPool pool(3);
  CHECK(pool.total() == 3);
  const BlockId a = pool.take(), b = pool.take(), c = pool.take();
  CHECK(a != b);
  CHECK(b != c);
  CHECK(pool.take() == kNoBlock);
  pool.share(b);
  CHECK_FALSE(pool.drop(b));
  CHECK(pool.drop(b));
  CHECK(pool.free_count() == 1);
  CHECK(pool.check("some").ok());
  pool.reserve(2);
  const Status broken = pool.check("some");
  CHECK(broken.code() == StatusCode::kInternal);
  CHECK(broken.message() == "cache ledger: some blocks: promises are not covered (total 3, free 1, reserved 2)");
  pool.unreserve(2);
  pool.drop(a);
  pool.drop(c);
  CHECK(pool.free_count() == 3);
  CHECK(pool.check("some").ok());
}

TEST_CASE("a ledger violation is found by the recount") {
  BlockPool pool(2);
  const BlockId a = pool.take();
  pool.drop(a);
  pool.share(a);  // a reference to a free block
  CHECK(pool.check("some").code() == StatusCode::kInternal);
}

TEST_CASE("a window block goes when no later query sees it, and one block later") {
  for (const int32_t window : {1, 63, 64, 65, 128, 129, 1024}) {
    Facts facts = small_facts();
    facts.window = window;
    const Cache cache(facts);
    for (int32_t position = 0; position < 3000; ++position) {
      // From the definition: the first block i of which some position is visible to a query at `position`.
      int32_t visible = 0;
      while ((visible + 1) * kBlockTokens - 1 <= position - window) ++visible;
      int32_t kept = 0;
      while ((kept + 1) * kBlockTokens - 1 <= position - kBlockTokens - window) ++kept;
      if (cache.first_visible(position) != visible || cache.first_kept(position) != kept) FAIL("window " << window << " at " << position);
    }
  }
}

TEST_CASE("a sequence never holds more window blocks than were promised") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Facts facts = small_facts();
    facts.window = 1 + static_cast<int32_t>(random() % 300);
    facts.block_count[0] = facts.block_count[1] = 100;
    Cache cache(facts);
    Tables tables;
    const int32_t chunk = 1 + static_cast<int32_t>(random() % 200);
    const int32_t promise[kBlockKinds] = {100, (chunk + facts.window + 189) / 64};
    REQUIRE(tables.reserve(cache, promise));
    for (int32_t next = 0; next < 3000;) {
      const int32_t count = 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(chunk));
      tables.release(cache, next, {}, true, {});
      REQUIRE(tables.extend(cache, next + count, {}));
      next += count;
      tables.set_written(next);
      REQUIRE(cache.pool(BlockKind::kWindow).check("window").ok());
    }
    tables.clear(cache);
    CHECK(cache.pool(BlockKind::kWindow).free_count() == 100);
    CHECK(cache.pool(BlockKind::kWindow).reserved() == 0);
  }
}

TEST_CASE("copy on write copies what is written, of a shared half-full block only") {
  Cache cache(small_facts());
  Tables parent, child;
  const int32_t promise[kBlockKinds] = {5, 5};
  REQUIRE(parent.reserve(cache, promise));
  REQUIRE(parent.extend(cache, 130, {}));
  parent.set_written(130);
  StepPlan plan;
  const EditSink sink = {&plan, 2};
  parent.own_tail(cache, BlockKind::kGlobal, sink);
  CHECK(plan.copies.empty());  // not shared
  child.fork(cache, parent, 128);
  CHECK_FALSE(child.tail_is_shared(cache, BlockKind::kGlobal));
  child.fork(cache, parent, 100);
  REQUIRE(child.tail_is_shared(cache, BlockKind::kGlobal));
  REQUIRE(child.reserve(cache, promise));
  child.own_tail(cache, BlockKind::kGlobal, sink);
  REQUIRE(plan.copies.size() == 1);
  CHECK(plan.copies[0].token_count == 36);
  CHECK(plan.copies[0].from == parent.blocks(BlockKind::kGlobal)[1]);
  CHECK(plan.copies[0].to == child.blocks(BlockKind::kGlobal)[1]);
  CHECK(child.blocks(BlockKind::kGlobal)[0] == parent.blocks(BlockKind::kGlobal)[0]);
  child.clear(cache);
  parent.clear(cache);
  CHECK(cache.pool(BlockKind::kGlobal).used_count() == 0);
}

TEST_CASE("a promise is all or nothing over both kinds") {
  Facts facts = small_facts();
  facts.block_count[0] = 10;
  facts.block_count[1] = 3;
  Cache cache(facts);
  Tables a, b;
  const int32_t large[kBlockKinds] = {5, 4}, small[kBlockKinds] = {5, 3};
  CHECK_FALSE(a.reserve(cache, large));
  CHECK(cache.pool(BlockKind::kGlobal).reserved() == 0);
  CHECK(a.reserve(cache, small));
  CHECK_FALSE(b.reserve(cache, small));
  a.unreserve(cache);
  CHECK(b.reserve(cache, small));
  b.clear(cache);
}

TEST_CASE("the resume point is the last position whose window is whole") {
  Facts facts = small_facts();
  facts.window = 100;
  Cache cache(facts);
  Tables tables;
  const int32_t promise[kBlockKinds] = {40, 40};
  REQUIRE(tables.reserve(cache, promise));
  REQUIRE(tables.extend(cache, 1000, {}));
  tables.set_written(1000);
  CHECK(tables.resume_point(cache, 777) == 777);
  tables.release(cache, 1000, {300, 400}, true, {});
  CHECK(tables.resume_point(cache, 2000) == 1000);
  CHECK(tables.resume_point(cache, 936) == 936);
  for (int32_t point = 300 - 64; point <= 400; ++point) CHECK(tables.resume_point(cache, point) == point);
  // Between the two, back to where the kept window ends.
  CHECK(tables.resume_point(cache, 800) == 448);
  CHECK(tables.resume_point(cache, 200) == 0);
  tables.clear(cache);
}

TEST_CASE("blocks that replace cut ones leave the window like any other") {
  Cache cache(small_facts());
  Tables tables;
  const int32_t promise[kBlockKinds] = {60, 60};
  REQUIRE(tables.reserve(cache, promise));
  for (int round = 0; round < 3; ++round) {
    REQUIRE(tables.extend(cache, 1000, {}));
    tables.set_written(1000);
    tables.release(cache, 1000, {}, true, {});
    CHECK(cache.pool(BlockKind::kWindow).used_count() == 16 - cache.first_kept(1000));
    tables.truncate(cache, BlockKind::kGlobal, 0);
    tables.truncate(cache, BlockKind::kWindow, 0);
  }
  tables.clear(cache);
}
