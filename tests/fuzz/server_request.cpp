// Fuzz: bytes that a client sends, as kaiju-server reads them: an HTTP request, its route, its JSON, and what both
// completion routes want. No socket and no engine. Either one answer, or no request.
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/beast/http/parser.hpp>

#include "tests/fuzz/fuzz.hpp"
#include "tests/fuzz/server_body.hpp"

using fuzz::promise;

namespace {

// Takes the place of a connection.
class Asked : public kaiju::server::Exchange {
 public:
  using Exchange::answer;
  kaiju::server::asio::awaitable<void> answer(int code, std::string text, std::string_view) override {
    status = code;
    ++answers;
    body_sent = std::move(text);
    co_return;
  }
  kaiju::server::asio::awaitable<void> begin_events() override { co_return; }
  kaiju::server::asio::awaitable<void> event(std::string) override { co_return; }
  kaiju::server::asio::awaitable<void> end_events() override { co_return; }

  int answers = 0;
  std::string body_sent;
};

struct World {
  World() {
    for (const bool chat : {true, false})
      routes.route("POST", chat ? "/v1/chat/completions" : "/v1/completions",
                   [chat](kaiju::server::Exchange& exchange) -> kaiju::server::asio::awaitable<void> {
                     fuzz::read_body(exchange, chat);
                     co_await exchange.answer(200, "{}", "application/json");
                   });
    for (const char* method : {"GET", "DELETE"})
      routes.route(method, "/chats/{}", [](kaiju::server::Exchange& exchange) -> kaiju::server::asio::awaitable<void> {
        promise(exchange.parts.size() == 1, "a route has the parts of its pattern");
        promise(exchange.parts[0].find('/') == std::string::npos, "a part has no slash");
        co_await exchange.answer(200, "{}", "application/json");
      });
    routes.route("GET", "/", [](kaiju::server::Exchange& exchange) -> kaiju::server::asio::awaitable<void> {
      co_await exchange.answer(200, "{}", "application/json");
    });
  }

  kaiju::server::asio::io_context io{1};
  kaiju::server::Server routes{io, {}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  fuzz::server_model();
  constexpr size_t kMostBody = 64 << 10;
  // Beast reserves a body's announced length, up to the limit. Nothing touches that memory before the bytes are there.
  const fuzz::MemoryBound bound(size, 300, kMostBody + (64 << 10));
  kaiju::server::http::request_parser<kaiju::server::http::string_body> parser;
  parser.header_limit(16 << 10);
  parser.body_limit(kMostBody);
  parser.eager(true);
  boost::system::error_code error;
  for (size_t at = 0; at < size && !error && !parser.is_done();) {
    const size_t used = parser.put(boost::asio::buffer(data + at, size - at), error);
    if (used == 0) break;
    at += used;
  }
  if (error || !parser.is_done()) return 0;
  Asked asked;
  asked.request = parser.release();
  std::exception_ptr escaped;
  world.io.restart();
  kaiju::server::asio::co_spawn(world.io, world.routes.handle(asked),
                                [&](std::exception_ptr thrown) { escaped = thrown; });
  world.io.run();
  promise(!escaped, "nothing escapes from a handler");
  promise(asked.answers == 1, "a request has one answer");
  promise(asked.status == 200 || (asked.status >= 400 && asked.status < 500),
          "what a client sends is no fault of ours");
  if (asked.method != "HEAD") promise(nlohmann::json::accept(asked.body_sent), "an answer is JSON");
  return 0;
}
