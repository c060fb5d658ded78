// Shutdown: what the signals SIGTERM, SIGINT and SIGHUP do.
//
// Replies finish, then everything ends. At the first signal nothing new is taken. When the time for that is over, the
// replies that go on are cancelled, and what there is of them is kept and answered. Then peers get the chats' KV
// (moves.hpp). A second signal waits for nothing.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <utility>

#include "checkpoints.hpp"
#include "http.hpp"

namespace kaiju::server {

class Shutdown {
 public:
  // `last`: what is done when all replies have ended, until some time at most; the server answers meanwhile.
  using Clock = std::chrono::steady_clock;
  using Last = std::function<asio::awaitable<void>(Clock::time_point until)>;
  Shutdown(asio::io_context& io, Server& server, Checkpoints& checkpoints, int seconds, Last last)
      : io_(io),
        server_(server),
        checkpoints_(checkpoints),
        signals_(io, SIGTERM, SIGINT),
        timer_(io),
        last_(std::move(last)),
        seconds_(seconds) {
    if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) signals_.add(SIGHUP);  // nohup has it ignored
    signals_.async_wait([this](auto error, int) {
      if (!error) begin();
    });
  }
  bool hurried() const { return hurried_; }  // by a second signal

 private:
  static constexpr auto kGoodbye = std::chrono::seconds(5);  // for what cancelled replies still have to store and send

  void begin() {
    std::fputs("kaiju-server: finishing what was begun; a second signal does not wait for it\n", stderr);
    server_.drain();
    until_ = Clock::now() + std::chrono::seconds(seconds_);
    signals_.async_wait([this](auto error, int) {
      if (error) return;
      hurried_ = true;
      io_.stop();
    });
    look();
  }
  void look() {
    const bool idle = checkpoints_.unfinished() == 0 && server_.answering() == 0;
    if (idle && ++idle_ > 2) return end();  // the last bytes have left
    if (Clock::now() > until_ + kGoodbye) return io_.stop();
    if (Clock::now() > until_) checkpoints_.cancel_all();
    timer_.expires_after(std::chrono::milliseconds(50));
    timer_.async_wait([this](auto error) {
      if (!error) look();
    });
  }

  void end() {
    asio::co_spawn(io_, last_(until_ + kGoodbye), [this](const std::exception_ptr&) { io_.stop(); });
  }

  asio::io_context& io_;
  Server& server_;
  Checkpoints& checkpoints_;
  asio::signal_set signals_;
  asio::steady_timer timer_;
  const Last last_;
  int seconds_, idle_ = 0;
  bool hurried_ = false;
  Clock::time_point until_;
};

}  // namespace kaiju::server
