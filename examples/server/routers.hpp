// Routers: tells routers (kv_events.hpp) what the engine of the current checkpoint has cached (one engine: a server
// with replicas tells nobody). When another one becomes
// the current one, all is told anew.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "checkpoints.hpp"
#include "kv_events.hpp"

namespace kaiju::server {

class Routers {
 public:
  Routers(const KvEventOptions& options, Engine& first);
  Routers(const Routers&) = delete;

  // Has the thread that steps a checkpoint tell what its engine has cached, whenever it is the current one.
  static void follow(const std::shared_ptr<Routers>& routers, Served& served);
  // I/O thread. The engine that was the current one must outlive the call.
  void set_current(Engine& engine);
  KvEventCounts counts() const { return events_->counts(); }

 private:
  void take(Engine& engine);

  std::atomic<Engine*> current_;
  std::mutex waking_;         // of current_ while it is woken
  std::mutex taking_;         // of polled_
  Engine* polled_ = nullptr;  // whose thread takes
  std::unique_ptr<KvEvents> events_;
};

}  // namespace kaiju::server
