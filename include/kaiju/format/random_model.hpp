// Random models: valid checkpoints of any shape, for tests and benches. Weights are noise, but activations stay in the
// range a trained model's have: nothing saturates throughout, attention is neither flat nor a single key, logits spread
// by 2 to 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

// frequency[i] = rint(2^64 * theta^(-2i / head_dim) / (2 pi)) for i < head_dim / 2, in turns per token * 2^64; 1 <
// theta < 2^64. The same integers on every processor.
std::vector<uint64_t> rope_frequencies(double theta, int32_t head_dim);

// Streams a random checkpoint to `path`; memory stays below a few MiB whatever the model's size. Same config and seed:
// same bytes.
Status write_random_checkpoint(const std::string& path, const ModelConfig& config, uint64_t seed,
                               const Checkpoint::Progress& progress = {});

}  // namespace kaiju
