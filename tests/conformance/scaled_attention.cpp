// Attention of version 2 of the arithmetic over the paged cache: keys and values with scales. Layouts differ between
// backends, so outputs are compared, not bytes of the cache.
#include <algorithm>

#include "world.hpp"

namespace kaiju::test {
namespace {

struct Shape {
  int32_t head_dim = 64, kv_heads = 1, heads = 1, window = 0;
  float z = 1e-3f;  // of a score whose key has the scale 1
};

// How the keys and values of a case are spread.
enum class Spread {
  kUsual,       // of one deviation; now and then a row of zeros, or of values that count as zeros
  kMagnitudes,  // each position has its own magnitude, from 2^-100 to 2^60; values more so than keys
  kHugeKeys     // the largest that a checkpoint allows: the exponent of a weight's power of two overflows
};

struct Inputs {
  std::vector<float> k, v, row_scale, bias;  // of every position of every sequence, in the order of filling
  std::vector<float> key_gain, key_inverse, value_inverse, value_step, z;
  std::vector<int8_t> queries;
  KeyValueRows kept;  // what is not a pointer
};

using Rows = std::vector<std::pair<int32_t, int32_t>>;  // first position and count, of each sequence

Inputs inputs_of(Random& random, const Shape& shape, size_t positions, size_t rows, Spread spread) {
  const size_t kv_width = static_cast<size_t>(shape.kv_heads) * static_cast<size_t>(shape.head_dim);
  Inputs in;
  in.k = random.normals(positions * kv_width, 1.0f);
  in.v = random.normals(positions * kv_width, 1.0f);
  for (size_t at = 0; at < positions; ++at) {
    const auto scale = [&](std::vector<float>& values, float factor) {
      for (size_t i = at * kv_width; i < (at + 1) * kv_width; ++i) values[i] *= factor;
    };
    if (spread == Spread::kHugeKeys) {
      scale(in.k, 0x1p80f);
    } else if (spread == Spread::kMagnitudes) {
      scale(in.k, std::ldexp(1.0f, random.between(-100, 6)));
      scale(in.v, std::ldexp(1.0f, random.between(-100, 60)));
    } else if (random.chance(5)) {
      scale(in.k, random.pick({0.0f, 0x1p-110f}));
      scale(in.v, random.pick({0.0f, 0x1p-110f, 1.0f}));
    }
  }
  in.row_scale = random.scales(positions, 1.0f);
  if (random.chance(30)) in.bias = random.normals(kv_width, 0.5f);
  if (random.chance(30)) in.key_gain = random.normals(static_cast<size_t>(shape.head_dim), 1.0f);
  in.kept.kv_heads = shape.kv_heads;
  in.kept.head_dim = shape.head_dim;
  in.kept.key_norms = !in.key_gain.empty();
  in.kept.value_norms = spread == Spread::kUsual && random.chance(30);
  in.kept.eps = 1e-6f;
  in.kept.hadamard = random.pick({1, 16, 32, 64});
  in.kept.constant_scales = spread == Spread::kUsual && random.chance(30);
  const float inverse = in.kept.constant_scales ? 20.0f : 1.0f;
  in.key_inverse = random.scales(kv_width, inverse);
  in.value_inverse = random.scales(kv_width, inverse);
  in.value_step = random.scales(kv_width, 1.0f);
  const size_t of_heads = rows * static_cast<size_t>(shape.heads);
  in.z = random.scales(of_heads, in.kept.constant_scales ? shape.z : shape.z * 127);
  for (float& z : in.z)
    if (random.chance(5)) z = 0.0f;
  in.queries = random.bytes(of_heads * static_cast<size_t>(shape.head_dim));
  return in;
}

// Fills the cache with all positions of all sequences, in several batches, then attends with `rows`.
template <class B>
std::vector<float> run(B& backend, uint64_t seed, const Shape& shape, const std::vector<int32_t>& lengths,
                       const Rows& rows, const Inputs& in) {
  const Cache cache(seed, shape.kv_heads, shape.head_dim, shape.window, lengths, true);
  const int32_t kv_width = shape.kv_heads * shape.head_dim;
  std::vector<float> k = in.k, v = in.v;
  size_t at = 0;
  for (size_t s = 0; s < lengths.size(); ++s)
    for (int32_t position = 0; position < lengths[s];) {
      OwnedBatch batch;
      batch.add(cache, s, position, std::min(lengths[s] - position, 100));
      const std::vector<arith::CosSin> angles = batch.angles(shape.head_dim);
      KeyValueRows args = in.kept;
      args.k.sums = k.data() + at * kv_width;
      args.v.sums = v.data() + at * kv_width;
      args.k.scale = args.v.scale = in.row_scale.data() + at;
      args.k.bias = args.v.bias = in.bias.empty() ? nullptr : in.bias.data();
      args.k.width = args.v.width = kv_width;
      args.key_gain = in.key_gain.empty() ? nullptr : in.key_gain.data();
      args.angles = angles.data();
      args.key_inverse = in.key_inverse.data();
      args.value_inverse = in.value_inverse.data();
      backend.append_rows(args, batch.view(), cache.slot());
      at += static_cast<size_t>(batch.rows());
      position += batch.rows();
    }
  OwnedBatch batch;
  for (size_t s = 0; s < rows.size(); ++s)
    if (rows[s].second > 0) batch.add(cache, s, rows[s].first, rows[s].second);
  std::vector<float> out(static_cast<size_t>(batch.rows()) * shape.heads * shape.head_dim);
  backend.attend(ScaledAttentionArgs{in.queries.data(), shape.heads, in.z.data(), in.value_step.data(), out.data()},
                 batch.view(), cache.slot());
  return out;
}

void check(uint64_t seed, const Shape& shape, const std::vector<int32_t>& lengths, const Rows& rows,
           Spread spread = Spread::kUsual) {
  Random random(seed);
  size_t positions = 0, row_count = 0;
  for (const int32_t length : lengths) positions += static_cast<size_t>(length);
  for (const auto& [first, count] : rows) row_count += static_cast<size_t>(count);
  const Inputs in = inputs_of(random, shape, positions, row_count, spread);
  ReferenceBackend reference;
  const std::vector<float> expected = run(reference, seed, shape, lengths, rows, in);
  CHECK(std::all_of(expected.begin(), expected.end(), [](float value) { return std::isfinite(value); }));
  for (AnyBackend* backend : scaled_backends()) {
    INFO(name_of(*backend) << ", KAIJU_TEST_SEED=" << seed << ", head_dim " << shape.head_dim << ", kv heads "
                           << shape.kv_heads << ", heads " << shape.heads << ", window " << shape.window << ", z "
                           << shape.z << ", sequences " << lengths.size() << ", first " << rows[0].first << " + "
                           << rows[0].second);
    CHECK(differences(run(*backend, seed, shape, lengths, rows, in), expected) == 0);
  }
}

}  // namespace

TEST_CASE("attention with scales gives the reference's bits over random shapes, positions and windows") {
  for (int32_t i = 0; i < cases_of_run(36); ++i) {
    const uint64_t seed = seed_of_run() + static_cast<uint64_t>(i);
    Random random(seed);
    const int32_t kv_heads = random.pick({1, 1, 2, 4});
    Shape shape;
    shape.head_dim = random.pick({64, 64, 128, 256, 512});
    shape.kv_heads = kv_heads;
    shape.heads = kv_heads * random.pick({1, 2, 3, 7});
    shape.window = random.pick({0, 0, 1, 63, 64, 65, 200, 512, 1024});
    shape.z = random.pick({1e-4f, 1e-3f, 3e-5f, 1e-2f, 1e-9f, 1.0f});
    std::vector<int32_t> lengths;
    Rows rows;
    for (int32_t s = random.between(1, 3); s > 0; --s) {
      const int32_t length = random.pick({1, 2, 63, 64, 65, 127, 128, 300, 511, 512, 513, 700, 1030, 1600});
      const int32_t count = std::min(length, random.chance(60) ? 1 : random.between(1, 40));
      lengths.push_back(length);
      rows.push_back({length - count, count});
    }
    check(seed, shape, lengths, rows, random.chance(30) ? Spread::kMagnitudes : Spread::kUsual);
  }
}

TEST_CASE("attention with scales is exact at the edges of windows, blocks and chunks") {
  uint64_t seed = seed_of_run() + 1000;
  for (const int32_t window : {64, 128, 512})
    for (const int32_t position :
         {window - 1, window, window + 1, window + 63, window + 64, 511, 512, 513, 576, 1023, 1024, 1025})
      check(seed++, {64, 1, 3, window}, {position + 1}, {{std::max(0, position - 2), std::min(3, position + 1)}});
}

TEST_CASE("attention with scales is exact however steep the weights are") {
  uint64_t seed = seed_of_run() + 2000;
  for (const int32_t head_dim : {64, 128, 256, 512})
    for (const float z : {0.0f, 1e-30f, 8.0f, 1e28f})
      check(seed++, {head_dim, 1, 2, head_dim == 128 ? 100 : 0, z}, {530, 70}, {{525, 5}, {69, 1}},
            z == 1e28f ? Spread::kHugeKeys : Spread::kUsual);
}

TEST_CASE("attention with scales folds the chunks of a long history in order, whatever the magnitudes of its values") {
  uint64_t seed = seed_of_run() + 3000;
  for (const int32_t head_dim : {64, 128, 256, 512}) {
    check(seed++, {head_dim, 1, 4, 0}, {2600}, {{2599, 1}});
    check(seed++, {head_dim, 1, 3, 0}, {1100, 70}, {{1090, 10}, {69, 1}}, Spread::kMagnitudes);
    check(seed++, {head_dim, 1, 2, 700}, {1300}, {{1295, 5}}, Spread::kMagnitudes);
  }
}

// Enough of both for the kernels that a GPU keeps for them.
TEST_CASE("attention with scales of long prompts and of many sequences gives the reference's bits") {
  uint64_t seed = seed_of_run() + 4000;
  for (const int32_t head_dim : {64, 128, 256}) {
    const int32_t tokens = head_dim == 256 ? 160 : 300;
    check(seed++, {head_dim, 1, 16, head_dim == 128 ? 100 : 0}, {tokens, tokens - 20},
          {{0, tokens}, {20, tokens - 40}});
    std::vector<int32_t> lengths;
    Rows rows;
    for (int32_t i = 0; i < 9; ++i) {
      lengths.push_back(1 + 140 * i);
      rows.push_back({140 * i, 1});
    }
    check(seed++, {head_dim, 2, 8, head_dim == 64 ? 600 : 0}, lengths, rows);
  }
}

TEST_CASE("positions below write_from keep their keys, values and scales") {
  Random random(7);
  const int32_t length = 100;
  const Shape shape;
  const Inputs first = inputs_of(random, shape, length, 1, Spread::kUsual),
               second = inputs_of(random, shape, length, 1, Spread::kUsual);
  const auto run = [&](auto& backend, int32_t write_from, bool again) {
    const Cache cache(7, 1, shape.head_dim, 0, {length}, true);
    OwnedBatch batch, later, row;
    batch.add(cache, 0, 0, length);
    later.add(cache, 0, 0, length, write_from);
    row.add(cache, 0, length - 1, 1);
    const auto angles = batch.angles(shape.head_dim);
    const auto append = [&](const Inputs& in, const OwnedBatch& rows) {
      std::vector<float> k = in.k, v = in.v;
      KeyValueRows args;
      args.k.sums = k.data(), args.v.sums = v.data();
      args.k.scale = args.v.scale = in.row_scale.data();
      args.k.width = args.v.width = args.head_dim = shape.head_dim;
      args.kv_heads = 1;
      args.angles = angles.data();
      args.key_inverse = first.key_inverse.data();
      args.value_inverse = first.value_inverse.data();
      backend.append_rows(args, rows.view(), cache.slot());
    };
    append(first, batch);
    if (again) append(second, later);
    std::vector<float> out(static_cast<size_t>(shape.head_dim));
    const float z = 1e-2f;
    backend.attend(ScaledAttentionArgs{first.queries.data(), 1, &z, first.value_step.data(), out.data()}, row.view(),
                   cache.slot());
    return out;
  };
  ReferenceBackend reference;
  for (AnyBackend* backend : scaled_backends()) {
    INFO(name_of(*backend));
    CHECK(run(*backend, length, true) == run(*backend, 0, false));
    CHECK(run(*backend, 50, true) == run(reference, 50, true));
    CHECK(run(*backend, 50, true) != run(*backend, 0, false));
  }
}

}  // namespace kaiju::test
