// HTTP/1.1: connections, requests, answers and server-sent events, as coroutines on one I/O thread.
//
// A handler gets an Exchange: the request, and the calls that answer it. It answers once, or begins a stream of events
// and ends it. What it throws becomes an error answer (Failure), or ends the stream with an error event. Slow readers
// wait in their own coroutine, and are disconnected after Limits::write_seconds without progress.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace boost::asio::ssl {
class context;
}

namespace kaiju::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;

struct Limits {
  size_t header_bytes = 16 << 10;
  size_t body_bytes = 8 << 20;
  size_t connections = 20000;
  int handshake_seconds = 10;  // of TLS
  int header_seconds = 30;     // for the head of a request
  int body_seconds = 60;       // for its body
  int write_seconds = 60;      // for one write to a reader that does not read
  int idle_seconds = 75;       // between two requests of a connection
};

// One request, and how it is answered. Lives on the I/O thread.
class Exchange {
 public:
  virtual ~Exchange() = default;

  std::string_view body() const { return request.body(); }
  std::string header(std::string_view name) const;
  // The body as JSON, an object. Throws Failure where it is none, or nested too deeply.
  nlohmann::json json() const;
  // Likewise; no body at all is an object without fields.
  nlohmann::json json_or_nothing() const;

  virtual asio::awaitable<void> answer(int status, std::string body, std::string_view content_type) = 0;
  asio::awaitable<void> answer(const nlohmann::ordered_json& body, int status = 200);

  // Server-sent events. `data` is one line; event writes "data: ...". end_events writes "data: [DONE]".
  virtual asio::awaitable<void> begin_events() = 0;
  virtual asio::awaitable<void> event(std::string data) = 0;
  virtual asio::awaitable<void> end_events() = 0;

  // What happens when the client goes away before the answer is written. Called at most once; empty: nothing.
  std::function<void()> on_gone;

  http::request<http::string_body> request;
  std::string method, path, query;
  std::string id;     // the client's x-request-id, or one of ours
  std::string peer;   // address
  std::string route;  // its pattern, "/chats/{}/say"; empty: there is nothing at the path
  std::map<std::string, std::string> answer_headers;
  std::vector<std::string> parts;  // of the path, where the route has {}
  int status = 0;                  // of the answer, when it has begun
  bool streaming = false;
  bool closing = false;                                           // the connection ends after this answer
  nlohmann::ordered_json log = nlohmann::ordered_json::object();  // more fields for the access log
};

using Handler = std::function<asio::awaitable<void>(Exchange&)>;

class Server {
 public:
  // `tls`: what connections are encrypted with (tls.hpp); null: they are not.
  Server(asio::io_context& io, Limits limits, std::shared_ptr<asio::ssl::context> tls = nullptr)
      : io_(io), limits_(limits), tls_(std::move(tls)) {}

  // `pattern` may have parts "{}", which match any one part of a path.
  void route(const std::string& method, const std::string& pattern, Handler handler);
  // Called before a handler, for instance to check a key; may throw Failure. Called after an answer, with its seconds.
  std::function<void(Exchange&)> before;
  std::function<void(const Exchange&, double seconds)> after;

  // Listens and returns the address, or throws boost::system::system_error. Port 0 chooses one.
  asio::ip::tcp::endpoint listen(const std::string& address, uint16_t port);
  // From now on each connection ends after one answer. New ones are accepted still: a router may ask how the server is.
  void drain() { draining_ = true; }
  bool encrypted() const { return tls_ != nullptr; }
  size_t connections() const { return connections_; }
  size_t answering() const { return answering_; }  // requests whose answer has not left
  bool draining() const { return draining_; }
  const Limits& limits() const { return limits_; }

  // For connections: finds the handler and runs it, and sees to it that there is an answer.
  asio::awaitable<void> handle(Exchange& exchange);

 private:
  struct Route {
    std::string method, path;
    std::vector<std::string> pattern;  // the parts of `path`
    Handler handler;
  };
  asio::awaitable<void> accept();
  const Route* find(Exchange& exchange) const;

  asio::io_context& io_;
  Limits limits_;
  std::shared_ptr<asio::ssl::context> tls_;
  std::vector<Route> routes_;
  std::optional<asio::ip::tcp::acceptor> acceptor_;
  size_t connections_ = 0, answering_ = 0;
  bool draining_ = false;
};

}  // namespace kaiju::server
