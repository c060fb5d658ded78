// Converts a model's config from JSON text to ModelConfig and back, and checks every rule of docs/checkpoint.md,
// "Config".
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat_template.hpp"
#include "json.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "labels.hpp"
#include "reader.hpp"

namespace kaiju {
namespace {

using format::in_quotes;
using format::Json;
using format::JsonObject;
using format::Reader;

constexpr format::JsonLimits kConfigLimits = {4, 4096, 6 * format::kMostChatTextBytes};  // 6: as \u0000 is written
constexpr int32_t kMostPositions = 1 << 24;
constexpr double kMostGrowth = 1e4;    // keeps the residual stream finite (arithmetic-2.md, section 4)
constexpr int32_t kMostWidth = 65536;  // keeps every int8 dot product within int32 (arithmetic.md, section 1)
constexpr int32_t kMostInputWidth = 4096;

struct ChatField {
  const char* name;
  int32_t ChatSymbols::* member;
  bool of_messages = false;  // says how messages are written, as chat_format does
};
constexpr ChatField kChatFields[] = {{"begin", &ChatSymbols::begin},
                                     {"end", &ChatSymbols::end},
                                     {"card", &ChatSymbols::card, true},
                                     {"user", &ChatSymbols::user, true},
                                     {"character", &ChatSymbols::character, true},
                                     {"close", &ChatSymbols::close, true},
                                     {"text", &ChatSymbols::text}};

// The names of the values of a shape's enums, in the order of the enums.
constexpr std::string_view kActivationNames[] = {"static_clips", "token_scales", "static_scales"};
constexpr std::string_view kFfnNames[] = {"squared_relu", "gated_silu", "gated_gelu"};
constexpr std::string_view kResidualNames[] = {"bf16", "f32"};
constexpr std::string_view kOutputNames[] = {"embedding", "own"};
constexpr std::string_view kBiasNames[] = {"none", "qkv", "all"};

struct ShapeFlag {
  const char* name;
  bool LayerShape::* member;
};
constexpr ShapeFlag kShapeFlags[] = {
    {"norms_after", &LayerShape::norms_after}, {"norm_gains", &LayerShape::norm_gains},
    {"head_norms", &LayerShape::head_norms},   {"value_norms", &LayerShape::value_norms},
    {"static_kv", &LayerShape::static_kv},     {"wide_logits", &LayerShape::wide_logits}};

Status read_layer(const Json& value, const std::string& path, LayerConfig& layer) {
  if (!value.object()) return bad_model(fmt::format("{} must be an object", path));
  Reader reader(*value.object(), path);
  std::string kind;
  KAIJU_TRY(reader.string("kind", kind));
  if (kind == "sliding") {
    layer.kind = LayerKind::kWindow;
    KAIJU_TRY(reader.number("window", layer.window));
  } else if (kind == "global") {
    layer.kind = LayerKind::kGlobal;
  } else {
    return bad_model(fmt::format("{}.kind is {}: must be \"sliding\" or \"global\"", path, in_quotes(kind)));
  }
  KAIJU_TRY(reader.number("kv_slot", layer.kv_slot));
  KAIJU_TRY(reader.number("rope", layer.rope));
  for (const auto& [key, member] :
       {std::pair("head_dim", &LayerConfig::head_dim), std::pair("n_kv_heads", &LayerConfig::n_kv_heads),
        std::pair("d_ff", &LayerConfig::d_ff)})
    if (reader.has(key)) KAIJU_TRY(reader.number(key, layer.*member));
  if (reader.has("values_from_keys")) KAIJU_TRY(reader.flag("values_from_keys", layer.values_from_keys));
  if (reader.has("factor")) KAIJU_TRY(reader.number("factor", layer.factor));
  return reader.end();
}

Status read_shape(const Json& value, ModelConfig& config) {
  if (!value.object()) return bad_model("config.structure must be an object");
  Reader reader(*value.object(), "config.structure");
  LayerShape& shape = config.shape;
  KAIJU_TRY(reader.name("activations", kActivationNames, shape.activations));
  KAIJU_TRY(reader.number("hadamard", shape.hadamard));
  KAIJU_TRY(reader.name("ffn", kFfnNames, shape.ffn));
  KAIJU_TRY(reader.name("residual", kResidualNames, shape.residual));
  KAIJU_TRY(reader.name("output", kOutputNames, shape.output));
  KAIJU_TRY(reader.name("biases", kBiasNames, shape.biases));
  for (const ShapeFlag& flag : kShapeFlags) KAIJU_TRY(reader.flag(flag.name, shape.*flag.member));
  KAIJU_TRY(reader.number("logit_cap", shape.logit_cap));
  KAIJU_TRY(reader.number("score_scale", config.score_scale));
  if (reader.has("layer_inputs")) KAIJU_TRY(reader.number("layer_inputs", shape.layer_inputs));
  if (reader.has("f32_rows")) KAIJU_TRY(reader.flag("f32_rows", shape.f32_rows));
  if (shape.activations == Activations::kStaticClips)
    return bad_model("config.structure.activations is \"static_clips\": such models have no field structure");
  return reader.end();
}

Status read_chat(const Json& value, ChatSymbols& chat) {
  if (!value.object()) return bad_model("config.chat must be an object");
  Reader reader(*value.object(), "config.chat");
  for (const ChatField& field : kChatFields)
    if (reader.has(field.name)) KAIJU_TRY(reader.number(field.name, chat.*field.member));
  return reader.end();
}

Status read_config(const JsonObject& value, ModelConfig& config) {
  Reader reader(value, "config");
  KAIJU_TRY(reader.string("name", config.name));
  KAIJU_TRY(reader.number("vocab_size", config.vocab_size));
  KAIJU_TRY(reader.number("d_model", config.d_model));
  KAIJU_TRY(reader.number("n_heads", config.n_heads));
  KAIJU_TRY(reader.number("n_kv_heads", config.n_kv_heads));
  KAIJU_TRY(reader.number("head_dim", config.head_dim));
  KAIJU_TRY(reader.number("d_ff", config.d_ff));
  KAIJU_TRY(reader.number("context", config.context));
  KAIJU_TRY(reader.number("norm_eps", config.norm_eps));
  const Json* found = nullptr;
  KAIJU_TRY(reader.find("layers", &found));
  const std::vector<Json>* layers = found->array();
  if (!layers) return bad_model("config.layers must be a list");
  if (layers->size() > kMostLayers)
    return bad_model(fmt::format("config.layers has {} entries: 1 to {} allowed", layers->size(), kMostLayers));
  for (size_t i = 0; i < layers->size(); ++i) {
    config.layers.emplace_back();
    KAIJU_TRY(read_layer((*layers)[i], fmt::format("config.layers[{}]", i), config.layers.back()));
  }
  if (reader.has("structure")) {
    KAIJU_TRY(reader.find("structure", &found));
    KAIJU_TRY(read_shape(*found, config));
  }
  if (reader.has("chat")) {
    KAIJU_TRY(reader.find("chat", &found));
    KAIJU_TRY(read_chat(*found, config.chat));
  }
  if (reader.has("chat_format")) {
    KAIJU_TRY(reader.find("chat_format", &found));
    KAIJU_TRY(format::read_chat_template(*found, config.chat_format.emplace()));
  }
  if (reader.has("classifier")) {
    KAIJU_TRY(reader.find("classifier", &found));
    KAIJU_TRY(format::read_classifier(*found, config.labels));
  }
  return reader.end();
}

bool is_head_dim(const ModelConfig& c, int32_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256 || (head_dim == 512 && c.arithmetic() == 2);
}

Status check_dimensions(const ModelConfig& c) {
  const auto range = [](const char* field, int64_t value, int64_t least, int64_t most, int64_t multiple) -> Status {
    if (value >= least && value <= most && value % multiple == 0) return {};
    const std::string step = multiple > 1 ? fmt::format("a multiple of {} ", multiple) : "";
    return bad_model(fmt::format("config.{} is {}: must be {}from {} to {}", field, value, step, least, most));
  };
  KAIJU_TRY(range("vocab_size", c.vocab_size, 16, 1 << 20, 16));
  KAIJU_TRY(range("d_model", c.d_model, 64, kMostWidth, 64));
  KAIJU_TRY(range("d_ff", c.d_ff, 64, kMostWidth, 64));
  KAIJU_TRY(range("context", c.context, 1, kMostPositions, 1));
  if (!is_head_dim(c, c.head_dim))
    return bad_model(fmt::format("config.head_dim is {}: must be 64, 128{}", c.head_dim,
                                 c.arithmetic() == 1 ? " or 256" : ", 256 or 512"));
  KAIJU_TRY(range("n_heads", c.n_heads, 1, kMostWidth / c.head_dim, 1));
  KAIJU_TRY(range("n_kv_heads", c.n_kv_heads, 1, c.n_heads, 1));
  if (c.n_heads % c.n_kv_heads != 0)
    return bad_model(fmt::format("config.n_kv_heads is {}: must divide n_heads, {}", c.n_kv_heads, c.n_heads));
  if (!(c.norm_eps >= 1e-12f && c.norm_eps <= 1.0f))
    return bad_model(fmt::format("config.norm_eps is {}: must be from 1e-12 to 1", c.norm_eps));
  return {};
}

Status check_layer_inputs(const ModelConfig& c) {
  const auto refuse = [&](const std::string& rule) {
    return bad_model(fmt::format("config.structure.layer_inputs is {}: {}", c.shape.layer_inputs, rule));
  };
  const int32_t width = c.shape.layer_inputs;
  if (width == 0) return {};
  if (width < 64 || width > kMostInputWidth || width % 64 != 0)
    return refuse(fmt::format("must be 0, or a multiple of 64 from 64 to {}", kMostInputWidth));
  if (!is_gated(c.shape)) return refuse("must be 0 with ffn \"squared_relu\": the layers' inputs are gated");
  if (!c.shape.norms_after) return refuse("must be 0 where norms_after is false");
  return {};
}

Status check_shape(const ModelConfig& c) {
  const LayerShape& shape = c.shape;
  if (has_clips(shape)) {
    if (shape == LayerShape() && c.score_scale == 0.0f) return {};
    return bad_model(
        "config.structure: with static clips (version 1 of the arithmetic) every other member has its default; choose "
        "token_scales or static_scales");
  }
  const auto refuse = [](const char* field, auto value, const char* rule) {
    return bad_model(fmt::format("config.structure.{} is {}: {}", field, value, rule));
  };
  const int32_t block = shape.hadamard;
  if (block != 0 && block != 16 && block != 32 && block != 64)
    return refuse("hadamard", block, "must be 0, 16, 32 or 64");
  if (block != 0 && has_static_steps(shape))
    return refuse("hadamard", block, "must be 0 with activations \"static_scales\"");
  if (!(shape.logit_cap == 0.0f || (shape.logit_cap >= 1.0f && shape.logit_cap <= 1e6f)))
    return refuse("logit_cap", shape.logit_cap, "must be 0 or from 1 to 1e6");
  if (!(c.score_scale == 0.0f || (c.score_scale >= 1e-6f && c.score_scale <= 1e3f)))
    return refuse("score_scale", c.score_scale, "must be 0 or from 1e-6 to 1e3");
  if (shape.norms_after && !shape.norm_gains)
    return refuse("norms_after", true, "must be false where norm_gains is false");
  if (shape.f32_rows && !has_static_steps(shape))
    return refuse("f32_rows", true, "must be false without activations \"static_scales\"");
  return check_layer_inputs(c);
}

// What a layer of version 2 may have of its own.
Status check_own_dimensions(const ModelConfig& c, size_t i) {
  const LayerConfig& layer = c.layers[i];
  const auto refuse = [&](const char* field, auto value, const std::string& rule) {
    return bad_model(fmt::format("config.layers[{}].{} is {}: {}", i, field, value, rule));
  };
  const bool has_own =
      layer.head_dim != 0 || layer.n_kv_heads != 0 || layer.d_ff != 0 || layer.values_from_keys || layer.factor != 1.0f;
  if (c.arithmetic() == 1 && has_own)
    return bad_model(
        fmt::format("config.layers[{}] has dimensions of its own, which need version 2 of the arithmetic", i));
  if (layer.head_dim != 0 && !is_head_dim(c, layer.head_dim))
    return refuse("head_dim", layer.head_dim, "must be 64, 128, 256 or 512");
  const int32_t head_dim = c.head_dim_of(static_cast<int32_t>(i));
  if (int64_t{c.n_heads} * head_dim > kMostWidth)
    return refuse("head_dim", head_dim,
                  fmt::format("with {} heads the queries would be wider than {}", c.n_heads, kMostWidth));
  if (layer.n_kv_heads != 0 &&
      (layer.n_kv_heads < 0 || layer.n_kv_heads > c.n_heads || c.n_heads % layer.n_kv_heads != 0))
    return refuse("n_kv_heads", layer.n_kv_heads, fmt::format("must divide n_heads, {}", c.n_heads));
  if (layer.d_ff != 0 && (layer.d_ff < 64 || layer.d_ff > kMostWidth || layer.d_ff % 64 != 0))
    return refuse("d_ff", layer.d_ff, fmt::format("must be a multiple of 64 from 64 to {}", kMostWidth));
  if (!(std::abs(layer.factor) >= 1e-6f && std::abs(layer.factor) <= 1e3f))
    return refuse("factor", layer.factor, "must be from 1e-6 to 1e3 in magnitude");
  return {};
}

Status check_layers(const ModelConfig& c) {
  if (c.layers.empty() || c.layers.size() > kMostLayers)
    return bad_model(fmt::format("config.layers has {} entries: 1 to {} allowed", c.layers.size(), kMostLayers));
  int32_t next_slot = 0;
  double growth = 1;  // of the residual stream, by the factors
  std::vector<bool> rope_seen(kMostLayers);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const LayerConfig& layer = c.layers[i];
    const auto refuse = [&](const char* field, int64_t value, const std::string& rule) {
      return bad_model(fmt::format("config.layers[{}].{} is {}: {}", i, field, value, rule));
    };
    if (layer.kind != LayerKind::kWindow && layer.kind != LayerKind::kGlobal)
      return refuse("kind", static_cast<int64_t>(layer.kind), "must be sliding or global");
    if (layer.kind == LayerKind::kWindow && (layer.window < 1 || layer.window > kMostPositions))
      return refuse("window", layer.window, fmt::format("must be from 1 to {}", kMostPositions));
    if (layer.kind == LayerKind::kGlobal && layer.window != 0)
      return refuse("window", layer.window, "a global layer has none");
    if (layer.rope < 0 || layer.rope >= kMostLayers)
      return refuse("rope", layer.rope, "tables are numbered from 0 without gaps");
    KAIJU_TRY(check_own_dimensions(c, i));
    growth *= std::max(1.0, static_cast<double>(std::abs(layer.factor)));
    if (growth > kMostGrowth)
      return bad_model(
          fmt::format("config.layers[{}].factor is {}: the magnitudes above 1 of all factors, multiplied, must be at "
                      "most 1e4",
                      i, layer.factor));
    if (c.rope_head_dim(layer.rope) != c.head_dim_of(static_cast<int32_t>(i)))
      return refuse("rope", layer.rope, "all layers that use a table have the same head_dim");
    rope_seen[static_cast<size_t>(layer.rope)] = true;
    if (layer.kv_slot < 0 || layer.kv_slot > next_slot)
      return refuse("kv_slot", layer.kv_slot,
                    fmt::format("slots are numbered from 0 in order of first use; the next new one is {}", next_slot));
    if (layer.kv_slot == next_slot) {
      ++next_slot;
      continue;
    }
    const int32_t owner = c.owner_of(layer.kv_slot);
    const LayerConfig& first = c.layers[static_cast<size_t>(owner)];
    if (layer.kind != first.kind || layer.window != first.window || layer.rope != first.rope ||
        layer.head_dim != first.head_dim || layer.n_kv_heads != first.n_kv_heads)
      return refuse("kv_slot", layer.kv_slot,
                    fmt::format("must share kind, window{} with layer {}, which owns the slot",
                                c.arithmetic() == 1 ? " and rope" : ", rope, head_dim and n_kv_heads", owner));
  }
  for (int32_t rope = 0; rope < c.rope_count; ++rope)
    if (!rope_seen[static_cast<size_t>(rope)])
      return bad_model(fmt::format("config.layers name no rope {}: tables are numbered from 0 without gaps", rope));
  return {};
}

// The shortest decimal that is this f32, not the seventeen digits of its double.
std::string shortest(float value) {
  char digits[32];
  double nearest = 0;
  std::from_chars(digits, std::to_chars(digits, digits + sizeof digits, value).ptr, nearest);
  return format::json_number(nearest);
}

std::string shape_json(const ModelConfig& config) {
  const LayerShape& shape = config.shape;
  const auto name = [](const auto& names, auto value) { return names[static_cast<size_t>(value)]; };
  std::string text = fmt::format(
      "{{\"activations\":\"{}\",\"hadamard\":{},\"ffn\":\"{}\",\"residual\":\"{}\",\"output\":\"{}\","
      "\"biases\":\"{}\"",
      name(kActivationNames, shape.activations), shape.hadamard, name(kFfnNames, shape.ffn),
      name(kResidualNames, shape.residual), name(kOutputNames, shape.output), name(kBiasNames, shape.biases));
  for (const ShapeFlag& flag : kShapeFlags) text += fmt::format(",\"{}\":{}", flag.name, shape.*flag.member);
  text += fmt::format(",\"logit_cap\":{},\"score_scale\":{}", shortest(shape.logit_cap), shortest(config.score_scale));
  if (shape.layer_inputs != 0) text += fmt::format(",\"layer_inputs\":{}", shape.layer_inputs);
  if (shape.f32_rows) text += ",\"f32_rows\":true";
  return text + '}';
}

}  // namespace

