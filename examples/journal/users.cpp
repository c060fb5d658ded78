// See users.hpp. The file: kHead, sealed nothing that proves the key, and for each user the id and the sealed key.
#include "users.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace kaiju::journal {
namespace {

constexpr std::string_view kHead = "KJUSERS1";
constexpr size_t kWrappedBytes = sizeof(UserId) + sizeof(Key) + kSealBytes;

std::string_view text_of(const UserId& id) { return {id.data(), id.size()}; }
std::string_view text_of(const Key& key) { return {reinterpret_cast<const char*>(key.data()), key.size()}; }

Status wrong_key(const std::string& path) {
  return invalid_argument(path + " was made with another key, or is damaged: give the key that the journal began with");
}

}  // namespace

UserId user_id(const std::string& key, std::string_view user) {
  const Hash hash = hmac(key, "user\n" + std::string(user));
  UserId id;
  std::copy_n(hash.begin(), id.size(), id.begin());
  return id;
}

std::string hexadecimal(const UserId& id) {
  std::string text;
  for (const char byte : id) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Users::Users(std::string path, const std::string& key) : path_(std::move(path)), wrapping_(hmac(key, "users' keys")) {}

std::string Users::wrapped(const UserId& id, const Key& key) const {
  const std::string sealed = seal(wrapping_, text_of(key), text_of(id));
  return sealed.empty() ? sealed : std::string(text_of(id)) + sealed;
}

Status Users::parse(std::string_view bytes) {
  if (!bytes.starts_with(kHead) || bytes.size() < kHead.size() + kSealBytes) return wrong_key(path_);
  bytes.remove_prefix(kHead.size());
  if (!open_sealed(wrapping_, bytes.substr(0, kSealBytes), kHead)) return wrong_key(path_);
  bytes.remove_prefix(kSealBytes);
  // A user that a crash has cut off has no entries yet.
  for (; bytes.size() >= kWrappedBytes; bytes.remove_prefix(kWrappedBytes)) {
    UserId id;
    std::copy_n(bytes.begin(), id.size(), id.begin());
    const auto key = open_sealed(wrapping_, bytes.substr(id.size(), kWrappedBytes - id.size()), text_of(id));
    if (!key) return wrong_key(path_);
    std::copy(key->begin(), key->end(), reinterpret_cast<char*>(keys_[id].data()));
  }
  return {};
}

Result<Users> Users::read(const std::string& folder, const std::string& key) {
  Users users(folder + "/users", key);
  if (::access(users.path_.c_str(), F_OK) != 0)
    return Status(StatusCode::kNotFound, folder + " has no journal: there is no file " + users.path_);
  Result<std::string> bytes = read_all(users.path_);
  if (!bytes.ok()) return bytes.status();
  KAIJU_TRY(users.parse(*bytes));
  return users;
}

const Key* Users::find(const UserId& id) const {
  const auto found = keys_.find(id);
  return found == keys_.end() ? nullptr : &found->second;
}

Result<Users> Users::own(const std::string& folder, const std::string& key) {
  const std::string name = folder + "/lock";
  Result<File> lock = open_file(name, O_RDWR | O_CREAT);
  if (!lock.ok()) return lock.status();
  if (::flock(lock->descriptor(), LOCK_EX | LOCK_NB) != 0)
    return Status(StatusCode::kBusy, folder + " is written by another process: end it, or ask it");
  Users users(folder + "/users", key);
  users.lock_ = std::move(*lock);
  if (::access(users.path_.c_str(), F_OK) == 0) {
    Result<std::string> bytes = read_all(users.path_);
    if (!bytes.ok()) return bytes.status();
    KAIJU_TRY(users.parse(*bytes));
  }
  KAIJU_TRY(users.open_to_append());
  return users;
}

// Writes the file as a whole: so a cut-off end is gone too.
Status Users::open_to_append() {
  const std::string fresh = path_ + ".new";
  Result<File> file = open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
  if (!file.ok()) return file.status();
  std::string bytes(kHead);
  bytes += seal(wrapping_, {}, kHead);
  for (const auto& [id, key] : keys_) bytes += wrapped(id, key);
  if (bytes.size() != kHead.size() + kSealBytes + keys_.size() * kWrappedBytes)
    return internal_error("libcrypto failed");
  KAIJU_TRY(write_all(*file, fresh, bytes));
  if (::fsync(file->descriptor()) != 0) return io_error(fresh, "written");
  if (std::rename(fresh.c_str(), path_.c_str()) != 0) return io_error(path_, "replaced");
  file_ = std::move(*file);
  return {};
}

Result<const Key*> Users::find_or_make(const UserId& id) {
  if (const Key* known = find(id)) return known;
  Key key;
  if (!fill_randomly(key.data(), key.size())) return internal_error("the system has no random bytes");
  const std::string bytes = wrapped(id, key);
  if (bytes.empty()) return internal_error("libcrypto failed");
  if (Status status = write_all(file_, path_, bytes); !status.ok()) {
    (void)open_to_append();  // without what was written of it
    return status;
  }
  return &(keys_[id] = key);
}

Result<bool> Users::erase(const UserId& id) {
  const auto found = keys_.find(id);
  if (found == keys_.end()) return false;
  const Key key = found->second;
  keys_.erase(found);
  if (Status status = open_to_append(); !status.ok()) {
    keys_[id] = key;
    return status;
  }
  return true;
}

}  // namespace kaiju::journal
