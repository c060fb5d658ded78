// Version 2 of the arithmetic in the format: the config's structure, its tensors and their values. Names, shapes and
// messages are spelled out here a second time, on purpose: docs/checkpoint.md, "Structure" and "Tensors of version 2".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "catch.hpp"
#include "tiny.hpp"

namespace {

using namespace kaiju;
using tiny::ordered_json;
using tiny::Parts;

ModelConfig static_config() {
  ModelConfig config = tiny::config(1);
  config.chat = {};
  config.shape.activations = Activations::kStaticScales;
  config.shape.ffn = Ffn::kSquaredRelu;
  config.shape.biases = Biases::kAll;
  config.shape.value_norms = config.shape.static_kv = config.shape.wide_logits = true;
  config.labels = {"one", "two"};
  return config;
}

// Layers with inputs of their own.
ModelConfig inputs_config() {
  ModelConfig config = tiny::scaled_config();
  config.shape.layer_inputs = 128;
  return config;
}
ModelConfig static_inputs_config() {
  ModelConfig config = static_config();
  config.shape.ffn = Ffn::kGatedGelu;
  config.shape.norms_after = config.shape.norm_gains = config.shape.f32_rows = true;
  config.shape.layer_inputs = 64;
  config.labels.clear();
  return config;
}

std::vector<std::string> text_of(const ModelConfig& config) {
  std::vector<std::string> lines;
  for (const auto& tensor : required_tensors(config))
    lines.push_back(fmt::format("{} {} {}", tensor.name, dtype_name(tensor.dtype), fmt::join(tensor.shape, "x")));
  std::sort(lines.begin(), lines.end());
  return lines;
}

// The wanted list of a test.
class Wanted {
 public:
  Wanted& matrix(const std::string& name, int out, int in) {
    add(name + ".weight", fmt::format("I8 {}x{}", out, in));
    add(name + ".scale", fmt::format("F32 {}", out));
    add(name + ".row_sum", fmt::format("I32 {}", out));
    return name == "embed" ? *this : floats(name + ".scalar", 1);
  }
  Wanted& floats(const std::string& name, int count) { return add(name, fmt::format("F32 {}", count)); }
  Wanted& add(const std::string& name, const std::string& what) {
    lines_.push_back(name + " " + what);
    return *this;
  }
  std::vector<std::string> sorted() {
    std::sort(lines_.begin(), lines_.end());
    return lines_;
  }

 private:
  std::vector<std::string> lines_;
};

const std::string& scaled_bytes() {
  static const std::string made = tiny::make(tiny::scaled_config());
  return made;
}
const std::string& static_bytes() {
  static const std::string made = tiny::make(static_config());
  return made;
}

const std::string& inputs_bytes() {
  static const std::string made = tiny::make(inputs_config());
  return made;
}
const std::string& static_inputs_bytes() {
  static const std::string made = tiny::make(static_inputs_config());
  return made;
}

// What the loader says after the edit, without the file's name; empty if it takes the file.
std::string after(const std::string& file, const std::function<void(Parts&)>& edit, Verify verify = Verify::kFull) {
  Parts parts = tiny::take_apart(file);
  edit(parts);
  tiny::seal(parts);
  const std::string said = tiny::load(tiny::assemble(parts), verify).message(), prefix = "checkpoint in memory: ";
  return said.starts_with(prefix) ? said.substr(prefix.size()) : said;
}

}  // namespace

