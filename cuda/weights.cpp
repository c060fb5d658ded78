#include "weights.hpp"

#include <vector>

namespace kaiju::cuda {
namespace {

constexpr size_t kAlignment = 256;

// Walks over all views twice: first to add up their sizes, then to copy them and turn them round.
class Mover {
 public:
  explicit Mover(std::byte* to, cudaStream_t stream = nullptr) : to_(to), stream_(stream) {}

  void operator()(Matrix& matrix) {
    move(matrix.weight, static_cast<size_t>(matrix.out) * static_cast<size_t>(matrix.in));
    move(matrix.row_sum, static_cast<size_t>(matrix.out));
  }
  void operator()(std::span<const float>& values) {
    const float* data = values.data();
    move(data, values.size());
    values = {data, values.size()};
  }
  // Matrices of one input: their weights, row sums and scales each in one piece without gaps. The whole, as one matrix;
  // nothing while sizes are added up.
  Linear pack(const std::vector<Linear*>& parts) {
    for (Linear* part : parts) place(part->weight, static_cast<size_t>(part->out) * static_cast<size_t>(part->in));
    align();
    for (Linear* part : parts) place(part->row_sum, static_cast<size_t>(part->out));
    align();
    for (Linear* part : parts) place(part->scale, static_cast<size_t>(part->out));
    align();
    if (!to_ || parts.empty()) return {};
    Linear whole = *parts.front();
    for (size_t i = 1; i < parts.size(); ++i) whole.out += parts[i]->out;
    return whole;
  }

  size_t bytes() const { return used_; }
  cudaError_t error() const { return error_; }

 private:
  template <class T>
  void move(const T*& data, size_t count) {
    place(data, count);
    align();
  }
  template <class T>
  void place(const T*& data, size_t count) {
    if (to_) {
      if (error_ == cudaSuccess)
        error_ = cudaMemcpyAsync(to_ + used_, data, count * sizeof(T), cudaMemcpyHostToDevice, stream_);
      data = reinterpret_cast<const T*>(to_ + used_);
    }
    used_ += count * sizeof(T);
  }
  void align() { used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment; }

  std::byte* to_;
  cudaStream_t stream_;
  size_t used_ = 0;
  cudaError_t error_ = cudaSuccess;
};

void walk(Weights& weights, Mover& move) {
  move(weights.embed);
  move(weights.embed_scale);
  move(weights.logit_scale);
  if (weights.classifier.weight) {
    move(weights.classifier);
    move(weights.classifier_scale);
  }
  for (LayerWeights& layer : weights.layers) {
    for (const SiteRow& site : kSites) {
      std::vector<Linear*> readers;
      for (const MatmulRow& row : kMatmuls)
        if (row.input == site.site && layer[row.matmul].weight) readers.push_back(&layer[row.matmul]);
      layer.packed[static_cast<size_t>(site.site)] = move.pack(readers);
    }
    if (layer.owns_slot) {
      KvWeights& kv = weights.slots[layer.config.kv_slot];
      move(kv.k_inverse);
      move(kv.v_inverse);
    }
    move(layer.q_inverse);
    move(layer.out_inverse);
  }
}

}  // namespace

Status upload(Weights& weights, cudaStream_t stream, DeviceBuffer<std::byte>& memory) {
  Mover measure(nullptr);
  walk(weights, measure);
  KAIJU_TRY(take(memory, measure.bytes(), "the weights"));
  Mover move(memory.data(), stream);
  walk(weights, move);
  const cudaError_t error = move.error() == cudaSuccess ? cudaStreamSynchronize(stream) : move.error();
  if (error != cudaSuccess)
    return {StatusCode::kDeviceLost,
            std::string("the GPU failed while the weights were copied: ") + cudaGetErrorString(error)};
  weights.constants.clear();
  weights.checkpoint.reset();
  return {};
}

}  // namespace kaiju::cuda
