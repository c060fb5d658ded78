// Writes random models: see random_model.hpp. Every number is a function of (seed, tensor name, index), so the file
// does not depend on the order of generation.
#include "kaiju/format/random_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>

#include "header.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/base/random.hpp"
#include "tensors.hpp"
#include "values.hpp"

namespace kaiju {
namespace {

// Standard deviation of integers uniform in [-127, 127].
const double kWeightDeviation = std::sqrt(127.0 * 128.0 / 3.0);
constexpr double kQueryGain = 2.0;    // scores q.k / sqrt(head_dim) then spread by 2: some keys matter, none alone
constexpr double kLogitSpread = 2.5;  // standard deviation of the logits
constexpr size_t kPieceBytes = size_t{2} << 20;  // of a thread

// FNV-1a: the tensor's own random stream.
uint32_t stream_of(std::string_view name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

class Generator {
 public:
  Generator(const ModelConfig& config, uint64_t seed) : config_(config), seed_(seed) {}

  // `out` is a whole number of 16-byte blocks of the tensor, from byte `at` on.
  void weights(std::string_view name, uint64_t at, std::span<int8_t> out) const {
    const uint32_t stream = stream_of(name);
    for (size_t i = 0; i < out.size(); i += 16) {
      const uint64_t block = (at + i) / 16;
      const auto random =
          philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream, 1}, key());
      std::memcpy(&out[i], random.data(), 16);
      for (size_t k = i; k < i + 16; ++k) out[k] = out[k] == -128 ? int8_t{0} : out[k];
    }
  }

  // Of a tensor of floats; `in` is the fan-in of a scale's matrix.
  float value(const format::ModelTensor& tensor, uint64_t index, int64_t in) const {
    const std::string& name = tensor.name;
    switch (tensor.role) {
      // As an embedding a row has rms 1 / sqrt(d_model), so that layers outweigh it and a token does not simply predict
      // itself; as a row of the logits matrix it spreads them by kLogitSpread.
      case format::TensorRole::kScalar:
        return f32(virtual_scalar(tensor.matrix) * (name == "embed.out_scalar" ? kLogitSpread : 1));
      case format::TensorRole::kScale:
        return f32(
            matrix_gain(tensor, in) * row_factor(tensor.matrix, index) /
            (kWeightDeviation * std::sqrt(static_cast<double>(in)) * virtual_scalar(tensor.matrix) * transform_gain()));
      case format::TensorRole::kBias:
        return f32(uniform(name, index, -1, 1));
      case format::TensorRole::kGain:
        return f32(uniform(name, index, 0.5, 1.5));
      case format::TensorRole::kOutStep:
        return f32(0.05 * gain(tensor.matmul) * vary(name, index));
      case format::TensorRole::kStep:
        return f32((name == "inputs.in_step" ? 4 / (127 * std::sqrt(config_.d_model)) : step(tensor.vector->vector)) *
                   vary(name, index));
      default:
        return f32(clip(tensor, index));
    }
  }

