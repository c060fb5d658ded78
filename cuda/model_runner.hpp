// ModelRunner: a model on one GPU: its weights, the KV pool, and the workspaces of a step. It launches the forward pass
// over the rows of a step, from tokens to logits and classifier scores. All launches are asynchronous on the device's
// stream; the Device keeps errors.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "backend.hpp"
#include "exchange.hpp"
#include "kaiju/model/forward.hpp"
#include "kaiju/run/slots.hpp"
#include "kv_pool.hpp"
#include "one_row_step.hpp"
#include "one_scaled_row_step.hpp"
#include "step_inputs.hpp"
#include "weights.hpp"

namespace kaiju::cuda {

class ModelRunner {
 public:
  using Inputs = StepInputs::Placed;

  // Copies the weights to the GPU and takes all memory of the forward pass. kOutOfMemory names what wanted how much.
  // `split`: which part of the model; of several GPUs `lost` is theirs.
  static Result<ModelRunner> make(std::shared_ptr<Device> device, Weights weights, const ExecutorInfo& info,
                                  std::vector<KvSlot> slots, const ExecutorSizes& sizes, const Split& split = {},
                                  std::shared_ptr<LostFlag> lost = nullptr);

  const Weights& weights() const { return weights_; }  // on the GPU
  const KvPool& pool() const { return pool_; }
  const DeviceBuffer<std::byte>& weight_memory() const { return weight_memory_; }
  // Waits for the device.
  Status set_classifier(const Weights& from) { return copy_classifier(from, weights_, device_->stream()); }
  // All weights of another checkpoint of the same config. Where is_rerecorded, kernels take other constants by value,
  // and recorded graphs have to be recorded anew. After an error the weights may have been replaced in part.
  Status set_weights(Weights from, bool& is_rerecorded);
  Status set_kv_scales(Weights& from) { return copy_kv_scales(from, split_, weights_, device_->stream()); }
  const float* logits() const { return logits_.data(); }  // [logit_rows, vocab_size]
  int32_t logit_rows() const { return logit_rows_; }
  // [slot_count + step_tokens, labels] without their bias: of the rows sampled from, in the order of the samples, then
  // from slot_count on of the rows whose logits are returned. Empty where the model has no classifier.
  const float* scores() const { return scores_.data(); }

  // The exchange with the GPUs that share the model, which has to be connected before anything runs; else null.
  Exchange* exchange() const { return exchange_.get(); }
  Exchange::Rooms exchanged_rooms() const {
    return {workspace_.at<arith::bf16>(Room::kStream), workspace_.at<int8_t>(Room::kBytes),
            workspace_.at<float>(Room::kQ)};
  }

  // All rows through all layers: keys and values to the cache, the residual stream to the workspace.
  void run_layers(const Inputs& inputs);
  // The same in parts, where the launches of several GPUs take turns: first this, then each of the layers.
  void run_embedding(const Inputs& inputs);
  int32_t layer_count() const { return static_cast<int32_t>(weights_.layers.size()); }
  void run_layer(const Inputs& inputs, int32_t layer);
  // After run_layers(): logits and scores of the rows sampled from, in the order of the samples.
  void run_sampled_logits(const Inputs& inputs);
  // After run_layers(): logits of the batch's rows `first` to `first` + `count`, at most logit_rows().
  void run_logits(int32_t first, int32_t count);
  // The classifier's scores of these rows, to place `at` of scores(); nothing where there is no classifier.
  void run_scores(int32_t first, int32_t count, int32_t at);

  // A step of one row as one kernel: whether it serves the model; whether a row at this position; its launch, from the
  // token to logits and scores, in place of run_layers() and run_sampled_logits().
  bool has_one_row_step() const { return one_row_ || one_scaled_row_; }
  bool one_row_step_serves(int32_t position) const {
    return one_row_ ? one_row_->serves(position) : one_scaled_row_ && one_scaled_row_->serves(position);
  }
  void run_one_row(const Inputs& inputs);

  // Every kernel of attention that a batch may take, in a recording that never runs.
  void load_attention(const Batch& batch);

  // Writes zero keys and values for the rest of a partly filled block to its copy in host memory.
  void clear_tail(const BlockTransfer& transfer) const;

 private:
  ModelRunner(std::shared_ptr<Device> device, CudaBackend backend, KvPool pool);
  Status take_workspaces(const ExecutorInfo& info, int32_t row_capacity);
  Status take_rotary(int32_t rows);
  Status describe_one_row();
  void compute_logits(const std::byte* x, int32_t rows);
  void fill_angles(const Batch& batch);
  // Row `row` of the residual stream.
  const std::byte* stream_row(int64_t row) const;
  void classify_rows(const std::byte* x, int32_t rows, int32_t at);

  std::shared_ptr<Device> device_;
  Split split_;
  Weights weights_;
  DeviceBuffer<std::byte> weight_memory_;
  CudaBackend backend_;
  KvPool pool_;
  std::unique_ptr<Exchange> exchange_;
  int32_t logit_rows_ = 0;
  std::array<DeviceBuffer<std::byte>, kRoomCount> rooms_;
  DeviceBuffer<std::byte> last_x_;  // residual stream of the sampled rows
  DeviceBuffer<float> logits_, scores_;
  std::vector<DeviceBuffer<uint64_t>> frequencies_;  // per RoPE table: [head_dim / 2]
  std::vector<DeviceBuffer<arith::CosSin>> angles_;  // per RoPE table: [rows, head_dim / 2]
  Workspace workspace_;
  std::optional<OneRowStep> one_row_;               // in version 1 of the arithmetic
  std::optional<OneScaledRowStep> one_scaled_row_;  // in version 2
};

}  // namespace kaiju::cuda
