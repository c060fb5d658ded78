// Journal: records of replies (kaiju/records.hpp) in a folder, encrypted, rotated, and erasable by user.
//
// Files: journal-NNNNNNNN.kjj hold entries; a writer begins a new one when it opens and when one is full, and removes
// the oldest when there are too many. `users` holds a key for each user, wrapped by the journal's key. To erase a user
// is to remove that key: nobody can read the user's entries from then on, and rotation removes them.
//
// An entry is a record, compressed against the same user's record before it (zstd), because a chat sends its history
// again and again, and sealed with AES-256-GCM. Its place in the file, its user and its time are sealed too: an entry
// that is changed, moved or cut off is not read. Users are pseudonyms, HMAC-SHA-256 of their names.
//
// Without the key, a reader learns how many entries there are, when each was written, how long it is, and which belong
// to one user.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kaiju/base/status.hpp"

namespace kaiju::journal {

inline constexpr size_t kLeastKeyBytes = 32, kMostKeyBytes = 1024;

struct Options {
  std::string folder;  // made where there is none, for its owner alone
  std::string key;     // kLeastKeyBytes to kMostKeyBytes random bytes
  uint64_t file_bytes = uint64_t{64} << 20;
  int32_t files = 16;
};

// The bytes of a file without the line's end: what --journal-key reads. kInvalidArgument for too few bytes.
Result<std::string> read_key(const std::string& path);

// One writer at a time has a folder (kBusy for another one, of any process). One thread at a time.
class Writer {
 public:
  static Result<std::unique_ptr<Writer>> open(const Options& options);
  ~Writer();
  // The entry has been given to the operating system when the call returns: a killed process loses none, a power
  // failure the newest. After an error (kIo) the entry is not there, and the next one begins a new file.
  Status append(std::string_view user, int64_t unix_ms, std::string_view record);
  // Whether there was such a user. The key is gone from the disk's files when the call returns.
  Result<bool> erase(std::string_view user);
  uint64_t bytes_written() const;

 private:
  class Impl;
  explicit Writer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct Entry {
  std::string user;  // pseudonym, 32 hexadecimal digits
  int64_t unix_ms = 0;
  std::string record;
};

struct ReadCounts {
  uint64_t files = 0, entries = 0;
  uint64_t erased = 0;   // entries of users without a key
  uint64_t damaged = 0;  // entries that could not be read, and files that end within an entry
};

// Reads all entries, the oldest first, until `take` returns false. May run beside a writer. kInvalidArgument if the key
// is another journal's, kNotFound if there is no journal.
Status read(const std::string& folder, const std::string& key, const std::function<bool(Entry&)>& take,
            ReadCounts& counts);

// What a user's name becomes in Entry::user.
std::string pseudonym(const std::string& key, std::string_view user);

}  // namespace kaiju::journal
