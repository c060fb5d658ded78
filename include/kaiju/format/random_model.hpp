// Random models: valid checkpoints of any shape with random weights, for tests and benchmarks. Activations stay in the
// range of a trained model's: they do not saturate everywhere, attention is neither uniform nor on a single key, and
// logits have a spread of 2 to 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

// The RoPE frequencies: frequency[i] = rint(2^64 * theta^(-2i / head_dim) / (2 pi)) for i < head_dim / 2, in turns per
// token times 2^64. Needs 1 < theta < 2^64. The integers are the same on every processor.
std::vector<uint64_t> rope_frequencies(double theta, int32_t head_dim);

// Writes a random checkpoint to `path`, using a few MiB of memory whatever the model's size. The same config and seed
// give the same bytes.
Status write_random_checkpoint(const std::string& path, const ModelConfig& config, uint64_t seed,
                               const Checkpoint::Progress& progress = {});

}  // namespace kaiju