TEST_CASE("a config of version 2 is unchanged after conversion to JSON and back") {
  const ModelConfig config = tiny::scaled_config();
  const std::string text = config_to_json(config);
  CHECK(text ==
        R"({"name":"tiny","vocab_size":16,"d_model":64,"n_heads":2,"n_kv_heads":1,"head_dim":64,)"
        R"("d_ff":64,"context":256,"norm_eps":1e-05,)"
        R"("layers":[{"kind":"sliding","window":8,"kv_slot":0,"rope":0},)"
        R"({"kind":"global","kv_slot":1,"rope":1,"head_dim":128,"n_kv_heads":2,"d_ff":192,"values_from_keys":true},)"
        R"({"kind":"sliding","window":8,"kv_slot":0,"rope":0,"factor":-0.75}],)"
        R"("structure":{"activations":"token_scales","hadamard":32,"ffn":"gated_silu","residual":"f32",)"
        R"("output":"own","biases":"qkv","norms_after":true,"norm_gains":true,"head_norms":true,"value_norms":false,)"
        R"("static_kv":false,"wide_logits":false,"logit_cap":30.5,"score_scale":0.1},"chat":{"begin":1,"close":6}})");
  auto back = config_from_json(text);
  INFO(back.status().message());
  REQUIRE(back.ok());
  CHECK(back->shape == config.shape);
  CHECK(back->score_scale == 0.1f);
  CHECK(back->arithmetic() == 2);
  CHECK(back->layers[1].head_dim == 128);
  CHECK(back->layers[1].n_kv_heads == 2);
  CHECK(back->layers[1].d_ff == 192);
  CHECK(back->layers[1].values_from_keys);
  CHECK(back->layers[2].factor == -0.75f);
  CHECK(config_to_json(*back) == text);
}

TEST_CASE("every value of a structure's words and flags is read as it was written") {
  ModelConfig config = tiny::scaled_config();
  const auto check = [&] {
    auto back = config_from_json(config_to_json(config));
    INFO(config_to_json(config) << "\n" << back.status().message());
    REQUIRE(back.ok());
    CHECK(back->shape == config.shape);
  };
  LayerShape& shape = config.shape;
  for (const Ffn ffn : {Ffn::kSquaredRelu, Ffn::kGatedSilu, Ffn::kGatedGelu}) shape.ffn = ffn, check();
  for (const Residual residual : {Residual::kBf16, Residual::kF32}) shape.residual = residual, check();
  for (const OutputMatrix output : {OutputMatrix::kEmbedding, OutputMatrix::kOwn}) shape.output = output, check();
  for (const Biases biases : {Biases::kNone, Biases::kQkv, Biases::kAll}) shape.biases = biases, check();
  for (const int32_t block : {16, 32, 64, 0}) shape.hadamard = block, check();
  shape.activations = Activations::kStaticScales, check();
  shape.f32_rows = true, check();
  for (bool LayerShape::* flag : {&LayerShape::norms_after, &LayerShape::head_norms, &LayerShape::value_norms,
                                  &LayerShape::static_kv, &LayerShape::wide_logits, &LayerShape::norm_gains})
    shape.*flag = !(shape.*flag), check();
  config = inputs_config(), check();
  config.shape.layer_inputs = 4096, check();
}

TEST_CASE("a structure without layer inputs and rows in f32 does not name them") {
  const std::string text = config_to_json(tiny::scaled_config());
  CHECK_FALSE(tiny::contains(text, "layer_inputs"));
  CHECK_FALSE(tiny::contains(text, "f32_rows"));
  CHECK(tiny::contains(config_to_json(inputs_config()), R"("score_scale":0.1,"layer_inputs":128})"));
  CHECK(tiny::contains(config_to_json(static_inputs_config()), R"("layer_inputs":64,"f32_rows":true})"));
}

