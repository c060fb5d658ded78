// What follows from the shape of a model's layers: its tensors, its matrices, its sites. The lists are spelled out here
// a second time, on purpose: docs/checkpoint.md, "Tensors".
#include "kaiju/format/layer_shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "catch.hpp"
#include "kaiju/format/detail/layer_tensors.hpp"
#include "tiny.hpp"

namespace {

using namespace kaiju;

std::vector<std::string> text_of(const std::vector<CheckpointWriter::Declaration>& tensors) {
  std::vector<std::string> lines;
  for (const auto& tensor : tensors)
    lines.push_back(fmt::format("{} {} {}", tensor.name, dtype_name(tensor.dtype), fmt::join(tensor.shape, "x")));
  return lines;
}

std::vector<std::string> text_of(const std::vector<LayerMatmul>& matmuls) {
  std::vector<std::string> lines;
  for (const LayerMatmul& matmul : matmuls)
    lines.push_back(fmt::format("{} {}x{}", matmul.name, matmul.out, matmul.in));
  return lines;
}

}  // namespace

TEST_CASE("a model's tensors are those of the format's description, in the order of the file") {
  ModelConfig config = tiny::config(3);
  config.n_heads = 4;
  config.d_ff = 192;
  config.labels = {"one", "two"};
  std::vector<std::string> wanted;
  const auto matrix = [&](const std::string& name, int out, int in) {
    wanted.push_back(fmt::format("{}.weight I8 {}x{}", name, out, in));
    wanted.push_back(fmt::format("{}.scale F32 {}", name, out));
    wanted.push_back(fmt::format("{}.row_sum I32 {}", name, out));
  };
  const auto layer = [&](const std::string& name) {
    matrix(name + ".attn.q", 256, 64);
    matrix(name + ".attn.o", 64, 256);
    matrix(name + ".ffn.up", 192, 64);
    matrix(name + ".ffn.down", 64, 192);
  };
  const auto floats = [&](const std::string& prefix, int count, std::initializer_list<const char*> names) {
    for (const char* name : names) wanted.push_back(fmt::format("{}{} F32 {}", prefix, name, count));
  };
  matrix("embed", 16, 64);
  wanted.insert(wanted.end(), {"rope.0 U64 32", "rope.1 U64 32"});
  for (const char* slot : {"0", "1"}) {
    matrix(fmt::format("kv.{}.k", slot), 64, 64);
    matrix(fmt::format("kv.{}.v", slot), 64, 64);
    floats(fmt::format("kv.{}.", slot), 64, {"k_clip", "v_clip"});
    layer(fmt::format("layers.{}", slot));  // that owns it
  }
  layer("layers.2");  // reads slot 0
  wanted.emplace_back("classifier.weight I8 2x64");
  // Those whose size is no multiple of 64 bytes.
  floats("embed.", 1, {"in_scalar", "out_scalar"});
  for (const char* number : {"0", "1", "2"}) {
    if (*number != '2') floats(fmt::format("kv.{}.", number), 1, {"k.scalar", "v.scalar"});
    floats(fmt::format("layers.{}.", number), 1,
           {"attn.q.scalar", "attn.o.scalar", "ffn.up.scalar", "ffn.down.scalar", "attn.in_clip", "attn.q_clip",
            "attn.out_clip", "ffn.in_clip", "ffn.mid_clip"});
  }
  wanted.insert(wanted.end(), {"final.in_clip F32 1", "classifier.scale F32 2", "classifier.row_sum I32 2",
                               "classifier.scalar F32 1", "classifier.bias F32 2"});
  CHECK(text_of(required_tensors(config)) == wanted);
}

TEST_CASE("a layer has key and value tensors if it owns its KV slot") {
  ModelConfig config = tiny::config(3);
  config.n_heads = 4;
  config.d_ff = 192;
  CHECK(text_of(matmuls_of(config, 1)) ==
        std::vector<std::string>{"layers.1.attn.q 256x64", "kv.1.k 64x64", "kv.1.v 64x64", "layers.1.attn.o 64x256",
                                 "layers.1.ffn.up 192x64", "layers.1.ffn.down 64x192"});
  CHECK(text_of(matmuls_of(config, 2)) == std::vector<std::string>{"layers.2.attn.q 256x64", "layers.2.attn.o 64x256",
                                                                   "layers.2.ffn.up 192x64",
                                                                   "layers.2.ffn.down 64x192"});
  CHECK(sites_of(config, 1).size() == 7);
  CHECK(sites_of(config, 2).size() == 5);
  CHECK(widest_input(config) == 256);
  config.d_ff = 320;
  CHECK(widest_input(config) == 320);
}

TEST_CASE("static clips go with no other structure than a Kaiju model's") {
  CHECK(check_config(tiny::config()).ok());
  const std::vector<std::function<void(ModelConfig&)>> edits = {
      [](ModelConfig& c) { c.shape.ffn = Ffn::kGatedSilu; },
      [](ModelConfig& c) { c.shape.residual = Residual::kF32; },
      [](ModelConfig& c) { c.shape.output = OutputMatrix::kOwn; },
      [](ModelConfig& c) { c.shape.biases = Biases::kQkv; },
      [](ModelConfig& c) { c.shape.norms_after = true; },
      [](ModelConfig& c) { c.shape.norm_gains = true; },
      [](ModelConfig& c) { c.shape.head_norms = true; },
      [](ModelConfig& c) { c.shape.value_norms = true; },
      [](ModelConfig& c) { c.shape.static_kv = true; },
      [](ModelConfig& c) { c.shape.wide_logits = true; },
      [](ModelConfig& c) { c.shape.hadamard = 64; },
      [](ModelConfig& c) { c.shape.logit_cap = 30.0f; },
      [](ModelConfig& c) { c.score_scale = 0.5f; }};
  for (const auto& edit : edits) {
    ModelConfig config = tiny::config();
    edit(config);
    const Status status = check_config(config);
    CHECK(
        status.message() ==
        "config.structure: with static clips (version 1 of the arithmetic) every other member has its default; choose "
        "token_scales or static_scales");
  }
  ModelConfig config = tiny::config();
  config.layers[0].factor = 2.0f;
  CHECK(check_config(config).message() ==
        "config.layers[0] has dimensions of its own, which need version 2 of the arithmetic");
}
