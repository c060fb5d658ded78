// LayerShape: the structure of a model's layers, as data. This header has two tables: the sites, where a layer's floats
// are quantised to bytes, and the matmuls. Code reads from these two tables the names, shapes and order of a layer's
// tensors, the layer's constants, the workspaces of the forward pass and each backend's list of matmuls
// (format/detail/layer_tensors.hpp). The sizes of a model are in its config (format/config.hpp).
#pragma once

#include <cstdint>

namespace kaiju {

// Says how the floats of a site are quantised to bytes.
enum class Activations : int32_t {
  kStaticClips,  // by constant clips from the checkpoint
  kTokenScales,  // by the largest value of each token, after a Hadamard transform
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

// LayerShape is the structure of a layer. The default is the structure of a Kaiju model; check_config refuses every
// other structure with an error that names the field.
struct LayerShape {
  Activations activations = Activations::kStaticClips;
  Ffn ffn = Ffn::kSquaredRelu;
  Residual residual = Residual::kBf16;
  OutputMatrix output = OutputMatrix::kEmbedding;
  bool norms_after = false;  // norms of the outputs of attention and feed-forward, in addition to those of their inputs
  bool norm_gains = false;   // each norm has a factor for each channel
  bool head_norms = false;   // norms over each head's queries and keys
  bool biases = false;       // each matmul has a bias

  bool operator==(const LayerShape&) const = default;
};

// A Width names a size from the config (ModelConfig::width_of).
enum class Width : int32_t { kOne, kModel, kQuery, kKv, kFfn };

// The owner of a tensor: a layer (the tensor's name begins with "layers.L.") or the KV slot of a layer (the tensor's
// name begins with "kv.S.").
enum class Of : int32_t { kLayer, kSlot };

// The places where a layer's floats are quantised to bytes, in the order of the forward pass.
enum class Site : int32_t { kAttentionIn, kQuery, kKey, kValue, kAttentionOut, kFfnIn, kFfnMid };
inline constexpr int32_t kSiteCount = 7;

struct SiteRow {
  Site site;
  Of of;
  const char* clip;  // name of the tensor with the clips
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

enum class Matmul : int32_t { kQ, kK, kV, kO, kUp, kDown };
inline constexpr int32_t kMatmulCount = 6;

constexpr bool always(const LayerShape&) { return true; }

struct MatmulRow {
  Matmul matmul;
  Of of;
  const char* name;  // prefix of its tensors NAME.weight, .scale, .scalar and .row_sum
  Width out;
  Site input;  // the site that it reads, whose width is the inner dimension
  Operation operation;
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
    {Matmul::kUp, Of::kLayer, "ffn.up", Width::kFfn, Site::kFfnIn, Operation::kUp, "alpha"},
    {Matmul::kDown, Of::kLayer, "ffn.down", Width::kModel, Site::kFfnMid, Operation::kAddDown, "sd"},
};

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
