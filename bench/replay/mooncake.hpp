// Mooncake: the public trace format of that project, one JSON object a line: timestamp (milliseconds), input_length,
// output_length (tokens), hash_ids (one a block of 512 tokens, the last one perhaps shorter; equal ids are equal blocks
// behind equal blocks).
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
