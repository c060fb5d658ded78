// The C interface over kaiju.hpp: cache events, which tell a router what the engine has cached.
#include "handles.hpp"

using kaiju::CacheEvent;
using kaiju::Status;
using namespace kaiju::capi;

static_assert(KAIJU_CACHE_STORED == static_cast<int>(kaiju::CacheEventKind::kStored) &&
              KAIJU_CACHE_REMOVED == static_cast<int>(kaiju::CacheEventKind::kRemoved) &&
              KAIJU_CACHE_CLEARED == static_cast<int>(kaiju::CacheEventKind::kCleared));
static_assert(KAIJU_CACHE_DEVICE == static_cast<int>(kaiju::CacheTier::kDevice) &&
              KAIJU_CACHE_HOST == static_cast<int>(kaiju::CacheTier::kHost) &&
              KAIJU_CACHE_FILE == static_cast<int>(kaiju::CacheTier::kFile));

namespace {

kaiju_cache_event to_c(const CacheEvent& event) {
  kaiju_cache_event out{};
  out.kind = static_cast<int32_t>(event.kind);
  out.tier = static_cast<int32_t>(event.tier);
  out.name_low = event.name.low;
  out.name_high = event.name.high;
  out.parent_low = event.parent.low;
  out.parent_high = event.parent.high;
  out.block_tokens = event.token_count;
  out.is_private = event.is_private ? 1 : 0;
  out.tokens = event.tokens.data();
  out.token_count = event.tokens.size();
  return out;
}

Status check_arguments(const kaiju_engine* engine, const kaiju_cache_event* events,
                       size_t event_size, size_t capacity, const size_t* count) {
  if (!engine || !count) return missing(engine ? "count" : "engine");
  KAIJU_TRY(check_span("events", events, capacity));
  return check_struct_size<kaiju_cache_event>("kaiju_cache_event", event_size,
                                              sizeof(kaiju_cache_event), "event_size");
}

// The first ones that fit.
void write(const std::vector<CacheEvent>& from, kaiju_cache_event* events, size_t event_size,
           size_t capacity) {
  for (size_t i = 0; i < std::min(capacity, from.size()); ++i) {
    const kaiju_cache_event event = to_c(from[i]);
    copy_sized(&event, sizeof event, reinterpret_cast<char*>(events) + i * event_size, event_size);
  }
}

}  // namespace

kaiju_status kaiju_engine_poll_cache(kaiju_engine* engine, kaiju_cache_event* events,
                                     size_t event_size, size_t capacity, size_t* count,
                                     kaiju_error** error) {
  return guard(error, [&]() -> Status {
    KAIJU_TRY(check_arguments(engine, events, event_size, capacity, count));
    std::vector<CacheEvent>& kept = engine->cache_events;
    kept.clear();
    const Status status = engine->engine->poll_cache(kept, capacity);
    if (!status.ok() && kept.empty()) return status;
    write(kept, events, event_size, capacity);
    *count = kept.size();
    return {};
  });
}

kaiju_status kaiju_engine_cached_blocks(kaiju_engine* engine, kaiju_cache_event* events,
                                        size_t event_size, size_t capacity, size_t* count,
                                        kaiju_error** error) {
  return guard(error, [&]() -> Status {
    KAIJU_TRY(check_arguments(engine, events, event_size, capacity, count));
    auto blocks = engine->engine->cached_blocks();
    if (!blocks.ok()) return blocks.status();
    engine->cache_events = std::move(blocks).value();
    write(engine->cache_events, events, event_size, capacity);
    *count = engine->cache_events.size();
    return {};
  });
}
