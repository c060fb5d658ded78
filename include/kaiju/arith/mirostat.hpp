// Mirostat 2 (Basu et al. 2021, arXiv 2007.14966): which tokens are surprising, and how the limit of surprise, mu,
// follows what is drawn (arithmetic.md, section 12). Surprises are in bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kaiju/arith/sampling.hpp"
#include "kaiju/base/sampler.hpp"

namespace kaiju::arith {

// The sampler mirostat at the end of a chain; null if the chain has none.
inline const Sampler* mirostat_of(std::span<const Sampler> samplers) {
  return !samplers.empty() && samplers.back().kind == SamplerKind::kMirostat ? &samplers.back() : nullptr;
}

// Before the first token of a reply.
inline float first_mu(const Sampler& mirostat) { return mul(2.0f, static_cast<float>(mirostat.values[0])); }

// Of a token with this mass > 0.
inline double surprise(uint64_t total, uint64_t mass) {
  return KAIJU_ROUNDED((natural_log(total) - natural_log(mass)) * 1.4426950408889634);
}

// After a token with this mass, of the masses that mirostat has left.
inline float next_mu(const Sampler& mirostat, float mu, uint64_t total, uint64_t mass) {
  const auto tau = static_cast<float>(mirostat.values[0]), eta = static_cast<float>(mirostat.values[1]);
  const float error = add(static_cast<float>(surprise(total, mass)), -tau);
  return add(mu, -mul(eta, error));
}

}  // namespace kaiju::arith
