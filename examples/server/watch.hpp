// Watch: looks for damage of the machine while it serves. It looks at the weights in memory, part by part, and replies
// to canaries (../tools/canary.hpp). What it finds is told by /health (503), /metrics and standard error; the server
// goes on until somebody ends it.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "../tools/canary.hpp"
#include "checkpoints.hpp"
#include "metrics.hpp"

namespace kaiju::server {

class Watch {
 public:
  struct Options {
    int64_t scrub_bytes_a_second = 0;  // when there is nothing to step, a tenth of that otherwise; 0: never
    std::string canaries;              // file; empty: none
    int canary_seconds = 60;           // from one canary to the next
  };
  // Throws std::runtime_error where the canaries are another model's than that of the current checkpoint. While another
  // checkpoint, or another set of scales, is the current one, none are asked.
  Watch(boost::asio::io_context& io, Checkpoints& checkpoints, const Options& options);
  // Looks at the weights of a checkpoint from now on.
  void begin(Served& served);

  // Why the machine is not to be trusted; empty: nothing was found. Any thread.
  std::string damage() const;

  WatchCounts counts() const;

 private:
  class Reply;
  void scrub(Engine& engine, std::chrono::steady_clock::time_point& next);  // on the thread that steps
  void wait_for_canary();
  void ask_canary();
  void heard(const tools::Canary& canary, const std::string& digest);
  void found(const std::string& what);

  Checkpoints& checkpoints_;
  const int64_t scrub_bytes_;
  const std::chrono::seconds between_canaries_;
  tools::CanaryFile file_;
  size_t next_ = 0;
  boost::asio::steady_timer timer_;
  std::atomic<uint64_t> scrubbed_bytes_ = 0, scrub_passes_ = 0, canaries_ = 0, canaries_wrong_ = 0;
  std::atomic<int64_t> last_pass_ = 0;
  mutable std::mutex mutex_;  // of damage_
  std::string damage_;
};

}  // namespace kaiju::server
