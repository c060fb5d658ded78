// KvEvents: tells routers over ZeroMQ which blocks of KV this server has cached, in vLLM's protocol.
//
// A message has the frames topic, sequence number (8 bytes, big-endian, from 0) and batch (kv_message.hpp). Whoever has
// missed some asks a second socket for all from a number on; it has the newest ones. Each new subscriber, and whoever
// asks for what is no longer there, makes the server say everything anew: first that all names are to be forgotten,
// then all blocks that are stored. So a router that was started again knows the cache at once.
//
// Only whole blocks are told: routers compute with blocks of 64 tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/cache/events.hpp"
#include "kv_message.hpp"

namespace kaiju::server {

struct KvEventOptions {
  std::string endpoint, replay;  // of ZeroMQ, such as tcp://127.0.0.1:5557; replay may be empty: no such socket
  std::string topic;             // may be empty
  KvFormat format = KvFormat::kMap;
  bool of_private = false;  // blocks outside shared regions, too
};

struct KvEventCounts {
  uint64_t batches = 0, events = 0, replays = 0, snapshots = 0;
};

class KvEvents {
 public:
  static constexpr size_t kMostWaiting = 65536;  // events; what comes while so many wait is told as a new beginning

  // Where the events come from. All but `wake` are called by take alone.
  struct Source {
    std::function<void(std::vector<CacheEvent>&)> poll;    // appends what there is
    std::function<void(std::vector<CacheEvent>&)> cached;  // appends all blocks that are stored
    std::function<void()> wake;                            // has take called soon; any thread
  };

  // Binds the sockets and starts the thread that serves them. Throws std::runtime_error, which names the option, where
  // that cannot be.
  KvEvents(const KvEventOptions& options, Source source);
  ~KvEvents();
  KvEvents(const KvEvents&) = delete;

  // Takes what the source has. On the thread that steps, after each step.
  void take();
  void tell_anew() { anew_ = true; }  // everything, with the next take; any thread
  KvEventCounts counts() const;       // any thread

 private:
  class Sockets;

  void drop_untold(std::vector<CacheEvent>& events) const;

  const bool of_private_;
  const Source source_;
  std::atomic<bool> anew_ = true;  // everything is to be told from the beginning
  std::atomic<uint64_t> snapshots_ = 0;
  std::unique_ptr<Sockets> sockets_;
};

}  // namespace kaiju::server
