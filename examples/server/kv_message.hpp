// Batches of cache events as bytes, in the two forms of MessagePack that routers read.
#pragma once

#include <span>
#include <string>

#include "kaiju/cache/events.hpp"

namespace kaiju::server {

// How an event is written. kMap: its fields with their names, as vLLM does today and vllm-router reads. kArray: by
// their place alone, as vLLM did before and llm-d reads. A batch is an array in both: time, events, rank.
enum class KvFormat { kMap, kArray };

// A batch of events, as KVEventBatch of vLLM has it. `seconds`: Unix time. Stored blocks that follow one another become
// one event, and so do removed blocks of one tier. A block's hash is the low half of its name.
std::string kv_batch(KvFormat format, double seconds, std::span<const CacheEvent> events);

}  // namespace kaiju::server
