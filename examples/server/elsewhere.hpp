// Calls that take long run on a thread of their own, and the coroutine that waits for one continues on the I/O thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <utility>

namespace kaiju::server {

// What the call throws is thrown to the caller.
inline boost::asio::awaitable<void> elsewhere(boost::asio::thread_pool& thread, std::function<void()> call) {
  const auto there = [call = std::move(call)]() -> boost::asio::awaitable<void> {
    call();
    co_return;
  };
  co_await boost::asio::co_spawn(thread, there, boost::asio::use_awaitable);
}

}  // namespace kaiju::server
