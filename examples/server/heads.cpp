// See heads.hpp.
#include "heads.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "failure.hpp"
#include "service.hpp"

namespace kaiju::server {
namespace {

constexpr std::string_view kEnding = ".safetensors";

nlohmann::ordered_json heads_json(const Heads& heads) {
  const auto known = [](const std::string& name) {
    return name.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(name);
  };
  return {{"head", heads.current()}, {"previous", known(heads.previous())}, {"heads", heads.names()}};
}

}  // namespace

std::vector<std::string> Heads::names() const {
  std::vector<std::string> names;
  std::error_code error;
  if (!folder_.empty())
    for (std::filesystem::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error))
      if (const std::string name = it->path().filename().string(); name.ends_with(kEnding))
        names.push_back(name.substr(0, name.size() - kEnding.size()));
  std::sort(names.begin(), names.end());
  names.insert(names.begin(), kModel);
  return names;
}

asio::awaitable<void> Heads::change(std::string name) {
  const std::vector<std::string> known = names();
  if (std::find(known.begin(), known.end(), name) == known.end())  // so no name leads out of the folder
    throw Failure{404, fmt::format("there is no head \"{}\"; there are: {}", name, fmt::join(known, ", ")), "head",
                  "head_not_found"};
  if (changing_) throw Failure{409, "the head is being changed: try again", {}, "conflict"};
  changing_ = true;
  Status status;
  const std::function<void(Engine&)> call = [&](Engine& engine) {
    auto headed = name == kModel ? Result(model_->checkpoint())
                                 : with_head(model_->checkpoint(), folder_ + "/" + name + std::string(kEnding));
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
