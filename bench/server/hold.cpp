// kaiju-load hold: opens many streams, of which the server computes some and lets the others wait, and reports the
// server's memory while all are open.
#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <vector>

#include "commands.hpp"
#include "examples/tools/standard_streams.hpp"

namespace kaiju::bench {
namespace {

struct Options {
  int port = 8080, pid = 0, connections = 10200, seconds = 20, tokens = 3000;
};

class Hold {
 public:
  explicit Hold(const Options& options) : options_(options) {}

  int run() {
    print("before");
    for (int i = 0; i < options_.connections; ++i) asio::co_spawn(io_, stream(i), asio::detached);
    asio::co_spawn(io_, watch(), asio::detached);
    io_.run();
    return refused_ + broken_ == 0 ? 0 : 1;
  }

 private:
  struct Stream {
    bool begun = false;
    uint64_t pieces = 0, before = 0;
  };

  void print(const char* when) {
    tools::print("{:<28} resident {:7.1f} MiB, peak {:7.1f} MiB, {} streams open, {} refused, {} broken\n", when,
                 memory_mib(options_.pid), memory_mib(options_.pid, "VmHWM"), open_, refused_, broken_);
    std::fflush(stdout);
  }

  asio::awaitable<void> stream(int i) {
    auto client = std::make_shared<Client>(io_, endpoint_of(options_.port));
    client->read_bytes = 4096;
    const std::string body =
        fmt::format(R"({{"stream":true,"ignore_eos":true,"max_tokens":{},"messages":[{{"role":"user",)"
                    R"("content":"Hello, I am number {} of those who ask at once. What do you like best?"}}]}})",
                    options_.tokens, i);
    try {
      co_await client->connect();
      co_await client->send(request_text("POST", "/v1/chat/completions", body));
      const int status = co_await client->head();
      if (status != 200) {
        if (refused_++ == 0) tools::print("refused with {}: {}\n", status, co_await client->body());
        co_return;
      }
      ++open_;
      while (co_await client->event()) ++pieces_[static_cast<size_t>(i)];
      --open_;
      ++ended_;
    } catch (const std::exception& problem) {
      if (!over_ && broken_++ == 0) tools::print("broken: {}\n", problem.what());
    }
  }

  asio::awaitable<void> pause(std::chrono::milliseconds time) {
    asio::steady_timer timer(io_, time);
    co_await timer.async_wait(asio::use_awaitable);
  }

  asio::awaitable<void> watch() {
    const auto begin = std::chrono::steady_clock::now();
    while (open_ + refused_ + broken_ + ended_ < options_.connections) co_await pause(std::chrono::milliseconds(100));
    tools::print("opened in {:.1f} s\n",
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    print("all open");
    for (int second = 0; second < options_.seconds; second += 5) {
      const std::vector<uint64_t> before = pieces_;
      co_await pause(std::chrono::seconds(5));
      int streaming = 0;
      uint64_t pieces = 0;
      for (size_t i = 0; i < before.size(); ++i) {
        if (pieces_[i] > before[i]) ++streaming;
        pieces += pieces_[i] - before[i];
      }
      print(fmt::format("{} stream, {:.0f} events/s", streaming, static_cast<double>(pieces) / 5).c_str());
    }
    Client client(io_, endpoint_of(options_.port));
    co_await client.connect();
    co_await client.send(request_text("GET", "/metrics"));
    const Answer answer = co_await client.receive();
    tools::print("metrics: {:.0f} running, {:.0f} waiting, {:.0f} connections\n",
                 metric(answer.body, "vllm:num_requests_running"), metric(answer.body, "vllm:num_requests_waiting"),
                 metric(answer.body, "kaiju_connections"));
    over_ = true;
    io_.stop();
  }

  Options options_;
  asio::io_context io_{1};
  std::vector<uint64_t> pieces_ = std::vector<uint64_t>(static_cast<size_t>(options_.connections));
  int open_ = 0, refused_ = 0, broken_ = 0, ended_ = 0;
  bool over_ = false;
};

}  // namespace

void add_hold(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("hold", "open many streams and report the server's memory");
  auto options = std::make_shared<Options>();
  command->add_option("--port", options->port, "the server's")->capture_default_str();
  command->add_option("--pid", options->pid, "the server's")->required();
  command->add_option("--connections", options->connections, "streams that are opened")->capture_default_str();
  command->add_option("--seconds", options->seconds, "how long they are held")->capture_default_str();
  command->add_option("--tokens", options->tokens, "length of a reply")->capture_default_str();
  command->callback([options, &status] { status = Hold(*options).run(); });
}

}  // namespace kaiju::bench
