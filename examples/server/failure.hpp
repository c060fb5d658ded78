// Failure: why a request is refused, in the form of OpenAI's errors. Handlers throw it; http.cpp answers it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kaiju/base/status.hpp"

namespace kaiju::server {

struct Failure {
  int status = 400;  // of HTTP
  std::string message;
  std::string param = {};  // the field of the body that is wrong; may be empty
  std::string code = {};   // a name for programs, such as "context_length_exceeded"; may be empty
  int retry_seconds = 0;   // header Retry-After; 0: none
};

inline Failure bad_request(std::string message, std::string param = {}) {
  return {400, std::move(message), std::move(param)};
}

// Where a text stops being JSON.
inline std::string place_of(const nlohmann::json::parse_error& error, std::string_view text) {
  const std::string_view before = text.substr(0, std::min(text.size(), std::max<size_t>(error.byte, 1) - 1));
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     before.size() - (before.rfind('\n') + 1) + 1);
}

// The library's words, with the HTTP status that says who has to act.
inline Failure of_status(const Status& status, std::string param = {}) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return {400, status.message(), std::move(param)};
    case StatusCode::kNotFound:
      return {404, status.message(), std::move(param)};
    case StatusCode::kBusy:
    case StatusCode::kOutOfMemory:
      return {429, status.message(), std::move(param), "busy", 1};
    case StatusCode::kDeviceLost:
    case StatusCode::kInternal:
      return {503, status.message(), std::move(param), "engine_stopped"};
    default:
      return {500, status.message(), std::move(param)};
  }
}

inline const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

inline nlohmann::ordered_json json_of(const Failure& failure) {
  const auto or_null = [](const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); };
  return {{"error",
           {{"message", failure.message},
            {"type", type_of(failure.status)},
            {"param", or_null(failure.param)},
            {"code", or_null(failure.code)}}}};
}

}  // namespace kaiju::server
