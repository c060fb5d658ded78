// Heads: the classifier that the server scores with, changed while it serves. A head is a file of a folder (--heads)
// that kaiju-head made of the same checkpoint with the same labels; "model" is the one that the server started with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver.hpp"
#include "http.hpp"
#include "named_files.hpp"

namespace kaiju::server {

struct Service;

// On the I/O thread.
class Heads {
 public:
  static constexpr const char* kModel = NamedFiles::kModel;

  // `folder`: empty, no other heads.
  Heads(Driver& driver, std::shared_ptr<const Model> model, std::string folder)
      : driver_(driver), model_(std::move(model)), files_(std::move(folder)) {}

  const std::string& current() const { return current_; }
  const std::string& previous() const { return previous_; }  // for the way back; empty: the first is current
  std::vector<std::string> names() const { return files_.names(); }
  // For replies under way too. Throws Failure, and then the head is as it was.
  asio::awaitable<void> change(std::string name);

 private:
  Driver& driver_;
  std::shared_ptr<const Model> model_;
  NamedFiles files_;
  std::string current_ = kModel, previous_;
  bool changing_ = false;
};

void add_head_routes(Server& server, Service& service);

}  // namespace kaiju::server
