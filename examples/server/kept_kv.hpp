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

#include "checkpoints.hpp"

namespace kaiju::server {

class KeptKv {
 public:
  // Makes the folder, in one that is there, and its key. One server at a time may have it. Throws std::runtime_error.
  KeptKv(std::string folder, int64_t most_bytes);
  ~KeptKv();
  KeptKv(const KeptKv&) = delete;

  // I/O thread. The chat's newest session, instead of the one before. `driver`: the replica that has it.
  void hold(const std::string& chat, const Served& at, Driver& driver, SessionId session);
  // A checkpoint takes no more replies: its sessions are not held any more.
  void let_go(const Served& at);
  // The chat was deleted.
  void forget(const std::string& chat);
  // Brings the KV of a chat's file into a replica's cache, under a scope, once. Whether there was some.
  boost::asio::awaitable<bool> restore(const std::string& chat, Driver& at, const Scope& scope);
  // What is held of the checkpoint that is served after a restart goes into files. Its drivers have stopped. Returns
  // how many chats, and adds up their bytes.
  int save(const Served& at, int64_t& bytes);

 private:
  std::string file_of(const std::string& chat) const { return folder_ + "/" + chat; }
  void drop_files_beyond(int64_t most) const;

  std::string folder_, key_;
  int lock_ = -1;  // the key's file, which this server holds
  int64_t most_bytes_;
  struct Held {
    const Served* at;
    Driver* driver;
    SessionId session;
    uint64_t used;
  };
  std::map<std::string, Held> held_;
  std::set<std::string> files_;  // chats with a file of an earlier run, which nobody has asked for yet
  uint64_t uses_ = 0;
};

}  // namespace kaiju::server
