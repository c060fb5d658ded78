// Batches of cache events as bytes, in the two forms of MessagePack that routers read.
#pragma once

#include <span>
#include <string>

#include "kaiju/cache/events.hpp"

namespace kaiju::server {

// kMap: vLLM's own structs since they are maps, which vllm-router reads. kArray: the same fields by their place, as
// vLLM sent them before, which llm-d reads.
enum class KvFormat { kMap, kArray };

// A batch of events, as KVEventBatch of vLLM has it. `seconds`: Unix time. Stored blocks that follow one another become
// one event, and so do removed blocks of one tier. A block's hash is the low half of its name.
std::string kv_batch(KvFormat format, double seconds, std::span<const CacheEvent> events);

}  // namespace kaiju::server