TEST_CASE("every broken rule of a structure is refused with its field", "[malformed]") {
  const auto refused = [](const std::string& message, const std::function<void(ordered_json&)>& edit) {
    {
      INFO(message);
      Parts parts = tiny::take_apart(scaled_bytes());
      parts.edit_config(edit);
      const std::string text = parts.metadata()["config"];
      tiny::seal(parts);
      const Status direct = config_from_json(text).status();
      CHECK(direct.code() == StatusCode::kBadModel);
      CHECK(direct.message() == message);
      CHECK(tiny::contains(tiny::load(tiny::assemble(parts)).message(), message));
    }
  };
  const auto in_structure = [&](const std::string& message, const char* field, const ordered_json& value) {
    refused("config.structure." + message, [=](auto& c) { c["structure"][field] = value; });
  };
  const auto in_layer = [&](const std::string& message, size_t layer, const char* field, const ordered_json& value) {
    refused(fmt::format("config.layers[{}].{}", layer, message), [=](auto& c) { c["layers"][layer][field] = value; });
  };
  refused("config.structure must be an object", [](auto& c) { c["structure"] = 7; });
  refused("config.structure.activations is missing", [](auto& c) { c["structure"] = ordered_json::object(); });
  for (const char* field :
       {"activations", "hadamard", "ffn", "residual", "output", "biases", "norms_after", "norm_gains", "head_norms",
        "value_norms", "static_kv", "wide_logits", "logit_cap", "score_scale"})
    refused(fmt::format("config.structure.{} is missing", field), [=](auto& c) { c["structure"].erase(field); });
  in_structure("\"experts\" is not a field this build knows", "experts", 8);
  in_structure("activations is \"int4\": must be one of static_clips, token_scales, static_scales", "activations",
               "int4");
  in_structure("activations is \"static_clips\": such models have no field structure", "activations", "static_clips");
  in_structure("ffn is \"silu\": must be one of squared_relu, gated_silu, gated_gelu", "ffn", "silu");
  in_structure("ffn must be a string", "ffn", 2);
  in_structure("residual is \"f16\": must be one of bf16, f32", "residual", "f16");
  in_structure("output is \"tied\": must be one of embedding, own", "output", "tied");
  in_structure("biases is \"some\": must be one of none, qkv, all", "biases", "some");
  in_structure("head_norms must be true or false", "head_norms", 1);
  for (const int block : {1, 8, 48, 128})
    in_structure(fmt::format("hadamard is {}: must be 0, 16, 32 or 64", block), "hadamard", block);
  in_structure("hadamard is 32: must be 0 with activations \"static_scales\"", "activations", "static_scales");
  in_structure("norms_after is true: must be false where norm_gains is false", "norm_gains", false);
  in_structure("logit_cap is 0.5: must be 0 or from 1 to 1e6", "logit_cap", 0.5);
  in_structure("logit_cap is -30: must be 0 or from 1 to 1e6", "logit_cap", -30);
  in_structure("logit_cap is 2000000: must be 0 or from 1 to 1e6", "logit_cap", 2e6);
  in_structure("logit_cap must be a number", "logit_cap", "30");
  in_structure("score_scale is -0.125: must be 0 or from 1e-6 to 1e3", "score_scale", -0.125);
  in_structure("score_scale is 1001: must be 0 or from 1e-6 to 1e3", "score_scale", 1001);
  for (const int width : {32, 96, 4160})
    in_structure(fmt::format("layer_inputs is {}: must be 0, or a multiple of 64 from 64 to 4096", width),
                 "layer_inputs", width);
  refused("config.structure.layer_inputs is 64: must be 0 with ffn \"squared_relu\": the layers' inputs are gated",
          [](auto& c) { c["structure"]["layer_inputs"] = 64, c["structure"]["ffn"] = "squared_relu"; });
  refused("config.structure.layer_inputs is 64: must be 0 where norms_after is false",
          [](auto& c) { c["structure"]["layer_inputs"] = 64, c["structure"]["norms_after"] = false; });
  in_structure("f32_rows is true: must be false without activations \"static_scales\"", "f32_rows", true);

  in_layer("head_dim is 96: must be 64, 128, 256 or 512", 1, "head_dim", 96);
  in_layer("n_kv_heads is 3: must divide n_heads, 2", 1, "n_kv_heads", 3);
  in_layer("d_ff is 100: must be a multiple of 64 from 64 to 65536", 1, "d_ff", 100);
  in_layer("factor is 0: must be from 1e-6 to 1e3 in magnitude", 1, "factor", 0);
  in_layer("factor is 1001: must be from 1e-6 to 1e3 in magnitude", 1, "factor", 1001);
  in_layer("values_from_keys must be true or false", 1, "values_from_keys", "yes");
  in_layer("kv_slot is 0: must share kind, window, rope, head_dim and n_kv_heads with layer 0, which owns the slot", 2,
           "n_kv_heads", 2);
  in_layer("rope is 0: all layers that use a table have the same head_dim", 2, "head_dim", 128);
  refused("config.layers[1].head_dim is 512: with 256 heads the queries would be wider than 65536", [](auto& c) {
    c["n_heads"] = 256;
    c["layers"][1]["head_dim"] = 512;
  });
  refused("config.layers[1].factor is 100: the magnitudes above 1 of all factors, multiplied, must be at most 1e4",
          [](auto& c) { c["layers"][0]["factor"] = 1000, c["layers"][1]["factor"] = 100; });
  refused("config.head_dim is 96: must be 64, 128, 256 or 512", [](auto& c) { c["head_dim"] = 96; });
  refused("config.layers[1] has dimensions of its own, which need version 2 of the arithmetic",
          [](auto& c) { c.erase("structure"); });
}

