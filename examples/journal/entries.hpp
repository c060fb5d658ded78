// Entries: how an entry is written in a file, and the names of files.
//
// A file: kFileHead, then entries: the length of the rest (4 bytes, little-endian), user (16), which of the user's keys
// (4), time (8), flags (1), and the sealed, packed record. File, place and all that is before it are sealed beside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"
#include "users.hpp"

namespace kaiju::journal {

inline constexpr std::string_view kFileHead = "KJOURNA1";
inline constexpr size_t kLengthBytes = 4, kEntryHeadBytes = sizeof(UserId) + 4 + 8 + 1;
inline constexpr uint32_t kMostEntryBytes = uint32_t{1} << 29;
inline constexpr char kAfterOwn = 1;  // packed against the user's entry before it in the file

struct EntryHead {
  UserId user{};
  uint32_t key = 0;  // key_mark of the user's key: an erased user of the same name had another one
  int64_t unix_ms = 0;
  char flags = 0;

  std::string bytes() const;
  static EntryHead of(std::string_view bytes);  // kEntryHeadBytes
};

uint32_t key_mark(const Key& key);

// What is sealed beside an entry.
std::string beside(uint64_t file, uint64_t place, const EntryHead& head);

void put_number(std::string& to, uint64_t value, size_t bytes);
uint64_t number_of(std::string_view bytes);

std::string file_name(uint64_t number);
// Numbers of the files in a folder, ascending.
Result<std::vector<uint64_t>> files_of(const std::string& folder);

}  // namespace kaiju::journal
