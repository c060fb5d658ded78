// The fields of a record's JSON object: a name, and where its value is. Writing and reading visit the same list.
#pragma once

#include "kaiju/engine/reply_record.hpp"

namespace kaiju {

#define KAIJU_FIELD(name, at) visit(name, [](auto& record) -> auto& { return record.at; })

template <class Visit>
void for_sampling_fields(const Visit& visit) {
  KAIJU_FIELD("temperature", options.sampling.temperature);
  KAIJU_FIELD("top_k", options.sampling.top_k);
  KAIJU_FIELD("top_p", options.sampling.top_p);
  KAIJU_FIELD("min_p", options.sampling.min_p);
  KAIJU_FIELD("repetition_penalty", options.sampling.repetition_penalty);
  KAIJU_FIELD("seed", options.sampling.seed);
  KAIJU_FIELD("variant", options.sampling.variant);
  KAIJU_FIELD("logit_bias", options.sampling.logit_bias);
  KAIJU_FIELD("samplers", options.sampling.samplers);
  KAIJU_FIELD("breakers", options.sampling.breakers);
}

template <class Visit>
void for_beam_fields(const Visit& visit) {
  KAIJU_FIELD("beams", options.beams.width);
  KAIJU_FIELD("beam_candidates", options.beams.candidates);
  KAIJU_FIELD("length_penalty", options.beams.length_penalty);
  KAIJU_FIELD("early_stopping", options.beams.early_stopping);
  KAIJU_FIELD("beam_groups", options.beams.groups);
  KAIJU_FIELD("diversity", options.beams.diversity);
  KAIJU_FIELD("stochastic", options.beams.stochastic);
  KAIJU_FIELD("guidance", options.beams.guidance.weight);
  KAIJU_FIELD("guidance_risk", options.beams.guidance.risk);
  KAIJU_FIELD("label_weights", options.beams.guidance.label_weights);
}

template <class Visit>
void for_fields(const Visit& visit) {
  KAIJU_FIELD("model", identity);
  KAIJU_FIELD("epoch", epoch);
  KAIJU_FIELD("sequence", sequence);
  KAIJU_FIELD("prompt_tokens", prompt_tokens);
  KAIJU_FIELD("cached_tokens", cached_tokens);
  KAIJU_FIELD("reason", reason);
  KAIJU_FIELD("label", label);
  KAIJU_FIELD("probability", probability);
  KAIJU_FIELD("max_tokens", options.max_tokens);
  KAIJU_FIELD("sequence_count", options.sequence_count);
  KAIJU_FIELD("stop_strings", options.stop_strings);
  KAIJU_FIELD("stop_tokens", options.stop_tokens);
  KAIJU_FIELD("banned_phrases", options.banned_phrases);
  KAIJU_FIELD("loop_guard", options.loop_guard);
  KAIJU_FIELD("guided", options.guided);
  KAIJU_FIELD("begun_tokens", options.begun_tokens);
  KAIJU_FIELD("hooked", hooked);
  KAIJU_FIELD("priority", options.priority);
  KAIJU_FIELD("character", options.scope.character);
  KAIJU_FIELD("shared_tokens", options.scope.shared_tokens);
  KAIJU_FIELD("tier", options.safety.tier);
  KAIJU_FIELD("limits", options.safety.limits);
  KAIJU_FIELD("verdict_run", options.safety.run);
  KAIJU_FIELD("verdict_reports", options.safety.reports);
  KAIJU_FIELD("hold_back", options.safety.hold_back);
  for_sampling_fields(visit);
  for_beam_fields(visit);
}

#undef KAIJU_FIELD

}  // namespace kaiju