 private:
  static float f32(double x) { return static_cast<float>(x); }
  std::array<uint32_t, 2> key() const { return {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)}; }
  double uniform(std::string_view name, uint64_t index, double low, double high) const {
    const auto random =
        philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), stream_of(name), 2}, key());
    return low + (high - low) * (random[0] / 4294967296.0);
  }
  double row_factor(const std::string& matrix, uint64_t row) const { return uniform(matrix + ".row", row, 0.8, 1.2); }
  double virtual_scalar(const std::string& matrix) const { return uniform(matrix + ".scalar", 0, 0.5, 2.0); }
  // Rms of the Hadamard transform of values of rms 1.
  double transform_gain() const { return std::sqrt(std::max(1.0, static_cast<double>(config_.shape.hadamard))); }
  // Constant steps leave room for four times the rms, which is about 1.
  double step(Vector vector) const {
    const bool is_kept = vector == Vector::kKeyStep || vector == Vector::kValueStep;
    if (is_kept && !config_.shape.static_kv) return 1;
    if (vector == Vector::kKeyStep) return 4 * transform_gain() / 127;
    if (vector == Vector::kInputInStep) return 12.0 / 127;  // the residual stream itself, with norms after sublayers
    return (vector == Vector::kAttentionOutStep ? 2.4 : 4) / 127;
  }
  double vary(const std::string& name, uint64_t index) const { return uniform(name, index, 0.9, 1.1); }

  double clip(const format::ModelTensor& tensor, uint64_t index) const {
    const double varied = vary(tensor.name, index);
    switch (tensor.site ? tensor.site->site : Site::kAttentionIn) {
      // A key or value channel has the rms of its row; four of those hold all but one value in 16,000.
      case Site::kKey:
      case Site::kValue:
        return 4 * row_factor(tensor.name.substr(0, tensor.name.rfind("_clip")), index) * varied;
      case Site::kQuery:
        return 4 * kQueryGain * 4 * varied;  // queries times k_clip
      case Site::kAttentionOut:
        return 2.4 * varied;  // an average of values: smaller than they
      default:
        return 4 * varied;  // of something with rms 1; so is what the final norm makes
    }
  }

  // The layers' inputs have rms 1: rows of their table, and the projection of an embedding.
  double matrix_gain(const format::ModelTensor& tensor, int64_t in) const {
    if (tensor.matrix == "inputs.embed") return std::sqrt(static_cast<double>(in)) * transform_gain();
    if (tensor.matrix == "inputs.projection") return std::sqrt(static_cast<double>(in));
    return gain(tensor.matmul);
  }
  // Rms of the matrix's output for an input of rms 1.
  double gain(const MatmulRow* matmul) const {
    if (!matmul) return 1;
    if (matmul->matmul == Matmul::kQ) return kQueryGain;
    const double branches = 2.0 * static_cast<double>(config_.layers.size());  // all of them together add rms 1
    const double gain = adds_to_residual(matmul->operation) ? 1 / std::sqrt(branches) : 1;
    return matmul->input == Site::kFfnMid ? gain / std::sqrt(middle_mean_square()) : gain;
  }

  // Of what the down projection reads, for gates and ups of rms 1.
  double middle_mean_square() const {
    switch (config_.shape.ffn) {
      case Ffn::kSquaredRelu:
        return 1.5;
      case Ffn::kGatedSilu:
        return 0.356;
      case Ffn::kGatedGelu:
        return 0.425;
    }
    return 1;
  }

  const ModelConfig& config_;
  uint64_t seed_;
};

// Global layers see further than a window: their slowest frequencies must not wrap within the context.
double rope_theta(const ModelConfig& config, int32_t rope) {
  const bool is_global = std::any_of(config.layers.begin(), config.layers.end(), [&](const LayerConfig& l) {
    return l.rope == rope && l.kind == LayerKind::kGlobal;
  });
  if (!is_global) return 10'000;
  return config.context <= 16384 ? 100'000 : 500'000;
}

class Stream {
 public:
  Stream(CheckpointWriter& writer, uint64_t total, const Checkpoint::Progress& progress)
      : writer_(writer), total_(total), progress_(progress) {}

  template <class T>
  Status write(std::span<const T> values) {
    KAIJU_TRY(writer_.write(std::as_bytes(values)));
    const uint64_t before = done_;
    done_ += values.size_bytes();
    if (progress_ && before >> 22 != done_ >> 22 &&
        progress_(static_cast<double>(done_) / static_cast<double>(total_)) != 0)
      return {StatusCode::kCancelled, "writing was cancelled by the progress callback"};
    return {};
  }

 private:
  CheckpointWriter& writer_;
  uint64_t total_;
  uint64_t done_ = 0;
  const Checkpoint::Progress& progress_;
};

