// kaiju-inspect: prints the contents of a checkpoint as a summary and a table of tensors. Verifies the file unless an
// option disables that.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kaiju/format/checkpoint.hpp"
#include "kaiju/kaiju.hpp"
#include "program.hpp"

namespace {

using kaiju::Checkpoint;
using kaiju::LayerConfig;
using kaiju::LayerKind;
using kaiju::ModelConfig;
using kaiju::TensorInfo;

struct Summary {
  int64_t parameters = 0;       // int8 weights
  int64_t tensor_bytes = 0;     // everything but the header
  int64_t kv_token_bytes = 0;   // per token, for as long as the sequence lives (global slots)
  int64_t kv_window_bytes = 0;  // per sequence, at most (sliding slots)
  int32_t global_slots = 0;
  int32_t sliding_slots = 0;
};

const char* kind_name(const LayerConfig& layer) { return layer.kind == LayerKind::kGlobal ? "global" : "sliding"; }

Summary summarise(const Checkpoint& checkpoint) {
  Summary out;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.dtype == kaiju::DType::kI8) out.parameters += static_cast<int64_t>(tensor.bytes.size());
    out.tensor_bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  const ModelConfig& config = checkpoint.config();
  const int64_t slot_bytes = 2 * int64_t{config.kv_width()};  // a key and a value, int8
  for (int32_t slot = 0; slot < config.kv_slot_count; ++slot) {
    const LayerConfig& owner = config.layers[static_cast<size_t>(config.owner_of(slot))];
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

std::string text_report(const std::string& path, const Checkpoint& checkpoint, bool verified) {
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
  line("heads", fmt::format("{} of {}, {} for keys and values", c.n_heads, c.head_dim, c.n_kv_heads));
  line("d_ff", fmt::format("{}", c.d_ff));
  line("layers", fmt::format("{}: {}", c.layers.size(), layers_text(c)));
  line("KV per token, global",
       fmt::format("{} in {} slot{}", bytes_text(s.kv_token_bytes), s.global_slots, s.global_slots == 1 ? "" : "s"));
  line("KV window, sliding", fmt::format("{} per sequence in {} slot{}", bytes_text(s.kv_window_bytes), s.sliding_slots,
                                         s.sliding_slots == 1 ? "" : "s"));
  if (!c.labels.empty())
    line("classifier",
         fmt::format("{} label{}: {}", c.labels.size(), c.labels.size() == 1 ? "" : "s", labels_text(c.labels)));

  print("\n  {:>4}  {:<7}  {:>7}  {:>4}  {}\n", "slot", "kind", "window", "rope", "layers (the first one writes)");
  for (int32_t slot = 0; slot < c.kv_slot_count; ++slot) {
    const LayerConfig& owner = c.layers[static_cast<size_t>(c.owner_of(slot))];
    const std::string window = owner.kind == LayerKind::kWindow ? fmt::format("{}", owner.window) : "-";
    print("  {:>4}  {:<7}  {:>7}  {:>4}  {}\n", slot, kind_name(owner), window, owner.rope, readers_text(c, slot));
  }

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
  print("\n  {:<{}}  {:<4}  {:>{}}  {:>13}  {}\n", "tensor", name_width, "type", "shape", shape_width, "bytes",
        "digest");
  for (const TensorInfo* tensor : tensors)
    print("  {:<{}}  {:<4}  {:>{}}  {:>13}  {}\n", tensor->name, name_width, kaiju::dtype_name(tensor->dtype),
          fmt::format("{}", fmt::join(tensor->shape, " x ")), shape_width, tensor->bytes.size(), tensor->digest);
  return report;
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
  app.add_option("FILE", path, "the checkpoint")->required();
  app.add_flag("--json", json, "print one JSON document instead of text");
  app.add_flag("--no-verify", no_verify,
               "check the structure only: faster on a large file, but does not detect damaged weights");
  app.footer(
      "Examples:\n"
      "  kaiju-inspect model.safetensors\n"
      "  kaiju-inspect model.safetensors --json | jq .digest\n"
      "  kaiju-inspect large.safetensors --no-verify");
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  const auto checkpoint = Checkpoint::open(path, no_verify ? kaiju::Verify::kNone : kaiju::Verify::kFull);
  if (!checkpoint.ok()) return kaiju::tools::fail(app, 1, checkpoint.status().message());
  if (!no_verify) {
    const auto model = kaiju::Model::create(checkpoint.value());  // reads tokenizer and chat symbols
    if (!model.ok()) return kaiju::tools::fail(app, 1, path + ": " + model.status().message());
  }
  const std::string report = (json ? json_report : text_report)(path, *checkpoint.value(), !no_verify);
  kaiju::tools::print("{}", report);
  return 0;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-inspect", run, argc, argv); }
