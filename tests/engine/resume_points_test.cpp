// Which resume points are kept: none is given up while memory is idle, and worth follows what was seen.
#include <vector>

#include "kaiju/cache/detail/invariants.hpp"
#include "tests/catch.hpp"

using namespace kaiju;

namespace {

ExecutorInfo blocks_of(int32_t count) {
  ExecutorInfo info;
  info.has_global = true;
  info.window = 128;
  for (const BlockKind kind : kBothKinds) {
    info.block_count[kind] = count;
    info.block_bytes[kind] = 1000;
  }
  return info;
}

std::vector<int32_t> words(int32_t from, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(from + i);
  return tokens;
}

// Computes a prompt and returns how many of its tokens were found.
int32_t pass(PrefixTree& tree, const std::vector<int32_t>& prompt) {
  static int32_t ticket = 0;
  Regions regions;
  regions.shared = tree.domains().hold(DomainKind::kShared, "", tree.namer());
  regions.own = tree.domains().hold(DomainKind::kSalt, "s", tree.namer());
  const auto count = static_cast<int32_t>(prompt.size());
  Lease lease;
  StepPlan plan;
  REQUIRE(lease.start(tree, {prompt, count, 64, regions, 1, ++ticket}, Reuse::kAll, {&plan, 0}) ==
          Lease::Outcome::kStarted);
  const int32_t found = lease.next();
  while (lease.next() < count) {
    lease.prepare(tree, {&plan, 0});
    const int32_t room = lease.room(tree, std::min(64, count - lease.next()));
    REQUIRE(room > 0);
    REQUIRE(lease.extend(tree, lease.next() + room, {&plan, 0}));
    lease.commit(tree, prompt, room);
  }
  lease.finish(tree, prompt);
  CHECK(check_tree(tree).ok());
  return found;
}

}  // namespace

TEST_CASE("while memory is idle, a prompt resumes wherever it parts from one before") {
  PrefixTree tree(blocks_of(200), {});
  CHECK(pass(tree, words(0, 3200)) == 0);
  for (const int32_t parts : {640, 1280, 2560}) {
    std::vector<int32_t> prompt = words(0, parts);
    prompt.push_back(-1 - parts);
    CHECK(pass(tree, prompt) == parts);
  }
}

TEST_CASE("one prompt after another that is never used again does not evict one that is used") {
  PrefixTree tree(blocks_of(100), {});
  const std::vector<int32_t> used = words(0, 1600);
  pass(tree, used);
  int32_t found = 0;
  for (int32_t scan = 1; scan <= 400; ++scan) {
    pass(tree, words(10000 * scan, 1280));
    if (scan % 4 == 0 && scan > 200) found += pass(tree, used) > 1500 ? 1 : 0;
    if (scan % 4 == 0 && scan <= 200) pass(tree, used);
  }
  CHECK(found >= 45);  // of 50; the least recently used would be evicted each time
}

TEST_CASE("points that are used in turn are worth more the older they are, and those never used lose their worth") {
  ReuseCurves curves;
  const PointClass in_turn = PointClass::behind(0, 9), scan = PointClass::behind(0, 0);
  const float before = curves.rate(scan, 10);
  for (int i = 0; i < 1024; ++i) {
    curves.watch(in_turn);
    curves.observe(in_turn, 100, true);
    curves.watch(scan);
    curves.observe(scan, 400, false);
  }
  CHECK(curves.rate(in_turn, 50) > curves.rate(in_turn, 0));
  CHECK(curves.rate(in_turn, 90) > curves.rate(in_turn, 50));
  CHECK(curves.rate(in_turn, 200) < curves.rate(in_turn, 0));
  CHECK(curves.rate(scan, 10) < before / 100);
}
