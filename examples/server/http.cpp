#include "http.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <random>
#include <set>

#include "failure.hpp"

namespace kaiju::server {

namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int kMostDepth = 64;  // of JSON
constexpr int kGoodbyeSeconds = 2;

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at + 1), path.size());
    parts.emplace_back(path.substr(at + 1, end - at - 1));
    at = end;
  }
  return parts;
}

std::string new_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}", random());
}

// An id of a client's is kept where it is a short word: it goes into headers and the log.
bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

Failure failure_of(const error_code& error, const Limits& limits) {
  if (error == http::error::body_limit)
    return {413,
            fmt::format("the body has more than {} bytes, which the server's --body-bytes sets", limits.body_bytes)};
  if (error == http::error::header_limit)
    return {431, fmt::format("the head has more than {} bytes", limits.header_bytes)};
  return bad_request("this is no HTTP/1.1 request: " + error.message());
}

using Plain = beast::tcp_stream;
using Encrypted = beast::ssl_stream<beast::tcp_stream>;

// `Stream`: Plain or Encrypted.
template <class Stream>
class Connection : public std::enable_shared_from_this<Connection<Stream>> {
 public:
  // `tls`: of an encrypted one.
  template <class... Tls>
  Connection(Server& server, size_t& count, tcp::socket socket, Tls&... tls)
      : stream_(std::move(socket), tls...), look_again_(stream_.get_executor()), server_(server), count_(count) {
    ++count_;
  }
  ~Connection() { --count_; }

  asio::awaitable<void> run();

 private:
  class Ours;
  enum class Read { kRequest, kEnd };
  static constexpr bool kEncrypted = std::is_same_v<Stream, Encrypted>;

  beast::tcp_stream& tcp() { return beast::get_lowest_layer(stream_); }
  void expires_after(int seconds) { tcp().expires_after(std::chrono::seconds(seconds)); }
  asio::awaitable<void> serve();
  asio::awaitable<Read> read(Exchange& exchange);
  asio::awaitable<void> refuse(Exchange& exchange, const Failure& failure);
  asio::awaitable<void> say_goodbye();
  asio::awaitable<void> linger();
  void watch(const std::shared_ptr<Ours>& exchange);
  void look(const std::shared_ptr<Ours>& exchange);

  Stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer look_again_;
  Server& server_;
  size_t& count_;
};

template <class Stream>
class Connection<Stream>::Ours : public Exchange {
 public:
  explicit Ours(Connection& connection) : connection_(connection) {}

  using Exchange::answer;
  asio::awaitable<void> answer(int code, std::string text, std::string_view content_type) override {
    http::response<http::string_body> response{static_cast<http::status>(code), request.version()};
    response.set(http::field::content_type, boost::string_view(content_type.data(), content_type.size()));
    add_headers(response);
    response.body() = std::move(text);
    response.keep_alive(!closing && request.keep_alive());
    response.prepare_payload();
    if (method == "HEAD") response.body().clear();
    status = code;
    done = true;
    if (response.need_eof()) closing = true;
    connection_.expires_after(connection_.server_.limits().write_seconds);
    error_code error;
    co_await http::async_write(connection_.stream_, response, asio::redirect_error(asio::use_awaitable, error));
    check(error);
  }

  asio::awaitable<void> begin_events() override {
    http::response<http::empty_body> head{http::status::ok, request.version()};
    head.set(http::field::content_type, "text/event-stream; charset=utf-8");
    head.set(http::field::cache_control, "no-cache");
    head.set("X-Accel-Buffering", "no");
    add_headers(head);
    chunked_ = request.version() >= 11;
    if (chunked_) head.chunked(true);
    head.keep_alive(chunked_ && !closing && request.keep_alive());
    if (!chunked_) closing = true;
    status = 200;
    streaming = true;
    http::response_serializer<http::empty_body> serializer{head};
    connection_.expires_after(connection_.server_.limits().write_seconds);
    error_code error;
    co_await http::async_write_header(connection_.stream_, serializer,
                                      asio::redirect_error(asio::use_awaitable, error));
    check(error);
  }

