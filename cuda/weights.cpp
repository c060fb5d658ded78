// Uploads weights to a GPU and packs matrices. See weights.hpp.
#include "weights.hpp"

#include <algorithm>
#include <numeric>
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

// A part of a matrix.
struct Part {
  int32_t first_row = 0, rows = 0, first_column = 0, columns = 0;
};

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
  // Rows that are read one at a time, and never multiplied: without their sums.
  void table(Matrix& rows) { move(rows.weight, static_cast<size_t>(rows.out) * static_cast<size_t>(rows.in)); }
  void operator()(Linear& linear) {
    (*this)(static_cast<Matrix&>(linear));
    factors(linear);
  }
  // All of a linear but its matrix.
  void factors(Linear& linear) {
    move(linear.scale, static_cast<size_t>(linear.out));
    if (linear.bias) move(linear.bias, static_cast<size_t>(linear.out));
  }
  // Parts of matrices of one input: their weights, row sums and scales each in one piece without gaps. The whole, as
  // one matrix; nothing while sizes are added up.
  Linear pack(const std::vector<Linear*>& matrices, const std::vector<Part>& parts) {
    for (size_t i = 0; i < matrices.size(); ++i)
      if (matrices[i]->bias) place_bias(*matrices[i], parts[i]);
    std::vector<std::vector<int32_t>> sums(matrices.size());
    for (size_t i = 0; i < matrices.size(); ++i) place_weights(*matrices[i], parts[i], sums[i]);
    align();
    for (size_t i = 0; i < matrices.size(); ++i) place_sums(*matrices[i], parts[i], sums[i]);
    align();
    for (size_t i = 0; i < matrices.size(); ++i) place_scales(*matrices[i], parts[i]);
    align();
    if (!to_ || matrices.empty()) return {};
    for (size_t i = 0; i < matrices.size(); ++i) {
      matrices[i]->is_part = parts[i].columns < matrices[i]->in;
      matrices[i]->out = parts[i].rows, matrices[i]->in = parts[i].columns;
    }
    Linear whole = *matrices.front();
    for (size_t i = 1; i < matrices.size(); ++i) whole.out += matrices[i]->out;
    return whole;
  }

  // Some rows of the output matrix, or of the embedding, which is there already.
  void output_rows(Linear& output, const Matrix& embed, bool is_embedding, const Part& part) {
    std::vector<int32_t> sums;
    if (is_embedding && to_) {
      output.weight = embed.weight + int64_t{part.first_row} * embed.in;
      output.row_sum = embed.row_sum + part.first_row;
    } else if (!is_embedding) {
      place_weights(output, part, sums);
      align();
      place_sums(output, part, sums);
      align();
    }
    place_scales(output, part);
    align();
    if (output.bias) place_bias(output, part);
    if (to_) output.out = part.rows;
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
  // `sums`: of the part's rows, where they are not those of the whole rows.
  void place_weights(Matrix& matrix, const Part& part, std::vector<int32_t>& sums) {
    const size_t count = static_cast<size_t>(part.rows) * static_cast<size_t>(part.columns);
    if (!to_) {
      used_ += count;
      return;
    }
    const int8_t* from = matrix.weight + int64_t{part.first_row} * matrix.in + part.first_column;
    if (part.columns == matrix.in) {
      matrix.weight = from;
      place(matrix.weight, count);
      return;
    }
    std::byte* const to = to_ + used_;
    if (status_.ok()) status_ = copy_columns(from, matrix.in, part, to, sums);
    matrix.weight = reinterpret_cast<const int8_t*>(to);
    used_ += count;
  }
  void place_sums(Matrix& matrix, const Part& part, const std::vector<int32_t>& sums) {
    const auto rows = static_cast<size_t>(part.rows);
    if (to_ && sums.empty()) matrix.row_sum += part.first_row;
    if (sums.empty()) return place(matrix.row_sum, rows);
    if (status_.ok()) status_ = copy_now(std::as_bytes(std::span(sums)), to_ + used_);
    matrix.row_sum = reinterpret_cast<const int32_t*>(to_ + used_);
    used_ += rows * sizeof(int32_t);
  }
  void place_scales(Linear& linear, const Part& part) {
    if (to_) linear.scale += part.first_row;
    place(linear.scale, static_cast<size_t>(part.rows));
  }
  void place_bias(Linear& linear, const Part& part) {
    if (to_) linear.bias += part.first_row;
    move(linear.bias, static_cast<size_t>(part.rows));
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

  // Some columns of rows that lie `stride` apart, a piece of rows at a time.
  Status copy_columns(const int8_t* from, int32_t stride, const Part& part, std::byte* to, std::vector<int32_t>& sums) {
    const auto columns = static_cast<size_t>(part.columns);
    const auto at_once = static_cast<int32_t>(std::max<size_t>(1, kPieceBytes / columns));
    std::vector<std::byte> piece(static_cast<size_t>(at_once) * columns);
    for (int32_t first = 0; first < part.rows; first += at_once) {
      const int32_t count = std::min(at_once, part.rows - first);
      for (int32_t row = 0; row < count; ++row) {
        std::byte* const own = piece.data() + static_cast<size_t>(row) * columns;
        KAIJU_TRY(from_->read(std::as_bytes(std::span(from + int64_t{first + row} * stride, columns)), own));
        const auto* const values = reinterpret_cast<const int8_t*>(own);
        sums.push_back(std::accumulate(values, values + columns, 0));
      }
      KAIJU_TRY(copy_now({piece.data(), static_cast<size_t>(count) * columns}, to));
      to += static_cast<size_t>(count) * columns;
    }
    return {};
  }

  // From the host's own memory, and waits.
  Status copy_now(std::span<const std::byte> bytes, std::byte* to) {
    KAIJU_TRY(copied(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_)));
    return copied(cudaStreamSynchronize(stream_));
  }

  const Checkpoint* from_ = nullptr;
  std::byte* to_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<std::byte> piece_;
  size_t used_ = 0;
  Status status_;
};

