// Which matmuls a layer is on a GPU. Needs no GPU and no CUDA.
#include "cuda/launch/packed_matmuls.hpp"

#include "catch.hpp"

namespace kaiju::cuda {
namespace {

using Matmul = std::tuple<Site, Operation, int32_t, int32_t>;

std::vector<Matmul> list(const std::vector<PackedMatmul>& matmuls) {
  std::vector<Matmul> out;
  for (const PackedMatmul& p : matmuls) out.emplace_back(p.input, p.operation, p.out, p.in);
  return out;
}

ModelConfig two_layers_on_a_slot() {
  ModelConfig config;
  config.vocab_size = 4096;
  config.d_model = 1024;
  config.n_heads = 6;
  config.n_kv_heads = 2;
  config.head_dim = 128;
  config.d_ff = 3072;
  config.layers = {{LayerKind::kGlobal, 0, 0, 0}, {LayerKind::kGlobal, 0, 0, 0}};
  config.derive_counts();
  return config;
}

TEST_CASE("matrices with the same input form one matmul of a layer: q, and k and v if the layer owns its KV slot") {
  const ModelConfig config = two_layers_on_a_slot();
  const std::vector<Matmul> rest = {{Site::kAttentionOut, Operation::kAddLinear, 1024, 768},
                                    {Site::kFfnIn, Operation::kUp, 3072, 1024},
                                    {Site::kFfnMid, Operation::kAddDown, 1024, 3072}};
  std::vector<Matmul> owner = {{Site::kAttentionIn, Operation::kLinear, 768 + 2 * 256, 1024}},
                      reader = {{Site::kAttentionIn, Operation::kLinear, 768, 1024}};
  owner.insert(owner.end(), rest.begin(), rest.end());
  reader.insert(reader.end(), rest.begin(), rest.end());
  CHECK(list(packed_matmuls_of(config, 0)) == owner);
  CHECK(list(packed_matmuls_of(config, 1)) == reader);
}

TEST_CASE("in version 2 of the arithmetic gate and up form one matmul, too, and all matmuls give plain sums") {
  ModelConfig config = two_layers_on_a_slot();
  config.shape.activations = Activations::kTokenScales;
  config.shape.ffn = Ffn::kGatedSilu;
  const auto of = [](Site input, int32_t out, int32_t in) { return Matmul{input, Operation::kLinear, out, in}; };
  const std::vector<Matmul> rest = {of(Site::kAttentionOut, 1024, 768), of(Site::kFfnIn, 2 * 3072, 1024),
                                    of(Site::kFfnMid, 1024, 3072)};
  std::vector<Matmul> owner = {of(Site::kAttentionIn, 768 + 2 * 256, 1024)},
                      reader = {of(Site::kAttentionIn, 768, 1024)};
  owner.insert(owner.end(), rest.begin(), rest.end());
  reader.insert(reader.end(), rest.begin(), rest.end());
  CHECK(list(packed_matmuls_of(config, 0)) == owner);
  CHECK(list(packed_matmuls_of(config, 1)) == reader);
  for (const MatmulShape& shape : matmul_shapes(config)) CHECK(!shape.behind_attention);
}

TEST_CASE("matmuls of gate and up are listed once for each width, and none of a model without a gate") {
  ModelConfig config = two_layers_on_a_slot();
  CHECK(gate_shapes(config).empty());
  config.shape.activations = Activations::kTokenScales;
  config.shape.ffn = Ffn::kSquaredRelu;
  CHECK(gate_shapes(config).empty());
  config.shape.ffn = Ffn::kGatedGelu;
  const std::vector<MatmulShape> shapes = gate_shapes(config);
  REQUIRE(shapes.size() == 1);
  CHECK(shapes[0].out == 2 * 3072);
  CHECK(shapes[0].in == 1024);
}

TEST_CASE("the list of a model's matmul shapes has each shape once") {
  ModelConfig config = two_layers_on_a_slot();
  const auto shapes = [&] {
    std::vector<std::tuple<int32_t, int32_t, bool>> out;
    for (const MatmulShape& shape : matmul_shapes(config))
      out.emplace_back(shape.out, shape.in, shape.behind_attention);
    return out;
  };
  std::vector<std::tuple<int32_t, int32_t, bool>> wanted = {{1280, 1024, false}, {1024, 768, true},
                                                            {3072, 1024, false}, {1024, 3072, false},
                                                            {768, 1024, false},  {4096, 1024, false}};
  CHECK(shapes() == wanted);
  config.labels = {"one", "two", "three"};
  wanted.emplace_back(3, 1024, false);
  CHECK(shapes() == wanted);
}

}  // namespace
}  // namespace kaiju::cuda
