// KeptKv: the KV of chats, in files while the server does not run.
//
// The newest session of each chat is held while the server runs. When it drains, each is saved to FOLDER/CHAT, the one
// used last first, until the files have the most bytes that they may have. The first message of a chat after a restart
// restores its file, so that only what is new is computed. A file may be older than its chat, after a crash say: then
// what both begin with is found. The files are sealed with a key that lies beside them, so that nobody without the key
// can put another text under a character's description; whoever may read the folder can read the chats.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "driver.hpp"

namespace kaiju::server {

class KeptKv {
 public:
  // Makes the folder, in one that is there, and its key. One server at a time may have it. Throws std::runtime_error.
  KeptKv(Driver& driver, std::string folder, int64_t most_bytes);
  ~KeptKv();
  KeptKv(const KeptKv&) = delete;

  // I/O thread. The chat's newest session, instead of the one before.
  void hold(const std::string& chat, SessionId session);
  // The chat was deleted.
  void forget(const std::string& chat);
  // Brings the KV of a chat's file into the cache, under a scope, once. Whether there was some.
  boost::asio::awaitable<bool> restore(const std::string& chat, const Scope& scope);
  // What is held goes into files. The driver has stopped. Returns how many chats, and adds up their bytes.
  int save(int64_t& bytes);

 private:
  std::string file_of(const std::string& chat) const { return folder_ + "/" + chat; }
  void drop_files_beyond(int64_t most) const;

  Driver& driver_;
  std::string folder_, key_;
  int lock_ = -1;  // the key's file, which this server holds
  int64_t most_bytes_;
  struct Held {
    SessionId session;
    uint64_t used;
  };
  std::map<std::string, Held> held_;
  std::set<std::string> files_;  // chats with a file of an earlier run, which nobody has asked for yet
  uint64_t uses_ = 0;
};

}  // namespace kaiju::server