// What a GPU has of a matrix: heads and feed-forward columns are divided, which are rows of the matrices that make them
// and columns of those that read them. `whole`: the dimensions of the whole model.
Part part_of(const ModelConfig& whole, const Split& split, const MatmulRow& row, int32_t layer) {
  const Range rows = part_of(whole, split, row.out, layer),
              columns = part_of(whole, split, row_of(row.input).width, layer);
  return {rows.first, rows.size, columns.first, columns.size};
}

// Leaves of each vector what a GPU has of it, by its width.
void cut_vectors(Weights& weights, const Split& split) {
  const auto cut = [&](std::span<const float>& values, Width width, int32_t layer) {
    const Range range = part_of(weights.config, split, width, layer);
    if (!values.empty()) values = values.subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.size));
  };
  for (int32_t index = 0; index < static_cast<int32_t>(weights.layers.size()); ++index) {
    LayerWeights& layer = weights.layers[static_cast<size_t>(index)];
    for (const VectorRow& row : kVectors) cut(layer.vectors[static_cast<size_t>(row.vector)], row.width, index);
    cut(layer.q_inverse, Width::kKv, index);
    cut(layer.out_inverse, Width::kKv, index);
    if (!layer.owns_slot) continue;
    cut(weights.slots[layer.config.kv_slot].k_inverse, Width::kKv, index);
    cut(weights.slots[layer.config.kv_slot].v_inverse, Width::kKv, index);
  }
}

void pack_matmuls(const ModelConfig& config, const Split& split, int32_t index, LayerWeights& layer, Mover& move) {
  const LayerShape& shape = config.shape;
  for (const SiteRow& site : kSites) {
    std::vector<Linear*> readers;
    std::vector<Part> parts;
    for (const MatmulRow& row : kMatmuls)
      if (row.when(shape) && row.input == site.site && layer[row.matmul].weight) {
        readers.push_back(&layer[row.matmul]);
        parts.push_back(part_of(config, split, row, index));
      }
    layer.packed[static_cast<size_t>(site.site)] = move.pack(readers, parts);
  }
}

void move_slot(LayerWeights& owner, KvWeights& kv, Mover& move) {
  move(kv.k_inverse);
  move(kv.v_inverse);
  kv.key_gain = owner[Vector::kKeyGain];
  kv.key_step = owner[Vector::kKeyStep];
  kv.value_step = owner[Vector::kValueStep];
}

