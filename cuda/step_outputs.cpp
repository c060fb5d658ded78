// StepOutputs: samples tokens and copies results to the host. See step_outputs.hpp.
#include "step_outputs.hpp"

#include "backend.hpp"
#include "kaiju/model/forward.hpp"

namespace kaiju::cuda {

Result<StepOutputs> StepOutputs::make(std::shared_ptr<Device> device, const ExecutorInfo& info) {
  StepOutputs made(std::move(device), info);
  const auto slots = static_cast<size_t>(info.slot_count), vocab = static_cast<size_t>(info.vocab_size);
  KAIJU_TRY(take(made.adjusted_, slots * vocab, "the penalised logits"));
  KAIJU_TRY(take(made.seen_, slots * vocab, "the seen tokens"));
  KAIJU_TRY(take(made.last_sampled_, slots, "the samples"));
  KAIJU_TRY(take(made.sampled_, 2 * slots * sizeof(Sampled), "the samples"));
  KAIJU_TRY(take(made.top_, 2 * slots * kMostTop * sizeof(Alternative), "the alternatives"));
  if (info.label_count > 0) KAIJU_TRY(take(made.scores_, 2 * made.score_count() * sizeof(float), "the scores"));
  return made;
}

void StepOutputs::start_slots(const CheckedStep& step, StepLists& lists) {
  for (const SlotStart& start : step.plan.starts)
    device_->attempt("clearing a slot", [&] {
      return cudaMemsetAsync(seen_.data() + int64_t{start.slot} * info_.vocab_size, 0,
                             static_cast<size_t>(info_.vocab_size), device_->stream());
    });
  lists.send(step.history, "histories", [&](const TokenMark* marks, int32_t count) {
    return mark_seen(device_->stream(), marks, count, info_.vocab_size, seen_.data());
  });
}

void StepOutputs::mark_rows(const Inputs& inputs) {
  device_->attempt("marking tokens", [&] {
    return cuda::mark_rows(device_->stream(), inputs.tokens, inputs.batch.row_segment.data(), inputs.segment_slot,
                           inputs.batch.row_count, info_.vocab_size, last_sampled_.data(), seen_.data());
  });
}

void StepOutputs::adjust(const float* logits, const Inputs& inputs, const CheckedStep& step, StepLists& lists) {
  device_->attempt("penalties", [&] {
    return penalise(device_->stream(), logits, inputs.samples, inputs.sample_rows, info_.vocab_size, seen_.data(),
                    adjusted_.data());
  });
  for (const std::span<const Bias> biases : {step.biases, step.guide_biases})
    lists.send(biases, "biases", [&](const Bias* some, int32_t count) {
      return add_biases(device_->stream(), some, count, info_.vocab_size, adjusted_.data());
    });
  lists.send(step.masks, "masks", [&](const MaskPiece* some, int32_t count) {
    return exclude_tokens(device_->stream(), some, count, info_.vocab_size, adjusted_.data());
  });
}

void StepOutputs::sample(const float* logits, const Inputs& inputs, bool adjusted) {
  if (inputs.sample_rows == 0) return;
  device_->attempt("sampling", [&] {
    return cuda::sample(device_->stream(), device_->chip(), logits, adjusted ? adjusted_.data() : nullptr,
                        inputs.samples, inputs.sample_rows, info_.vocab_size, last_sampled_.data(), sampled(), top());
  });
}

void StepOutputs::return_logits(const float* logits, int64_t rows, float* to) {
  device_->attempt("returning logits", [&] {
    return cudaMemcpyAsync(to, logits, static_cast<size_t>(rows * info_.vocab_size) * sizeof(float),
                           cudaMemcpyDeviceToHost, device_->stream());
  });
}

void StepOutputs::return_scores(const float* scores, int32_t rows, int32_t turn) {
  device_->attempt("returning scores", [&] {
    return cudaMemcpyAsync(reinterpret_cast<float*>(scores_.data()) + static_cast<size_t>(turn) * score_count(), scores,
                           static_cast<size_t>(rows) * labels() * sizeof(float), cudaMemcpyDeviceToHost,
                           device_->stream());
  });
}

void StepOutputs::read_samples(const StepPlan& plan, int32_t turn, StepResult& answer) const {
  int64_t at = int64_t{turn} * info_.slot_count;
  for (const Segment& segment : plan.segments) {
    if (segment.sample_count == 0) continue;
    SampledToken& token = answer.sampled.emplace_back();
    token.slot = segment.slot;
    read_sampled(sampled()[at], top() + at * kMostTop, token);
    ++at;
  }
}

void StepOutputs::read_scores(const StepPlan& plan, const Weights& weights, int32_t turn, StepResult& answer) const {
  const auto row = [&](int32_t at) {
    return reinterpret_cast<const float*>(scores_.data()) + static_cast<size_t>(turn) * score_count() +
           static_cast<size_t>(at) * labels();
  };
  int32_t sampled_rows = 0, returned_row = info_.slot_count;
  for (const Segment& segment : plan.segments) {
    if (segment.sample_count > 0) {
      if (segment.scores)
        append_scores(weights, row(sampled_rows), 1, answer.sampled[static_cast<size_t>(sampled_rows)].scores);
      ++sampled_rows;
    }
    if (!segment.all_logits || !segment.scores) continue;
    append_scores(weights, row(returned_row), segment.token_count, answer.scores);
    returned_row += segment.token_count;
  }
}

void StepOutputs::load_kernels(const float* logits, const Inputs& inputs, const StepLists& lists) {
  device_->attempt("loading", [&] {
    return mark_seen(device_->stream(), lists.any<TokenMark>(), 1, info_.vocab_size, seen_.data());
  });
  device_->attempt("loading", [&] {
    return penalise(device_->stream(), logits, inputs.samples, 1, info_.vocab_size, seen_.data(), adjusted_.data());
  });
  device_->attempt("loading", [&] {
    return add_biases(device_->stream(), lists.any<Bias>(), 1, info_.vocab_size, adjusted_.data());
  });
  device_->attempt("loading", [&] {
    return exclude_tokens(device_->stream(), lists.any<MaskPiece>(), 1, info_.vocab_size, adjusted_.data());
  });
  sample(logits, inputs, true);
}

}  // namespace kaiju::cuda
