// Client: one connection to kaiju-server, as a coroutine. Reads answers and server-sent events with little work of its
// own, so that what is measured is the server.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kaiju::bench {

namespace asio = boost::asio;
using Endpoint = asio::ip::tcp::endpoint;

// What a server answered that no HTTP client would understand.
struct BadAnswer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Answer {
  int status = 0;
  std::string body;
};

std::string request_text(std::string_view method, std::string_view path, std::string_view body = {});

class Client {
 public:
  Client(asio::io_context& io, const Endpoint& server) : socket_(io), server_(server) {}

  // Every call throws boost::system::system_error where the connection breaks, and BadAnswer.
  asio::awaitable<void> connect();
  bool connected() const { return socket_.is_open(); }
  void close();
  asio::awaitable<void> send(std::string text);
  // The whole answer. Closes the connection where the server says that it does.
  asio::awaitable<Answer> receive();
  // The head alone; the body, or the events, follow.
  asio::awaitable<int> head();
  asio::awaitable<std::string> body();
  // The data of the next event, [DONE] included; nullopt: the body is over.
  asio::awaitable<std::optional<std::string>> event();
  asio::ip::tcp::socket& socket() { return socket_; }
  // Reads at most so many bytes at once.
  size_t read_bytes = 16384;

 private:
  asio::awaitable<void> fill();
  void decode();

  asio::ip::tcp::socket socket_;
  Endpoint server_;
  std::string raw_, text_;  // bytes that came; the body that they are
  bool chunked_ = false, over_ = false, closes_ = false;
  size_t left_ = 0;        // of the body, or of the chunk
  bool in_chunk_ = false;  // else a chunk's size follows
};

}  // namespace kaiju::bench
