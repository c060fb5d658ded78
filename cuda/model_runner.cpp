// ModelRunner: allocates the model's memory and launches the forward pass. See model_runner.hpp.
#include "model_runner.hpp"

#include <algorithm>
#include <utility>

#include "kaiju/arith/softmax.hpp"
#include "weights.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kMostTileRows = 256;  // of a matmul's tile, or of two that share their weights
constexpr int32_t kLogitRows = 64;      // of a piece, where the logits of every row are asked for

Result<CudaBackend> make_backend(std::shared_ptr<Device> device, const ModelConfig& config, const ExecutorInfo& info,
                                 int32_t row_capacity) {
  CudaBackend backend(std::move(device));
  const int64_t chunks = (config.context + arith::kChunkKeys - 1) / arith::kChunkKeys,
                heads = config.n_heads / config.n_kv_heads,
                items = config.n_kv_heads * ((heads + kAttentionItemRows - 1) / kAttentionItemRows);
  KAIJU_TRY(backend.take_memory(config.head_dim, info.slot_count * chunks * items));
  backend.have_room(row_capacity);
  return backend;
}

}  // namespace

ModelRunner::ModelRunner(std::shared_ptr<Device> device, CudaBackend backend, KvPool pool)
    : device_(std::move(device)), backend_(std::move(backend)), pool_(std::move(pool)) {}

Result<ModelRunner> ModelRunner::make(std::shared_ptr<Device> device, Weights weights, const ExecutorInfo& info,
                                      std::vector<KvSlot> slots, const ExecutorSizes& sizes) {
  DeviceBuffer<std::byte> weight_memory;
  KAIJU_TRY(upload(weights, device->stream(), weight_memory));
  Result<KvPool> pool = KvPool::make(info, std::move(slots));
  if (!pool.ok()) return pool.status();
  const int32_t logit_rows = std::max(info.slot_count, std::min(info.step_tokens, kLogitRows)),
                row_capacity = pieces(std::max(info.step_tokens, logit_rows), kMostTileRows) * kMostTileRows;
  Result<CudaBackend> backend = make_backend(device, weights.config, info, row_capacity);
  if (!backend.ok()) return backend.status();

  ModelRunner made(std::move(device), std::move(backend).value(), std::move(pool).value());
  made.weights_ = std::move(weights);
  made.weight_memory_ = std::move(weight_memory);
  made.logit_rows_ = logit_rows;
  KAIJU_TRY(made.take_workspaces(info, row_capacity));
  KAIJU_TRY(made.take_rotary(info.step_tokens));
  Workspace& workspace = made.workspace_;
  workspace = {made.x_.data(), made.a_.data(), made.q_.data(), made.queries_.data(),
               nullptr,        nullptr,        made.h_.data(), {}};
  for (auto& angles : made.angles_) workspace.angles.push_back(angles.data());
  Result<std::optional<OneRowStep>> one_row = OneRowStep::make(
      made.device_, made.weights_, {made.pool_.slots(), workspace.angles, workspace.x, made.logits_.data()});
  if (!one_row.ok()) return one_row.status();
  made.one_row_ = std::move(one_row).value();
  KAIJU_TRY(made.backend_.choose_matmuls(made.weights_, workspace, info.step_tokens, made.logits_.data(), logit_rows,
                                         sizes.products_file));
  return made;
}

Status ModelRunner::take_workspaces(const ExecutorInfo& info, int32_t row_capacity) {
  const ModelConfig& config = weights_.config;
  const auto rows = static_cast<size_t>(info.step_tokens), slots = static_cast<size_t>(info.slot_count),
             capacity = static_cast<size_t>(row_capacity);
  const WorkspaceWidths widths(config);
  KAIJU_TRY(take(x_, rows * widths.x, "the residual stream"));
  KAIJU_TRY(take(a_, capacity * widths.a, "the activations"));
  KAIJU_TRY(take(q_, rows * widths.qkv, "the queries, keys and values"));
  KAIJU_TRY(take(queries_, rows * widths.q, "the quantised queries"));
  KAIJU_TRY(take(h_, capacity * widths.h, "the feed-forward activations"));
  KAIJU_TRY(take(last_x_, slots * config.d_model, "the sampled rows"));
  KAIJU_TRY(take(logits_, static_cast<size_t>(logit_rows_) * config.vocab_size, "the logits"));
  return take(scores_, (slots + rows) * static_cast<size_t>(info.label_count), "the scores");
}

