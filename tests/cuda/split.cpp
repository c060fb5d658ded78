// How a model is divided among GPUs, and what they send each other, held to counting. Needs no GPU and no CUDA.
#include "cuda/split.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cuda/exchange_sizes.hpp"
#include "cuda/shared_rows.hpp"
#include "kaiju/run/memory_need.hpp"
#include "kaiju/run/shared_model.hpp"

namespace kaiju::cuda {
namespace {

// Of three layers, the last one with dimensions of its own. About half can be divided among two.
ModelConfig random_config(std::mt19937_64& random) {
  const auto pick = [&](std::initializer_list<int32_t> values) { return values.begin()[random() % values.size()]; };
  ModelConfig config;
  config.vocab_size = pick({16, 48, 96, 256, 1000, 1008, 4096});
  config.d_model = pick({64, 256, 1024, 5120});
  config.n_heads = pick({1, 2, 3, 4, 6, 8, 12, 14, 16, 24, 40, 64});
  const auto kv_heads = [&] {
    int32_t some = config.n_heads;
    while (some > 1 && (config.n_heads % some != 0 || random() % 2 == 0)) --some;
    return config.n_heads % some == 0 ? some : 1;
  };
  config.n_kv_heads = kv_heads();
  config.head_dim = pick({64, 128, 256});
  config.d_ff = 64 * pick({1, 2, 3, 4, 7, 8, 12, 16, 24, 40, 80});
  config.shape.activations = pick({1, 2}) == 1 ? Activations::kStaticClips : Activations::kStaticScales;
  config.shape.hadamard = pick({0, 0, 64, 256});
  config.layers.resize(3);
  config.layers[2].n_kv_heads = pick({0, kv_heads()});
  config.layers[2].head_dim = pick({0, 128});
  config.layers[2].d_ff = pick({0, 2 * config.d_ff});
  return config;
}

// Calls check(rank's split) for each GPU.
template <class Check>
void for_each_gpu(int32_t count, Check&& check) {
  for (int32_t rank = 0; rank < count; ++rank) check(Split{count, rank});
}

void check_parts(const ModelConfig& config, int32_t count) {
  const int32_t unit = std::max(kColumnUnit, config.shape.hadamard);
  for (int32_t layer = 0; layer < 3; ++layer) {
    const int32_t kv_heads = config.kv_heads_of(layer), head_dim = config.head_dim_of(layer),
                  served = config.n_heads / kv_heads;  // query heads of a KV head
    int32_t queries = 0, columns = 0;
    std::vector<int32_t> first_with(static_cast<size_t>(kv_heads), 0);
    for_each_gpu(count, [&](const Split& split) {
      const ModelConfig part = part_of(config, split);
      const Range query = part_of(config, split, Width::kQuery, layer), kv = part_of(config, split, Width::kKv, layer),
                  ffn = part_of(config, split, Width::kFfn, layer);
      CHECK(query.first == queries);
      CHECK(ffn.first == columns);
      queries += query.size, columns += ffn.size;
      CHECK(query.size == part.width_of(Width::kQuery, layer));
      CHECK(ffn.size == part.width_of(Width::kFfn, layer));
      CHECK(kv.size == part.width_of(Width::kKv, layer));
      for (const int32_t edge : {query.first, query.size, ffn.first, ffn.size}) CHECK(edge % unit == 0);
      CHECK((query.size > 0 && ffn.size > 0 && kv.size > 0));
      // The KV heads are those that its query heads read, no others.
      CHECK(kv.first == query.first / head_dim / served * head_dim);
      CHECK(kv.first + kv.size == ((query.first + query.size) / head_dim - 1) / served * head_dim + head_dim);
      for (int32_t head = kv.first / head_dim; head < (kv.first + kv.size) / head_dim; ++head)
        first_with[static_cast<size_t>(head)] += split.is_first_with(kv_heads) ? 1 : 0;
    });
    CHECK(queries == config.width_of(Width::kQuery, layer));
    CHECK(columns == config.width_of(Width::kFfn, layer));
    CHECK(first_with == std::vector<int32_t>(static_cast<size_t>(kv_heads), 1));
  }
  int32_t tokens = 0;
  for_each_gpu(count, [&](const Split& split) {
    const Range vocab = split.part(config.vocab_size, kVocabUnit);
    CHECK(vocab.first == tokens);
    CHECK((vocab.size > 0 && vocab.size % kVocabUnit == 0));
    tokens += vocab.size;
  });
  CHECK(tokens == config.vocab_size);
}

// Whether each GPU's part of everything is a whole number of what is not cut.
bool fits(const ModelConfig& config, int32_t count) {
  if (count == 1) return true;
  const int32_t unit = std::max(kColumnUnit, config.shape.hadamard);
  bool fits =
      config.n_heads % count == 0 && config.vocab_size % kVocabUnit == 0 && config.vocab_size / kVocabUnit >= count;
  for (int32_t layer = 0; layer < 3; ++layer) {
    const int32_t kv_heads = config.kv_heads_of(layer);
    fits = fits && (kv_heads % count == 0 || count % kv_heads == 0) &&
           config.n_heads * config.head_dim_of(layer) / count % unit == 0 &&
           config.width_of(Width::kFfn, layer) % count == 0 && config.width_of(Width::kFfn, layer) / count % unit == 0;
  }
  return fits;
}

TEST_CASE("parts of a model are disjoint and cover it, and a number of GPUs that does not fit is told which would") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  int32_t divided = 0, refused = 0;
  for (int32_t number = 0; number < 2000; ++number) {
    const ModelConfig config = random_config(random);
    std::string fit;
    for (int32_t count = 2; count <= kMostGpus; ++count)
      if (fits(config, count)) fit += (fit.empty() ? "" : ", ") + std::to_string(count);
    const std::string hint = fit.empty() ? "; it needs one" : "; it can be among " + fit;
    for (int32_t count = 1; count <= kMostGpus + 1; ++count) {
      CAPTURE(number, count, config.n_heads, config.n_kv_heads, config.d_ff, config.vocab_size);
      const Status status = check_split(config, count);
      REQUIRE(status.ok() == (count <= kMostGpus && fits(config, count)));
      if (status.ok()) {
        if (count > 1) check_parts(config, count), ++divided;  // one has all of any model
        continue;
      }
      ++refused;
      CHECK(status.code() == StatusCode::kUnsupported);
      CHECK(status.message().ends_with(hint));
    }
  }
  CHECK((divided > 500 && refused > 500));
}

TEST_CASE("each row is added up by one GPU, and buffers for sums are of the size that steps can fill") {
  for (int32_t count = 1; count <= kMostGpus; ++count) {
    std::vector<int32_t> owned(static_cast<size_t>(count), 0);
    for (int32_t rows = 0; rows < 600; ++rows) {
      for (int32_t rank = 0; rank < count; ++rank)
        REQUIRE(owned_rows(rows, count, rank) == owned[static_cast<size_t>(rank)]);
      ++owned[static_cast<size_t>(rows / kOwnedRun % count)];
    }
    if (count == 1) continue;
    for (const int32_t result : {1, 4})
      for (const int32_t width : {64, 1024, 5120, 16384}) {
        CAPTURE(count, result, width);
        int32_t most = 0;
        bool has_spread = false;
        for (int32_t rows = 1; rows < 5000; ++rows) {
          const bool spread = spreads(rows, width, count, result);
          REQUIRE((spread || !has_spread));  // more rows are spread, too
          has_spread = spread;
          most = std::max(most, spread ? owned_rows(rows, count, 0) : rows);
          REQUIRE(most_sent_rows(rows, width, count, result) == most);
        }
      }
  }
}

TEST_CASE("the memory of the exchange that is foretold has room for the sums of all GPUs, spread or not") {
  ModelConfig config;
  config.vocab_size = 1008;
  config.d_model = 5120;
  config.layers.resize(1);
  for (const Activations activations : {Activations::kStaticClips, Activations::kStaticScales}) {
    config.shape.activations = activations;
    const bool is_scaled = config.arithmetic() == 2;
    for (int32_t count = 2; count <= kMostGpus; ++count)
      for (const int32_t rows : {1, 16, 100, 2048, 8192}) {
        CAPTURE(is_scaled, count, rows);
        int64_t sent = 0;
        for (int32_t some = 1; some <= rows; ++some)
          sent = std::max<int64_t>(sent,
                                   spreads(some, 5120, count, is_scaled ? 4 : 1) ? owned_rows(some, count, 0) : some);
        const int32_t logit_rows = logit_rows_of(8, rows);
        CHECK(logit_rows == std::max(8, std::min(rows, 64)));
        const int64_t columns = (1008 / 16 + count - 1) / count * 16;
        const int64_t wanted =
            2 * count * sent * 5120 * 4 + logit_rows * columns * 4 + (is_scaled ? int64_t{2} * count * rows * 8 : 0);
        const int64_t most = most_exchange_bytes(config, count, rows, logit_rows);
        CHECK(most >= wanted);
        CHECK(most < wanted + 1024);
      }
  }
  // Nothing is spread over two GPUs in version 2, so each gets all sums of both.
  CHECK(most_exchange_bytes(config, 2, 2048, 64) >= int64_t{16} * 2048 * 5120);
}

TEST_CASE("an engine on several GPUs is refused where one of them has too little memory free, whichever it is") {
  MemoryNeed need;
  need.device = 2;
  need.others = {1, 3};
  need.weights = 700, need.kv = 200, need.workspace = 100, need.host_tier = 50;
  std::vector<DeviceInfo> found(4);
  for (size_t i = 0; i < found.size(); ++i)
    found[i].name = "device " + std::to_string(i), found[i].memory_free = i == 0 ? 50 : 1000;
  CHECK(check_memory(need, kFreeMemory, found).ok());
  for (DeviceInfo& device : found) {
    --device.memory_free;
    const Status refused = check_memory(need, kFreeMemory, found);
    CHECK(refused.code() == StatusCode::kOutOfMemory);
    CHECK(refused.message().find(device.name + " has free") != std::string::npos);
    ++device.memory_free;
  }
  CHECK(check_memory(need, 1000, {}).ok());
  CHECK(check_memory(need, 999, {}).code() == StatusCode::kOutOfMemory);
}

}  // namespace
}  // namespace kaiju::cuda
