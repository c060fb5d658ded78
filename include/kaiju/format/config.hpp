// ModelConfig: the dimensions and layers of a model, as its checkpoint states them. ModelConfig is plain data;
// format/checkpoint.hpp parses and checks it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kaiju/format/chat_template.hpp"
#include "kaiju/format/layer_shape.hpp"

namespace kaiju {

inline constexpr int32_t kArithmeticVersions = 2;  // versions of the arithmetic, from 1 on
inline constexpr int32_t kMostLayers = 256;
inline constexpr size_t kMostLabels = 64;

enum class LayerKind : int32_t {
  kWindow = 0,  // sliding-window attention: sees the last `window` positions, its own included
  kGlobal = 1,  // full attention: sees all earlier positions and its own
};

struct LayerConfig {
  LayerKind kind = LayerKind::kGlobal;
  int32_t window = 0;  // in positions; 0 for global layers
  // KV slot of the layer: layers that name the same slot share keys and values. The first layer that names a slot
  // computes and writes its keys and values, and later layers of the slot read them. All layers that name the same slot
  // have the same kind, window and rope.
  int32_t kv_slot = 0;
  int32_t rope = 0;  // number of the frequency table rope.N
  // In version 2 of the arithmetic a layer may have dimensions of its own; 0: those of the model.
  int32_t head_dim = 0;
  int32_t n_kv_heads = 0;
  int32_t d_ff = 0;
  bool values_from_keys = false;  // the values are the outputs of the matmul of the keys (version 2)
  float factor = 1.0f;            // by which the residual stream is multiplied after the layer (version 2)
};

// Token ids of the chat format's control symbols; the id is -1 if the model lacks the symbol. The arithmetic does not
// depend on the chat symbols.
struct ChatSymbols {
  int32_t begin = -1;      // first token of every sequence
  int32_t end = -1;        // end of the document
  int32_t card = -1;       // opens the character card
  int32_t user = -1;       // opens a message of the user
  int32_t character = -1;  // opens a message of the character
  int32_t close = -1;      // closes a card or a turn: a reply ends here
  int32_t text = -1;       // opens plain text
};

struct ModelConfig {
  std::string name;
  int32_t vocab_size = 0;
  int32_t d_model = 0;
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;  // divides n_heads; 1 is multi-query attention
  int32_t head_dim = 0;    // 64, 128 or 256; in version 2 of the arithmetic 512 too
  int32_t d_ff = 0;
  int32_t context = 0;  // most tokens of one sequence
  float norm_eps = 1e-5f;
  LayerShape shape;           // structure of every layer
  float score_scale = 0.0f;   // factor of the attention scores (version 2); 0: 1 / sqrt(head_dim)
  int32_t kv_slot_count = 0;  // number of KV slots that the layers name (derived from `layers`)
  int32_t rope_count = 0;     // number of RoPE tables that the layers name (derived from `layers`)
  std::vector<LayerConfig> layers;
  ChatSymbols chat;
  // How an imported model writes chats. Then `chat` says no more than where sequences and plain text begin and end.
  std::optional<ChatTemplate> chat_format;
  std::vector<std::string> labels;  // names of the classifier's labels; empty: the model has no classifier

  // Returns the first layer that names `slot`: this layer computes and writes the slot's keys and values.
  int32_t owner_of(int32_t slot) const {
    for (size_t i = 0; i < layers.size(); ++i)
      if (layers[i].kv_slot == slot) return static_cast<int32_t>(i);
    return -1;
  }
  bool owns_slot(int32_t layer) const { return owner_of(layers[static_cast<size_t>(layer)].kv_slot) == layer; }
  // Fills kv_slot_count and rope_count from the layers, for configs that code builds. derive_counts ignores numbers out
  // of range; check_config reports them as errors.
  void derive_counts() {
    kv_slot_count = rope_count = 0;
    for (const LayerConfig& layer : layers) {
      if (layer.kv_slot >= kv_slot_count && layer.kv_slot < kMostLayers) kv_slot_count = layer.kv_slot + 1;
      if (layer.rope >= rope_count && layer.rope < kMostLayers) rope_count = layer.rope + 1;
    }
  }
  int32_t query_width() const { return n_heads * head_dim; }  // of layers without dimensions of their own
  int32_t kv_width() const { return n_kv_heads * head_dim; }  // likewise
  int32_t arithmetic() const { return arithmetic_of(shape); }
  int32_t head_dim_of(int32_t layer) const { return own(layers[static_cast<size_t>(layer)].head_dim, head_dim); }
  int32_t kv_heads_of(int32_t layer) const { return own(layers[static_cast<size_t>(layer)].n_kv_heads, n_kv_heads); }
  int32_t width_of(Width width, int32_t layer) const {
    switch (width) {
      case Width::kOne:
        return 1;
      case Width::kModel:
        return d_model;
      case Width::kQuery:
        return n_heads * head_dim_of(layer);
      case Width::kKv:
        return kv_heads_of(layer) * head_dim_of(layer);
      case Width::kFfn:
        return own(layers[static_cast<size_t>(layer)].d_ff, d_ff);
      case Width::kHead:
        return head_dim_of(layer);
      case Width::kInput:
        return shape.layer_inputs;
    }
    return 0;
  }
  // The largest width of any layer.
  int32_t widest(Width width) const {
    int32_t widest = 0;
    for (int32_t layer = 0; layer < static_cast<int32_t>(layers.size()); ++layer)
      widest = width_of(width, layer) > widest ? width_of(width, layer) : widest;
    return widest;
  }
  // The fewest and the most KV heads of any layer.
  int32_t fewest_kv_heads() const {
    int32_t fewest = n_kv_heads;
    for (const LayerConfig& layer : layers)
      if (layer.n_kv_heads != 0 && layer.n_kv_heads < fewest) fewest = layer.n_kv_heads;
    return fewest;
  }
  int32_t most_kv_heads() const {
    int32_t most = n_kv_heads;
    for (const LayerConfig& layer : layers)
      if (layer.n_kv_heads > most) most = layer.n_kv_heads;
    return most;
  }
  // head_dim of the layers that use a RoPE table.
  int32_t rope_head_dim(int32_t rope) const {
    for (int32_t layer = 0; layer < static_cast<int32_t>(layers.size()); ++layer)
      if (layers[static_cast<size_t>(layer)].rope == rope) return head_dim_of(layer);
    return head_dim;
  }
  int32_t label_count() const { return static_cast<int32_t>(labels.size()); }

 private:
  static constexpr int32_t own(int32_t of_layer, int32_t of_model) { return of_layer != 0 ? of_layer : of_model; }
};

}  // namespace kaiju
