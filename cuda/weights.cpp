// Uploads weights to a GPU and packs matrices. See weights.hpp.
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
  // An empty one stays null.
  void operator()(std::span<const float>& values) {
    if (values.empty()) return;
    const float* data = values.data();
    move(data, values.size());
    values = {data, values.size()};
  }
  void operator()(Linear& linear) {
    (*this)(static_cast<Matrix&>(linear));
    factors(linear);
  }
  // All of a linear but its matrix.
  void factors(Linear& linear) {
    move(linear.scale, static_cast<size_t>(linear.out));
    if (linear.bias) move(linear.bias, static_cast<size_t>(linear.out));
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
  const Status& status() const { return status_; }

 private:
  template <class T>
  void move(const T*& data, size_t count) {
    place(data, count);
    align();
  }
  template <class T>
  void place(const T*& data, size_t count) {
    if (to_) {
      if (status_.ok()) status_ = copy(std::as_bytes(std::span(data, count)), to_ + used_);
      data = reinterpret_cast<const T*>(to_ + used_);
    }
    used_ += count * sizeof(T);
  }
  void align() { used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment; }

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

void pack_matmuls(const LayerShape& shape, LayerWeights& layer, Mover& move) {
  for (const SiteRow& site : kSites) {
    std::vector<Linear*> readers;
    for (const MatmulRow& row : kMatmuls)
      if (row.when(shape) && row.input == site.site && layer[row.matmul].weight) readers.push_back(&layer[row.matmul]);
    layer.packed[static_cast<size_t>(site.site)] = move.pack(readers);
  }
}

void move_slot(LayerWeights& owner, KvWeights& kv, Mover& move) {
  move(kv.k_inverse);
  move(kv.v_inverse);
  kv.key_gain = owner[Vector::kKeyGain];
  kv.key_step = owner[Vector::kKeyStep];
  kv.value_step = owner[Vector::kValueStep];
}

void walk(Weights& weights, Mover& move) {
  const bool has_own_output = weights.output.weight != weights.embed.weight;
  move(weights.embed);
  move(weights.embed_scale);
  if (has_own_output)
    move(static_cast<Matrix&>(weights.output));
  else
    static_cast<Matrix&>(weights.output) = weights.embed;
  move.factors(weights.output);
  move(weights.final_gain);
  if (weights.classifier.weight) move(weights.classifier);
  for (LayerWeights& layer : weights.layers) {
    if (weights.config.arithmetic() == 1)
      pack_matmuls(weights.config.shape, layer, move);
    else
      for (Linear& linear : layer.matmuls)
        if (linear.weight) move(linear);
    for (std::span<const float>& vector : layer.vectors) move(vector);
    if (layer.owns_slot) move_slot(layer, weights.slots[layer.config.kv_slot], move);
    move(layer.q_inverse);
    move(layer.out_inverse);
  }
}

// Copies to a place of the weights on the GPU.
template <class T>
Status overwrite(const T* source, const T* target, size_t count, cudaStream_t stream) {
  return copied(cudaMemcpyAsync(const_cast<T*>(target), source, count * sizeof(T), cudaMemcpyHostToDevice, stream));
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

Status copy_classifier(const Weights& from, Weights& to, cudaStream_t stream) {
  const auto copy = [&](const auto* source, const auto* target, size_t count) {
    return overwrite(source, target, count, stream);
  };
  const auto out = static_cast<size_t>(from.classifier.out), in = static_cast<size_t>(from.classifier.in);
  std::vector<int8_t> weight(out * in);  // read from the file, which may have been cut short
  KAIJU_TRY(from.checkpoint->read(std::as_bytes(std::span(from.classifier.weight, weight.size())),
                                  reinterpret_cast<std::byte*>(weight.data())));
  KAIJU_TRY(copy(weight.data(), to.classifier.weight, weight.size()));
  KAIJU_TRY(copy(from.classifier.row_sum, to.classifier.row_sum, out));
  KAIJU_TRY(copy(from.classifier.scale, to.classifier.scale, out));
  KAIJU_TRY(copied(cudaStreamSynchronize(stream)));
  to.classifier_bias = from.classifier_bias;
  return {};
}

Status copy_kv_scales(const Weights& from, const Weights& to, cudaStream_t stream) {
  const auto copy = [&](std::span<const float> source, std::span<const float> target) {
    return overwrite(source.data(), target.data(), source.size(), stream);
  };
  for (size_t i = 0; i < to.slots.size(); ++i) {
    KAIJU_TRY(copy(from.slots[i].k_inverse, to.slots[i].k_inverse));
    KAIJU_TRY(copy(from.slots[i].v_inverse, to.slots[i].v_inverse));
  }
  for (size_t i = 0; i < to.layers.size(); ++i) {
    KAIJU_TRY(copy(from.layers[i].q_inverse, to.layers[i].q_inverse));
    KAIJU_TRY(copy(from.layers[i].out_inverse, to.layers[i].out_inverse));
  }
  return copied(cudaStreamSynchronize(stream));
}

}  // namespace kaiju::cuda
