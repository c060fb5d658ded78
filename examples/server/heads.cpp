// See heads.hpp.
#include "heads.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "failure.hpp"
#include "service.hpp"

namespace kaiju::server {
namespace {

nlohmann::ordered_json heads_json(const Heads& heads) {
  const auto known = [](const std::string& name) {
    return name.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(name);
  };
  return {{"head", heads.current()}, {"previous", known(heads.previous())}, {"heads", heads.names()}};
}

}  // namespace

asio::awaitable<void> Heads::change(std::string name) {
  if (!files_.has(name))
    throw Failure{404, fmt::format("there is no head \"{}\"; there are: {}", name, fmt::join(names(), ", ")), "head",
                  "head_not_found"};
  if (changing_) throw Failure{409, "the head is being changed: try again", {}, "conflict"};
  changing_ = true;
  Status status;
  const std::function<void(Engine&)> call = [&](Engine& engine) {
    auto headed = name == kModel ? Result(model_->checkpoint()) : with_head(model_->checkpoint(), files_.path_of(name));
    status = headed.ok() ? engine.set_head(*headed) : headed.status();
  };
  co_await driver_.between_steps(call);
  changing_ = false;
  if (!status.ok()) throw of_status(status, "head");
  if (name == current_) co_return;
  previous_ = current_;
  current_ = name;
}

void add_head_routes(Server& server, Service& service) {
  server.route("GET", "/heads", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "heads");
    co_await exchange.answer(heads_json(service.heads));
  });
  server.route("POST", "/heads", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "heads");
    const nlohmann::json body = exchange.json();
    const Fields fields(body);
    const std::string name = fields.text("head");
    fields.refuse_others();
    if (name.empty()) throw bad_request("head is missing: the name of one, such as \"model\"", "head");
    co_await service.heads.change(name);
    co_await exchange.answer(heads_json(service.heads));
  });
}

}  // namespace kaiju::server
