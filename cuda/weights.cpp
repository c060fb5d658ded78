#include "weights.hpp"

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
  // Matrices and scales of one input, each kind in one piece without gaps: their sizes are multiples of kAlignment, as
  // every head has at least 64 channels and every input a multiple of 64.
  void together(std::initializer_list<Matrix*> matrices, std::initializer_list<std::span<const float>*> scales) {
    for (Matrix* m : matrices) move(m->weight, static_cast<size_t>(m->out) * static_cast<size_t>(m->in));
    for (Matrix* m : matrices) move(m->row_sum, static_cast<size_t>(m->out));
    for (std::span<const float>* s : scales) (*this)(*s);
  }

  size_t bytes() const { return used_; }
  cudaError_t error() const { return error_; }

 private:
  template <class T>
  void move(const T*& data, size_t count) {
    if (to_) {
      if (error_ == cudaSuccess)
        error_ = cudaMemcpyAsync(to_ + used_, data, count * sizeof(T), cudaMemcpyHostToDevice, stream_);
      data = reinterpret_cast<const T*>(to_ + used_);
    }
    used_ = (used_ + count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

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
    if (layer.owns_slot) {
      KvWeights& kv = weights.slots[layer.config.kv_slot];
      move.together({&layer.q, &kv.k, &kv.v}, {&layer.q_scale, &kv.k_scale, &kv.v_scale});
      move(kv.k_inverse);
      move(kv.v_inverse);
    } else {
      move.together({&layer.q}, {&layer.q_scale});
    }
    move(layer.q_inverse);
    move(layer.out_inverse);
    move(layer.o);
    move(layer.o_scale);
    move(layer.up);
    move(layer.up_alpha);
    move(layer.down);
    move(layer.down_scale);
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
