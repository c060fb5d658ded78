// Converts a model's config from JSON text to ModelConfig and back, and checks every rule of docs/checkpoint.md,
// "Config".
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "chat_template.hpp"
#include "json.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "reader.hpp"

namespace kaiju {
namespace {

using format::in_quotes;
using format::Json;
using format::JsonObject;
using format::Reader;

constexpr format::JsonLimits kConfigLimits = {4, 4096, 6 * format::kMostChatTextBytes};  // 6: as \u0000 is written
constexpr size_t kMostNameBytes = 128;
constexpr int32_t kMostPositions = 1 << 24;
constexpr int32_t kMostWidth = 65536;  // keeps every int8 dot product within int32 (arithmetic.md, section 1)

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

// What errors call the values of a shape.
const char* word(bool value) { return value ? "true" : "false"; }
const char* word(Activations value) { return value == Activations::kStaticClips ? "static clips" : "token scales"; }
const char* word(Residual value) { return value == Residual::kBf16 ? "bf16" : "f32"; }
const char* word(OutputMatrix value) { return value == OutputMatrix::kEmbedding ? "the embedding's" : "its own"; }
const char* word(Ffn value) {
  switch (value) {
    case Ffn::kSquaredRelu:
      return "squared ReLU";
    case Ffn::kGatedSilu:
      return "gated SiLU";
    case Ffn::kGatedGelu:
      return "gated GELU";
  }
  return "unknown";
}

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
  return reader.end();
}

Status read_chat(const Json& value, ChatSymbols& chat) {
  if (!value.object()) return bad_model("config.chat must be an object");
  Reader reader(*value.object(), "config.chat");
  for (const ChatField& field : kChatFields)
    if (reader.has(field.name)) KAIJU_TRY(reader.number(field.name, chat.*field.member));
  return reader.end();
}

Status read_classifier(const Json& value, std::vector<std::string>& labels) {
  if (!value.object()) return bad_model("config.classifier must be an object");
  Reader reader(*value.object(), "config.classifier");
  const Json* found = nullptr;
  KAIJU_TRY(reader.find("labels", &found));
  if (!found->array() || found->array()->empty())
    return bad_model("config.classifier.labels must be a list of strings, and not empty");
  for (const Json& label : *found->array()) {
    if (!label.text()) return bad_model(fmt::format("config.classifier.labels[{}] must be a string", labels.size()));
    labels.push_back(*label.text());
  }
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
    KAIJU_TRY(read_classifier(*found, config.labels));
  }
  return reader.end();
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
  if (c.head_dim != 64 && c.head_dim != 128 && c.head_dim != 256)
    return bad_model(fmt::format("config.head_dim is {}: must be 64, 128 or 256", c.head_dim));
  KAIJU_TRY(range("n_heads", c.n_heads, 1, kMostWidth / c.head_dim, 1));
  KAIJU_TRY(range("n_kv_heads", c.n_kv_heads, 1, c.n_heads, 1));
  if (c.n_heads % c.n_kv_heads != 0)
    return bad_model(fmt::format("config.n_kv_heads is {}: must divide n_heads, {}", c.n_kv_heads, c.n_heads));
  if (!(c.norm_eps >= 1e-12f && c.norm_eps <= 1.0f))
    return bad_model(fmt::format("config.norm_eps is {}: must be from 1e-12 to 1", c.norm_eps));
  return {};
}

// Every member must be as in LayerShape(): nothing else is computed yet.
Status check_shape(const LayerShape& shape) {
  const LayerShape served;
  const auto check = [](const char* member, auto value, auto wanted) -> Status {
    if (value == wanted) return {};
    return {StatusCode::kUnsupported,
            fmt::format("config.shape.{} is {}: not supported yet; must be {}", member, word(value), word(wanted))};
  };
  KAIJU_TRY(check("activations", shape.activations, served.activations));
  KAIJU_TRY(check("ffn", shape.ffn, served.ffn));
  KAIJU_TRY(check("residual", shape.residual, served.residual));
  KAIJU_TRY(check("output", shape.output, served.output));
  KAIJU_TRY(check("norms_after", shape.norms_after, served.norms_after));
  KAIJU_TRY(check("norm_gains", shape.norm_gains, served.norm_gains));
  KAIJU_TRY(check("head_norms", shape.head_norms, served.head_norms));
  KAIJU_TRY(check("biases", shape.biases, served.biases));
  return {};
}

