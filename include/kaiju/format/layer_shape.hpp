// LayerShape: the structure of a model's layers, as data. This header has three tables: the sites, where a layer's
// floats are quantised to bytes, the matmuls, and the vectors of version 2. Code reads from these tables the names,
// shapes and order of a layer's tensors, the layer's constants, the workspaces of the forward pass and each backend's
// list of matmuls (format/detail/layer_tensors.hpp). The sizes of a model are in its config (format/config.hpp).
#pragma once

#include <cstdint>

namespace kaiju {

// Says how the floats of a site are quantised to bytes.
enum class Activations : int32_t {
  kStaticClips,   // version 1 of the arithmetic: by constant clips from the checkpoint
  kTokenScales,   // version 2: by the largest value of each token, after a Hadamard transform
  kStaticScales,  // version 2: by constant scales from the checkpoint, with which the model was trained
};

enum class Ffn : int32_t {
  kSquaredRelu,  // down * square(relu(up * x))
  kGatedSilu,    // down * (silu(gate * x) times up * x)
  kGatedGelu,    // down * (gelu(gate * x) times up * x)
};

enum class Residual : int32_t { kBf16, kF32 };

enum class OutputMatrix : int32_t {
  kEmbedding,  // the logits use the embedding matrix
  kOwn,
};

enum class Biases : int32_t { kNone, kQkv, kAll };

// LayerShape is the structure of a layer. The default is the structure of a Kaiju model, in version 1 of the
// arithmetic, which has no other. Version 2 has all others (docs/arithmetic-2.md).
struct LayerShape {
  Activations activations = Activations::kStaticClips;
  Ffn ffn = Ffn::kSquaredRelu;
  Residual residual = Residual::kBf16;
  OutputMatrix output = OutputMatrix::kEmbedding;
  Biases biases = Biases::kNone;
  bool norms_after = false;  // norms of the outputs of attention and feed-forward, in addition to those of their inputs
  bool norm_gains = false;   // each norm has a factor for each channel
  bool head_norms = false;   // norms over each head's queries and keys, with gains
  bool value_norms = false;  // norms over each head's values, without gains
  bool static_kv = false;    // the steps of keys and values are constant; else each token and KV head has its own scale
  bool wide_logits = false;  // the logits' input has two bytes for each value
  int32_t hadamard = 0;      // values in a block of the Hadamard transform; 0: none
  float logit_cap = 0.0f;    // the logits are cap * tanh(logit / cap); 0: they are not capped
  int32_t layer_inputs = 0;  // width of the input that each layer has of a token (per-layer embeddings); 0: none
  bool f32_rows = false;     // attention's results and the middle of the feed-forward are not rounded to bf16 before
                             // they are quantised; with constant scales only

