// Together: coroutines that run at the same time, and one that waits until all have ended.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <utility>

namespace kaiju::server {

class Together {
 public:
  explicit Together(boost::asio::io_context& io) : io_(io), state_(std::make_shared<State>(io)) {}

  // What `call` throws is dropped.
  void start(boost::asio::awaitable<void> call) {
    ++state_->left;
    boost::asio::co_spawn(io_, std::move(call), [state = state_](const std::exception_ptr&) {
      if (--state->left == 0) state->signal.cancel();
    });
  }
  boost::asio::awaitable<void> wait() {
    while (state_->left > 0) {
      boost::system::error_code cancelled;
      co_await state_->signal.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
    }
  }

 private:
  struct State {
    explicit State(boost::asio::io_context& io) : signal(io, boost::asio::steady_timer::time_point::max()) {}
    size_t left = 0;
    boost::asio::steady_timer signal;
  };
  boost::asio::io_context& io_;
  std::shared_ptr<State> state_;
};

}  // namespace kaiju::server
