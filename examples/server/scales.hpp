// Scales: the scales of keys and values that a checkpoint computes with, changed while it serves; and their
// calibration. A set is a file of FOLDER/DIGEST (--scales; the first 16 digits of the checkpoint's digest), and "model"
// is that of the checkpoint's own file. current.json there names the set that is used from the next start on.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint_folder.hpp"
#include "http.hpp"
#include "metrics.hpp"
#include "replicas.hpp"

namespace kaiju::server {

struct Service;

// Of one checkpoint. On the I/O thread, but for what it does beside steps.
class Scales {
 public:
  struct Options {
    std::string folder;           // empty: nothing is watched, and no set is saved
    int hours_between_saves = 4;  // 0: none is saved but by request
    CalibrationOptions calibration;
  };
  // Watches nothing where the checkpoint has no scales to change.
  Scales(asio::io_context& io, Replicas& replicas, std::shared_ptr<const Model> model, const Options& options);

  // Gives an engine, which has no requests yet, the set that it is to begin with. Throws std::runtime_error.
  static void use_current(const Options& options, const Model& model, Engine& engine);

  const std::string& current() const { return current_; }
  const std::string& previous() const { return previous_; }  // for the way back; empty: the first is current
  std::vector<std::string> names() const;
  bool may_differ() const { return changing_ || current_ != kModel; }  // from those of the checkpoint's own file
  // After the replies under way; requests that come meanwhile wait. Throws Failure, and then the set is as it was.
  asio::awaitable<void> change(std::string name);
  // Saves what was collected as a set, and answers its name. Throws Failure if nothing was.
  std::string save();
  void thaw();
  void reset();

  ScalesCounts counts() const;

 private:
  // Of the threads that step and the I/O thread.
  struct Watched {
    void collect(Engine& engine);

    mutable std::mutex mutex;                      // of the next two
    std::chrono::steady_clock::time_point next{};  // when a block is counted again
    std::optional<Calibration> calibration;        // of the set in use; none without a folder
  };

  void wait_to_save();
  void begin(const Checkpoint& checkpoint);
  std::shared_ptr<const Checkpoint> checkpoint_of(const std::string& name) const;
  asio::awaitable<Status> set(std::shared_ptr<const Checkpoint> checkpoint);
  asio::awaitable<Status> set(Driver& driver, std::shared_ptr<const Checkpoint> checkpoint);

  Replicas& replicas_;
  std::shared_ptr<const Checkpoint> own_;  // of the checkpoint's own file, with its head
  Options options_;
  std::string folder_, current_, previous_;
  bool changing_ = false;
  asio::steady_timer timer_;
  const std::shared_ptr<Watched> watched_;
};

void add_scale_routes(Server& server, Service& service);

}  // namespace kaiju::server
