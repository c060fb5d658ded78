// Engine's cache events: what routers are told. Part of engine_impl.hpp, and engine.hpp says what each call promises.
#pragma once

#include <algorithm>
#include <vector>

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

// Like a step, keeps other threads out of the cache; a step that the executor computes meanwhile goes on.
template <class Answer, class Body>
inline Answer EngineImpl::beside_step(Body body) {
  KAIJU_TRY(check_process());
  if (options_.cache.event_capacity == 0)
    return Status(StatusCode::kInvalidArgument, "the engine records no cache events: set event_capacity");
  if (!inbox_.enter_step()) return Status(StatusCode::kBusy, "another thread is in step: ask between steps");
  Answer answer = guarded<Answer>(body);
  inbox_.leave_step();
  return answer;
}

inline Status EngineImpl::poll_cache(std::vector<CacheEvent>& events, size_t most) {
  return beside_step<Status>([&]() -> Status {
    CacheEvents& waiting = scheduler_.cache().events();
    events.reserve(events.size() + std::min(most, waiting.count()));  // an event that has left the queue is not lost
    CacheEvent event;
    for (size_t i = 0; i < most && waiting.poll(event); ++i) events.push_back(std::move(event));
    return {};
  });
}

inline Result<std::vector<CacheEvent>> EngineImpl::cached_blocks() {
  return beside_step<Result<std::vector<CacheEvent>>>([&]() -> Result<std::vector<CacheEvent>> {
    std::vector<CacheEvent> blocks;
    cache().list_cached(blocks);
    return blocks;
  });
}

}  // namespace kaiju
