// Random models: valid checkpoints of any shape with random weights, for tests and benchmarks. The activations of a
// random model stay in the range of a trained model's activations: they do not saturate everywhere, attention is
// neither uniform nor on a single key, and logits have a spread of 2 to 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

// Returns the RoPE frequencies: frequency[i] = rint(2^64 * theta^(-2i / head_dim) / (2 pi)) for i < head_dim / 2, in
// turns per token times 2^64. theta must be more than 1 and less than 2^64. The resulting integers are the same on
// every processor.
std::vector<uint64_t> rope_frequencies(double theta, int32_t head_dim);

// Writes a checkpoint with random weights to `path`. Each thread uses a few MiB of memory, whatever the model's size.
// The same config and seed give a file with the same bytes, whatever the number of threads; `progress` is called on the
// caller's.
Status write_random_checkpoint(const std::string& path, const ModelConfig& config, uint64_t seed,
                               const Checkpoint::Progress& progress = {}, int32_t threads = 1);

}  // namespace kaiju