TEST_CASE("a file whose version of the arithmetic is not that of its config is refused", "[malformed]") {
  Parts scaled = tiny::take_apart(scaled_bytes());
  CHECK(scaled.metadata()["arithmetic"] == "2");
  scaled.metadata()["arithmetic"] = "1";
  tiny::seal(scaled);
  CHECK(tiny::contains(tiny::load(tiny::assemble(scaled)).message(),
                       "__metadata__.arithmetic is \"1\", but the config has the layers of version 2"));
  Parts first = tiny::take_apart(tiny::bytes());
  CHECK(first.metadata()["arithmetic"] == "1");
  first.metadata()["arithmetic"] = "2";
  tiny::seal(first);
  CHECK(tiny::contains(tiny::load(tiny::assemble(first)).message(),
                       "__metadata__.arithmetic is \"2\", but the config has the layers of version 1"));
  first.metadata()["arithmetic"] = "3";
  tiny::seal(first);
  CHECK(tiny::load(tiny::assemble(first)).code() == StatusCode::kUnsupported);
}

TEST_CASE("the tensors of a model with token scales are those of the format's description") {
  Wanted wanted;
  wanted.matrix("embed", 16, 64).floats("embed.in_scalar", 1).matrix("output", 16, 64);
  wanted.add("rope.0", "U64 32").add("rope.1", "U64 64").floats("final.gain", 64);
  const auto layer = [&](const std::string& name, int query, int ffn, int head_dim) {
    wanted.matrix(name + ".attn.q", query, 64).floats(name + ".attn.q.bias", query);
    wanted.matrix(name + ".attn.o", 64, query);
    wanted.matrix(name + ".ffn.gate", ffn, 64).matrix(name + ".ffn.up", ffn, 64).matrix(name + ".ffn.down", 64, ffn);
    for (const char* gain : {".attn.gain", ".attn.post_gain", ".ffn.gain", ".ffn.post_gain"})
      wanted.floats(name + gain, 64);
    wanted.floats(name + ".attn.q_gain", head_dim);
  };
  layer("layers.0", 128, 64, 64);
  layer("layers.1", 256, 192, 128);
  layer("layers.2", 128, 64, 64);
  wanted.matrix("kv.0.k", 64, 64).floats("kv.0.k.bias", 64).matrix("kv.0.v", 64, 64).floats("kv.0.v.bias", 64);
  wanted.floats("kv.0.k_gain", 64).floats("kv.0.k_step", 64).floats("kv.0.v_step", 64);
  wanted.matrix("kv.1.k", 256, 64).floats("kv.1.k.bias", 256);  // its values are those of the matrix of the keys
  wanted.floats("kv.1.k_gain", 128).floats("kv.1.k_step", 256).floats("kv.1.v_step", 256);
  CHECK(text_of(tiny::scaled_config()) == wanted.sorted());
}

