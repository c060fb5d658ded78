// HostSampling: samples rows that have a hook or a chain of samplers. See host_sampling.hpp.
#include "host_sampling.hpp"

namespace kaiju::cuda {

Status HostSampling::have_room(const StepPlan& plan) {
  const size_t bytes = plan.hooks.size() * row_bytes();
  if (bytes <= rows_.bytes()) return {};
  rows_ = {};
  return take(rows_, bytes, "logits for the host");
}

void HostSampling::send_rows(const StepPlan& plan, const float* logits) {
  std::byte* to = rows_.data();
  for (const Segment& segment : plan.segments) {
    if (segment.sample_count == 0) continue;
    if (segment.hook >= 0) {
      device_->attempt("returning logits", [&] {
        return cudaMemcpyAsync(to, logits, row_bytes(), cudaMemcpyDeviceToHost, device_->stream());
      });
      to += row_bytes();
    }
    logits += info_.vocab_size;
  }
}

void HostSampling::sample(const StepPlan& plan, const Slots& slots, const FloatState& float_state, StepResult& answer) {
  const auto* logits = reinterpret_cast<const float*>(rows_.data());
  size_t at = 0;
  for (const Segment& segment : plan.segments) {
    if (segment.sample_count == 0) continue;
    SampledToken& token = answer.sampled[at++];
    if (segment.hook < 0) continue;
    const HookCall& call = plan.hooks[static_cast<size_t>(segment.hook)];
    const SamplingSpec& spec = slots[segment.slot].sampling;
    SampleArgs args{logits,
                    info_.vocab_size,
                    &spec,
                    spec.repetition_penalty != 1.0f ? hooked_.seen(call, info_.vocab_size) : nullptr,
                    int64_t{segment.position} + segment.token_count,
                    segment.top_logprobs};
    if (segment.guide >= 0) args.guide = plan.guides[static_cast<size_t>(segment.guide)].get();
    hooked_.prepare(call, float_state, args);
    sampler_.sample(args, token);
    logits += info_.vocab_size;
  }
}

}  // namespace kaiju::cuda
