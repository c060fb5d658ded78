// Status and Result: every library call that can fail returns one of them. No exception leaves a public function, and
// no function aborts the process.
//
//   Result<Checkpoint> file = Checkpoint::open(path);
//   if (!file.ok()) return file.status();
//
// The status codes have the same values as in the C header; capi/kaiju.cpp asserts that they are equal.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace kaiju {

enum class StatusCode : int32_t {
  kOk = 0,
  kInvalidArgument = 1,  // the call is wrong; the message says how to correct it
  kNotFound = 2,
  kUnsupported = 3,
  kOutOfMemory = 4,
  kBusy = 5,
  kCancelled = 6,
  kIo = 7,
  kBadModel = 8,  // a file that breaks the rules of its format
  kDeviceLost = 9,
  kInternal = 10,  // a broken invariant: the engine stops and the process goes on
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  // The message names the problem and the remedy; it is empty if the status is ok.
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A Result has a value, or a status that says why there is no value.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  Status status() const { return status_; }
  // value() throws std::bad_optional_access if there is no value: call ok() first.
  T& value() & { return value_.value(); }
  const T& value() const& { return value_.value(); }
  // On a temporary Result, value() returns by value, so that the value can be used in a loop or bound to a name.
  T value() && { return std::move(value_).value(); }
  T* operator->() { return &value_.value(); }
  const T* operator->() const { return &value_.value(); }
  T& operator*() & { return value_.value(); }
  const T& operator*() const& { return value_.value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

inline Status invalid_argument(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
inline Status bad_model(std::string message) { return {StatusCode::kBadModel, std::move(message)}; }
// out_of_memory() allocates no memory, because its message is short enough to be stored inside the string object.
inline Status out_of_memory() { return {StatusCode::kOutOfMemory, "out of memory"}; }
inline Status internal_error(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

// Runs `body`, which returns an `Answer` (a Status or a Result). If `body` throws std::bad_alloc, guarded returns
// kOutOfMemory; if `body` throws any other exception, guarded returns kInternal. No exception leaves guarded().
template <class Answer, class Body>
Answer guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Answer(out_of_memory());
  } catch (...) {
    return Answer(Status(StatusCode::kInternal, "an exception"));
  }
}

}  // namespace kaiju

// Returns from the enclosing function if `expression` is a Status that is not ok.
#define KAIJU_TRY(expression)                      \
  do {                                             \
    ::kaiju::Status kaiju_status_ = (expression);  \
    if (!kaiju_status_.ok()) return kaiju_status_; \
  } while (0)
