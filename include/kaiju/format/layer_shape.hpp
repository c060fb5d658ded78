// LayerShape: what the layers of a model are made of, as data, and two tables that say what follows from it: the sites
// where a layer's floats become bytes, and its matrix products. Names, shapes and order of a layer's tensors, its
// constants, the workspaces of the forward pass and the lists of products of every backend are read from these tables
// (format/detail/layer_tensors.hpp). Sizes are the config's (format/config.hpp).
#pragma once

#include <cstdint>

namespace kaiju {

// How the floats of a site become bytes.
enum class Activations : int32_t {
  kStaticClips,  // by clips that the checkpoint holds
  kTokenScales,  // by the largest value of the token, behind a Hadamard transform
};

enum class Ffn : int32_t {
  kSquaredRelu,  // down * square(relu(up * x))
  kGatedSilu,    // down * (silu(gate * x) times up * x)
  kGatedGelu,    // down * (gelu(gate * x) times up * x)
};

enum class Residual : int32_t { kBf16, kF32 };

enum class OutputMatrix : int32_t {
  kEmbedding,  // the logits' matrix is the embedding's
  kOwn,
};

// The default is the layer of a Kaiju model. check_config accepts no other today; what it refuses, it names.
struct LayerShape {
  Activations activations = Activations::kStaticClips;
  Ffn ffn = Ffn::kSquaredRelu;
  Residual residual = Residual::kBf16;
  OutputMatrix output = OutputMatrix::kEmbedding;
  bool norms_after = false;  // norms of what attention and feed-forward add, besides those of what they read
  bool norm_gains = false;   // a factor for each channel of a norm
  bool head_norms = false;   // norms of each head's queries and keys
  bool biases = false;       // added to what a matrix makes

  bool operator==(const LayerShape&) const = default;
};

// A size that the config gives (ModelConfig::width_of).
enum class Width : int32_t { kOne, kModel, kQuery, kKv, kFfn };

// Whose a tensor is: its name begins with "layers.L.", or with "kv.S." of the slot that the layer names.
enum class Of : int32_t { kLayer, kSlot };

// Where a layer's floats become bytes, in the order in which a token passes.
enum class Site : int32_t { kAttentionIn, kQuery, kKey, kValue, kAttentionOut, kFfnIn, kFfnMid };
inline constexpr int32_t kSiteCount = 7;

struct SiteRow {
  Site site;
  Of of;
  const char* clip;  // the tensor of its clips
  Width clips;       // how many it has: one, or one for each channel
  Width width;       // bytes of a token
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

// The operation of a backend that multiplies by a matrix and says what becomes of the sums (backend/backend.hpp).
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
  const char* name;  // its tensors are NAME.weight, .scale, .scalar, .row_sum
  Width out;
  Site input;  // what it reads; the summed index is as wide as that
  Operation operation;
  const char* constant;                      // arithmetic.md, section 3: what its sums are multiplied by
  bool (*when)(const LayerShape&) = always;  // whether layers of a shape have it
};

// Those of one input follow one another in the order in which a device may pack them.
inline constexpr MatmulRow kMatmuls[] = {
    {Matmul::kQ, Of::kLayer, "attn.q", Width::kQuery, Site::kAttentionIn, Operation::kLinear, "sq"},
    {Matmul::kK, Of::kSlot, "k", Width::kKv, Site::kAttentionIn, Operation::kLinear, "sk"},
    {Matmul::kV, Of::kSlot, "v", Width::kKv, Site::kAttentionIn, Operation::kLinear, "sv"},
    {Matmul::kO, Of::kLayer, "attn.o", Width::kModel, Site::kAttentionOut, Operation::kAddLinear, "so"},
    {Matmul::kUp, Of::kLayer, "ffn.up", Width::kFfn, Site::kFfnIn, Operation::kUp, "alpha"},
    {Matmul::kDown, Of::kLayer, "ffn.down", Width::kModel, Site::kFfnMid, Operation::kAddDown, "sd"},
};

}  // namespace kaiju
