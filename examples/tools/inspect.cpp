// kaiju-inspect: prints the contents of a checkpoint as a table of tensors and, after it, a summary. Verifies the file
// unless an option disables that.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kaiju/backend/batch.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "kaiju/kaiju.hpp"
#include "program.hpp"

namespace {

using kaiju::Activations;
using kaiju::Biases;
using kaiju::Checkpoint;
using kaiju::Ffn;
using kaiju::LayerConfig;
using kaiju::LayerKind;
using kaiju::LayerShape;
using kaiju::ModelConfig;
using kaiju::OutputMatrix;
using kaiju::Residual;
using kaiju::TensorInfo;
using kaiju::Width;

struct Summary {
  int64_t parameters = 0;       // int8 weights
  int64_t tensor_bytes = 0;     // everything but the header
  int64_t kv_token_bytes = 0;   // per token, for as long as the sequence lives (global slots)
  int64_t kv_window_bytes = 0;  // per sequence, at most (sliding slots)
  int32_t global_slots = 0;
  int32_t sliding_slots = 0;
};

// A key and a value of one token, with their scales in version 2 of the arithmetic.
int64_t token_bytes(const ModelConfig& config, int32_t slot) {
  const int32_t layer = config.owner_of(slot);
  return config.kv_heads_of(layer) * kaiju::KvSlot::head_bytes(config.head_dim_of(layer), config.arithmetic() == 2) /
         kaiju::kBlockTokens;
}

const char* kind_name(const LayerConfig& layer) { return layer.kind == LayerKind::kGlobal ? "global" : "sliding"; }

Summary summarise(const Checkpoint& checkpoint) {
  Summary out;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.dtype == kaiju::DType::kI8) out.parameters += static_cast<int64_t>(tensor.bytes.size());
    out.tensor_bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  const ModelConfig& config = checkpoint.config();
  for (int32_t slot = 0; slot < config.kv_slot_count; ++slot) {
    const LayerConfig& owner = config.layers[static_cast<size_t>(config.owner_of(slot))];
    const int64_t slot_bytes = token_bytes(config, slot);
    if (owner.kind == LayerKind::kGlobal) {
      ++out.global_slots;
      out.kv_token_bytes += slot_bytes;
    } else {
      ++out.sliding_slots;
      out.kv_window_bytes += slot_bytes * owner.window;
    }
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", value,
                                 value < 10    ? 2
                                 : value < 100 ? 1
                                               : 0,
                                 kUnits[unit]);
}

std::string count_text(int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.1f} B", static_cast<double>(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
  return fmt::format("{}", count);
}

// "7 x (6 sliding, 1 global)", or the runs one after the other where nothing repeats.
std::string layers_text(const ModelConfig& config) {
  const size_t count = config.layers.size();
  const auto repeats_after = [&](size_t period) {
    for (size_t i = period; i < count; ++i)
      if (config.layers[i].kind != config.layers[i - period].kind) return false;
    return count % period == 0;
  };
  size_t period = 1;
  while (!repeats_after(period)) ++period;  // count itself always does
  if (period == 1) return fmt::format("{} {}", count, kind_name(config.layers[0]));
  std::vector<std::string> runs;
  for (size_t i = 0; i < period;) {
    size_t end = i;
    while (end < period && config.layers[end].kind == config.layers[i].kind) ++end;
    runs.push_back(fmt::format("{} {}", end - i, kind_name(config.layers[i])));
    i = end;
  }
  const std::string all = fmt::format("{}", fmt::join(runs, ", "));
  return period == count ? all : fmt::format("{} x ({})", count / period, all);
}

