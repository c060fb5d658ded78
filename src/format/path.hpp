// Checks that a path can be passed to the system.
#pragma once

#include <string>

#include "kaiju/base/status.hpp"

namespace kaiju::format {

// Not empty, and without a zero byte: the system reads a path up to its first zero byte: with one inside, another file
// would be opened than was named.
inline Status check_path(const std::string& path) {
  if (path.empty()) return guarded<Status>([] { return invalid_argument("the path is empty: name the file"); });
  const size_t zero = path.find('\0');
  if (zero == std::string::npos) return {};
  return guarded<Status>([&] {
    return invalid_argument(path.substr(0, zero) + ": a zero byte follows in the path, byte " +
                            std::to_string(zero + 1) + " of " + std::to_string(path.size()) +
                            ", where the system would take it to end: leave it out");
  });
}

}  // namespace kaiju::format
