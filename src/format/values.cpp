// Checks the values of tensors: see values.hpp.
#include "values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kaiju/format/detail/layer_constants.hpp"
#include "tensors.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace kaiju::format {
namespace {

constexpr float kLeast = 1e-18f;
constexpr float kMost = 1e18f;
// With derived constants of at most 1e12 and |sum of products| < 2^31, no activation of any forward pass can become
// infinite or NaN: every f32 stays below 1e36, but for the squares of a norm, whose overflow gives 1 / inf = 0.
constexpr double kMostDerived = 1e12;
// Version 2 has no clips that bound its activations: the limits of its tensors do (arithmetic-2.md, section 4).
constexpr double kMostFactor = 1e3;
constexpr float kLeastStep = 1e-6f, kMostStep = 1e6f;

Status check_range(const TensorInfo& tensor, std::span<const float> values) {
  bool bad = false;
  for (const float value : values) bad |= !(value >= kLeast && value <= kMost);  // NaN fails both
  if (!bad) return {};
  const auto first =
      std::find_if(values.begin(), values.end(), [](float value) { return !(value >= kLeast && value <= kMost); });
  return bad_model(fmt::format("tensor {}[{}] is {}: must be finite, from 1e-18 to 1e18", tensor.name,
                               first - values.begin(), *first));
}

Status check_magnitude(const TensorInfo& tensor, std::span<const float> values, const char* limit) {
  const double most = std::stod(limit);
  for (size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i]) <= most))
      return bad_model(
          fmt::format("tensor {}[{}] is {}: must be finite, from -{} to {}", tensor.name, i, values[i], limit, limit));
  return {};
}

Status check_steps(const TensorInfo& tensor, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (!(values[i] >= kLeastStep && values[i] <= kMostStep))
      return bad_model(fmt::format("tensor {}[{}] is {}: must be finite, from 1e-6 to 1e6", tensor.name, i, values[i]));
  return {};
}

// Reads constants of a checkpoint whose tensors all exist and are in range.
class Constants {
 public:
  explicit Constants(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  double scalar(const std::string& name) const { return checkpoint_.view<float>(name)[0]; }
  double largest(const std::string& name) const {
    const auto values = checkpoint_.view<float>(name);
    return *std::max_element(values.begin(), values.end());
  }
  double smallest(const std::string& name) const {
    const auto values = checkpoint_.view<float>(name);
    return *std::min_element(values.begin(), values.end());
  }
  double matrix(const std::string& name) const { return largest(name + ".scale") * scalar(name + ".scalar"); }

 private:
  const Checkpoint& checkpoint_;
};

// Each constant of arithmetic.md, section 3, for the row where it is largest: they grow with the scale (or shrink with
// the clip) they come from.
Status check_derived(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  const Constants c(checkpoint);
  const auto check = [](const std::string& tensor, const char* constant, double value) -> Status {
    if (value <= kMostDerived) return {};  // false for NaN
    return bad_model(fmt::format("tensor {}: the constant `{}` derived from it is {:.3g}: must be at most 1e12", tensor,
                                 constant, value));
  };
  KAIJU_TRY(check("embed.scale", "e", c.largest("embed.scale") * c.scalar("embed.in_scalar")));
  KAIJU_TRY(check("embed.scale", "sl",
                  c.largest("embed.scale") * c.scalar("embed.out_scalar") * (c.scalar("final.in_clip") / 127)));
  KAIJU_TRY(check("final.in_clip", "c_in", 127 / c.scalar("final.in_clip")));
  if (!config.labels.empty())
    KAIJU_TRY(check("classifier.scale", "sc", c.matrix("classifier") * (c.scalar("final.in_clip") / 127)));
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer) {
    const LayerConstants constants(checkpoint, layer);
    const auto check_clip = [&](Site site, const char* constant, double value) {
      return check(constants.clip_name(site), constant, value);
    };
    const double q_clip = constants.clip(Site::kQuery), out_clip = constants.clip(Site::kAttentionOut);
    const std::string k_clip = constants.clip_name(Site::kKey), v_clip = constants.clip_name(Site::kValue);
    KAIJU_TRY(check_clip(Site::kAttentionIn, "c_in", 127 / constants.clip(Site::kAttentionIn)));
    if (config.owns_slot(layer)) {
      KAIJU_TRY(check_clip(Site::kKey, "ck", 127 / c.smallest(k_clip)));
      KAIJU_TRY(check_clip(Site::kValue, "cv", 127 / c.smallest(v_clip)));
    }
    KAIJU_TRY(check_clip(Site::kQuery, "cq", 127 * c.largest(k_clip) / q_clip));
    KAIJU_TRY(check_clip(Site::kQuery, "z", q_clip / 16129 * (1.4426950408889634 / std::sqrt(config.head_dim))));
    KAIJU_TRY(check_clip(Site::kAttentionOut, "co", c.largest(v_clip) / out_clip));
    KAIJU_TRY(check_clip(Site::kFfnIn, "c_in", 127 / constants.clip(Site::kFfnIn)));
    for (const LayerMatmul& matmul : matmuls_of(config, layer)) {
      const auto [input, result] = constants.factors(*matmul.row);
      KAIJU_TRY(check(matmul.name + ".scale", matmul.row->constant, c.matrix(matmul.name) * input * result));
    }
  }
  return {};
}