  asio::awaitable<void> event(std::string data) override { co_await write("data: " + data + "\n\n"); }

  asio::awaitable<void> end_events() override {
    done = true;
    co_await write("data: [DONE]\n\n", chunked_ ? "0\r\n\r\n" : "");
  }

  bool done = false;  // answered whole
  bool over = false;  // its handler has ended

 private:
  template <class Response>
  void add_headers(Response& response) {
    response.set(http::field::server, "kaiju-server");
    response.set("X-Request-Id", id);
    for (const auto& [name, value] : answer_headers) response.set(name, value);
  }

  // A write that fails may be the first sign that the client has gone.
  void check(error_code error) {
    if (!error) return;
    if (auto gone = std::exchange(on_gone, nullptr)) gone();
    throw boost::system::system_error(error);
  }

  asio::awaitable<void> write(std::string text, std::string_view after = {}) {
    if (chunked_) text = fmt::format("{:x}\r\n{}\r\n{}", text.size(), text, after);
    size_t sent = 0;
    error_code error;
    if constexpr (!kEncrypted) {  // mostly there is room: the text leaves now, not after the others' that are ready
      tcp::socket& socket = connection_.stream_.socket();
      if (!socket.non_blocking()) socket.non_blocking(true, error);
      if (!error) sent = socket.write_some(asio::buffer(text), error);
      if (error != asio::error::would_block) check(error);
      if (sent == text.size()) co_return;
    }
    connection_.expires_after(connection_.server_.limits().write_seconds);
    co_await asio::async_write(connection_.stream_, asio::buffer(text) + sent,
                               asio::redirect_error(asio::use_awaitable, error));
    check(error);
  }

  Connection& connection_;
  bool chunked_ = false;
};

template <class Stream>
asio::awaitable<typename Connection<Stream>::Read> Connection<Stream>::read(Exchange& exchange) {
  const Limits& limits = server_.limits();
  http::request_parser<http::string_body> parser;
  parser.header_limit(static_cast<uint32_t>(limits.header_bytes));
  parser.body_limit(limits.body_bytes);
  error_code error;
  if (buffer_.size() == 0) {
    expires_after(limits.idle_seconds);
    const size_t bytes =
        co_await stream_.async_read_some(buffer_.prepare(4096), asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return Read::kEnd;
    buffer_.commit(bytes);
  }
  expires_after(limits.header_seconds);
  co_await http::async_read_header(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  if (error == http::error::end_of_stream || error == beast::error::timeout) co_return Read::kEnd;
  if (!error && parser.content_length() && *parser.content_length() > limits.body_bytes)
    error = http::error::body_limit;
  if (!error) {
    if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on{http::status::continue_, parser.get().version()};
      co_await http::async_write(stream_, go_on, asio::use_awaitable);
    }
    expires_after(limits.body_seconds);
    co_await http::async_read(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  }
  exchange.request = parser.release();
  exchange.id = new_id();
  if (error) {
    if (error.category() != make_error_code(http::error::end_of_stream).category())
      co_return Read::kEnd;  // the network's
    exchange.closing = true;
    const Failure failure = failure_of(error, limits);
    co_await refuse(exchange, failure);
    co_await linger();
    co_return Read::kEnd;
  }
  co_return Read::kRequest;
}

template <class Stream>
asio::awaitable<void> Connection<Stream>::refuse(Exchange& exchange, const Failure& failure) {
  if (failure.retry_seconds > 0) exchange.answer_headers["Retry-After"] = std::to_string(failure.retry_seconds);
  co_await exchange.answer(json_of(failure), failure.status);
}

// Tells the client that nothing more comes: over TLS its library would report an attack otherwise.
template <class Stream>
asio::awaitable<void> Connection<Stream>::say_goodbye() {
  error_code error;
  if constexpr (kEncrypted) {
    expires_after(kGoodbyeSeconds);
    co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, error));
  }
  tcp().socket().shutdown(tcp::socket::shutdown_send, error);
}