Status ModelRunner::take_rotary(int32_t rows) {
  const size_t half = static_cast<size_t>(weights_.config.head_dim) / 2;
  KAIJU_TRY(take(frequencies_, weights_.rope.size() * half, "the rotary frequencies"));
  angles_.resize(weights_.rope.size());
  for (size_t r = 0; r < angles_.size(); ++r) {
    KAIJU_TRY(take(angles_[r], static_cast<size_t>(rows) * half, "the rotary angles"));
    device_->check(cudaMemcpyAsync(frequencies_.data() + r * half, weights_.rope[r].data(), half * sizeof(uint64_t),
                                   cudaMemcpyHostToDevice, device_->stream()),
                   "a copy to the GPU");
  }
  device_->check(cudaStreamSynchronize(device_->stream()), "a copy to the GPU");
  return device_->status();
}

void ModelRunner::run_layers(const Inputs& inputs) {
  fill_angles(inputs.batch);
  forward(backend_, weights_, pool_.slots(), inputs.batch, workspace_);
}

void ModelRunner::run_sampled_logits(const Inputs& inputs) {
  if (inputs.sample_rows == 0) return;
  device_->attempt("gathering rows", [&] {
    return gather_rows(device_->stream(), device_->chip(), x_.data(), inputs.sampled_row, inputs.sample_rows,
                       weights_.config.d_model, last_x_.data());
  });
  if (!device_->ok()) return;
  kaiju::logits(backend_, weights_, last_x_.data(), inputs.sample_rows, a_.data(), logits_.data());
  classify_rows(last_x_.data(), inputs.sample_rows, 0);
}

void ModelRunner::run_logits(int32_t first, int32_t count) {
  if (device_->ok())
    kaiju::logits(backend_, weights_, x_.data() + int64_t{first} * weights_.config.d_model, count, a_.data(),
                  logits_.data());
}

void ModelRunner::run_scores(int32_t first, int32_t count, int32_t at) {
  classify_rows(x_.data() + int64_t{first} * weights_.config.d_model, count, at);
}

void ModelRunner::run_one_row(const Inputs& inputs) {
  fill_angles(inputs.batch);
  backend_.embed(weights_.embed, weights_.embed_scale.data(), inputs.batch.tokens, x_.data());
  one_row_->run(inputs.batch.segments.data());
  classify_rows(x_.data(), 1, 0);
}

void ModelRunner::load_attention(const Batch& batch) {
  for (const LayerWeights& layer : weights_.layers)
    backend_.load_attention({nullptr, weights_.config.n_heads, layer.z, nullptr, nullptr}, batch,
                            pool_.slots()[layer.config.kv_slot]);
}

void ModelRunner::fill_angles(const Batch& batch) {
  const int32_t half = weights_.config.head_dim / 2;
  for (size_t r = 0; r < angles_.size(); ++r)
    device_->attempt("angles", [&] {
      return cuda::fill_angles(device_->stream(), device_->chip(), batch.positions.data(), batch.row_count,
                               frequencies_.data() + r * static_cast<size_t>(half), half, angles_[r].data());
    });
}

// Where the model has a classifier, rows sampled from are always scored: recorded steps do not know which are asked
// for.
void ModelRunner::classify_rows(const arith::bf16* x, int32_t rows, int32_t at) {
  if (const auto labels = static_cast<int64_t>(weights_.config.label_count()); labels > 0)
    classify(backend_, weights_, x, rows, a_.data(), scores_.data() + at * labels);
}

}  // namespace kaiju::cuda