TEST_CASE("the tensors of a model with static scales are those of the format's description") {
  Wanted wanted;
  wanted.matrix("embed", 16, 64).floats("embed.in_scalar", 1).floats("embed.out_scalar", 1).add("rope.0", "U64 32");
  const auto with_step = [&](const std::string& name, int out, int in) {
    wanted.matrix(name, out, in).floats(name + ".bias", out).floats(name + ".out_step", 1);
  };
  with_step("kv.0.k", 64, 64);
  with_step("kv.0.v", 64, 64);
  with_step("layers.0.attn.q", 128, 64);
  with_step("layers.0.attn.o", 64, 128);
  with_step("layers.0.ffn.up", 64, 64);
  with_step("layers.0.ffn.down", 64, 64);
  for (const char* step : {"attn.in_step", "attn.out_step", "ffn.in_step", "ffn.mid_step"})
    wanted.floats(fmt::format("layers.0.{}", step), 1);
  wanted.floats("kv.0.k_step", 64).floats("kv.0.v_step", 64);
  wanted.matrix("classifier", 2, 64).floats("classifier.bias", 2);
  CHECK(text_of(static_config()) == wanted.sorted());
}

TEST_CASE("the tensors of layer inputs are those of the format's description") {
  const auto added = [](const ModelConfig& config) {
    ModelConfig without = config;
    without.shape.layer_inputs = 0;
    const std::vector<std::string> all = text_of(config), others = text_of(without);
    std::vector<std::string> found;
    std::set_difference(all.begin(), all.end(), others.begin(), others.end(), std::back_inserter(found));
    CHECK(all.size() == others.size() + found.size());
    return found;
  };
  Wanted wanted;
  wanted.matrix("inputs.embed", 3 * 16, 128).matrix("inputs.projection", 3 * 128, 64).floats("inputs.gain", 128);
  for (const char* layer : {"layers.0", "layers.1", "layers.2"}) {
    wanted.matrix(std::string(layer) + ".inputs.gate", 128, 64).matrix(std::string(layer) + ".inputs.out", 64, 128);
    wanted.floats(std::string(layer) + ".inputs.post_gain", 64);
  }
  CHECK(added(inputs_config()) == wanted.sorted());

  Wanted of_static;
  of_static.matrix("inputs.embed", 16, 64).floats("inputs.gain", 64).floats("inputs.in_step", 1);
  for (const char* matrix : {"inputs.projection", "layers.0.inputs.gate", "layers.0.inputs.out"})
    of_static.matrix(matrix, 64, 64)
        .floats(fmt::format("{}.bias", matrix), 64)
        .floats(fmt::format("{}.out_step", matrix), 1);
  of_static.floats("layers.0.inputs.in_step", 1).floats("layers.0.inputs.mid_step", 1);
  of_static.floats("layers.0.inputs.post_gain", 64);
  CHECK(added(static_inputs_config()) == of_static.sorted());
}

