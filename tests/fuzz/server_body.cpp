// Fuzz: the JSON body of a completion. The first byte chooses the route. Either what is wanted, in range, or a Failure
// that names what is wrong.
#include "tests/fuzz/server_body.hpp"

using fuzz::promise;

namespace {

class Held : public kaiju::server::Exchange {
 public:
  kaiju::server::asio::awaitable<void> answer(int, std::string, std::string_view) override { co_return; }
  kaiju::server::asio::awaitable<void> begin_events() override { co_return; }
  kaiju::server::asio::awaitable<void> event(std::string) override { co_return; }
  kaiju::server::asio::awaitable<void> end_events() override { co_return; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::server_model();
  fuzz::Input input(data, size);
  const bool chat = input.take() % 2 == 0;
  Held held;
  held.request.body() = input.rest();
  const fuzz::MemoryBound bound(size, 300, 64 << 10);
  try {
    fuzz::read_body(held, chat);
  } catch (const kaiju::server::Failure& failure) {
    promise(failure.status >= 400 && failure.status < 500, "what a client sends is no fault of ours");
    promise(!failure.message.empty() && failure.message.size() < 1000 + size, "a failure says what is wrong, briefly");
    (void)kaiju::server::json_of(failure).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return 0;
}
