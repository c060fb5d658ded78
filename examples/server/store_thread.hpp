// StoreThread: calls of the store wait for the disk, so they run on a thread of their own, one after the other.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "elsewhere.hpp"
#include "failure.hpp"
#include "http.hpp"
#include "store/store.hpp"

namespace kaiju::server {

class StoreThread {
 public:
  explicit StoreThread(std::unique_ptr<Store> store) : store_(std::move(store)), thread_(1) {}
  ~StoreThread() { join(); }
  // Waits for the calls that were asked for.
  void join() { thread_.join(); }

  // Runs `call` on the thread, and continues on the I/O thread with what it returned. Throws Failure for an error.
  template <class T>
  asio::awaitable<T> get(std::function<Result<T>(Store&)> call) {
    std::optional<Result<T>> result;
    const std::function<void()> ask = [&] { result.emplace(call(*store_)); };
    co_await elsewhere(thread_, ask);
    if (!result->ok()) throw of_store(result->status());
    co_return std::move(*result).value();
  }
  asio::awaitable<void> run(std::function<Status(Store&)> call) {
    Status status;
    const std::function<void()> ask = [&] { status = call(*store_); };
    co_await elsewhere(thread_, ask);
    if (!status.ok()) throw of_store(status);
  }

 private:
  // Somebody else's change of a chat is a conflict, not a crowd.
  static Failure of_store(const Status& status) {
    Failure failure = of_status(status);
    if (status.code() == StatusCode::kBusy) failure.status = 409, failure.code = "conflict", failure.retry_seconds = 0;
    return failure;
  }

  std::unique_ptr<Store> store_;
  asio::thread_pool thread_;
};

}  // namespace kaiju::server
