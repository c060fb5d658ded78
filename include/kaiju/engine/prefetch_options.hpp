// PrefetchOptions: options of Engine::prefetch.
#pragma once

#include <optional>

#include "kaiju/base/time.hpp"
#include "kaiju/cache/scope.hpp"

namespace kaiju {

struct PrefetchOptions {
  // Which KV the session's next request will share; nullopt: that of its last request.
  std::optional<Scope> scope = {};
  // A time on the engine's clock before which nothing is brought up; nullopt: as soon as possible.
  std::optional<TimePoint> at = {};
  void* user_data = nullptr;  // returned in the kPrefetched event
};

}  // namespace kaiju
