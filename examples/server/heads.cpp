// See heads.hpp.
#include "heads.hpp"

#include "checkpoints.hpp"
#include "elsewhere.hpp"
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

Result<std::shared_ptr<const Checkpoint>> Heads::read(const std::string& name) const {
  if (name == kModel) return model_->checkpoint();
  return with_head(model_->checkpoint(), file_in(folder_, name));
}

asio::awaitable<void> Heads::change(std::string name) {
  check_name(folder_, name, "head");
  if (changing_) throw Failure{409, "the head is being changed: try again", {}, "conflict"};
  changing_ = true;
  std::shared_ptr<const Checkpoint> headed;
  Status status;
  const std::function<void()> load = [&] {
    auto found = read(name);
    status = found.status();
    if (found.ok()) headed = *found;
  };
  co_await elsewhere(loader_, load);
  const std::function<void(Engine&)> call = [&](Engine& engine) { status = engine.set_head(headed); };
  for (Driver& driver : replicas_)
    if (status.ok()) co_await driver.between_steps(call);
  changing_ = false;
  if (!status.ok()) throw of_status(status, "head");
  if (name == current_) co_return;
  previous_ = current_;
  current_ = name;
}

void add_head_routes(Server& server, Service& service) {
  server.route("GET", "/heads", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "heads");
    co_await exchange.answer(heads_json(service.checkpoints.current()->heads));
  });
  server.route("POST", "/heads", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "heads");
    const nlohmann::json body = exchange.json();
    const Fields fields(body);
    const std::string name = fields.text("head");
    fields.refuse_others();
    if (name.empty()) throw bad_request("head is missing: the name of one, such as \"model\"", "head");
    const std::shared_ptr<Served> at = service.checkpoints.current();
    co_await at->heads.change(name);
    co_await exchange.answer(heads_json(at->heads));
  });
}

}  // namespace kaiju::server