TEST_CASE("gains, biases, steps and scales of version 2 must be within their ranges", "[malformed]") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(after(scaled_bytes(), [](Parts&) {}) == "");
  CHECK(after(static_bytes(), [](Parts&) {}) == "");
  const auto refused = [&](const std::string& file, const char* tensor, size_t index,
                           std::initializer_list<float> values, const char* rule) {
    for (const float value : values) {
      for (const Verify verify : {Verify::kFull, Verify::kNone})
        CHECK(after(
                  file, [&](Parts& p) { p.put<float>(tensor, index, value); }, verify) ==
              fmt::format("tensor {}[{}] is {}: must be {}", tensor, index, value, rule));
    }
  };
  const auto taken = [&](const std::string& file, const char* tensor, std::initializer_list<float> values) {
    for (const float value : values) CHECK(after(file, [&](Parts& p) { p.put<float>(tensor, 0, value); }) == "");
  };
  for (const char* gain :
       {"layers.0.attn.gain", "layers.1.ffn.post_gain", "layers.2.attn.q_gain", "kv.1.k_gain", "final.gain"}) {
    refused(scaled_bytes(), gain, 7, {std::nanf(""), infinity, -infinity, 1.1e5f, -1.1e5f}, "finite, from -1e5 to 1e5");
    taken(scaled_bytes(), gain, {0.0f, -0.0f, -1e5f, 1e5f, 1e-40f});
  }
  for (const auto& [file, bias] : {std::pair(&scaled_bytes(), "kv.1.k.bias"),
                                   {&scaled_bytes(), "layers.2.attn.q.bias"},
                                   {&static_bytes(), "layers.0.ffn.down.bias"},
                                   {&static_bytes(), "classifier.bias"}}) {
    refused(*file, bias, 1, {std::nanf(""), infinity, 1.1e6f, -1.1e6f}, "finite, from -1e6 to 1e6");
    taken(*file, bias, {0.0f, -1e6f, 1e6f});
  }
  for (const char* step :
       {"kv.0.k_step", "kv.0.v_step", "kv.0.k.out_step", "layers.0.ffn.up.out_step", "layers.0.attn.in_step",
        "layers.0.attn.out_step", "layers.0.ffn.in_step", "layers.0.ffn.mid_step"}) {
    refused(static_bytes(), step, 0, {std::nanf(""), infinity, 0.0f, -1.0f, 0.9e-6f, 1.1e6f},
            "finite, from 1e-6 to 1e6");
    taken(static_bytes(), step, {1e-6f, 1e6f});
  }
  for (const char* gain : {"inputs.gain", "layers.1.inputs.post_gain"})
    refused(inputs_bytes(), gain, 7, {std::nanf(""), 1.1e5f}, "finite, from -1e5 to 1e5");
  for (const char* step : {"inputs.in_step", "inputs.projection.out_step", "layers.0.inputs.in_step",
                           "layers.0.inputs.mid_step", "layers.0.inputs.gate.out_step"})
    refused(static_inputs_bytes(), step, 0, {std::nanf(""), 0.0f, 1.1e6f}, "finite, from 1e-6 to 1e6");
  refused(scaled_bytes(), "output.scale", 3, {std::nanf(""), infinity, 0.0f, 1.1e18f}, "finite, from 1e-18 to 1e18");
}

TEST_CASE("the scale of a row times the virtual scalar is at most 1,000 in version 2", "[malformed]") {
  const auto too_large = [](const std::string& file, const std::string& matrix, const std::string& scalar) {
    const std::string said = after(file, [&](Parts& p) {
      p.put<float>(matrix + ".scale", 1, 101.0f);
      p.put<float>(scalar, 0, 10.0f);
    });
    CHECK(said == fmt::format("tensor {}.scale times {} is 1.01e+03: must be at most 1e3", matrix, scalar));
  };
  too_large(scaled_bytes(), "embed", "embed.in_scalar");
  too_large(scaled_bytes(), "output", "output.scalar");
  too_large(static_bytes(), "embed", "embed.out_scalar");
  too_large(static_bytes(), "classifier", "classifier.scalar");
  for (const char* matrix :
       {"kv.1.k", "layers.0.attn.q", "layers.1.attn.o", "layers.2.ffn.gate", "layers.2.ffn.up", "layers.0.ffn.down"})
    too_large(scaled_bytes(), matrix, std::string(matrix) + ".scalar");
  for (const char* matrix : {"inputs.embed", "inputs.projection", "layers.1.inputs.gate", "layers.2.inputs.out"})
    too_large(inputs_bytes(), matrix, std::string(matrix) + ".scalar");
}

TEST_CASE("no weight of version 2 may be -128, and each tensor is caught by its digest", "[malformed]") {
  for (const std::string& matrix : tiny::matrices_of(tiny::scaled_config()))
    CHECK(tiny::contains(after(scaled_bytes(), [&](Parts& p) { p.put<int8_t>(matrix + ".weight", 5, -128); }),
                         "tensor " + matrix + ".weight: row 0 holds the weight -128"));
  CHECK(tiny::contains(after(inputs_bytes(), [](Parts& p) { p.put<int8_t>("inputs.embed.weight", 128, -128); }),
                       "tensor inputs.embed.weight: row 1 holds the weight -128"));
  for (const std::string* bytes : {&scaled_bytes(), &inputs_bytes()}) {
    const Parts good = tiny::take_apart(*bytes);
    for (const auto& [name, entry] : good.header.items()) {
      if (name == "__metadata__") continue;
      Parts parts = good;
      parts.data[good.place(name).first] ^= 1;
      CHECK(tiny::contains(tiny::load(tiny::assemble(parts)).message(), name));
    }
  }
}
