// HostSampling: samples rows that have a hook or a chain of samplers. See host_sampling.hpp.
#include "host_sampling.hpp"

#include <atomic>
#include <new>
#include <system_error>

namespace kaiju::cuda {

Status HostSampling::have_room(const StepPlan& plan) {
  if (plan.hooks.empty()) return {};
  KAIJU_TRY(guarded<Status>([&]() -> Status { return have_drawers(plan.hooks.size() > 1), Status(); }));
  const size_t bytes = plan.hooks.size() * row_bytes();
  if (bytes <= memory_.bytes()) return {};
  memory_ = {};
  return take(memory_, bytes, "logits for the host");
}

void HostSampling::have_drawers(bool many) {
  if (many && threads_ > 1 && !pool_) {
    try {
      pool_ = std::make_unique<ThreadPool>(threads_, nullptr, nullptr, host_threads_);
    } catch (const std::system_error&) {
      threads_ = 1;  // the system starts no more: the calling thread draws alone
    }
  }
  const auto wanted = static_cast<size_t>(pool_ ? threads_ : 1);
  while (drawers_.size() < wanted) {
    drawers_.push_back(std::make_unique<Drawer>());
    drawers_.back()->sampler.reserve(info_.vocab_size);
  }
}

void HostSampling::send_rows(const StepPlan& plan, const float* logits) {
  std::byte* to = memory_.data();
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
  const auto* logits = reinterpret_cast<const float*>(memory_.data());
  drawn_.clear();
  hooked_.clear();
  size_t at = 0;
  for (const Segment& segment : plan.segments) {
    if (segment.sample_count == 0) continue;
    SampledToken& token = answer.sampled[at++];
    if (segment.hook < 0) continue;
    const bool has_hook = plan.hooks[static_cast<size_t>(segment.hook)].hook != nullptr;
    (has_hook ? hooked_ : drawn_).push_back({&segment, logits, &token});
    logits += info_.vocab_size;
  }
  std::atomic<bool> no_memory = false;
  const auto draw_one = [&](int32_t row, int32_t thread) {
    try {
      draw(plan, slots, float_state, drawn_[static_cast<size_t>(row)], *drawers_[static_cast<size_t>(thread)]);
    } catch (const std::bad_alloc&) {
      no_memory = true;
    }
  };
  const auto count = static_cast<int32_t>(drawn_.size());
  if (pool_)
    pool_->parallel_for(count, draw_one);
  else
    for (int32_t row = 0; row < count; ++row) draw_one(row, 0);
  if (no_memory) throw std::bad_alloc();
  // The host's hooks run on the thread of its call.
  for (const Row& row : hooked_) draw(plan, slots, float_state, row, *drawers_.front());
}

void HostSampling::draw(const StepPlan& plan, const Slots& slots, const FloatState& float_state, const Row& row,
                        Drawer& drawer) const {
  const Segment& segment = *row.segment;
  const HookCall& call = plan.hooks[static_cast<size_t>(segment.hook)];
  const SamplingSpec& spec = slots[segment.slot].sampling;
  SampleArgs args{row.logits,
                  info_.vocab_size,
                  &spec,
                  spec.repetition_penalty != 1.0f ? drawer.hooked.seen(call, info_.vocab_size) : nullptr,
                  int64_t{segment.position} + segment.token_count,
                  segment.top_logprobs};
  if (segment.guide >= 0) args.guide = plan.guides[static_cast<size_t>(segment.guide)].get();
  drawer.hooked.prepare(call, float_state, args);
  drawer.sampler.sample(args, *row.token);
}

}  // namespace kaiju::cuda
