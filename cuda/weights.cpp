#include "weights.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace kaiju::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPieceBytes = size_t{8} << 20;

Status copied(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return {StatusCode::kDeviceLost,
          std::string("the GPU failed while the weights were copied: ") + cudaGetErrorString(error)};
}

// Walks over all views twice: first to add up their sizes, then to copy them and turn them round. What it copies it
// reads from the checkpoint, whose file may be cut short meanwhile: the driver would touch the mapping and end the
// process.
class Mover {
 public:
  Mover() = default;
  Mover(const Checkpoint& from, std::byte* to, cudaStream_t stream) : from_(&from), to_(to), stream_(stream) {}

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
  const Status& status() const { return status_; }

 private:
  template <class T>
  void move(const T*& data, size_t count) {
    if (to_) {
      if (status_.ok()) status_ = copy(std::as_bytes(std::span(data, count)), to_ + used_);
      data = reinterpret_cast<const T*>(to_ + used_);
    }
    used_ = (used_ + count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Waits for each piece, for the next one takes its place.
  Status copy(std::span<const std::byte> bytes, std::byte* to) {
    piece_.resize(kPieceBytes);
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const size_t count = std::min(kPieceBytes, bytes.size() - at);
      KAIJU_TRY(from_->read(bytes.subspan(at, count), piece_.data()));
      KAIJU_TRY(copied(cudaMemcpyAsync(to + at, piece_.data(), count, cudaMemcpyHostToDevice, stream_)));
      KAIJU_TRY(copied(cudaStreamSynchronize(stream_)));
    }
    return {};
  }

  const Checkpoint* from_ = nullptr;
  std::byte* to_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<std::byte> piece_;
  size_t used_ = 0;
  Status status_;
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
  Mover measure;
  walk(weights, measure);
  KAIJU_TRY(take(memory, measure.bytes(), "the weights"));
  Mover move(*weights.checkpoint, memory.data(), stream);
  walk(weights, move);
  KAIJU_TRY(move.status());
  weights.constants.clear();
  weights.checkpoint.reset();
  return {};
}

}  // namespace kaiju::cuda
