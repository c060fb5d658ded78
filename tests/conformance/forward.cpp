// The forward pass over a backend that has fused operations and packed matrices, as a GPU has, on the processor.
#include "kaiju/model/forward.hpp"

#include <algorithm>

#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "world.hpp"

namespace kaiju::test {
namespace {

// The reference's arithmetic in fused operations. What they may leave unwritten, they do.
struct Fused : ReferenceBackend {
  int32_t fused = 0, projected = 0;

  void norm_linear(const NormArgs& norm, const Matrix& w, const float* scale, float* out) {
    linear(w, normed(norm), norm.rows, scale, out);
  }
  void norm_up(const NormArgs& norm, const Matrix& w, const float* alpha, uint8_t* h) {
    up(w, normed(norm), norm.rows, alpha, h);
  }
  void project(const PackedProjection& p, const Batch& batch, const KvSlot& kv) {
    ++projected;
    norm_linear(p.norm, p.qkv, p.qkv.scale, p.floats);
    const int32_t width = p.heads * p.head_dim, kv_width = p.kv_heads * p.head_dim;
    const auto columns = [&](int32_t first, int32_t count) {
      std::vector<float> out;
      for (int32_t row = 0; row < p.norm.rows; ++row)
        out.insert(out.end(), p.floats + row * p.qkv.out + first, p.floats + row * p.qkv.out + first + count);
      return out;
    };
    REQUIRE(p.qkv.out == (p.k_inverse ? width + 2 * kv_width : width));
    if (p.k_inverse)
      append(columns(width, kv_width).data(), columns(width + kv_width, kv_width).data(), batch, p.angles, p.k_inverse,
             p.v_inverse, kv);
    queries(columns(0, width).data(), batch, p.angles, p.heads, p.kv_heads, p.head_dim, p.q_inverse, p.queries);
  }

 private:
  const int8_t* normed(NormArgs norm) {
    ++fused;
    bytes_.resize(static_cast<size_t>(norm.rows) * norm.width);
    norm.a = bytes_.data();
    this->norm(norm);
    return bytes_.data();
  }
  std::vector<int8_t> bytes_;
};
static_assert(FusesNorms<Fused> && ProjectsPacked<Fused>);

// Likewise of version 2 of the arithmetic.
struct FusedRows : Fused {
  int32_t gated = 0;

  void add_norm_rows(const AddRows& add, const NormRows& norm) {
    ++fused;
    add_rows(add);
    norm_rows(norm);
  }
  void project_rows(const QueryRows& queries, const KeyValueRows& kept, const Batch& batch, const KvSlot& kv) {
    ++projected;
    append_rows(kept, batch, kv);
    query_rows(queries);
  }
  void linear_gate_rows(const Linear& packed, const int8_t* a, const GateRows& args) {
    ++gated;
    linear(packed, a, args.rows, packed.scale, args.gates.sums);
    std::vector<float> ups;  // the reference overwrites them, without a stride
    for (int32_t row = 0; row < args.rows; ++row) {
      const float* first = args.ups.sums + int64_t{row} * args.ups.stride;
      ups.insert(ups.end(), first, first + args.ups.width);
    }
    GateRows own = args;
    own.ups.sums = ups.data(), own.ups.stride = 0;
    gate_rows(own);
  }
};
static_assert(scaled::GatesMatmuls<FusedRows> && !scaled::GatesMatmuls<Fused>);
static_assert(!FusesNorms<ReferenceBackend> && !ProjectsPacked<ReferenceBackend>);

// Memory of matrices that are packed as a device would.
struct Packed {
  std::vector<std::vector<int8_t>> weights;
  std::vector<std::vector<float>> scales;