// The factors of version 2 (arithmetic-2.md, section 3).
Status check_factors(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  const Constants c(checkpoint);
  const auto check = [&](const std::string& matrix, const char* scalar) -> Status {
    const double value = c.largest(matrix + ".scale") * c.scalar(matrix + scalar);
    if (value <= kMostFactor) return {};
    return bad_model(
        fmt::format("tensor {}.scale times {}{} is {:.3g}: must be at most 1e3", matrix, matrix, scalar, value));
  };
  KAIJU_TRY(check("embed", ".in_scalar"));
  KAIJU_TRY(config.shape.output == OutputMatrix::kOwn ? check("output", ".scalar") : check("embed", ".out_scalar"));
  if (!config.labels.empty()) KAIJU_TRY(check("classifier", ".scalar"));
  if (has_layer_inputs(config.shape)) {
    KAIJU_TRY(check("inputs.embed", ".scalar"));
    KAIJU_TRY(check("inputs.projection", ".scalar"));
  }
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    for (const LayerMatmul& matmul : matmuls_of(config, layer)) KAIJU_TRY(check(matmul.name, ".scalar"));
  return {};
}

}  // namespace

RowScan scan_row(const int8_t* row, size_t count) {
#if defined(__SSE2__)
  // Bytes shifted by 128 are unsigned, and one instruction sums eight of them: 128 too much each.
  const __m128i shift = _mm_set1_epi8(-128);
  const __m128i zero = _mm_setzero_si128();
  __m128i sums = zero, found = zero;
  for (size_t i = 0; i < count; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i));
    const __m128i shifted = _mm_xor_si128(bytes, shift);
    sums = _mm_add_epi64(sums, _mm_sad_epu8(shifted, zero));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(shifted, zero));
  }
  const int64_t sum = _mm_cvtsi128_si64(sums) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums));
  return {static_cast<int32_t>(sum - 128 * static_cast<int64_t>(count)), _mm_movemask_epi8(found) != 0};
#else
  int32_t sum = 0;
  int32_t least = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += row[i];
    least = std::min<int32_t>(least, row[i]);
  }
  return {sum, least == -128};
#endif
}

Status check_scales(const Checkpoint& checkpoint) {
  const bool is_first = checkpoint.config().arithmetic() == 1;
  for (const ModelTensor& wanted : model_tensors(checkpoint.config())) {
    if (wanted.dtype != DType::kF32) continue;
    const TensorInfo& tensor = *checkpoint.find(wanted.name);
    const auto values = checkpoint.view<float>(wanted.name);
    switch (wanted.role) {
      case TensorRole::kBias:
        KAIJU_TRY(check_magnitude(tensor, values, is_first ? "1e12" : "1e6"));
        break;
      case TensorRole::kGain:
        KAIJU_TRY(check_magnitude(tensor, values, "1e5"));
        break;
      case TensorRole::kStep:
      case TensorRole::kOutStep:
        KAIJU_TRY(check_steps(tensor, values));
        break;
      default:
        KAIJU_TRY(check_range(tensor, values));
    }
  }
  return is_first ? check_derived(checkpoint) : check_factors(checkpoint);
}

}  // namespace kaiju::format
