// Users: the key of each user, in the journal's file `users`, wrapped by the journal's key.
#pragma once

#include <array>
#include <map>
#include <string>

#include "file.hpp"
#include "sealing.hpp"

namespace kaiju::journal {

using UserId = std::array<char, 16>;

UserId user_id(const std::string& key, std::string_view user);
std::string hexadecimal(const UserId& id);

class Users {
 public:
  // Reads the file, if there is one. kInvalidArgument: another key made it.
  static Result<Users> read(const std::string& folder, const std::string& key);
  const Key* find(const UserId& id) const;

  // -- for the one writer --
  // kBusy: another writer has the folder.
  static Result<Users> own(const std::string& folder, const std::string& key);
  Result<const Key*> find_or_make(const UserId& id);
  // Writes the file again without the user; whether there was one.
  Result<bool> erase(const UserId& id);

 private:
  Users(std::string path, const std::string& key);
  Status parse(std::string_view bytes);
  Status open_to_append();
  std::string wrapped(const UserId& id, const Key& key) const;

  std::string path_;
  Key wrapping_{};
  std::map<UserId, Key> keys_;
  File lock_, file_;
};

}  // namespace kaiju::journal
