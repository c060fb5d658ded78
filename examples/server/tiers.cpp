#include "tiers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "checkpoints.hpp"
#include "failure.hpp"
#include "messages.hpp"
#include "openai.hpp"

namespace kaiju::server {

void Tiers::check_gate_limit(const std::string& label, std::optional<double> limit) const {
  if (gate_labels_.empty()) throw bad_request("this server has no gate: start it with --gate, or name other labels");
  if (std::ranges::find(gate_labels_, label) == gate_labels_.end())
    throw bad_request(fmt::format("the gate has no label \"{}\"; it has {}", label, fmt::join(gate_labels_, ", ")));
  if (limit && !(*limit >= 0 && *limit <= 1))
    throw bad_request(fmt::format("the limit of {}{} is {}; it must be from 0 to 1", kOfGate, label, *limit));
}

void Tiers::set(const std::string& tier, const std::string& label, std::optional<double> limit) {
  if (label.starts_with(kOfGate)) {
    check_gate_limit(label.substr(kOfGate.size()), limit);
    if (tier.empty()) throw bad_request("a tier needs a name");
  } else {
    checkpoints_.for_each([&](Served& served) {
      for (Driver& driver : served.replicas)
        if (const Status set = driver.engine().set_limit(tier, label, limit); !set.ok()) throw of_status(set);
    });
    in_engine_.insert(tier);
  }
  if (limit)
    limits_[tier][label] = *limit;
  else
    limits_[tier].erase(label);
}

void Tiers::set_all(Engine& engine) const {
  for (const auto& [tier, limits] : limits_)
    for (const auto& [label, limit] : limits)
      if (!label.starts_with(kOfGate))
        if (const Status set = engine.set_limit(tier, label, limit); !set.ok()) throw of_status(set);
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

void Tiers::set_default(const std::string& tier) {
  if (!limits_.contains(tier))
    throw std::runtime_error(fmt::format("--tier is {}, which has no limits: give it some with --limit", tier));
  default_ = tier;
}

std::string Tiers::of(const Tenant& tenant, const std::string& asked) const {
  if (asked.empty()) return tenant.tier.empty() ? default_ : tenant.tier;
  if (tenant.tier.empty() || tenant.trusted || asked == tenant.tier) return asked;
  throw Failure{403, fmt::format("this key's tier is {}: leave the field tier out", tenant.tier), "tier", "not_yours"};
}

void Tiers::apply(const Tenant& tenant, Wanted& wanted) const {
  wanted.tier = of(tenant, wanted.tier);
  for (const auto& [label, limit] : wanted.gate_limits) check_gate_limit(label, limit);
  const auto found = limits_.find(wanted.tier);
  // A tier with limits of the gate alone is none of the engine's, which answers for one that nobody knows.
  wanted.options.safety.tier = found == limits_.end() || in_engine_.contains(wanted.tier) ? wanted.tier : "";
  if (found == limits_.end()) return;
  for (const auto& [label, limit] : found->second)
    if (label.starts_with(kOfGate)) wanted.gate_limits.emplace_back(label.substr(kOfGate.size()), limit);
}

double Tiers::limit(const Wanted& wanted, const std::string& label) const {
  double lowest = 1;
  for (const auto& [name, limit] : wanted.options.safety.limits)
    if (name == label) lowest = std::min(lowest, limit);
  if (const auto tier = limits_.find(wanted.tier); tier != limits_.end())
    if (const auto found = tier->second.find(label); found != tier->second.end())
      lowest = std::min(lowest, found->second);
  return lowest;
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

}  // namespace

void add_tier_routes(Server& server, Service& service) {
  server.route("GET", "/tiers", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "limits");
    co_await exchange.answer(tiers_json(service.tiers));
  });
  server.route("POST", "/tiers", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "limits");
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