  // `moves`: the parts become parts of the whole.
  Linear pack(std::initializer_list<Linear*> parts, bool moves = false) {
    std::vector<int8_t>& weight = weights.emplace_back();
    std::vector<float>& scale = scales.emplace_back();
    Linear whole = **parts.begin();
    whole.out = 0, whole.row_sum = nullptr;
    for (Linear* part : parts) {
      weight.insert(weight.end(), part->weight, part->weight + int64_t{part->out} * part->in);
      scale.insert(scale.end(), part->scale, part->scale + part->out);
      whole.out += part->out;
    }
    whole.weight = weight.data(), whole.scale = scale.data();
    const int8_t* next = weight.data();
    for (Linear* part : parts)
      if (moves) part->weight = next, next += int64_t{part->out} * part->in;
    return whole;
  }
};

struct Results {
  std::vector<std::byte> x, cache;
  std::vector<float> logits, products;
};

// One sequence's first rows through the model, by hand.
template <ModelBackend B>
Results run(B& backend, const Weights& model, int32_t rows) {
  const ModelConfig& config = model.config;
  const auto count = static_cast<size_t>(rows);
  const std::vector<BlockId> table = {1, 0};
  std::vector<int32_t> tokens, positions;
  const std::vector<int32_t> row_segment(count, 0);
  for (int32_t row = 0; row < rows; ++row) tokens.push_back(row * 7 % config.vocab_size), positions.push_back(row);
  const BatchSegment segment{0, rows, 0, 0, {table.data(), table.data()}};
  const Batch batch{rows, tokens, positions, {&segment, 1}, row_segment};

  Results results;
  const bool is_scaled = config.arithmetic() == 2;
  std::vector<KvSlot> slots;
  int64_t bytes = 0;
  for (int32_t s = 0; s < config.kv_slot_count; ++s) {
    const int32_t owner = config.owner_of(s), kv_heads = config.kv_heads_of(owner),
                  head_dim = config.head_dim_of(owner);
    const int64_t block_bytes = kv_heads * KvSlot::head_bytes(head_dim, is_scaled);
    const int32_t window = config.layers[static_cast<size_t>(owner)].window;
    slots.push_back({nullptr, block_bytes, 0, kv_heads, head_dim, window > 0 ? BlockKind::kWindow : BlockKind::kGlobal,
                     window, is_scaled});
    bytes += 2 * block_bytes;
  }
  results.cache.assign(static_cast<size_t>(bytes), std::byte{0x5A});
  std::byte* pool = results.cache.data();
  for (KvSlot& slot : slots) slot.pool = pool, pool += 2 * slot.block_bytes;
  std::vector<std::vector<arith::CosSin>> angles;
  for (const std::vector<uint64_t>& table : model.rope) {
    std::vector<arith::CosSin>& of_table = angles.emplace_back();
    for (const int32_t position : positions)
      for (const uint64_t frequency : table)
        of_table.push_back(arith::cos_sin(static_cast<uint64_t>(position), frequency));
  }

  Workspace workspace;
  std::vector<std::vector<std::byte>> memory;
  for (const RoomSize& size : rooms_of(config, ProjectsPacked<B>))
    workspace[size.room] =
        memory.emplace_back((size.rows > 0 ? static_cast<size_t>(size.rows) : count) * size.row_bytes).data();
  for (std::vector<arith::CosSin>& table : angles) workspace.angles.push_back(table.data());
  forward(backend, model, slots, batch, workspace);
  const auto* x = workspace.at<std::byte>(Room::kStream);
  results.x.assign(x, x + count * stream_bytes(config));
  results.logits.resize(count * static_cast<size_t>(config.vocab_size));
  results.products.resize(count * config.labels.size());
  logits(backend, model, workspace, x, rows, results.logits.data());
  classify(backend, model, workspace, x, rows, results.products.data());
  return results;
}

}  // namespace

TEST_CASE("fused norms and packed projections give the bits of the separate operations") {
  ModelConfig config = small_config("fused", false);
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.labels = {"one", "two", "three"};
  Result<Weights> made = Weights::from(random_checkpoint(config, 5));
  REQUIRE(made.ok());
  Weights& model = *made;
  for (const int32_t rows : {1, 70}) {
    CAPTURE(rows);
    ReferenceBackend reference;
    const Results expected = run(reference, model, rows);

    Packed memory;
    for (LayerWeights& layer : model.layers) {
      CHECK(layer.packed_at(Site::kAttentionIn).weight == nullptr);
      Linear& packed = layer.packed[static_cast<size_t>(Site::kAttentionIn)];
      packed = layer.owns_slot ? memory.pack({&layer[Matmul::kQ], &layer[Matmul::kK], &layer[Matmul::kV]})
                               : memory.pack({&layer[Matmul::kQ]});
    }
    Fused backend;
    const Results found = run(backend, model, rows);
    for (LayerWeights& layer : model.layers) layer.packed = {};
    CHECK(backend.projected == 3);
    CHECK(backend.fused == 3 + 3 + 2);  // projections, feed-forwards, logits and scores: no norm goes alone
    CHECK(found.x == expected.x);
    CHECK(found.cache == expected.cache);
    CHECK(differences(found.logits, expected.logits) == 0);
    CHECK(differences(found.products, expected.products) == 0);
  }
}

TEST_CASE("in version 2 of the arithmetic packed matrices and fused rows give the bits of the separate operations") {
  ModelConfig config = small_config_of(2, "fused-2");
  config.labels = {"one", "two", "three"};
  Result<Weights> made = Weights::from(random_checkpoint(config, 6));
  REQUIRE(made.ok());
  Weights& model = *made;
  const std::vector<int32_t> row_counts = {1, 60};
  std::vector<Results> expected;
  ReferenceBackend reference;
  for (const int32_t rows : row_counts) expected.push_back(run(reference, model, rows));

  Packed memory;
  for (LayerWeights& layer : model.layers) {
    Linear *q = &layer[Matmul::kQ], *k = &layer[Matmul::kK], *v = &layer[Matmul::kV];
    layer.packed[static_cast<size_t>(Site::kAttentionIn)] =
        layer.owns_slot ? memory.pack({q, k, v}, true) : memory.pack({q}, true);
    layer.packed[static_cast<size_t>(Site::kFfnIn)] = memory.pack({&layer[Matmul::kGate], &layer[Matmul::kUp]}, true);
  }
  for (size_t i = 0; i < row_counts.size(); ++i) {
    CAPTURE(row_counts[i]);
    FusedRows backend;
    const Results found = run(backend, model, row_counts[i]);
    CHECK(backend.projected == 2);
    CHECK(backend.gated == 3);
    CHECK(backend.fused == 3 + 2);  // each addition but the last is one with the next norm
    CHECK(found.x == expected[i].x);
    CHECK(found.cache == expected[i].cache);
    CHECK(differences(found.logits, expected[i].logits) == 0);
    CHECK(differences(found.products, expected[i].products) == 0);
  }
}

}  // namespace kaiju::test