// Fills rows of a matrix from `first` on, and their sums, on so many threads or as many as there can be.
void fill_rows(const Generator& generator, const std::string& name, size_t first, size_t width, std::span<int8_t> piece,
               std::span<int32_t> sums, int32_t threads) {
  const auto fill = [&](size_t from, size_t end) {
    generator.weights(name, (first + from) * width, piece.subspan(from * width, (end - from) * width));
    for (size_t row = from; row < end; ++row) sums[row] = format::scan_row(&piece[row * width], width).sum;
  };
  const size_t each = (sums.size() + static_cast<size_t>(threads) - 1) / static_cast<size_t>(threads);
  std::vector<std::jthread> others;
  size_t from = 0;
  try {
    for (; from + each < sums.size(); from += each) others.emplace_back(fill, from, from + each);
  } catch (const std::system_error&) {  // this one does the rest
  }
  fill(from, sums.size());
}

Status write_tensors(CheckpointWriter& writer, const ModelConfig& config, uint64_t seed,
                     const Checkpoint::Progress& progress, int32_t threads) {
  const Generator generator(config, seed);
  const std::vector<format::ModelTensor> tensors = format::model_tensors(config);
  uint64_t total = 0;
  for (const format::ModelTensor& tensor : tensors) total += format::tensor_bytes(tensor.dtype, tensor.shape);
  Stream stream(writer, total, progress);

  // Weight, scale and row sums of a matrix come one after the other: the last weight's sums and width are what the next
  // ones need.
  std::vector<int32_t> row_sums;
  std::vector<int8_t> piece;
  std::vector<float> values;
  int64_t in = 1;
  for (const format::ModelTensor& tensor : tensors) {
    const auto rows = static_cast<size_t>(tensor.shape[0]);
    if (tensor.role == format::TensorRole::kWeight) {
      in = tensor.shape[1];
      const auto width = static_cast<size_t>(in);
      const size_t piece_rows = std::max<size_t>(1, kPieceBytes / width) * static_cast<size_t>(threads);
      row_sums.resize(rows);
      for (size_t row = 0; row < rows; row += piece_rows) {
        const size_t count = std::min(piece_rows, rows - row);
        piece.resize(count * width);
        fill_rows(generator, tensor.name, row, width, piece, std::span(row_sums).subspan(row, count), threads);
        KAIJU_TRY(stream.write(std::span<const int8_t>(piece)));
      }
    } else if (tensor.role == format::TensorRole::kRowSum) {
      KAIJU_TRY(stream.write(std::span<const int32_t>(row_sums)));
    } else if (tensor.role == format::TensorRole::kRope) {
      const int32_t rope = std::stoi(tensor.name.substr(tensor.name.rfind('.') + 1));
      KAIJU_TRY(stream.write(
          std::span<const uint64_t>(rope_frequencies(rope_theta(config, rope), config.rope_head_dim(rope)))));
    } else {
      values.resize(rows);
      for (size_t i = 0; i < rows; ++i) values[i] = generator.value(tensor, i, in);
      KAIJU_TRY(stream.write(std::span<const float>(values)));
    }
  }
  return {};
}

}  // namespace

Status write_random_checkpoint(const std::string& path, const ModelConfig& config, uint64_t seed,
                               const Checkpoint::Progress& progress, int32_t threads) try {
  const FloatState float_state;
  Checkpoint::Progress report;
  if (progress) report = [&](double done) { return float_state.as_found([&] { return progress(done); }); };
  ModelConfig derived = config;
  derived.derive_counts();
  if (Status status = check_config(derived); !status.ok())
    return Status(StatusCode::kInvalidArgument, status.message());
  auto writer = CheckpointWriter::create(path, derived, required_tensors(derived));
  if (!writer.ok()) return writer.status();
  if (Status status = write_tensors(**writer, derived, seed, report, std::max(1, threads)); !status.ok()) return status;
  if (Status status = writer.value()->finish(); !status.ok()) return status;
  if (report) (void)report(1.0);
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace kaiju
