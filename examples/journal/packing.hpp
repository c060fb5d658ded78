// Packing: a record compressed against the user's record before it, by zstd.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kaiju::journal {

inline constexpr size_t kMostRecordBytes = size_t{256} << 20;

// `before`: may be empty. Empty: zstd failed.
std::string pack(std::string_view record, std::string_view before);
// Nothing where the bytes are not what pack gave with the same `before`.
std::optional<std::string> unpack(std::string_view packed, std::string_view before);

}  // namespace kaiju::journal