// Reads what the client still sends, for a while: closing at once would take the answer away from it.
template <class Stream>
asio::awaitable<void> Connection<Stream>::linger() {
  constexpr size_t kMostBytes = 16 << 20;
  co_await say_goodbye();
  error_code error;
  expires_after(kGoodbyeSeconds);
  for (size_t read = 0; !error && read < kMostBytes;) {
    buffer_.clear();
    read += co_await tcp().async_read_some(buffer_.prepare(16384), asio::redirect_error(asio::use_awaitable, error));
  }
}

// Notices that the client has gone while an answer is computed.
template <class Stream>
void Connection<Stream>::watch(const std::shared_ptr<Ours>& exchange) {
  tcp().socket().async_wait(tcp::socket::wait_read, [self = this->shared_from_this(), exchange](error_code error) {
    if (!error) self->look(exchange);
  });
}

// What waits to be read may be the next request, or the end of TLS before the connection's own: a while later it is
// looked at again.
template <class Stream>
void Connection<Stream>::look(const std::shared_ptr<Ours>& exchange) {
  if (exchange->done || exchange->over || !tcp().socket().is_open()) return;
  pollfd state{tcp().socket().native_handle(), POLLRDHUP, 0};
  const bool gone = poll(&state, 1, 0) > 0;
  if (gone && exchange->on_gone) return std::exchange(exchange->on_gone, nullptr)();
  look_again_.expires_after(std::chrono::milliseconds(100));
  look_again_.async_wait([self = this->shared_from_this(), exchange](error_code error) {
    if (!error) self->look(exchange);
  });
}

template <class Stream>
asio::awaitable<void> Connection<Stream>::serve() {
  error_code ignored;
  const tcp::endpoint peer = tcp().socket().remote_endpoint(ignored);
  for (bool again = true; again;) {
    const auto exchange = std::make_shared<Ours>(*this);
    exchange->peer = peer.address().to_string();
    if (co_await read(*exchange) == Read::kEnd) break;
    exchange->closing = server_.draining();
    watch(exchange);
    co_await server_.handle(*exchange);
    exchange->on_gone = nullptr;
    exchange->over = true;
    tcp().socket().cancel(ignored);  // the watch
    look_again_.cancel();
    again = exchange->done && !exchange->closing && exchange->request.keep_alive();
  }
  co_await say_goodbye();
}

template <class Stream>
asio::awaitable<void> Connection<Stream>::run() {
  error_code ignored;
  tcp().socket().set_option(tcp::no_delay(true), ignored);
  try {
    if constexpr (kEncrypted) {
      expires_after(server_.limits().handshake_seconds);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, asio::use_awaitable);
    }
    co_await serve();
  } catch (const boost::system::system_error&) {  // the client went away, or did not read
  }
  tcp().socket().shutdown(tcp::socket::shutdown_both, ignored);
  tcp().close();
}

template <class Stream>
void start(asio::io_context& io, std::shared_ptr<Connection<Stream>> connection) {
  asio::co_spawn(io, [connection] { return connection->run(); }, asio::detached);
}

}  // namespace

std::string Exchange::header(std::string_view name) const {
  const auto value = request[boost::string_view(name.data(), name.size())];
  return {value.data(), value.size()};
}

nlohmann::json Exchange::json() const {
  bool deep = false;
  const auto depth = [&](int level, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (level > kMostDepth) deep = true;
    return !deep;
  };
  nlohmann::json parsed;
  try {
    parsed = nlohmann::json::parse(body(), depth);
  } catch (const nlohmann::json::parse_error& error) {
    if (body().empty()) throw bad_request("the body is empty: send a JSON object");
    if (!deep) throw bad_request(fmt::format("the body is not JSON: {}", place_of(error, body())));
  } catch (const nlohmann::json::out_of_range&) {
    throw bad_request("a number in the body is too large");
  }
  if (deep) throw bad_request(fmt::format("the body is nested more than {} deep", kMostDepth));
  if (!parsed.is_object()) throw bad_request("the body must be a JSON object");
  return parsed;
}

nlohmann::json Exchange::json_or_nothing() const { return body().empty() ? nlohmann::json::object() : json(); }

asio::awaitable<void> Exchange::answer(const nlohmann::ordered_json& body, int code) {
  std::string text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  co_await answer(code, std::move(text), "application/json");
}

