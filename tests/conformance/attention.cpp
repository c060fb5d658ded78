// Attention over the paged cache: every backend writes and reads keys and values as the reference does. Layouts differ,
// so outputs are compared, not bytes.
#include <algorithm>
#include <tuple>

#include "world.hpp"

namespace kaiju::test {
namespace {

struct Shape {
  int32_t head_dim, kv_heads, heads, window;
  float z;
};

struct Inputs {
  std::vector<float> k, v, k_inverse, v_inverse,
      out_inverse;  // of every position of every sequence, in the order of the filling batch
  std::vector<int8_t> queries;
};

// Fills the cache with all positions of all sequences (in several batches, as a prefill would), then attends with the
// rows of `batch`.
template <class B>
std::vector<int8_t> run(B& backend, uint64_t seed, const Shape& shape, const std::vector<int32_t>& lengths,
                        const std::vector<std::pair<int32_t, int32_t>>& rows, const Inputs& in) {
  const Cache cache(seed, shape.kv_heads, shape.head_dim, shape.window, lengths);
  const int32_t kv_width = shape.kv_heads * shape.head_dim;
  size_t at = 0;
  for (size_t s = 0; s < lengths.size(); ++s)
    for (int32_t position = 0; position < lengths[s];) {
      OwnedBatch batch;
      batch.add(cache, s, position, std::min(lengths[s] - position, 100));
      const std::vector<arith::CosSin> angles = batch.angles(shape.head_dim);
      backend.append(in.k.data() + at * kv_width, in.v.data() + at * kv_width, batch.view(), angles.data(),
                     in.k_inverse.data(), in.v_inverse.data(), cache.slot());
      at += static_cast<size_t>(batch.rows());
      position += batch.rows();
    }
  OwnedBatch batch;
  for (size_t s = 0; s < rows.size(); ++s)
    if (rows[s].second > 0) batch.add(cache, s, rows[s].first, rows[s].second);
  std::vector<int8_t> out(static_cast<size_t>(batch.rows()) * shape.heads * shape.head_dim);
  backend.attend({in.queries.data(), shape.heads, shape.z, in.out_inverse.data(), out.data()}, batch.view(),
                 cache.slot());
  return out;
}

enum class Values { kRandom, kLargest };  // largest: 127 in channels with an even number, -127 in the others

void check(uint64_t seed, const Shape& shape, const std::vector<int32_t>& lengths,
           const std::vector<std::pair<int32_t, int32_t>>& rows, Values values = Values::kRandom) {
  Random random(seed);
  size_t positions = 0, row_count = 0;
  for (const int32_t length : lengths) positions += static_cast<size_t>(length);
  for (const auto& [first, count] : rows) row_count += static_cast<size_t>(count);
  const size_t kv_width = static_cast<size_t>(shape.kv_heads) * shape.head_dim;
  Inputs in{random.normals(positions * kv_width, 1.0f),
            random.normals(positions * kv_width, 1.0f),
            random.scales(kv_width, 40.0f),
            random.scales(kv_width, 40.0f),
            random.scales(kv_width, 2.0f),
            random.bytes(row_count * shape.heads * shape.head_dim)};
  if (values == Values::kLargest) {
    for (size_t i = 0; i < in.v.size(); ++i) in.v[i] = i % 2 == 0 ? 1e3f : -1e3f;
    for (float& inverse : in.out_inverse) inverse = 0.5f;  // so that no result is the least or the largest
  }
  ReferenceBackend reference;
  const std::vector<int8_t> expected = run(reference, seed, shape, lengths, rows, in);
  for (const auto& backend : backends()) {
    INFO(name_of(*backend) << ", KAIJU_TEST_SEED=" << seed << ", head_dim " << shape.head_dim << ", kv heads "
                           << shape.kv_heads << ", heads " << shape.heads << ", window " << shape.window << ", z "
                           << shape.z << ", sequences " << lengths.size() << ", first " << rows[0].first << " + "
                           << rows[0].second);
    CHECK(differences(run(*backend, seed, shape, lengths, rows, in), expected) == 0);
  }
}

}  // namespace

TEST_CASE("attention gives the reference's bits over random shapes, positions and windows") {
  for (int32_t i = 0; i < cases_of_run(60); ++i) {
    const uint64_t seed = seed_of_run() + static_cast<uint64_t>(i);
    Random random(seed);
    const int32_t kv_heads = random.pick({1, 1, 2, 4});
    const Shape shape{random.pick({64, 64, 128, 256}), kv_heads, kv_heads * random.pick({1, 2, 3, 7, 8}),
                      random.pick({0, 0, 1, 63, 64, 65, 200, 512, 1024}),
                      random.pick({1e-4f, 1e-3f, 3e-5f, 1e-2f, 1e-9f, 1.0f})};
    std::vector<int32_t> lengths;
    std::vector<std::pair<int32_t, int32_t>> rows;
    for (int32_t s = random.between(1, 4); s > 0; --s) {
      const int32_t length = random.pick({1, 2, 63, 64, 65, 127, 128, 300, 511, 512, 513, 700, 1030, 1600});
      const int32_t count = std::min(length, random.chance(60) ? 1 : random.between(1, 70));
      lengths.push_back(length);
      rows.push_back({length - count, count});
    }
    check(seed, shape, lengths, rows);
  }
}

TEST_CASE("attention is exact at the edges of windows, blocks and chunks") {
  uint64_t seed = seed_of_run() + 1000;
  for (const int32_t window : {64, 128, 512})
    for (const int32_t position :
         {window - 1, window, window + 1, window + 63, window + 64, 511, 512, 513, 576, 1023, 1024, 1025})
      check(seed++, {64, 1, 3, window, 1e-3f}, {position + 1},
            {{std::max(0, position - 2), std::min(3, position + 1)}});
}

TEST_CASE("attention is exact for many query heads on one KV head") {
  check(seed_of_run() + 2000, {128, 1, 40, 0, 1e-3f}, {600}, {{570, 30}});
  check(seed_of_run() + 2001, {64, 1, 96, 256, 1e-3f}, {600}, {{599, 1}});
  check(seed_of_run() + 2002, {64, 2, 112, 0, 1e-3f}, {530}, {{523, 7}});
  check(seed_of_run() + 2003, {256, 1, 20, 0, 1e-3f}, {600}, {{570, 30}});
  // In several parts, alike and not; beside a prompt's tokens.
  check(seed_of_run() + 2004, {128, 1, 96, 0, 1e-3f}, {600, 1100}, {{599, 1}, {1099, 1}});
  check(seed_of_run() + 2005, {128, 2, 182, 300, 1e-3f}, {600, 70}, {{599, 1}, {69, 1}});
  check(seed_of_run() + 2006, {64, 1, 56, 0, 1e-3f}, {600, 70, 300}, {{599, 1}, {50, 20}, {299, 1}});
}

TEST_CASE("attention is exact however steep the weights are") {
  uint64_t seed = seed_of_run() + 2500;
  for (const int32_t head_dim : {64, 128, 256})
    for (const float z : {1e-30f, 0x1.fffffep+2f, 8.0f, 99.0f,
                          1e12f}) {  // a GPU has a shorter way below 8; 1e12 is the most a checkpoint may have
      check(seed++, {head_dim, 1, 4, 0, z}, {600}, {{570, 30}});
      check(seed++, {head_dim, 1, 4, 100, z}, {600, 70}, {{599, 1}, {69, 1}});
    }
}

TEST_CASE("attention is exact however large its sums are") {
  uint64_t seed = seed_of_run() + 2700;
  for (const int32_t head_dim : {64, 128, 256})
    for (const float z : {1e-30f, 3e-6f, 1e-4f}) {  // all weights alike; a chunk's sums on both sides of 2^31
      check(seed++, {head_dim, 1, 4, 0, z}, {1200}, {{1100, 30}}, Values::kLargest);
      check(seed++, {head_dim, 1, 40, 0, z}, {1200}, {{1190, 10}}, Values::kLargest);
      check(seed++, {head_dim, 1, 40, 1024, z}, {1200, 70}, {{1199, 1}, {69, 1}}, Values::kLargest);
    }
  // Tiles that clusters of a GPU's blocks share, and more than they do; rows of one warp on both sides of 2^31.
  for (const int32_t count : {200, 300})
    check(seed++, {128, 1, 40, 0, 1e-30f}, {1100}, {{701, count}}, Values::kLargest);
}

TEST_CASE("attention over a long history folds its chunks in order") {
  check(seed_of_run() + 3000, {64, 1, 4, 0, 2e-4f}, {4100}, {{4099, 1}});
  check(seed_of_run() + 3001, {64, 2, 4, 0, 2e-4f}, {3000, 2500}, {{2999, 1}, {2490, 10}});
  check(seed_of_run() + 3002, {256, 1, 20, 0, 2e-4f}, {2600, 70}, {{2599, 1}, {69, 1}});
}

TEST_CASE("attention over windows with one row each is exact, however many sequences share a GPU") {
  uint64_t seed = seed_of_run() + 4000;
  for (const auto& [sequences, kv_heads, heads, head_dim, window] : {std::tuple{1, 1, 40, 128, 1024},
                                                                     {9, 1, 40, 128, 1024},
                                                                     {27, 1, 40, 128, 300},
                                                                     {35, 1, 40, 128, 600},
                                                                     {64, 1, 40, 128, 130},
                                                                     {50, 1, 8, 64, 300},
                                                                     {12, 2, 24, 64, 1024},
                                                                     {70, 1, 24, 128, 130},
                                                                     {33, 1, 64, 128, 200},
                                                                     {20, 2, 128, 64, 400}}) {
    Random random(seed);
    std::vector<int32_t> lengths;
    std::vector<std::pair<int32_t, int32_t>> rows;
    for (int32_t s = 0; s < sequences; ++s) {
      lengths.push_back(random.chance(50) ? random.between(1, 3 * window / 2)
                                          : window + random.pick({0, 1, 2, 63, 64, 65, 511, 512, 513}));
      rows.push_back({lengths.back() - 1, 1});
    }
    check(seed++, {head_dim, kv_heads, heads, window, random.pick({1e-4f, 1e-3f, 1e-2f})}, lengths, rows);
  }
}

// More chunks than 3 threads compute before they fold them, sequences of several lengths, windows that begin within a
// chunk, more query heads than a piece has.
TEST_CASE("attention is exact where threads share the chunks of few long sequences") {
  uint64_t seed = seed_of_run() + 4000;
  check(seed++, {64, 1, 16, 0, 1e-3f}, {9000}, {{8999, 1}});
  check(seed++, {64, 1, 16, 0, 1e-4f}, {4096, 513}, {{4095, 1}, {512, 1}});
  check(seed++, {128, 1, 5, 1024, 1e-3f}, {2000}, {{1999, 1}});
  check(seed++, {64, 2, 8, 0, 1e-3f}, {3000}, {{2999, 1}});
  check(seed++, {64, 1, 100, 0, 1e-3f}, {5000}, {{4999, 1}});
  check(seed++, {64, 1, 3, 700, 1e-2f}, {1500}, {{1498, 2}});
}

// Tiles of 64 rows and clusters of 8, 6, 5, 4, 3 and 2 blocks of threads, then of one, then tiles of 128 rows; on a
// processor nothing but many rows.
TEST_CASE("attention of a prompt's rows is exact, however many thread blocks of a GPU share them") {
  if (std::none_of(backends().begin(), backends().end(),
                   [](const auto& backend) { return name_of(*backend) == "cuda"; }))
    return;
  uint64_t seed = seed_of_run() + 5000;
  for (const auto& [head_dim, kv_heads, window, history, tokens] : {std::tuple{64, 1, 0, 1300, 22},
                                                                    {128, 1, 0, 1000, 26},
                                                                    {64, 1, 0, 1100, 33},
                                                                    {64, 1, 0, 600, 46},
                                                                    {128, 1, 700, 900, 46},
                                                                    {64, 2, 0, 600, 60},
                                                                    {64, 1, 0, 600, 100},
                                                                    {64, 1, 300, 500, 100},
                                                                    {64, 1, 0, 300, 200},
                                                                    {64, 1, 0, 300, 215}})
    check(seed++, {head_dim, kv_heads, 40, window, 1e-3f}, {history + tokens, 700}, {{history, tokens}, {699, 1}});
  check(seed, {64, 1, 40, 0, 1e-4f}, {1600, 40, 520, 1200}, {{1590, 10}, {30, 10}, {500, 20}, {1195, 5}});
}

TEST_CASE("positions below write_from in shared blocks are not overwritten") {
  Random random(7);
  const int32_t head_dim = 64, length = 100;
  const std::vector<float> first = random.normals(static_cast<size_t>(length) * head_dim, 1.0f),
                           second = random.normals(first.size(), 1.0f);
  const std::vector<float> inverse = random.scales(head_dim, 40.0f), out_inverse = random.scales(head_dim, 2.0f);
  const std::vector<int8_t> queries = random.bytes(head_dim);
  const auto run = [&](auto& backend, int32_t write_from, bool again) {
    const Cache cache(7, 1, head_dim, 0, {length});
    OwnedBatch batch, later;
    batch.add(cache, 0, 0, length);
    later.add(cache, 0, 0, length, write_from);
    const auto angles = batch.angles(head_dim);
    backend.append(first.data(), first.data(), batch.view(), angles.data(), inverse.data(), inverse.data(),
                   cache.slot());
    if (again)
      backend.append(second.data(), second.data(), later.view(), angles.data(), inverse.data(), inverse.data(),
                     cache.slot());
    OwnedBatch row;
    row.add(cache, 0, length - 1, 1);
    std::vector<int8_t> out(head_dim);
    backend.attend({queries.data(), 1, 1e-4f, out_inverse.data(), out.data()}, row.view(), cache.slot());
    return out;
  };
  ReferenceBackend reference;
  for (const auto& backend : backends()) {
    INFO(name_of(*backend));
    CHECK(run(*backend, length, true) == run(*backend, 0, false));
    CHECK(run(*backend, 50, true) == run(reference, 50, true));
    CHECK(run(*backend, 50, true) != run(*backend, 0, false));
  }
}

}  // namespace kaiju::test