// "0-2, 7": layers that read a slot.
std::string readers_text(const ModelConfig& config, int32_t slot) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < config.layers.size();) {
    size_t end = i;
    while (end < config.layers.size() && config.layers[end].kv_slot == slot) ++end;
    if (end > i) runs.push_back(end - i == 1 ? fmt::format("{}", i) : fmt::format("{}-{}", i, end - 1));
    i = std::max(end, i + 1);
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

// In quotes: a label may hold spaces and commas.
std::string labels_text(const std::vector<std::string>& labels) {
  std::string text;
  for (const std::string& label : labels) text += (text.empty() ? "" : ", ") + nlohmann::json(label).dump();
  return text;
}

// The structure of version 2 of the arithmetic in words.
std::string structure_text(const LayerShape& shape) {
  std::string text = shape.activations == Activations::kTokenScales ? "token scales" : "static scales";
  if (shape.hadamard > 0) text += fmt::format(", Hadamard blocks of {}", shape.hadamard);
  text += shape.ffn == Ffn::kGatedSilu   ? ", gated SiLU"
          : shape.ffn == Ffn::kGatedGelu ? ", gated GELU"
                                         : ", ReLU squared";
  text += shape.residual == Residual::kF32 ? ", residual f32" : ", residual bf16";
  if (shape.biases != Biases::kNone) text += shape.biases == Biases::kAll ? ", biases" : ", biases of q, k and v";
  if (shape.static_kv) text += ", static scales of keys and values";
  if (shape.f32_rows) text += ", rows quantised from f32";
  if (shape.layer_inputs > 0) text += fmt::format(", layer inputs of {}", shape.layer_inputs);
  return text;
}
std::string norms_text(const LayerShape& shape) {
  std::string text = "before attention and feed-forward";
  if (shape.norms_after) text += ", and after them";
  if (shape.head_norms) text += "; of queries and keys";
  if (shape.value_norms) text += "; of values";
  return text + (shape.norm_gains ? "; with gains" : "; without gains");
}
std::string logits_text(const LayerShape& shape) {
  std::string text = shape.output == OutputMatrix::kOwn ? "a matrix of their own" : "the embedding's matrix";
  if (shape.wide_logits) text += ", input of two bytes";
  if (shape.logit_cap > 0) text += fmt::format(", capped at {}", shape.logit_cap);
  return text;
}

// "64", or of layers that differ "64 to 192".
std::string range_text(const ModelConfig& config, Width width) {
  int32_t least = config.width_of(width, 0);
  for (int32_t layer = 1; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    least = std::min(least, config.width_of(width, layer));
  const int32_t most = config.widest(width);
  return least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
}

std::string kv_heads_text(const ModelConfig& config) {
  const int32_t fewest = config.fewest_kv_heads(), most = config.most_kv_heads();
  return fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most);
}

// The slots of the KV cache, one a line.
std::string slots_report(const ModelConfig& config) {
  const bool scaled = config.arithmetic() == 2;
  std::string report = fmt::format("\n  {:>4}  {:<7}  {:>7}  {:>4}  {}{}\n", "slot", "kind", "window", "rope",
                                   scaled ? "KV heads   bytes a token  " : "", "layers (the first one writes)");
  for (int32_t slot = 0; slot < config.kv_slot_count; ++slot) {
    const int32_t layer = config.owner_of(slot);
    const LayerConfig& owner = config.layers[static_cast<size_t>(layer)];
    const std::string window = owner.kind == LayerKind::kWindow ? fmt::format("{}", owner.window) : "-";
    report += fmt::format("  {:>4}  {:<7}  {:>7}  {:>4}  ", slot, kind_name(owner), window, owner.rope);
    if (scaled)
      report +=
          fmt::format("{:<9}  {:>13}  ", fmt::format("{} of {}", config.kv_heads_of(layer), config.head_dim_of(layer)),
                      token_bytes(config, slot));
    report += readers_text(config, slot) + "\n";
  }
  return report;
}

// All tensors in the order of the file.
std::string tensors_report(const Checkpoint& checkpoint) {
  size_t name_width = 6;
  size_t shape_width = 5;
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    tensors.push_back(&tensor);
    name_width = std::max(name_width, tensor.name.size());
    shape_width = std::max(shape_width, fmt::format("{}", fmt::join(tensor.shape, " x ")).size());
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  std::string report = fmt::format("  {:<{}}  {:<4}  {:>{}}  {:>13}  {}\n", "tensor", name_width, "type", "shape",
                                   shape_width, "bytes", "digest");
  for (const TensorInfo* tensor : tensors)
    report += fmt::format("  {:<{}}  {:<4}  {:>{}}  {:>13}  {}\n", tensor->name, name_width,
                          kaiju::dtype_name(tensor->dtype), fmt::format("{}", fmt::join(tensor->shape, " x ")),
                          shape_width, tensor->bytes.size(), tensor->digest);
  return report + "\n";
}

std::string summary_report(const std::string& path, const Checkpoint& checkpoint, bool verified) {
  const ModelConfig& c = checkpoint.config();
  const Summary s = summarise(checkpoint);
  std::string report;
  const auto print = [&](auto format, auto&&... args) { report += fmt::format(fmt::runtime(format), args...); };
  const auto line = [&](const char* label, const std::string& text) { print("  {:<22}{}\n", label, text); };

  const std::string file = kaiju::tools::printable(path);
  print("{}\n", c.name.empty() ? file : c.name);
  line("file", file);
  line("arithmetic", fmt::format("version {}", c.arithmetic()));
  line("digest", checkpoint.digest());
  const char* tokenizer = checkpoint.find("tokenizer") ? "; tokenizer and chat symbols" : "";
  line("verified", verified ? fmt::format("yes: every digest, weight, scale and row sum{}", tokenizer)
                            : "structure only (--no-verify)");
  line("parameters", fmt::format("{} ({})", count_text(s.parameters), s.parameters));
  line("weights", fmt::format("{} int8; {} with scales, sums and tokenizer", bytes_text(s.parameters),
                              bytes_text(s.tensor_bytes)));
  line("vocabulary",
       fmt::format("{} tokens{}", c.vocab_size, checkpoint.find("tokenizer") ? "" : ", no tokenizer in the file"));
  line("context", fmt::format("{} tokens", c.context));
  line("d_model", fmt::format("{}", c.d_model));
  line("heads",
       fmt::format("{} of {}, {} for keys and values", c.n_heads, range_text(c, Width::kHead), kv_heads_text(c)));
  line("d_ff", range_text(c, Width::kFfn));
  if (c.arithmetic() == 2) {
    line("structure", structure_text(c.shape));
    line("norms", norms_text(c.shape));
    line("logits", logits_text(c.shape));
  }
  line("layers", fmt::format("{}: {}", c.layers.size(), layers_text(c)));
  line("KV per token, global",
       fmt::format("{} in {} slot{}", bytes_text(s.kv_token_bytes), s.global_slots, s.global_slots == 1 ? "" : "s"));
  line("KV window, sliding", fmt::format("{} per sequence in {} slot{}", bytes_text(s.kv_window_bytes), s.sliding_slots,
                                         s.sliding_slots == 1 ? "" : "s"));
  if (!c.labels.empty())
    line("classifier",
         fmt::format("{} label{}: {}", c.labels.size(), c.labels.size() == 1 ? "" : "s", labels_text(c.labels)));

  return report + slots_report(c);
}

std::string json_report(const std::string& path, const Checkpoint& checkpoint, bool verified) {
  using nlohmann::ordered_json;
  const Summary s = summarise(checkpoint);
  ordered_json out = {{"file", path},
                      {"name", checkpoint.config().name},
                      {"arithmetic", checkpoint.config().arithmetic()},
                      {"digest", checkpoint.digest()},
                      {"verified", verified},
                      {"parameters", s.parameters},
                      {"weight_bytes", s.parameters},
                      {"tensor_bytes", s.tensor_bytes},
                      {"kv_bytes_per_token", s.kv_token_bytes},
                      {"kv_bytes_per_window", s.kv_window_bytes},
                      {"config", ordered_json::parse(kaiju::config_to_json(checkpoint.config()))},
                      {"tensors", ordered_json::array()}};
  for (const TensorInfo& tensor : checkpoint.tensors())
    out["tensors"].push_back({{"name", tensor.name},
                              {"dtype", kaiju::dtype_name(tensor.dtype)},
                              {"shape", tensor.shape},
                              {"bytes", tensor.bytes.size()},
                              {"digest", tensor.digest}});
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app("Shows the contents of a Kaiju checkpoint and verifies it.", "kaiju-inspect");
  std::string path;
  bool json = false;
  bool no_verify = false;
  bool summary = false;
  app.add_option("FILE", path, "the checkpoint")->required();
  CLI::Option* const as_json = app.add_flag("--json", json, "print one JSON document instead of text");
  app.add_flag("--summary", summary, "leave the table of tensors out, which is printed before the summary")
      ->excludes(as_json);
  app.add_flag("--no-verify", no_verify,
               "check the structure only: faster on a large file, but does not detect damaged weights");
  app.footer(
      "Examples:\n"
      "  kaiju-inspect model.safetensors\n"
      "  kaiju-inspect model.safetensors --summary\n"
      "  kaiju-inspect model.safetensors --json | jq .digest\n"
      "  kaiju-inspect large.safetensors --no-verify");
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  const auto checkpoint = Checkpoint::open(path, no_verify ? kaiju::Verify::kNone : kaiju::Verify::kFull);
  if (!checkpoint.ok()) return kaiju::tools::fail(app, 1, checkpoint.status().message());
  if (!no_verify) {
    const auto model = kaiju::Model::create(checkpoint.value());  // reads tokenizer and chat symbols
    if (!model.ok()) return kaiju::tools::fail(app, 1, path + ": " + model.status().message());
  }
  if (json) {
    kaiju::tools::print("{}", json_report(path, *checkpoint.value(), !no_verify));
    return 0;
  }
  if (!summary) kaiju::tools::print("{}", tensors_report(*checkpoint.value()));
  kaiju::tools::print("{}", summary_report(path, *checkpoint.value(), !no_verify));
  return 0;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-inspect", run, argc, argv); }