Status check_config(const ModelConfig& config) {
  const FloatState float_state;
  KAIJU_TRY(format::check_name("config.name", config.name));
  KAIJU_TRY(check_dimensions(config));
  KAIJU_TRY(check_shape(config));
  ModelConfig derived = config;
  derived.derive_counts();
  KAIJU_TRY(check_layers(derived));
  if (config.kv_slot_count != derived.kv_slot_count || config.rope_count != derived.rope_count)
    return bad_model("config.kv_slot_count and rope_count do not match the layers: call derive_counts()");
  KAIJU_TRY(format::check_labels(config.labels));
  for (const ChatField& field : kChatFields) {
    const int32_t id = config.chat.*field.member;
    if (id < -1 || id >= config.vocab_size)
      return bad_model(fmt::format("config.chat.{} is {}: must be a token id below vocab_size, {}", field.name, id,
                                   config.vocab_size));
  }
  if (!config.chat_format) return {};
  for (const ChatField& field : kChatFields)
    if (field.of_messages && config.chat.*field.member >= 0)
      return bad_model(
          fmt::format("config.chat.{} and config.chat_format both say how messages are written: leave out "
                      "one of them",
                      field.name));
  return format::check_chat_template(*config.chat_format, config.vocab_size);
}

std::string config_to_json(const ModelConfig& config) {
  const FloatState float_state;
  std::string text = fmt::format(
      "{{\"name\":{},\"vocab_size\":{},\"d_model\":{},\"n_heads\":{},\"n_kv_heads\":{},\"head_dim\":{},\"d_ff\":{},"
      "\"context\":{},\"norm_eps\":{},\"layers\":[",
      format::json_string(config.name), config.vocab_size, config.d_model, config.n_heads, config.n_kv_heads,
      config.head_dim, config.d_ff, config.context, shortest(config.norm_eps));
  for (const LayerConfig& layer : config.layers) {
    const bool sliding = layer.kind == LayerKind::kWindow;
    if (text.back() != '[') text += ',';
    text += fmt::format("{{\"kind\":\"{}\"", sliding ? "sliding" : "global");
    if (sliding) text += fmt::format(",\"window\":{}", layer.window);
    text += fmt::format(",\"kv_slot\":{},\"rope\":{}", layer.kv_slot, layer.rope);
    if (layer.head_dim != 0) text += fmt::format(",\"head_dim\":{}", layer.head_dim);
    if (layer.n_kv_heads != 0) text += fmt::format(",\"n_kv_heads\":{}", layer.n_kv_heads);
    if (layer.d_ff != 0) text += fmt::format(",\"d_ff\":{}", layer.d_ff);
    if (layer.values_from_keys) text += ",\"values_from_keys\":true";
    if (layer.factor != 1.0f) text += fmt::format(",\"factor\":{}", shortest(layer.factor));
    text += '}';
  }
  text += ']';
  if (config.arithmetic() == 2) text += ",\"structure\":" + shape_json(config);
  std::string chat;
  for (const ChatField& field : kChatFields)
    if (config.chat.*field.member >= 0)
      chat += fmt::format("{}\"{}\":{}", chat.empty() ? "" : ",", field.name, config.chat.*field.member);
  if (!chat.empty()) text += fmt::format(",\"chat\":{{{}}}", chat);
  if (config.chat_format) text += ",\"chat_format\":" + format::chat_template_json(*config.chat_format);
  std::string labels;
  for (const std::string& label : config.labels) labels += (labels.empty() ? "" : ",") + format::json_string(label);
  if (!labels.empty()) text += fmt::format(",\"classifier\":{{\"labels\":[{}]}}", labels);
  return text + "}";
}

Result<ModelConfig> config_from_json(std::string_view text) try {
  const FloatState float_state;
  if (text.size() > kMostConfigBytes) return bad_model(fmt::format("config is longer than {} bytes", kMostConfigBytes));
  JsonObject value;
  if (Status status = format::parse_json(text, "config", kConfigLimits, value); !status.ok()) return status;
  ModelConfig config;
  if (Status status = read_config(value, config); !status.ok()) return status;
  config.derive_counts();
  if (Status status = check_config(config); !status.ok()) return status;
  return config;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace kaiju
