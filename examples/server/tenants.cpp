#include "tenants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "failure.hpp"
#include "parameters.hpp"

namespace kaiju::server {

Tenants::Tenants(std::string secret) : secret_(std::move(secret)) {
  everybody_.name = "everybody";
  everybody_.account = &accounts_[everybody_.name];
  share();
}

void Tenants::share() {
  std::vector<Account*> all;
  for (auto& [name, account] : accounts_) all.push_back(&account);
  shares_ = std::make_unique<Shares>(std::move(all));
}

namespace {

// An object with the list "keys" and nothing else.
nlohmann::json keys_in(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error(file + ": cannot open");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  nlohmann::json keys;
  try {
    keys = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw std::runtime_error(fmt::format("{}: not JSON: {}", file, place_of(error, text)));
  } catch (const nlohmann::json::out_of_range&) {
    throw std::runtime_error(file + ": a number is too large");
  }
  if (!keys.is_object() || !keys.contains("keys") || !keys["keys"].is_array() || keys.size() > 1)
    throw std::runtime_error(file + R"(: must be {"keys": [{"key": "...", "name": "..."}]})");
  return keys;
}

ShareLimits limits_of(const Fields& fields) {
  constexpr int64_t kMostMib = int64_t{1} << 40;
  return {.cache_floor_bytes = fields.integer("cache_floor_mib", 0, 0, kMostMib) << 20,
          .cache_ceiling_bytes = fields.integer("cache_ceiling_mib", 0, 0, kMostMib) << 20,
          .step_floor = fields.number("step_floor", 0, 0, 1),
          .step_ceiling = fields.number("step_ceiling", 0, 0, 1)};
}

}  // namespace

Tenants::Tenants(std::string secret, const std::string& file) : secret_(std::move(secret)) {
  const nlohmann::json keys = keys_in(file);
  for (size_t i = 0; i < keys["keys"].size(); ++i) try {
      const nlohmann::json& entry = keys["keys"][i];
      if (!entry.is_object()) throw bad_request("must be an object");
      const Fields fields(entry);
      Tenant tenant;
      const std::string key = fields.text("key");
      if (key.size() < 8) throw bad_request("key must have at least 8 characters");
      tenant.name = fields.text("name");
      if (tenant.name.empty())
        throw bad_request(
            fmt::format("name is missing: whose key it is, and whose its chats are (\"key {}\" where an "
                        "earlier version took a key without)",
                        i + 1));
      tenant.requests_a_minute = fields.number("requests_per_minute", 0, 0, 1e9);
      tenant.allowance = tenant.requests_a_minute;
      const Account wanted{.weight = fields.number("weight", 1, 0.001, 1000),
                           .strict = static_cast<int32_t>(fields.integer("priority", 0, -1000, 1000)),
                           .limits = limits_of(fields)};
      tenant.account = &accounts_.emplace(tenant.name, wanted).first->second;
      if (tenant.account->weight != wanted.weight || tenant.account->strict != wanted.strict ||
          tenant.account->limits != wanted.limits)
        throw bad_request(
            fmt::format("another key of the name {} has another weight, priority, floor or ceiling", tenant.name));
      tenant.most_at_once = static_cast<size_t>(fields.integer("most_at_once", 0, 0, 1 << 20));
      tenant.trusted = fields.flag("trusted", false);
      tenant.tier = fields.text("tier");
      fields.refuse_others();
      if (!by_key_.emplace(key, std::move(tenant)).second) throw bad_request("key is there twice");
    } catch (const Failure& failure) {
      throw std::runtime_error(fmt::format("{}: keys[{}]: {}", file, i, failure.message));
    }
  if (by_key_.empty()) throw std::runtime_error(file + ": there is no key");
  share();
}

void Tenants::set_shares(Engine& engine) const {
  for (const auto& [name, account] : accounts_) {
    if (!account.limits.any()) continue;
    if (const Status status = engine.set_share(ShareOf::kTenant, name, account.limits); !status.ok())
      throw std::runtime_error(fmt::format("the keys of {}: {}", name, status.message()));
  }
}

std::map<std::string, ShareUsage> Tenants::shares_of(const Replicas& replicas) const {
  std::map<std::string, ShareUsage> shares;
  for (const Driver& driver : replicas)
    for (const auto& [name, account] : accounts_)
      if (auto usage = driver.engine().share_usage(ShareOf::kTenant, name); account.limits.any() && usage.ok()) {
        ShareUsage& sum = shares[name];
        sum.cache_bytes += usage->cache_bytes;
        sum.running += usage->running;
        sum.tokens_computed += usage->tokens_computed;
      }
  return shares;
}

void Tenants::check_tiers(const std::map<std::string, std::map<std::string, double>>& tiers) const {
  for (const auto& [key, tenant] : by_key_)
    if (!tenant.tier.empty() && !tiers.contains(tenant.tier))
      throw std::runtime_error(fmt::format(
          "the key of {} has the tier {}, which has no limits: give it some with --limit", tenant.name, tenant.tier));
}

Tenant& Tenants::of(const Exchange& exchange) {
  if (by_key_.empty()) return everybody_;
  const std::string given = exchange.header("authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (given.empty())
    throw Failure{
        401, "this server wants an API key: send the header Authorization: Bearer KEY", {}, "invalid_api_key"};
  const auto found = by_key_.find(given.starts_with(kBearer) ? given.substr(kBearer.size()) : given);
  if (found == by_key_.end()) throw Failure{401, "the API key is not one of this server's", {}, "invalid_api_key"};
  return found->second;
}

void Tenants::want_trusted(const Exchange& exchange, const char* what) {
  if (!may_see_others(exchange))
    throw Failure{403, std::string(what) + " are seen and changed with a trusted key", {}, "not_trusted"};
}

bool Tenants::may_see_others(const Exchange& exchange) {
  if (by_key_.empty()) return true;
  return !exchange.header("authorization").empty() && of(exchange).trusted;
}

void Tenants::admit(Tenant& tenant) {
  if (tenant.most_at_once > 0 && tenant.at_once >= tenant.most_at_once)
    throw Failure{429,
                  fmt::format("{} requests of this key are unfinished, and it may have {}: wait for one to end",
                              tenant.at_once, tenant.most_at_once),
                  {},
                  "rate_limit_exceeded",
                  1};
  if (tenant.requests_a_minute <= 0) return;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - tenant.counted).count();
  tenant.counted = now;
  tenant.allowance = std::min(tenant.requests_a_minute, tenant.allowance + seconds * tenant.requests_a_minute / 60);
  if (tenant.allowance < 1) {
    const int wait = static_cast<int>((1 - tenant.allowance) * 60 / tenant.requests_a_minute) + 1;
    throw Failure{
        429,
        fmt::format("this key may make {} requests a minute: try again in {} s", tenant.requests_a_minute, wait),
        {},
        "rate_limit_exceeded",
        wait};
  }
  tenant.allowance -= 1;
}

std::string Tenants::salt(const Tenant& tenant, const std::string& asked) const {
  return fmt::format("{}/{}/{}", secret_, tenant.name, tenant.trusted ? asked : "");
}

std::string Tenants::salt_name(const std::string& salt) const {
  return salt.substr(std::min(salt.size(), secret_.size()));
}

std::string Tenants::salt_named(const std::string& name) const { return name.empty() ? name : secret_ + name; }

}  // namespace kaiju::server
