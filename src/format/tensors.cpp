// The tensors a model must have, by docs/checkpoint.md, "Tensors".
#include <fmt/format.h>

#include <algorithm>

#include "header.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
      return 1;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kU64:
      return 8;
  }
  return 0;
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kU64:
      return "U64";
    case DType::kF32:
      return "F32";
  }
  return "unknown";
}

std::vector<CheckpointWriter::Declaration> required_tensors(const ModelConfig& config) {
  std::vector<CheckpointWriter::Declaration> all;
  const auto add = [&](std::string name, DType dtype, std::vector<int64_t> shape) {
    all.push_back({std::move(name), dtype, std::move(shape)});
  };
  const auto scalar = [&](std::string name) { add(std::move(name), DType::kF32, {1}); };
  // Scale and row sums right after their weights: whoever streams a matrix has them at hand.
  const auto rows = [&](const std::string& prefix, int64_t out, int64_t in) {
    add(prefix + ".weight", DType::kI8, {out, in});
    add(prefix + ".scale", DType::kF32, {out});
    add(prefix + ".row_sum", DType::kI32, {out});
  };
  const auto matrix = [&](const std::string& prefix, int64_t out, int64_t in) {
    rows(prefix, out, in);
    scalar(prefix + ".scalar");
  };

  rows("embed", config.vocab_size, config.d_model);
  scalar("embed.in_scalar");
  scalar("embed.out_scalar");
  for (int32_t rope = 0; rope < config.rope_count; ++rope)
    add(fmt::format("rope.{}", rope), DType::kU64, {config.head_dim / 2});
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const int32_t slot = config.layers[i].kv_slot;
    if (config.owner_of(slot) == static_cast<int32_t>(i)) {
      const std::string kv = fmt::format("kv.{}", slot);
      matrix(kv + ".k", config.kv_width(), config.d_model);
      matrix(kv + ".v", config.kv_width(), config.d_model);
      add(kv + ".k_clip", DType::kF32, {config.kv_width()});
      add(kv + ".v_clip", DType::kF32, {config.kv_width()});
    }
    const std::string layer = fmt::format("layers.{}", i);
    matrix(layer + ".attn.q", config.query_width(), config.d_model);
    matrix(layer + ".attn.o", config.d_model, config.query_width());
    matrix(layer + ".ffn.up", config.d_ff, config.d_model);
    matrix(layer + ".ffn.down", config.d_model, config.d_ff);
    for (const char* name : {".attn.in_clip", ".attn.q_clip", ".attn.out_clip", ".ffn.in_clip", ".ffn.mid_clip"})
      scalar(layer + name);
  }
  scalar("final.in_clip");
  if (const int32_t labels = config.label_count(); labels > 0) {
    matrix("classifier", labels, config.d_model);
    add("classifier.bias", DType::kF32, {labels});
  }

  std::stable_partition(all.begin(), all.end(), [](const CheckpointWriter::Declaration& tensor) {
    return format::layout_group(tensor.name, format::tensor_bytes(tensor.dtype, tensor.shape)) == 0;
  });
  return all;
}

}  // namespace kaiju
