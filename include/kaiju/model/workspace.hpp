// Workspace: the buffers that a step computes in. rooms_of() lists the buffers of a model once, for every executor.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "kaiju/arith/float32.hpp"
#include "kaiju/arith/rotary.hpp"
#include "kaiju/backend/backend.hpp"
#include "kaiju/format/config.hpp"
#include "kaiju/format/detail/layer_tensors.hpp"

namespace kaiju {

// A room is one buffer of a Workspace. Each has rows of one token of the step.
enum class Room : int32_t {
  kStream,    // residual stream: bf16 [d_model] in version 1 of the arithmetic, f32 in version 2
  kBytes,     // int8 [widest matmul input]: what the next matmul reads (version 2 with wide logits: twice as many)
  kQ,         // f32 [query width], with packed matrices [query width + 2 kv width]; version 2: at least [d_model], for
              // it is the scratch memory of norms and the output of the matmuls o and down too
  kK,         // f32 [kv width], if matrices are not packed
  kV,         // likewise
  kQueries,   // int8 [query width]
  kMiddle,    // uint8 [d_ff], in version 1
  kGate,      // f32 [d_ff, or the width of the layers' inputs], in version 2; with packed matrices twice d_ff
  kUp,        // f32 [d_ff, or the width of the layers' inputs]; the latter alone where kGate has the ups
  kAttended,  // f32 [query width], in version 2
  kScale,     // f32 [1] scale of the row of kBytes, in version 2
  kZ,         // f32 [heads] z of each query, in version 2
  kInputBytes,  // int8 [d_model] the embedding, as the layers' inputs read it; in version 2 with such inputs
  kInputScale,  // f32 [1] scale of the row of kInputBytes
  kWideLogits,  // f32 [vocab_size or labels], in version 2 with wide logits and packed matrices: 2 * kWideLogitRows
                // rows
};
inline constexpr int32_t kRoomCount = 15;
// Rows of logits that are computed at a time if the logits are wide: so a usual step reads the matrix once.
inline constexpr int32_t kWideLogitRows = 64;

struct RoomSize {
  Room room;
  const char* what;  // for errors: "the queries"
  size_t row_bytes;
  bool is_read_by_matmuls = false;  // a backend may want more rows than the step has
  int32_t rows = 0;                 // 0: those of the step
};

inline size_t stream_bytes(const ModelConfig& config) {
  return static_cast<size_t>(config.d_model) * (config.arithmetic() == 1 ? sizeof(arith::bf16) : sizeof(float));
}

// `packs_projections`: the backend computes queries, keys and values as one matmul (backend/backend.hpp), and in
// version 2 gates and ups.
inline std::vector<RoomSize> rooms_of(const ModelConfig& config, bool packs_projections) {
  const auto widest = [&](Width width) { return static_cast<size_t>(config.widest(width)); };
  const size_t model = widest(Width::kModel), query = widest(Width::kQuery), kv = widest(Width::kKv),
               ffn = std::max(widest(Width::kFfn), widest(Width::kInput)), f32 = sizeof(float);
  const size_t stream = stream_bytes(config);
  if (config.arithmetic() == 1) {
    std::vector<RoomSize> rooms = {
        {Room::kStream, "the residual stream", stream},
        {Room::kBytes, "the activations", std::max(model, query), true},
        {Room::kQ, "the queries", (packs_projections ? query + 2 * kv : query) * f32},
        {Room::kQueries, "the quantised queries", query},
        {Room::kMiddle, "the feed-forward activations", ffn, true},
    };
    if (!packs_projections) {
      rooms.push_back({Room::kK, "the keys", kv * f32});
      rooms.push_back({Room::kV, "the values", kv * f32});
    }
    return rooms;
  }
  const size_t bytes = config.shape.wide_logits ? 2 * model : model;
  const size_t heads = packs_projections ? query + 2 * kv : query, inputs = widest(Width::kInput);
  const bool has_both = packs_projections && is_gated(config.shape);  // gates and ups in Room::kGate
  std::vector<RoomSize> rooms = {
      {Room::kStream, "the residual stream", stream},
      {Room::kBytes, "the activations", std::max({bytes, query, ffn}), true},
      {Room::kQ, "the queries", std::max(model, heads) * f32},
      {Room::kQueries, "the quantised queries", query},
      {Room::kAttended, "the results of attention", query * f32},
      {Room::kScale, "the scales of activations", f32},
      {Room::kZ, "the scales of queries", static_cast<size_t>(config.n_heads) * f32},
  };
  if (!packs_projections) {
    rooms.push_back({Room::kK, "the keys", kv * f32});
    rooms.push_back({Room::kV, "the values", kv * f32});
  }
  if (is_gated(config.shape))
    rooms.push_back({Room::kGate, "the feed-forward gates", (has_both ? 2 * ffn : ffn) * f32});
  if (const size_t ups = has_both ? inputs : ffn; ups > 0)
    rooms.push_back({Room::kUp, "the feed-forward activations", ups * f32});
  if (has_layer_inputs(config.shape)) {
    rooms.push_back({Room::kInputBytes, "the embeddings", model, true});
    rooms.push_back({Room::kInputScale, "the scales of embeddings", f32});
  }
  if (packs_projections && config.shape.wide_logits)
    rooms.push_back({Room::kWideLogits, "the sums of wide logits",
                     static_cast<size_t>(std::max(config.vocab_size, config.label_count())) * f32, false,
                     2 * kWideLogitRows});
  return rooms;
}

// The sizes of the largest step of a model.
inline StepSizes step_sizes(const ModelConfig& config, int32_t rows, int32_t segments) {
  StepSizes sizes;
  sizes.rows = config.shape.wide_logits ? std::max(rows, 2 * std::min(rows, kWideLogitRows)) : rows;
  sizes.segments = segments;
  sizes.widest_input = widest_input(config);
  sizes.heads = config.n_heads;
  sizes.kv_heads = config.fewest_kv_heads();
  sizes.vocab_size = config.vocab_size;
  return sizes;
}

// Bytes of all that an executor computes a step of `rows` tokens and `slots` sequences in: the rooms, the rows that are
// sampled from with their logits and scores, the tokens that each sequence has seen, and the rotary angles.
inline int64_t workspace_bytes(const ModelConfig& config, bool packs_projections, int64_t rows, int64_t slots) {
  int64_t bytes = 0;
  for (const RoomSize& room : rooms_of(config, packs_projections))
    bytes += (room.rows > 0 ? room.rows : rows) * static_cast<int64_t>(room.row_bytes);
  const int64_t vocab = config.vocab_size;
  bytes += slots * (static_cast<int64_t>(stream_bytes(config)) + vocab * int64_t{sizeof(float)} + vocab);
  bytes += rows * config.label_count() * int64_t{sizeof(float)};
  for (int32_t r = 0; r < config.rope_count; ++r)
    bytes += rows * (config.rope_head_dim(r) / 2) * int64_t{sizeof(arith::CosSin)};
  return bytes;
}

struct Workspace {
  std::array<std::byte*, kRoomCount> rooms{};
  std::vector<arith::CosSin*> angles;  // for each RoPE table: [rows, head_dim / 2]

  template <class T>
  T* at(Room room) const {
    return reinterpret_cast<T*>(rooms[static_cast<size_t>(room)]);
  }
  std::byte*& operator[](Room room) { return rooms[static_cast<size_t>(room)]; }
};

}  // namespace kaiju
