// ModelRunner: allocates the model's memory and launches the forward pass. See model_runner.hpp.
#include "model_runner.hpp"

#include <algorithm>
#include <utility>

#include "exchange_sizes.hpp"
#include "kaiju/arith/softmax.hpp"
#include "weights.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kMostTileRows = 256;  // of a matmul's tile, or of two that share their weights

Result<CudaBackend> make_backend(std::shared_ptr<Device> device, const ModelConfig& config, const ExecutorInfo& info,
                                 int32_t row_capacity, Products products) {
  CudaBackend backend(std::move(device));
  const int64_t chunks = (config.context + arith::kChunkKeys - 1) / arith::kChunkKeys;
  int64_t most_items = 0;
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer) {
    const int32_t kv_heads = config.kv_heads_of(layer), heads = config.n_heads / kv_heads;
    most_items = std::max(most_items, int64_t{kv_heads} * pieces(heads, kAttentionItemRows));
  }
  KAIJU_TRY(backend.take_memory(config.widest(Width::kHead), info.slot_count * chunks * most_items, products));
  backend.have_room(row_capacity);
  return backend;
}

}  // namespace

ModelRunner::ModelRunner(std::shared_ptr<Device> device, CudaBackend backend, KvPool pool)
    : device_(std::move(device)), backend_(std::move(backend)), pool_(std::move(pool)) {}

Result<ModelRunner> ModelRunner::make(std::shared_ptr<Device> device, Weights weights, const ExecutorInfo& info,
                                      std::vector<KvSlot> slots, const ExecutorSizes& sizes, const Split& split,
                                      std::shared_ptr<LostFlag> lost) {
  DeviceBuffer<std::byte> weight_memory;
  KAIJU_TRY(upload(weights, split, device->stream(), weight_memory));
  Result<KvPool> pool = KvPool::make(info, std::move(slots), split);
  if (!pool.ok()) return pool.status();
  const int32_t logit_rows = logit_rows_of(info.slot_count, info.step_tokens),
                row_capacity = pieces(std::max(info.step_tokens, logit_rows), kMostTileRows) * kMostTileRows;
  Result<CudaBackend> backend =
      make_backend(device, weights.config, info, row_capacity, split.is_whole() ? sizes.products : Products::kOwn);
  if (!backend.ok()) return backend.status();

  ModelRunner made(std::move(device), std::move(backend).value(), std::move(pool).value());
  made.split_ = split;
  made.weights_ = std::move(weights);
  made.weight_memory_ = std::move(weight_memory);
  made.logit_rows_ = logit_rows;
  KAIJU_TRY(made.take_workspaces(info, row_capacity));
  KAIJU_TRY(made.take_rotary(info.step_tokens));
  if (!split.is_whole()) {
    Result<std::unique_ptr<Exchange>> exchange =
        Exchange::make(made.device_, split, made.weights_.config, info.step_tokens, logit_rows, std::move(lost));
    if (!exchange.ok()) return exchange.status();
    made.exchange_ = std::move(exchange).value();
    made.backend_.share_sums(made.exchange_.get());
    return made;
  }
  KAIJU_TRY(made.describe_one_row());
  KAIJU_TRY(made.backend_.choose_matmuls(made.weights_, made.workspace_, info.step_tokens, made.logits_.data(),
                                         logit_rows, sizes.products_file));
  return made;
}

Status ModelRunner::describe_one_row() {
  if (weights_.config.arithmetic() == 2) {
    Result<std::optional<OneScaledRowStep>> one_row = OneScaledRowStep::make(
        device_, weights_, {pool_.slots(), workspace_.angles, workspace_.at<float>(Room::kStream), logits_.data()});
    if (!one_row.ok()) return one_row.status();
    one_scaled_row_ = std::move(one_row).value();
    return {};
  }
  Result<std::optional<OneRowStep>> one_row = OneRowStep::make(
      device_, weights_, {pool_.slots(), workspace_.angles, workspace_.at<arith::bf16>(Room::kStream), logits_.data()});
  if (!one_row.ok()) return one_row.status();
  one_row_ = std::move(one_row).value();
  return {};
}

Status ModelRunner::set_weights(Weights from, bool& is_rerecorded) {
  is_rerecorded = !same_scalars(weights_, from);
  KAIJU_TRY(overwrite(from, split_, device_->stream(), weight_memory_));
  weights_ = std::move(from);
  return is_rerecorded && split_.is_whole() ? describe_one_row() : Status();
}

Status ModelRunner::take_workspaces(const ExecutorInfo& info, int32_t row_capacity) {
  const ModelConfig& config = weights_.config;
  const auto rows = static_cast<size_t>(info.step_tokens), slots = static_cast<size_t>(info.slot_count),
             capacity = static_cast<size_t>(row_capacity);
  for (const RoomSize& size : rooms_of(config, ProjectsPacked<CudaBackend>)) {
    DeviceBuffer<std::byte>& room = rooms_[static_cast<size_t>(size.room)];
    const size_t room_rows = size.rows > 0 ? static_cast<size_t>(size.rows) : size.is_read_by_matmuls ? capacity : rows;
    KAIJU_TRY(take(room, room_rows * size.row_bytes, size.what));
    workspace_[size.room] = room.data();
  }
  KAIJU_TRY(take(last_x_, slots * stream_bytes(config), "the sampled rows"));
  KAIJU_TRY(take(logits_, static_cast<size_t>(logit_rows_) * config.vocab_size, "the logits"));
  return take(scores_, (slots + rows) * static_cast<size_t>(info.label_count), "the scores");
}

