// LayerErrors: computes each layer of a checkpoint alone, from the residual stream that the float model has before it,
// and compares what comes out with the float model's.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "kaiju/backend/cpu.hpp"
#include "kaiju/base/buffer.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/model/forward.hpp"
#include "kaiju/run/slots.hpp"

namespace kaiju::tools {

class LayerErrors {
 public:
  static Result<LayerErrors> make(std::shared_ptr<const Checkpoint> checkpoint, int32_t threads) {
    LayerErrors made;
    Result<std::unique_ptr<CpuBackend>> backend = CpuBackend::create("auto", threads);
    if (!backend.ok()) return backend.status();
    Result<Weights> weights = Weights::from(std::move(checkpoint));
    if (!weights.ok()) return weights.status();
    made.backend_ = std::move(backend).value();
    made.weights_ = std::make_unique<Weights>(std::move(weights).value());
    made.sums_.resize(made.weights_->layers.size());
    return made;
  }

  // What the layers made of one text so far: sums of squares over all texts.
  struct Sum {
    double error = 0.0, added = 0.0;
    // Root of the mean square of the error over that of what the layer adds to the residual stream.
    double relative() const { return added > 0.0 ? std::sqrt(error / added) : 0.0; }
  };
  const std::vector<Sum>& sums() const { return sums_; }

  // Adds one text. `hidden(layer, rows)` fills `rows` [tokens, d_model] with the float model's residual stream after a
  // layer.
  template <class Hidden>
  Status add(const std::vector<int32_t>& tokens, Hidden&& hidden) {
    const FloatState float_state;
    const auto rows = static_cast<int32_t>(tokens.size());
    const ModelConfig& config = weights_->config;
    KAIJU_TRY(take_memory(rows));
    std::vector<int32_t> positions(tokens.size());
    for (int32_t row = 0; row < rows; ++row) positions[static_cast<size_t>(row)] = row;
    const std::vector<int32_t> row_segment(tokens.size(), 0);
    std::vector<BlockId> table;
    for (BlockId block = 0; block * kBlockTokens < rows; ++block) table.push_back(block);
    const BatchSegment segment{0, rows, 0, 0, {table.data(), table.data()}};
    const Batch batch{rows, tokens, positions, {&segment, 1}, row_segment};

    const size_t count = tokens.size() * static_cast<size_t>(config.d_model);
    std::vector<float> before, after(count), found(count);
    embed(*backend_, *weights_, batch, workspace_);
    for (size_t layer = 0; layer < weights_->layers.size(); ++layer) {
      if (layer > 0)
        put_stream(before);
      else
        before = stream(count);
      const LayerWeights& each = weights_->layers[layer];
      run_layer(*backend_, *weights_, each, batch, slots_[static_cast<size_t>(each.config.kv_slot)], workspace_);
      KAIJU_TRY(hidden(layer, after));
      found = stream(count);
      for (size_t i = 0; i < count; ++i) {
        const double error = static_cast<double>(found[i]) - after[i],
                     added = static_cast<double>(after[i]) - before[i];
        sums_[layer].error += error * error;
        sums_[layer].added += added * added;
      }
      before = after;
    }
    return {};
  }

 private:
  Status take_memory(int32_t rows) {
    const ModelConfig& config = weights_->config;
    workspace_ = {};
    rooms_.clear(), slots_.clear(), angles_.clear(), caches_.clear();
    for (const RoomSize& size : rooms_of(config, false)) {
      const auto of = static_cast<size_t>(size.rows > 0 ? size.rows : rows);
      Result<Buffer<std::byte>> room = Buffer<std::byte>::make(of * size.row_bytes, size.what);
      if (!room.ok()) return room.status();
      workspace_[size.room] = rooms_.emplace_back(std::move(room).value()).data();
    }
    KAIJU_TRY(backend_->take_memory(step_sizes(config, rows, 1)));
    const int64_t blocks = (rows + kBlockTokens - 1) / kBlockTokens;
    for (int32_t s = 0; s < config.kv_slot_count; ++s) {
      const int32_t layer = config.owner_of(s);
      const LayerConfig& owner = config.layers[static_cast<size_t>(layer)];
      KvSlot slot;
      slot.kv_heads = config.kv_heads_of(layer);
      slot.head_dim = config.head_dim_of(layer);
      slot.kind = owner.kind == LayerKind::kGlobal ? BlockKind::kGlobal : BlockKind::kWindow;
      slot.window = owner.window;
      slot.scaled = config.arithmetic() == 2;
      slot.block_bytes = slot.kv_heads * KvSlot::head_bytes(slot.head_dim, slot.scaled);
      Result<Buffer<std::byte>> cache =
          Buffer<std::byte>::make(static_cast<size_t>(blocks * slot.block_bytes), "the KV cache");
      if (!cache.ok()) return cache.status();
      slot.pool = caches_.emplace_back(std::move(cache).value()).data();
      slots_.push_back(slot);
    }
    for (const std::vector<uint64_t>& table : weights_->rope) {
      std::vector<arith::CosSin>& angles = angles_.emplace_back();
      for (int32_t row = 0; row < rows; ++row)
        for (const uint64_t frequency : table) angles.push_back(arith::cos_sin(static_cast<uint64_t>(row), frequency));
    }
    for (auto& angles : angles_) workspace_.angles.push_back(angles.data());
    return {};
  }

  bool is_bf16() const { return weights_->config.arithmetic() == 1; }
  std::vector<float> stream(size_t count) const {
    std::vector<float> x(count);
    for (size_t i = 0; i < count; ++i)
      x[i] = is_bf16() ? arith::from_bf16(workspace_.at<arith::bf16>(Room::kStream)[i])
                       : workspace_.at<float>(Room::kStream)[i];
    return x;
  }
  void put_stream(const std::vector<float>& x) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (is_bf16())
        workspace_.at<arith::bf16>(Room::kStream)[i] = arith::to_bf16(x[i]);
      else
        workspace_.at<float>(Room::kStream)[i] = x[i];
    }
  }

  std::unique_ptr<CpuBackend> backend_;
  std::unique_ptr<Weights> weights_;
  std::vector<Sum> sums_;
  Workspace workspace_;
  std::vector<Buffer<std::byte>> rooms_, caches_;
  std::vector<std::vector<arith::CosSin>> angles_;
  std::vector<KvSlot> slots_;
};

}  // namespace kaiju::tools
