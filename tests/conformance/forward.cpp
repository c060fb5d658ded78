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
static_assert(!FusesNorms<ReferenceBackend> && !ProjectsPacked<ReferenceBackend>);

// Memory of matrices that are packed as a device would.
struct Packed {
  std::vector<std::vector<int8_t>> weights;
  std::vector<std::vector<float>> scales;

  Linear pack(std::initializer_list<const Linear*> parts) {
    std::vector<int8_t>& weight = weights.emplace_back();
    std::vector<float>& scale = scales.emplace_back();
    Linear whole = **parts.begin();
    whole.out = 0, whole.row_sum = nullptr;
    for (const Linear* part : parts) {
      weight.insert(weight.end(), part->weight, part->weight + int64_t{part->out} * part->in);
      scale.insert(scale.end(), part->scale, part->scale + part->out);
      whole.out += part->out;
    }
    whole.weight = weight.data(), whole.scale = scale.data();
    return whole;
  }
};

struct Results {
  std::vector<arith::bf16> x;
  std::vector<std::byte> cache;
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
  const int64_t block_bytes = int64_t{2} * kBlockTokens * config.kv_width();
  results.cache.assign(static_cast<size_t>(config.kv_slot_count * 2 * block_bytes), std::byte{0x5A});
  std::vector<KvSlot> slots;
  for (int32_t s = 0; s < config.kv_slot_count; ++s) {
    const LayerConfig& owner = config.layers[config.owner_of(s)];
    slots.push_back({results.cache.data() + s * 2 * block_bytes, block_bytes, 0, config.n_kv_heads, config.head_dim,
                     owner.window > 0 ? BlockKind::kWindow : BlockKind::kGlobal, owner.window});
  }
  std::vector<arith::CosSin> angles;
  for (const int32_t position : positions)
    for (const uint64_t frequency : model.rope[0])
      angles.push_back(arith::cos_sin(static_cast<uint64_t>(position), frequency));

  Workspace workspace;
  std::vector<std::vector<std::byte>> memory;
  for (const RoomSize& size : rooms_of(config, ProjectsPacked<B>))
    workspace[size.room] = memory.emplace_back(count * size.row_bytes).data();
  workspace.angles = {angles.data()};
  forward(backend, model, slots, batch, workspace);
  const auto* x = workspace.at<std::byte>(Room::kStream);
  const auto* stream = workspace.at<arith::bf16>(Room::kStream);
  results.x.assign(stream, stream + count * static_cast<size_t>(config.d_model));
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
    CHECK(differences(found.x, expected.x) == 0);
    CHECK(found.cache == expected.cache);
    CHECK(differences(found.logits, expected.logits) == 0);
    CHECK(differences(found.products, expected.products) == 0);
  }
}

}  // namespace kaiju::test