Status check_layers(const ModelConfig& c) {
  if (c.layers.empty() || c.layers.size() > kMostLayers)
    return bad_model(fmt::format("config.layers has {} entries: 1 to {} allowed", c.layers.size(), kMostLayers));
  int32_t next_slot = 0;
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
    if (layer.kind != first.kind || layer.window != first.window || layer.rope != first.rope)
      return refuse("kv_slot", layer.kv_slot,
                    fmt::format("must share kind, window and rope with layer {}, which owns the slot", owner));
  }
  for (int32_t rope = 0; rope < c.rope_count; ++rope)
    if (!rope_seen[static_cast<size_t>(rope)])
      return bad_model(fmt::format("config.layers name no rope {}: tables are numbered from 0 without gaps", rope));
  return {};
}

Status check_name(const std::string& field, const std::string& name) {
  if (name.size() > kMostNameBytes) return bad_model(fmt::format("{} is longer than {} bytes", field, kMostNameBytes));
  if (!format::is_utf8(name)) return bad_model(fmt::format("{} is not UTF-8", field));
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    const bool is_c1 = byte == 0xC2 && static_cast<unsigned char>(name[i + 1]) < 0xA0;  // U+0080 to U+009F
    if (byte < 0x20 || byte == 0x7F || is_c1) return bad_model(fmt::format("{} holds a control character", field));
  }
  return {};
}

Status check_labels(const std::vector<std::string>& labels) {
  if (labels.size() > kMostLabels)
    return bad_model(
        fmt::format("config.classifier.labels has {} entries: 1 to {} allowed", labels.size(), kMostLabels));
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::string field = fmt::format("config.classifier.labels[{}]", i);
    KAIJU_TRY(check_name(field, labels[i]));
    if (labels[i].empty()) return bad_model(fmt::format("{} is empty", field));
    if (std::count(labels.begin(), labels.end(), labels[i]) > 1)
      return bad_model(fmt::format("{} is {}, as another one is", field, in_quotes(labels[i])));
  }
  return {};
}

}  // namespace

Status check_config(const ModelConfig& config) {
  const FloatState float_state;
  KAIJU_TRY(check_name("config.name", config.name));
  KAIJU_TRY(check_dimensions(config));
  KAIJU_TRY(check_shape(config.shape));
  ModelConfig derived = config;
  derived.derive_counts();
  KAIJU_TRY(check_layers(derived));
  if (config.kv_slot_count != derived.kv_slot_count || config.rope_count != derived.rope_count)
    return bad_model("config.kv_slot_count and rope_count do not match the layers: call derive_counts()");
  KAIJU_TRY(check_labels(config.labels));
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
  // The shortest decimal that is this f32, not the seventeen digits of its double.
  char digits[32];
  double norm_eps = 0;
  std::from_chars(digits, std::to_chars(digits, digits + sizeof digits, config.norm_eps).ptr, norm_eps);
  std::string text = fmt::format(
      "{{\"name\":{},\"vocab_size\":{},\"d_model\":{},\"n_heads\":{},\"n_kv_heads\":{},\"head_dim\":{},\"d_ff\":{},"
      "\"context\":{},\"norm_eps\":{},\"layers\":[",
      format::json_string(config.name), config.vocab_size, config.d_model, config.n_heads, config.n_kv_heads,
      config.head_dim, config.d_ff, config.context, format::json_number(norm_eps));
  for (const LayerConfig& layer : config.layers) {
    const bool sliding = layer.kind == LayerKind::kWindow;
    if (text.back() != '[') text += ',';
    text += fmt::format("{{\"kind\":\"{}\"", sliding ? "sliding" : "global");
    if (sliding) text += fmt::format(",\"window\":{}", layer.window);
    text += fmt::format(",\"kv_slot\":{},\"rope\":{}}}", layer.kv_slot, layer.rope);
  }
  text += ']';
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
