// Engine's records of replies (reply_record.hpp). Part of engine_impl.hpp.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"
#include "kaiju/engine/reply_record.hpp"

namespace kaiju {

// `tokens`: the prompt and the reply. `end`: the reply's last event.
inline std::shared_ptr<const ReplyRecord> EngineImpl::record_of(const Request& request, uint32_t variant,
                                                                SharedTokens tokens, const Event& end) {
  auto record = std::make_shared<ReplyRecord>();
  record->identity = cache().identity();
  record->epoch = cache().epoch();
  RequestOptions& options = record->options = *request.recorded;
  options.sampling.variant = variant;
  options.stop_tokens = request.stop_tokens;
  if (!request.beams) options.sequence_count = 1;
  record->hooked = static_cast<bool>(options.logits_hook);
  options.logits_hook = {};
  options.deadline.reset();
  options.user_data = nullptr;
  options.safety.limits.clear();
  const std::span<const double> limits = limits_of(request);
  for (size_t label = 0; label < limits.size(); ++label)
    if (limits[label] != kNoLimit) options.safety.limits.emplace_back(info().labels[label], limits[label]);
  record->sequence = end.sequence;
  record->prompt_tokens = request.prompt_count;
  record->cached_tokens = end.counts.cached_tokens;
  record->tokens = std::move(tokens);
  record->reason = end.reason;
  if (end.label >= 0) record->label = info().labels[static_cast<size_t>(end.label)];
  record->probability = end.probability;
  return record;
}

}  // namespace kaiju
