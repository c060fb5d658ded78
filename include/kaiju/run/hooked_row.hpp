// HookedRow: what a hook and a chain of samplers need of the host for one row of logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kaiju/backend/backend.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

class HookedRow {
 public:
  // Shows the sequence's tokens and mu to the chain, and lets the hook change a copy of args.logits. `args` refers to
  // this object until the next call.
  void prepare(const HookCall& call, const FloatState& float_state, SampleArgs& args) {
    args.history = call.tokens;
    args.mu = call.mu;
    if (!call.hook) return;
    logits_.assign(args.logits, args.logits + args.vocab_size);
    float_state.as_found([&] { (*call.hook)(logits_, call.tokens); });
    bool any = false;
    for (float& logit : logits_) {
      if (!(logit < HUGE_VALF)) logit = -HUGE_VALF;  // NaN too
      any |= logit > -HUGE_VALF;
    }
    if (any) args.changed = logits_.data();
  }

  // The tokens of the sequence as SampleArgs::seen has them, for executors that keep no such list on the host.
  const uint8_t* seen(const HookCall& call, int32_t vocab_size) {
    seen_.assign(static_cast<size_t>(vocab_size), 0);
    for (const int32_t token : call.tokens) seen_[static_cast<size_t>(token)] = 1;
    return seen_.data();
  }

 private:
  std::vector<float> logits_;
  std::vector<uint8_t> seen_;
};

}  // namespace kaiju
