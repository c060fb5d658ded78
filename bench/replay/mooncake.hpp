// Mooncake: reads traces in the public format of the Mooncake project. A line is one JSON object: timestamp
// (milliseconds), input_length, output_length (tokens), and hash_ids, one for each block of 512 tokens, of which the
// last may be shorter. Two blocks are equal if their ids and all previous blocks are equal.
#pragma once

#include <cstddef>
#include <istream>

#include "bench/replay/trace.hpp"
#include "kaiju/base/status.hpp"

namespace kaiju::replay {

inline constexpr int32_t kMooncakeBlock = 512;
inline constexpr size_t kMostTraceLineBytes = size_t{4} << 20;  // several times the longest prompt's hash ids
inline constexpr size_t kMostTraceBytes = size_t{256} << 20;    // about a million requests

// Stops at the first malformed line: kInvalidArgument with its number and what is wrong; also at one that is longer
// than kMostTraceLineBytes, or goes beyond `most_bytes` of the trace. Other members of a line are ignored, and so are
// empty lines. A byte-order mark at the beginning is skipped. Lines may come in any order of time. Everything is
// measured; nothing is known of conversations, so every request is one of its own.
Result<Trace> read_mooncake(std::istream& in, size_t most_bytes = kMostTraceBytes);

}  // namespace kaiju::replay
