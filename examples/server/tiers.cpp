#include "tiers.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

#include "failure.hpp"
#include "messages.hpp"
#include "openai.hpp"

namespace kaiju::server {

void Tiers::set(const std::string& tier, const std::string& label, std::optional<double> limit) {
  const Status set = engine_.set_limit(tier, label, limit);
  if (!set.ok()) throw of_status(set);
  if (limit)
    limits_[tier][label] = *limit;
  else
    limits_[tier].erase(label);
}

void Tiers::set(const std::string& text) {
  const size_t colon = text.find(':'), equals = text.rfind('=');
  char* end = nullptr;
  const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
  const double limit = std::strtod(number.c_str(), &end);
  if (colon == std::string::npos || colon > equals || number.empty() || *end != 0)
    throw std::runtime_error(
        fmt::format("--limit is {:?}; it must be TIER:LABEL=LIMIT, such as adult:violence=0.5", text));
  try {
    set(text.substr(0, colon), text.substr(colon + 1, equals - colon - 1), limit);
  } catch (const Failure& failure) {
    throw std::runtime_error(fmt::format("--limit {}: {}", text, failure.message));
  }
}

std::string Tiers::of(const Tenant& tenant, const std::string& asked) const {
  if (asked.empty() || asked == tenant.tier) return tenant.tier;
  if (tenant.tier.empty() || tenant.trusted) return asked;
  throw Failure{403, fmt::format("this key's tier is {}: leave the field tier out", tenant.tier), "tier", "not_yours"};
}

namespace {

nlohmann::ordered_json tiers_json(const Tiers& tiers) {
  nlohmann::ordered_json answer;
  answer["tiers"] = nlohmann::ordered_json::object();
  for (const auto& [tier, limits] : tiers.all()) {
    answer["tiers"][tier] = nlohmann::ordered_json::object();
    for (const auto& [label, limit] : limits) answer["tiers"][tier][label] = limit;
  }
  return answer;
}

void check_may_change(Service& service, const Exchange& exchange) {
  if (!service.tenants.may_see_others(exchange))
    throw Failure{403, "limits are seen and changed with a trusted key", {}, "not_trusted"};
}

}  // namespace

void add_tier_routes(Server& server, Service& service) {
  server.route("GET", "/tiers", [&service](Exchange& exchange) -> asio::awaitable<void> {
    check_may_change(service, exchange);
    co_await exchange.answer(tiers_json(service.tiers));
  });
  server.route("POST", "/tiers", [&service](Exchange& exchange) -> asio::awaitable<void> {
    check_may_change(service, exchange);
    const nlohmann::json body = exchange.json();
    const Fields fields(body);
    const std::string tier = fields.text("tier"), label = fields.text("label");
    std::optional<double> limit;
    if (fields.has("limit")) limit = fields.number("limit", 0, 0, 1);
    fields.refuse_others();
    service.tiers.set(tier, label, limit);
    co_await exchange.answer(tiers_json(service.tiers));
  });
}

}  // namespace kaiju::server
