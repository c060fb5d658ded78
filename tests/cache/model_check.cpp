// Checks the cache against a naive one (world.hpp). Where they differ it says where and exits with 1.
//   cache_model_check [OPERATIONS] [SEEDS] [DEPTH]
// runs OPERATIONS random operations, shared out over SEEDS seeds, and then every sequence of DEPTH operations.
// The long form is `cache_model_check 1000000 50 9`.
#include <cstdlib>
#include <random>

#include "tests/cache/world.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

constexpr int64_t kBlockBytes = 64;  // that name a place; the words are kept beside

ExecutorInfo facts_of(std::mt19937_64& random) {
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  ExecutorInfo info;
  info.has_global = below(5) > 0;
  const int32_t windows[] = {0, 1, 40, 64, 65, 129, 200};
  info.window = windows[below(7)];
  if (!info.has_global && info.window == 0) info.window = 65;
  info.block_count[0] = info.has_global ? 8 + below(24) : 0;
  info.block_count[1] = info.window > 0 ? 9 + below(24) : 0;
  info.kv_layout = "words";
  if (info.has_global) info.block_bytes[0] = kBlockBytes;
  if (info.window > 0) info.block_bytes[1] = below(2) ? kBlockBytes : kBlockBytes / 4;
  if (info.has_global && info.window > 0 && below(2)) {
    const int32_t slabs = 8 + below(20);
    for (int32_t& count : info.slab_blocks) count = 1 + below(5);
    for (const BlockKind kind : kBothKinds) info.block_count[kind] = slabs * info.slab_blocks[kind];
  }
  return info;
}

uint64_t hits_below = 0, kept_promises = 0;

uint64_t random_walk(uint64_t seed, int64_t operations) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const ExecutorInfo info = facts_of(random);
  CacheOptions options;
  options.retention.turns = static_cast<int32_t>(below(3));
  options.retention.branch_points = below(2);
  options.retention.every_tokens = below(3) == 0 ? 1 + static_cast<int32_t>(below(200)) : 0;
  if (seed % 2 == 0) {
    options.host_bytes = kBlockBytes * static_cast<int64_t>(1 + below(60));
    if (below(2)) options.file_bytes = kBlockBytes * static_cast<int64_t>(1 + below(60));
  }
  World world(info, options, 1 + static_cast<int32_t>(below(100)), 4);
  // Of every three seeds, two have shares: tenants 0 and 1, and now and then a character.
  const auto set_share = [&](ShareOf of, size_t name) {
    const auto whole = static_cast<size_t>(info.cache_bytes());
    const auto floor = static_cast<int64_t>(below(3) ? below(whole / 2) : 0);
    const auto ceiling = static_cast<int64_t>(below(2) ? static_cast<size_t>(floor) + 1 + below(whole) : 0);
    world.set_share(of, std::to_string(name), floor, ceiling);
  };
  if (seed % 3 != 0) set_share(ShareOf::kTenant, 0), set_share(ShareOf::kTenant, 1);
  std::vector<std::vector<int32_t>> stories(3);
  for (auto& story : stories)
    for (int i = 0; i < 330; ++i) story.push_back(static_cast<int32_t>(below(2)));
  for (int64_t operation = 0; operation < operations; ++operation) {
    const size_t i = below(world.line_count());
    const bool running = world.line(i).running;
    if (world.line(i).waiting) {
      if (below(8) == 0)
        world.give_up(i);
      else if (below(3) == 0)
        world.arrive(i);
      continue;
    }
    switch (below(10)) {
      case 0:
        world.drop_points();
        break;
      case 1:
        if (below(20) == 0) world.unpin_all();
        if (below(20) == 0 && running && !world.line(i).lease.path().empty()) {
          const NodeId node = world.line(i).lease.path()[below(world.line(i).lease.path().size())];
          if (world.tree().at(node).ready()) world.pin(node);
        }
        if (seed % 3 != 0 && below(40) == 0) set_share(below(4) ? ShareOf::kTenant : ShareOf::kCharacter, below(2));
        if (below(40) == 0) world.tree().retire(std::to_string(below(2)));
        if (below(60) == 0) {
          for (size_t each = 0; each < world.line_count(); ++each) {
            if (world.line(each).running) world.finish(each);
            if (world.line(each).waiting) world.give_up(each);
          }
          world.next_epoch();
        }
        break;
      case 2:
        if (running) world.finish(i);
        break;
      case 3:
      case 4:
        if (!running) {
          auto prompt = stories[below(stories.size())];
          prompt.resize(1 + below(prompt.size()));
          if (below(2)) prompt[below(prompt.size())] ^= 1;
          const auto shared = below(3) ? below(prompt.size() + 1) : prompt.size() / 64 * 64;
          world.start(i, prompt, static_cast<int32_t>(below(100)), std::to_string(below(2)),
                      static_cast<int32_t>(shared), std::to_string(below(3)));
          if (world.line(i).waiting && below(2)) world.arrive(i);
        }
        break;
      default:
        if (running) world.step(i, 1 + static_cast<int32_t>(below(100)), static_cast<int32_t>(below(2)));
    }
    if (operation % 8 == 0) world.check();
  }
  world.check();
  hits_below += world.hits_below();
  kept_promises += world.kept_promises();
  return world.hits();
}

// Every sequence of `depth` operations on three lines, with two prompts that part in the middle of a block, in a memory
// of few blocks.
void all_strings(int depth) {
  ExecutorInfo info;
  info.has_global = true;
  info.window = 64;
  info.slab_blocks[0] = 2, info.slab_blocks[1] = 1;
  info.block_count[0] = 16, info.block_count[1] = 8;
  std::vector<int32_t> prompts[2];
  for (int32_t which = 0; which < 2; ++which)
    for (int32_t i = 0; i < 90; ++i) prompts[which].push_back(i < 80 ? 7 : which);
  std::vector<int> string(static_cast<size_t>(depth), 0);
  constexpr int kOperations = 9;
  while (true) {
    World world(info, {}, 64, 3);
    for (const int operation : string) {
      const auto i = static_cast<size_t>(operation % 3);
      const bool running = world.line(i).running;
      if (operation / 3 == 2 && running)
        world.finish(i);
      else if (running)
        world.step(i, 64, 1);
      else if (operation / 3 < 2)
        world.start(i, prompts[operation / 3], 2, "c", 70, "s");
      world.check();
    }
    size_t place = 0;
    while (place < string.size() && ++string[place] == kOperations) string[place++] = 0;
    if (place == string.size()) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t operations = argc > 1 ? std::atoll(argv[1]) : 40000;
  const int64_t seeds = argc > 2 ? std::atoll(argv[2]) : 50;
  const int depth = argc > 3 ? std::atoi(argv[3]) : 4;
  const char* one = std::getenv("KAIJU_SEED");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  uint64_t hits = 0, seed = first;
  try {
    for (; seed < first + (one ? 1 : static_cast<uint64_t>(seeds)); ++seed)
      hits += random_walk(seed, operations / seeds);
    all_strings(depth);
  } catch (const Difference& difference) {
    std::printf("difference: %s (KAIJU_SEED=%llu)\n", difference.what(), static_cast<unsigned long long>(seed));
    return 1;
  }
  std::printf(
      "no difference in %lld operations over %lld seeds and all strings of %d; %llu tokens hit, %llu in lower tiers; "
      "%llu evictions left shares what they were promised\n",
      static_cast<long long>(operations), static_cast<long long>(seeds), depth, static_cast<unsigned long long>(hits),
      static_cast<unsigned long long>(hits_below), static_cast<unsigned long long>(kept_promises));
  return hits > 0 ? 0 : 1;
}
