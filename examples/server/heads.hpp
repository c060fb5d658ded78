// Heads: the classifier that the server scores with, changed while it serves. A head is a file of a folder (--heads)
// that kaiju-head made of the same checkpoint with the same labels; "model" is the one that the checkpoint began with.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint_folder.hpp"
#include "http.hpp"
#include "replicas.hpp"

namespace kaiju::server {

struct Service;

// Of one checkpoint. On the I/O thread.
class Heads {
 public:
  // `folder`: empty, no other heads. Files are read on the thread `loader`.
  Heads(Replicas& replicas, std::shared_ptr<const Model> model, std::string folder, asio::thread_pool& loader)
      : replicas_(replicas), model_(std::move(model)), folder_(std::move(folder)), loader_(loader) {}

  const std::string& current() const { return current_; }
  const std::string& previous() const { return previous_; }  // for the way back; empty: the first is current
  std::vector<std::string> names() const { return names_in(folder_); }
  // For replies under way too. Throws Failure, and then the head is as it was.
  asio::awaitable<void> change(std::string name);

 private:
  Result<std::shared_ptr<const Checkpoint>> read(const std::string& name) const;

  Replicas& replicas_;
  std::shared_ptr<const Model> model_;
  std::string folder_, current_ = kModel, previous_;
  asio::thread_pool& loader_;
  bool changing_ = false;
};

void add_head_routes(Server& server, Service& service);

}  // namespace kaiju::server