void Server::route(const std::string& method, const std::string& pattern, Handler handler) {
  routes_.push_back({method, pattern, split(pattern), std::move(handler)});
}

const Server::Route* Server::find(Exchange& exchange) const {
  const std::vector<std::string> parts = split(exchange.path);
  std::set<std::string> allowed;
  for (const Route& route : routes_) {
    if (route.pattern.size() != parts.size()) continue;
    std::vector<std::string> taken;
    const bool fits =
        std::equal(parts.begin(), parts.end(), route.pattern.begin(), [&](const auto& part, const auto& wanted) {
          if (wanted == "{}") taken.push_back(part);
          return wanted == "{}" || part == wanted;
        });
    if (!fits) continue;
    allowed.insert(route.method);
    if (route.method != exchange.method && !(exchange.method == "HEAD" && route.method == "GET")) continue;
    exchange.route = route.path;
    exchange.parts = std::move(taken);
    return &route;
  }
  if (allowed.empty())
    throw Failure{
        404, fmt::format("there is nothing at {}; /openapi.json lists what there is", exchange.path), {}, "not_found"};
  exchange.answer_headers["Allow"] = fmt::format("{}", fmt::join(allowed, ", "));
  throw Failure{405,
                fmt::format("{} does not take {}, but {}", exchange.path, exchange.method, fmt::join(allowed, ", "))};
}

// One more, for as long as it lives.
class Counted {
 public:
  explicit Counted(size_t& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;

 private:
  size_t& count_;
};

asio::awaitable<void> Server::handle(Exchange& exchange) {
  const Counted counted(answering_);
  const auto begin = std::chrono::steady_clock::now();
  const auto target = exchange.request.target();
  const std::string_view whole(target.data(), target.size());
  const size_t mark = std::min(whole.find('?'), whole.size());
  exchange.path = whole.substr(0, mark);
  exchange.query = whole.substr(std::min(mark + 1, whole.size()));
  exchange.method = std::string(exchange.request.method_string());
  if (const std::string given = exchange.header("x-request-id"); is_word(given)) exchange.id = given;
  std::optional<Failure> failed;
  try {
    const Route* const route = find(exchange);
    if (before) before(exchange);
    co_await route->handler(exchange);
  } catch (const Failure& failure) {
    failed = failure;
  } catch (const boost::system::system_error&) {
    if (after) after(exchange, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    throw;
  } catch (const std::exception& problem) {
    failed = Failure{500, problem.what()};
  }
  exchange.on_gone = nullptr;  // what it refers to ended with the handler
  if (failed && exchange.streaming) {
    co_await exchange.event(json_of(*failed).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    co_await exchange.end_events();
  } else if (failed) {
    if (failed->retry_seconds > 0) exchange.answer_headers["Retry-After"] = std::to_string(failed->retry_seconds);
    co_await exchange.answer(json_of(*failed), failed->status);
  }
  if (after) after(exchange, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

tcp::endpoint Server::listen(const std::string& address, uint16_t port) {
  const tcp::endpoint wanted(asio::ip::make_address(address), port);
  acceptor_.emplace(io_);
  acceptor_->open(wanted.protocol());
  acceptor_->set_option(tcp::acceptor::reuse_address(true));
  acceptor_->bind(wanted);
  acceptor_->listen(4096);
  asio::co_spawn(io_, accept(), asio::detached);
  return acceptor_->local_endpoint();
}

asio::awaitable<void> Server::accept() {
  for (;;) {
    error_code error;
    tcp::socket socket(io_);
    co_await acceptor_->async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (error || connections_ >= limits_.connections) {  // out of file descriptors: others have to end first
      error_code ignored;
      if (!error) socket.close(ignored);
      asio::steady_timer pause(io_, std::chrono::milliseconds(20));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      continue;
    }
    if (tls_)
      start(io_, std::make_shared<Connection<Encrypted>>(*this, connections_, std::move(socket), *tls_));
    else
      start(io_, std::make_shared<Connection<Plain>>(*this, connections_, std::move(socket)));
  }
}

}  // namespace kaiju::server
