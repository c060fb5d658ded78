// Scales: the scales of keys and values that the server computes with, changed while it serves; and their calibration.
// A set is a file of a folder (--scales); "model" is that of the model's own file. The folder's file `current` names
// the set that is used from the next start on.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "driver.hpp"
#include "http.hpp"
#include "metrics.hpp"
#include "named_files.hpp"

namespace kaiju::server {

struct Service;

// On the I/O thread, but for what it does beside steps.
class Scales {
 public:
  static constexpr const char* kModel = NamedFiles::kModel;

  struct Options {
    std::string folder;           // empty: nothing is watched, and no set is saved
    int hours_between_saves = 4;  // 0: none is saved but by request
    CalibrationOptions calibration;
  };
  // `model`: with the set that current_in names. Throws std::runtime_error where the model has no scales to change.
  Scales(asio::io_context& io, Driver& driver, std::shared_ptr<const Model> model, const Options& options);

  // The set that a folder names for the next start.
  static std::string current_in(const std::string& folder);

  const std::string& current() const { return current_; }
  const std::string& previous() const { return previous_; }  // for the way back; empty: the first is current
  std::vector<std::string> names() const { return files_.names(); }
  // After the replies under way; requests that come meanwhile wait. Throws Failure, and then the set is as it was.
  asio::awaitable<void> change(std::string name);
  // Saves what was collected as a set, and answers its name. Throws Failure if nothing was.
  std::string save();
  void thaw();
  void reset();

  ScalesCounts counts() const;

 private:
  void collect(Engine& engine);  // on the thread that steps
  void wait_to_save();
  void begin(const std::shared_ptr<const Checkpoint>& checkpoint);
  std::shared_ptr<const Checkpoint> checkpoint_of(const std::string& name) const;
  asio::awaitable<Status> set(std::shared_ptr<const Checkpoint> checkpoint);

  Driver& driver_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Checkpoint> own_;  // of the model's own file, with its head
  Options options_;
  NamedFiles files_;
  std::string current_, previous_;
  bool changing_ = false;
  asio::steady_timer timer_;
  std::chrono::steady_clock::time_point next_{};  // when a block is counted again
  mutable std::mutex mutex_;                      // of the next
  std::optional<Calibration> calibration_;        // of the set in use; none without a folder
};

void add_scale_routes(Server& server, Service& service);

}  // namespace kaiju::server
