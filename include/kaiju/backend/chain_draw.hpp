// draw_by_chain: draws a token by the chain of samplers of a row, for every backend alike.
#pragma once

#include <vector>

#include "kaiju/arith/chain.hpp"
#include "kaiju/backend/backend.hpp"

namespace kaiju {

// Draws result.token, and result.mu. `candidates` has every token with its logit, in ascending order; the function
// changes it. It allocates memory, unlike the rest of a step.
inline void draw_by_chain(const SampleArgs& args, std::vector<arith::Candidate>& candidates, SampledToken& result) {
  const SamplingSpec& spec = *args.spec;
  const arith::ChainInput input{spec.chain->samplers,
                                spec.chain->breakers,
                                args.history,
                                spec.seed,
                                spec.stream,
                                static_cast<uint64_t>(args.position),
                                args.mu};
  arith::Chain chain(input, candidates);
  result.token = chain.token();
  result.mu = chain.mu();
}

}  // namespace kaiju
