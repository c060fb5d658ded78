// See entries.hpp.
#include "entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace kaiju::journal {

void put_number(std::string& to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i));
}

uint64_t number_of(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string EntryHead::bytes() const {
  std::string bytes(user.data(), user.size());
  put_number(bytes, key, 4);
  put_number(bytes, static_cast<uint64_t>(unix_ms), 8);
  return bytes + flags;
}

EntryHead EntryHead::of(std::string_view bytes) {
  EntryHead head;
  std::copy_n(bytes.begin(), head.user.size(), head.user.begin());
  bytes.remove_prefix(head.user.size());
  head.key = static_cast<uint32_t>(number_of(bytes.substr(0, 4)));
  head.unix_ms = static_cast<int64_t>(number_of(bytes.substr(4, 8)));
  head.flags = bytes[12];
  return head;
}

uint32_t key_mark(const Key& key) {
  const Hash hash = hmac({reinterpret_cast<const char*>(key.data()), key.size()}, "mark");
  return static_cast<uint32_t>(number_of({reinterpret_cast<const char*>(hash.data()), 4}));
}

std::string beside(uint64_t file, uint64_t place, const EntryHead& head) {
  std::string bytes;
  put_number(bytes, file, 8);
  put_number(bytes, place, 8);
  return bytes + head.bytes();
}

constexpr std::string_view kBefore = "journal-", kBehind = ".kjj";

std::string file_name(uint64_t number) { return fmt::format("{}{:08}{}", kBefore, number, kBehind); }

Result<std::vector<uint64_t>> files_of(const std::string& folder) {
  std::error_code error;
  std::vector<uint64_t> numbers;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kBefore) || !name.ends_with(kBehind)) continue;
    uint64_t number = 0;
    const char* const first = name.data() + kBefore.size();
    std::from_chars(first, name.data() + name.size(), number);
    if (file_name(number) == name) numbers.push_back(number);
  }
  if (error) return Status(StatusCode::kIo, fmt::format("{} cannot be read: {}", folder, error.message()));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace kaiju::journal
