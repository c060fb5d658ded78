// Mooncake: reads traces in the public format of the Mooncake project. A line is one JSON object: timestamp
// (milliseconds), input_length, output_length (tokens), and hash_ids, one for each block of 512 tokens, of which the
// last may be shorter. Equal ids behind equal blocks are equal blocks.
#pragma once

#include <istream>

#include "bench/replay/trace.hpp"
#include "kaiju/base/status.hpp"

namespace kaiju::replay {

inline constexpr int32_t kMooncakeBlock = 512;

// Stops at the first malformed line: kInvalidArgument with its number and what is wrong. Other members of a line are
// ignored, and so are empty lines. Lines may come in any order of time. Everything is measured; nothing is known of
// conversations, so every request is one of its own.
Result<Trace> read_mooncake(std::istream& in);

}  // namespace kaiju::replay
