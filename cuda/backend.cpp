// CudaBackend: calls the launches of kernels.hpp for each operation. See backend.hpp.
#include "backend.hpp"

#include <algorithm>

#include "kaiju/base/random.hpp"
#include "launch/packed_matmuls.hpp"

namespace kaiju::cuda {

SampleRow sample_row_of(const SamplingSpec& spec, const TokenGuide* guide, int32_t slot, int64_t position,
                        int32_t top_logprobs) {
  SampleRow sample;
  sample.slot = slot;
  sample.greedy = spec.temperature == 0.0f;
  sample.adjusted = spec.repetition_penalty != 1.0f || !spec.logit_bias.empty() ||
                    (guide && (!guide->allowed.empty() || !guide->logit_bias.empty()));
  sample.penalty = spec.repetition_penalty;
  sample.top = std::min(top_logprobs, kMostTop);
  if (sample.greedy) return sample;
  sample.factor = arith::temperature_factor(spec.temperature);
  sample.top_k = std::max(spec.top_k, 0);
  if (spec.min_p > 0.0f)
    sample.least_mass = static_cast<uint32_t>(__builtin_rint(static_cast<double>(spec.min_p) * 1073741824.0));
  sample.cut = spec.top_p < 1.0f;
  if (sample.cut) sample.share = static_cast<uint64_t>(__builtin_rint(static_cast<double>(spec.top_p) * 4294967296.0));
  sample.random = random_bits(spec.seed, spec.stream, static_cast<uint64_t>(position));
  return sample;
}

void append_mask(const TokenGuide& guide, int32_t row, std::vector<MaskPiece>& pieces) {
  const std::span<const uint32_t> words(guide.allowed);
  for (size_t first = 0; first < words.size(); first += MaskPiece::kWords) {
    const std::span<const uint32_t> some =
        words.subspan(first, std::min<size_t>(MaskPiece::kWords, words.size() - first));
    if (std::all_of(some.begin(), some.end(), [](uint32_t word) { return word == ~0u; })) continue;
    MaskPiece& piece = pieces.emplace_back();
    piece.row = row;
    piece.first_word = static_cast<int32_t>(first);
    std::fill(std::copy(some.begin(), some.end(), piece.allowed), std::end(piece.allowed), ~0u);
  }
}

namespace {
MatmulKind kind_of(Operation operation) {
  switch (operation) {
    case Operation::kLinear:
      return MatmulKind::kLinear;
    case Operation::kUp:
      return MatmulKind::kUp;
    case Operation::kAddLinear:
      return MatmulKind::kAddLinear;
    case Operation::kAddDown:
      break;
  }
  return MatmulKind::kAddDown;
}

// Where the outputs of the matrices that read a site go in version 2 of the arithmetic.
Room room_of(const LayerShape& shape, Site site) {
  if (site == Site::kInputIn) return Room::kGate;
  if (site == Site::kFfnIn) return is_gated(shape) ? Room::kGate : Room::kUp;
  return Room::kQ;
}
}  // namespace

CudaBackend::CudaBackend(std::shared_ptr<Device> device) : device_(std::move(device)) {
  scratch_.multiprocessors = device_->chip().multiprocessors;
#if defined(KAIJU_CUDA_SM90A)  // else the Hopper kernels are empty
  scratch_.hopper = device_->chip().capability == 90;
#endif
}

Status CudaBackend::take_memory(int32_t head_dim, int64_t chunks, Products products) {
  // Chunks in flight, 34 MB for 1,024 at 128 channels. A batch that has more of them than 64 items of 131,072 tokens is
  // not split.
  constexpr int64_t kLeastUnits = 2048, kMostUnits = 16384;
  const auto units = static_cast<int32_t>(std::clamp(chunks, kLeastUnits, kMostUnits));
  const size_t rows = static_cast<size_t>(units) * kAttentionTileRows;
  KAIJU_TRY(take(parts_, rows, "the sums of attention"));
  KAIJU_TRY(take(sums_, rows * static_cast<size_t>(head_dim), "the sums of attention"));
  KAIJU_TRY(take(counters_, static_cast<size_t>(units) + 1, "the sums of attention"));
  KAIJU_TRY(take(plans_, size_t{kBlockKinds} * 2 * static_cast<size_t>(scratch_.multiprocessors) * kAttentionPlanBytes,
                 "the plans of attention"));
  scratch_.units = units;
  scratch_.head_dim = head_dim;
  scratch_.counters = counters_.data();
  scratch_.parts = parts_.data();
  scratch_.sums = sums_.data();
  scratch_.plans = plans_.data();
  const bool always = products == Products::kCublasLt;
  if (products == Products::kOwn || (scratch_.hopper && !always)) return {};
  Result<std::unique_ptr<CublasLt>> opened = CublasLt::open(device_, always);
  if (!opened.ok()) return opened.status();
  cublaslt_ = std::move(opened).value();
  if (cublaslt_ || !always) return {};
  return {StatusCode::kUnsupported, "there is no cuBLASLt here: install libcublasLt of CUDA " +
                                        std::to_string(CUDART_VERSION / 1000) + ", or leave products \"auto\""};
}

Status CudaBackend::choose_matmuls(const Weights& weights, const Workspace& workspace, int32_t rows, float* logits,
                                   int32_t logit_rows, const std::string& file) {
  if (!cublaslt_) return {};
  std::vector<CublasLtMatmul> products;
  const auto add = [&](MatmulKind kind, const Linear& w, Room a, int32_t most, void* result) {
    products.push_back({kind, {w.weight, w.out, w.in, workspace.at<std::byte>(a), most, w.scale, result}, w.row_sum});
  };
  const bool is_scaled = weights.config.arithmetic() == 2;
  for (size_t l = 0; l < weights.layers.size(); ++l)
    for (const PackedMatmul& product : packed_matmuls_of(weights.config, static_cast<int32_t>(l))) {
      Room result = Room::kStream;
      if (product.operation == Operation::kLinear) result = Room::kQ;
      if (product.operation == Operation::kUp) result = Room::kMiddle;
      if (is_scaled) result = room_of(weights.config.shape, product.input);
      add(kind_of(product.operation), weights.layers[l].packed_at(product.input),
          product.input == Site::kFfnMid && !is_scaled ? Room::kMiddle : Room::kBytes, rows,
          workspace.at<std::byte>(result));
    }
  const bool is_wide = weights.config.shape.wide_logits;
  const int32_t last_rows = is_wide ? 2 * kWideLogitRows : logit_rows;
  float* const last = is_wide ? workspace.at<float>(Room::kWideLogits) : logits;
  add(MatmulKind::kLinear, weights.output, Room::kBytes, last_rows, last);
  if (weights.classifier.weight) add(MatmulKind::kLinear, weights.classifier, Room::kBytes, last_rows, last);
  return cublaslt_->choose(products, file);
}

void read_sampled(const Sampled& sampled, Alternative* top, SampledToken& result) {
  const double log_total = arith::natural_log(sampled.total) - 20.79441541679836;  // as in arith::log_total
  result.token = sampled.token;
  result.logprob = arith::logprob(sampled.logit, sampled.maximum, log_total);
  std::sort(top, top + sampled.top_count, [](const Alternative& a, const Alternative& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
  result.top.clear();
  for (int32_t i = 0; i < sampled.top_count; ++i)
    result.top.push_back({top[i].token, arith::logprob(top[i].logit, sampled.maximum, log_total)});
}

}  // namespace kaiju::cuda