Status ModelRunner::take_rotary(int32_t rows) {
  for (const std::vector<uint64_t>& table : weights_.rope) {
    DeviceBuffer<uint64_t>& frequencies = frequencies_.emplace_back();
    KAIJU_TRY(take(frequencies, table.size(), "the rotary frequencies"));
    KAIJU_TRY(take(angles_.emplace_back(), static_cast<size_t>(rows) * table.size(), "the rotary angles"));
    workspace_.angles.push_back(angles_.back().data());
    device_->check(cudaMemcpyAsync(frequencies.data(), table.data(), frequencies.bytes(), cudaMemcpyHostToDevice,
                                   device_->stream()),
                   "a copy to the GPU");
  }
  device_->check(cudaStreamSynchronize(device_->stream()), "a copy to the GPU");
  return device_->status();
}

void ModelRunner::run_layers(const Inputs& inputs) {
  run_embedding(inputs);
  for (int32_t layer = 0; layer < layer_count(); ++layer) run_layer(inputs, layer);
}

void ModelRunner::run_embedding(const Inputs& inputs) {
  fill_angles(inputs.batch);
  embed(backend_, weights_, inputs.batch, workspace_);
}

void ModelRunner::run_layer(const Inputs& inputs, int32_t layer) {
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  kaiju::run_layer(backend_, weights_, weights, inputs.batch, pool_.slots()[weights.config.kv_slot], workspace_);
  if (exchange_ && layer + 1 == layer_count()) exchange_->finish_stream();
}

void ModelRunner::compute_logits(const std::byte* x, int32_t rows) {
  if (!exchange_) return kaiju::logits(backend_, weights_, workspace_, x, rows, logits_.data());
  kaiju::logits(backend_, weights_, workspace_, x, rows, exchange_->logits());
  exchange_->gather_logits(rows, logits_.data());
}

void ModelRunner::run_sampled_logits(const Inputs& inputs) {
  if (inputs.sample_rows == 0) return;
  device_->attempt("gathering rows", [&] {
    return gather_rows(device_->stream(), device_->chip(), stream_row(0), inputs.sampled_row, inputs.sample_rows,
                       static_cast<int64_t>(stream_bytes(weights_.config)), last_x_.data());
  });
  if (!device_->ok()) return;
  compute_logits(last_x_.data(), inputs.sample_rows);
  classify_rows(last_x_.data(), inputs.sample_rows, 0);
}

void ModelRunner::run_logits(int32_t first, int32_t count) {
  if (device_->ok()) compute_logits(stream_row(first), count);
}

void ModelRunner::run_scores(int32_t first, int32_t count, int32_t at) { classify_rows(stream_row(first), count, at); }

void ModelRunner::run_one_row(const Inputs& inputs) {
  fill_angles(inputs.batch);
  if (one_row_) {
    backend_.embed(weights_.embed, weights_.embed_scale.data(), inputs.batch.tokens,
                   workspace_.at<arith::bf16>(Room::kStream));
    one_row_->run(inputs.batch.segments.data());
  } else {
    backend_.embed_rows(scaled::embed_args(weights_, inputs.batch, workspace_));
    one_scaled_row_->run(inputs.batch.segments.data());
  }
  classify_rows(stream_row(0), 1, 0);
}

void ModelRunner::load_attention(const Batch& batch) {
  if (weights_.config.arithmetic() == 2) return;  // the layers have launched it
  for (const LayerWeights& layer : weights_.layers)
    backend_.load_attention({nullptr, weights_.config.n_heads, layer.z, nullptr, nullptr}, batch,
                            pool_.slots()[layer.config.kv_slot]);
}

// As quantised zeros have it (arith::quantise_kept).
void ModelRunner::clear_tail(const BlockTransfer& transfer) const {
  pool_.clear_tail(transfer, arith::to_bf16(weights_.config.shape.static_kv ? 1.0f : 0.0f));
}

const std::byte* ModelRunner::stream_row(int64_t row) const {
  return workspace_.at<std::byte>(Room::kStream) + row * static_cast<int64_t>(stream_bytes(weights_.config));
}

void ModelRunner::fill_angles(const Batch& batch) {
  for (size_t r = 0; r < angles_.size(); ++r)
    device_->attempt("angles", [&] {
      return cuda::fill_angles(device_->stream(), device_->chip(), batch.positions.data(), batch.row_count,
                               frequencies_[r].data(), static_cast<int32_t>(frequencies_[r].size()), angles_[r].data());
    });
}

// Where the model has a classifier, rows sampled from are always scored: recorded steps do not know which are asked
// for.
void ModelRunner::classify_rows(const std::byte* x, int32_t rows, int32_t at) {
  if (const auto labels = static_cast<int64_t>(weights_.config.label_count()); labels > 0)
    classify(backend_, weights_, workspace_, x, rows, scores_.data() + at * labels);
}

}  // namespace kaiju::cuda