  bool operator==(const LayerShape&) const = default;
};

// Version of the arithmetic that computes a shape.
constexpr int32_t arithmetic_of(const LayerShape& shape) {
  return shape.activations == Activations::kStaticClips ? 1 : 2;
}
constexpr bool is_gated(const LayerShape& shape) { return shape.ffn != Ffn::kSquaredRelu; }

// A Width names a size from the config (ModelConfig::width_of). kInput is the width of the layers' inputs.
enum class Width : int32_t { kOne, kModel, kQuery, kKv, kFfn, kHead, kInput };

// The owner of a tensor: a layer (the tensor's name begins with "layers.L.") or the KV slot of a layer (the tensor's
// name begins with "kv.S.").
enum class Of : int32_t { kLayer, kSlot };

constexpr bool always(const LayerShape&) { return true; }
constexpr bool has_clips(const LayerShape& shape) { return shape.activations == Activations::kStaticClips; }
constexpr bool has_layer_inputs(const LayerShape& shape) { return shape.layer_inputs != 0; }

// The places where a layer's floats are quantised to bytes, in the order of the forward pass. Their clips exist in
// version 1 of the arithmetic only. The last two are those of the layers' inputs, which version 2 alone has.
enum class Site : int32_t { kAttentionIn, kQuery, kKey, kValue, kAttentionOut, kFfnIn, kFfnMid, kInputIn, kInputMid };
inline constexpr int32_t kSiteCount = 9;

struct SiteRow {
  Site site;
  Of of;
  const char* clip;  // name of the tensor with the clips; null: the site has none in any version
  Width clips;       // number of clips: one, or one for each channel
  Width width;       // number of bytes for each token
};

inline constexpr SiteRow kSites[kSiteCount] = {
    {Site::kAttentionIn, Of::kLayer, "attn.in_clip", Width::kOne, Width::kModel},
    {Site::kQuery, Of::kLayer, "attn.q_clip", Width::kOne, Width::kQuery},
    {Site::kKey, Of::kSlot, "k_clip", Width::kKv, Width::kKv},
    {Site::kValue, Of::kSlot, "v_clip", Width::kKv, Width::kKv},
    {Site::kAttentionOut, Of::kLayer, "attn.out_clip", Width::kOne, Width::kQuery},
    {Site::kFfnIn, Of::kLayer, "ffn.in_clip", Width::kOne, Width::kModel},
    {Site::kFfnMid, Of::kLayer, "ffn.mid_clip", Width::kOne, Width::kFfn},
    {Site::kInputIn, Of::kLayer, nullptr, Width::kOne, Width::kModel},
    {Site::kInputMid, Of::kLayer, nullptr, Width::kOne, Width::kInput},
};
static_assert([] {
  for (int32_t i = 0; i < kSiteCount; ++i)
    if (static_cast<int32_t>(kSites[i].site) != i) return false;
  return true;
}());
constexpr const SiteRow& row_of(Site site) { return kSites[static_cast<int32_t>(site)]; }

// The backend operation that computes a matmul and processes the sums that the matmul gives (backend/backend.hpp).
enum class Operation : int32_t { kLinear, kUp, kAddLinear, kAddDown };
constexpr bool adds_to_residual(Operation operation) {
  return operation == Operation::kAddLinear || operation == Operation::kAddDown;
}

enum class Matmul : int32_t { kQ, kK, kV, kO, kGate, kUp, kDown, kInputGate, kInputOut };
inline constexpr int32_t kMatmulCount = 9;

struct MatmulRow {
  Matmul matmul;
  Of of;
  const char* name;  // prefix of its tensors NAME.weight, .scale, .scalar, .row_sum and .bias
  Width out;
  Site input;                                // the site that it reads, whose width is the inner dimension
  Operation operation;                       // in version 1 of the arithmetic; in version 2 each is kLinear
  const char* constant;                      // symbol of the factor of its sums (arithmetic.md, section 3)
  bool (*when)(const LayerShape&) = always;  // whether layers of a given shape have this matmul
};

// Matmuls with the same input are neighbours in this table, in the order in which a backend may pack their matrices
// into one.
inline constexpr MatmulRow kMatmuls[] = {
    {Matmul::kQ, Of::kLayer, "attn.q", Width::kQuery, Site::kAttentionIn, Operation::kLinear, "sq"},
    {Matmul::kK, Of::kSlot, "k", Width::kKv, Site::kAttentionIn, Operation::kLinear, "sk"},
    {Matmul::kV, Of::kSlot, "v", Width::kKv, Site::kAttentionIn, Operation::kLinear, "sv"},
    {Matmul::kO, Of::kLayer, "attn.o", Width::kModel, Site::kAttentionOut, Operation::kAddLinear, "so"},
    {Matmul::kGate, Of::kLayer, "ffn.gate", Width::kFfn, Site::kFfnIn, Operation::kLinear, "sg", is_gated},
    {Matmul::kUp, Of::kLayer, "ffn.up", Width::kFfn, Site::kFfnIn, Operation::kUp, "alpha"},
    {Matmul::kDown, Of::kLayer, "ffn.down", Width::kModel, Site::kFfnMid, Operation::kAddDown, "sd"},
    {Matmul::kInputGate, Of::kLayer, "inputs.gate", Width::kInput, Site::kInputIn, Operation::kLinear, nullptr,
     has_layer_inputs},
    {Matmul::kInputOut, Of::kLayer, "inputs.out", Width::kModel, Site::kInputMid, Operation::kLinear, nullptr,
     has_layer_inputs},
};
constexpr bool has_bias(const LayerShape& shape, const MatmulRow& row) {
  return shape.biases == Biases::kAll || (shape.biases == Biases::kQkv && row.input == Site::kAttentionIn);
}

// Vectors of floats that layers have in version 2 of the arithmetic.
enum class Vector : int32_t {
  kAttentionGain,
  kAttentionPostGain,
  kFfnGain,
  kFfnPostGain,
  kQueryGain,
  kKeyGain,
  kKeyStep,
  kValueStep,
  kAttentionInStep,
  kAttentionOutStep,
  kFfnInStep,
  kFfnMidStep,
  kInputPostGain,
  kInputInStep,
  kInputMidStep,
};
inline constexpr int32_t kVectorCount = 15;

enum class VectorRole : int32_t { kGain, kStep };

struct VectorRow {
  Vector vector;
  Of of;
  const char* name;
  Width width;
  VectorRole role;
  bool (*when)(const LayerShape&);
};
constexpr bool is_scaled(const LayerShape& shape) { return !has_clips(shape); }
constexpr bool has_gains(const LayerShape& shape) { return is_scaled(shape) && shape.norm_gains; }
constexpr bool has_post_gains(const LayerShape& shape) { return has_gains(shape) && shape.norms_after; }
constexpr bool has_head_gains(const LayerShape& shape) { return is_scaled(shape) && shape.head_norms; }
constexpr bool has_static_steps(const LayerShape& shape) { return shape.activations == Activations::kStaticScales; }
constexpr bool has_input_steps(const LayerShape& shape) { return has_layer_inputs(shape) && has_static_steps(shape); }

inline constexpr VectorRow kVectors[kVectorCount] = {
    {Vector::kAttentionGain, Of::kLayer, "attn.gain", Width::kModel, VectorRole::kGain, has_gains},
    {Vector::kAttentionPostGain, Of::kLayer, "attn.post_gain", Width::kModel, VectorRole::kGain, has_post_gains},
    {Vector::kFfnGain, Of::kLayer, "ffn.gain", Width::kModel, VectorRole::kGain, has_gains},
    {Vector::kFfnPostGain, Of::kLayer, "ffn.post_gain", Width::kModel, VectorRole::kGain, has_post_gains},
    {Vector::kQueryGain, Of::kLayer, "attn.q_gain", Width::kHead, VectorRole::kGain, has_head_gains},
    {Vector::kKeyGain, Of::kSlot, "k_gain", Width::kHead, VectorRole::kGain, has_head_gains},
    {Vector::kKeyStep, Of::kSlot, "k_step", Width::kKv, VectorRole::kStep, is_scaled},
    {Vector::kValueStep, Of::kSlot, "v_step", Width::kKv, VectorRole::kStep, is_scaled},
    {Vector::kAttentionInStep, Of::kLayer, "attn.in_step", Width::kOne, VectorRole::kStep, has_static_steps},
    {Vector::kAttentionOutStep, Of::kLayer, "attn.out_step", Width::kOne, VectorRole::kStep, has_static_steps},
    {Vector::kFfnInStep, Of::kLayer, "ffn.in_step", Width::kOne, VectorRole::kStep, has_static_steps},
    {Vector::kFfnMidStep, Of::kLayer, "ffn.mid_step", Width::kOne, VectorRole::kStep, has_static_steps},
    {Vector::kInputPostGain, Of::kLayer, "inputs.post_gain", Width::kModel, VectorRole::kGain, has_layer_inputs},
    {Vector::kInputInStep, Of::kLayer, "inputs.in_step", Width::kOne, VectorRole::kStep, has_input_steps},
    {Vector::kInputMidStep, Of::kLayer, "inputs.mid_step", Width::kOne, VectorRole::kStep, has_input_steps},
};
static_assert([] {
  for (int32_t i = 0; i < kVectorCount; ++i)
    if (static_cast<int32_t>(kVectors[i].vector) != i) return false;
  return true;
}());

// Every Matmul has a row, and kMatmulCount of them index arrays.
static_assert([] {
  bool seen[kMatmulCount] = {};
  for (const MatmulRow& row : kMatmuls) {
    const auto matmul = static_cast<int32_t>(row.matmul);
    if (matmul < 0 || matmul >= kMatmulCount) return false;
    seen[matmul] = true;
  }
  for (const bool each : seen)
    if (!each) return false;
  return true;
}());

}  // namespace kaiju
