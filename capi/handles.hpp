// The structs of kaiju.h's opaque handles, and the guard that turns a Status or an exception into
// a kaiju_status. Nothing here is visible outside capi/.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "kaiju.h"
#include "kaiju/calibration.hpp"
#include "kaiju/kaiju.hpp"

struct kaiju_error {
  kaiju::Status status;
};

struct kaiju_runtime {
  std::vector<kaiju::DeviceInfo> devices;
  std::vector<std::string> backends;  // of each device, joined
};

struct kaiju_model {
  std::shared_ptr<const kaiju::Model> model;
};

// Room for an event, and for the arrays that its kaiju_event points into.
struct kaiju_polled_event {
  kaiju_polled_event() {
    tokens.reserve(1 + kaiju::kMaxTopLogprobs);
    logprobs.reserve(1 + kaiju::kMaxTopLogprobs);
  }
  kaiju::Event event;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

struct kaiju_engine {
  std::shared_ptr<kaiju::Engine> engine;
  std::shared_ptr<const kaiju::Model> model;
  std::deque<kaiju_polled_event>
      polled;  // what the last poll's pointers point into; used again by the next
  std::shared_ptr<const char> open;  // until the handle is destroyed
  // With the scales of kaiju_engine_set_scales; null: those of `checkpoint()`.
  std::shared_ptr<const kaiju::Checkpoint> scaled = nullptr;
  // Of the last kaiju_engine_update_weights; null: the model's.
  std::shared_ptr<const kaiju::Checkpoint> updated = nullptr;
  std::vector<kaiju::CacheEvent> cache_events =
      {};  // that the pointers of the last ones point into

  const std::shared_ptr<const kaiju::Checkpoint>& checkpoint() const {
    return updated ? updated : model->checkpoint();
  }
};

struct kaiju_session {
  std::shared_ptr<kaiju::Engine> engine;
  kaiju::SessionId id = 0;
};

struct kaiju_conversation {
  kaiju::Conversation talk;
  std::weak_ptr<const char> engine;  // kaiju_engine::open; without it nobody can step a reply
};

// The session that computed the prefix.
struct kaiju_prefix {
  std::shared_ptr<kaiju::Engine> engine;
  kaiju::SessionId session = 0;
};

struct kaiju_gate {
  std::shared_ptr<const kaiju::MessageGate> gate;
};

struct kaiju_calibration {
  std::shared_ptr<const kaiju::Checkpoint> checkpoint;
  kaiju::Calibration calibration;
};

namespace kaiju::capi {

// Hands a failure to the caller; details are dropped when there is no memory even for them.
inline kaiju_status report(Status status, kaiju_error** error) noexcept {
  const auto code = static_cast<kaiju_status>(status.code());
  if (!status.ok() && error) *error = new (std::nothrow) kaiju_error{std::move(status)};
  return code;
}

// Runs `body`, which returns a Status, and lets no exception out.
template <class Body>
kaiju_status guard(kaiju_error** error, const Body& body) noexcept {
  try {
    return report(body(), error);
  } catch (const std::bad_alloc&) {
    return report(kaiju::out_of_memory(), error);
  } catch (const std::exception& problem) {
    try {
      return report(internal_error(problem.what()), error);
    } catch (...) {
      return report({StatusCode::kInternal, ""}, error);
    }
  } catch (...) {
    return report({StatusCode::kInternal, ""}, error);
  }
}

// The same for functions that return a number: `otherwise` when something threw.
template <class Value, class Body>
Value guard_value(Value otherwise, const Body& body) noexcept {
  try {
    return body();
  } catch (...) {
    return otherwise;
  }
}

inline Status missing(const char* what) {
  return invalid_argument(std::string(what) + " is NULL");
}

// Checks a (pointer, size) pair and makes a view of it.
template <class T>
Status check_span(const char* what, const T* data, size_t size) {
  if (!data && size > 0)
    return invalid_argument(std::string(what) + " is NULL but its size is " +
                            std::to_string(size));
  return {};
}

// Writes as much as fits and tells the full count.
template <class T, class Source>
void fill(const Source& from, T* to, size_t capacity, size_t* count) {
  const size_t fits = to ? std::min(capacity, from.size()) : 0;
  std::copy_n(from.begin(), fits, to);
  if (count) *count = from.size();
}

// Copies a struct whose caller may know fewer or more fields than we: what both know, and zeros in
// what only the caller knows.
inline void copy_sized(const void* from, size_t known_bytes, void* to, size_t caller_bytes) {
  std::memcpy(to, from, std::min(known_bytes, caller_bytes));
  if (caller_bytes > known_bytes)
    std::memset(static_cast<char*>(to) + known_bytes, 0, caller_bytes - known_bytes);
}

// Makes the handle of a session that was just made; without memory for it the session goes again.
inline Status adopt(const std::shared_ptr<Engine>& engine, const Result<SessionId>& id,
                    kaiju_session** out) {
  if (!id.ok()) return id.status();
  if (auto* session = new (std::nothrow) kaiju_session{engine, id.value()})
    return *out = session, Status();
  (void)engine->destroy_session(id.value());
  return Status(StatusCode::kOutOfMemory, "");
}

inline Status adopt(Result<Conversation> made, const std::weak_ptr<const char>& engine,
                    kaiju_conversation** out) {
  if (!made.ok()) return made.status();
  *out = new kaiju_conversation{std::move(made).value(), engine};
  return {};
}

// Larger sizes come from newer headers; this one guards against a struct_size that was never set.
inline constexpr size_t kLargestStruct = 4096;

// `smallest` is the size in the first version that had the struct.
template <class T>
Status check_struct_size(const char* what, size_t size, size_t smallest = sizeof(T),
                         const char* parameter = nullptr) {
  if (size >= smallest && size <= kLargestStruct && size % alignof(T) == 0) return {};
  return invalid_argument((parameter ? parameter : std::string(what) + ": struct_size") + " is " +
                          std::to_string(size) + "; set it to sizeof(" + what + "), " +
                          std::to_string(sizeof(T)) + " in this version");
}

}  // namespace kaiju::capi