void walk(Weights& weights, const Split& split, Mover& move) {
  const bool has_own_output = weights.output.weight != weights.embed.weight;
  move(weights.embed);
  move(weights.embed_scale);
  if (!split.is_whole()) {  // every GPU has the whole embedding, and computes the logits of some tokens
    const Range tokens = split.part(weights.config.vocab_size, kVocabUnit);
    move.output_rows(weights.output, weights.embed, !has_own_output, {tokens.first, tokens.size, 0, weights.output.in});
  } else {
    if (has_own_output)
      move(static_cast<Matrix&>(weights.output));
    else
      static_cast<Matrix&>(weights.output) = weights.embed;
    move.factors(weights.output);
  }
  move(weights.final_gain);
  if (InputWeights& inputs = weights.inputs; inputs.embed.weight) {
    move.table(inputs.embed);
    move(inputs.embed_scale);
    move(inputs.projection);
    move(inputs.gain);
  }
  if (weights.classifier.weight) move(weights.classifier);
  for (int32_t index = 0; index < static_cast<int32_t>(weights.layers.size()); ++index) {
    LayerWeights& layer = weights.layers[static_cast<size_t>(index)];
    pack_matmuls(weights.config, split, index, layer, move);
    for (std::span<const float>& vector : layer.vectors) move(vector);
    if (layer.owns_slot) move_slot(layer, weights.slots[layer.config.kv_slot], move);
    move(layer.q_inverse);
    move(layer.out_inverse);
  }
}

// Copies weights whose vectors have been cut to memory of their size.
Status fill(Weights& weights, const Split& split, cudaStream_t stream, DeviceBuffer<std::byte>& memory) {
  Mover move(*weights.checkpoint, memory.data(), stream);
  walk(weights, split, move);
  KAIJU_TRY(move.status());
  weights.config = part_of(weights.config, split);
  weights.constants.clear();
  weights.checkpoint.reset();
  return {};
}

// Copies to a place of the weights on the GPU.
template <class T>
Status overwrite_values(const T* source, const T* target, size_t count, cudaStream_t stream) {
  return copied(cudaMemcpyAsync(const_cast<T*>(target), source, count * sizeof(T), cudaMemcpyHostToDevice, stream));
}

}  // namespace

Status upload(Weights& weights, const Split& split, cudaStream_t stream, DeviceBuffer<std::byte>& memory) {
  cut_vectors(weights, split);
  Mover measure;
  walk(weights, split, measure);
  KAIJU_TRY(take(memory, measure.bytes(), "the weights"));
  return fill(weights, split, stream, memory);
}

Status overwrite(Weights& weights, const Split& split, cudaStream_t stream, DeviceBuffer<std::byte>& memory) {
  cut_vectors(weights, split);
  return fill(weights, split, stream, memory);
}

bool same_scalars(const Weights& a, const Weights& b) {
  bool same = a.final_in == b.final_in && a.inputs.step == b.inputs.step &&
              a.inputs.projection.step == b.inputs.projection.step && a.output.step == b.output.step &&
              a.layers.size() == b.layers.size();
  for (size_t i = 0; same && i < a.layers.size(); ++i) {
    const LayerWeights &one = a.layers[i], &other = b.layers[i];
    same = one.attn_in == other.attn_in && one.ffn_in == other.ffn_in && one.z == other.z && one.steps == other.steps;
    for (size_t m = 0; same && m < one.matmuls.size(); ++m) same = one.matmuls[m].step == other.matmuls[m].step;
  }
  return same;
}

Status copy_classifier(const Weights& from, Weights& to, cudaStream_t stream) {
  const auto copy = [&](const auto* source, const auto* target, size_t count) {
    return overwrite_values(source, target, count, stream);
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

Status copy_kv_scales(Weights& from, const Split& split, const Weights& to, cudaStream_t stream) {
  cut_vectors(from, split);
  const auto copy = [&](std::span<const float> source, std::span<const float> target) {
    return overwrite_values(source.data(), target.data(), source.size(), stream);
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
