// Tenants: who may use the server, how much, and whose KV is shared with whom.
//
// Without a file of keys there is one tenant, and everybody shares. With one, a request's key (Authorization: Bearer)
// names its tenant. KV after a character's shared region is shared within a tenant alone; a tenant that is a trusted
// front end may say with the field cache_salt which of its own users share. What other clients put there is not used.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "http.hpp"
#include "kaiju/kaiju.hpp"
#include "replicas.hpp"
#include "shares.hpp"

namespace kaiju::server {

struct Tenant {
  std::string name;              // for the log and the metrics
  double requests_a_minute = 0;  // 0: no limit
  size_t most_at_once = 0;       // unfinished requests; 0: no limit
  bool trusted = false;          // may name salts
  std::string tier;              // limits of its replies (tiers.hpp); empty: none
  Account* account = nullptr;    // its share; keys of one name have one account

  double allowance = 0;  // requests that it may make now
  std::chrono::steady_clock::time_point counted{};
  size_t at_once = 0;
};

class Tenants {
 public:
  // Everybody, without keys.
  explicit Tenants(std::string secret);
  // Reads a file of keys: {"keys": [{"key", "name", "requests_per_minute", "most_at_once", "priority", "weight",
  // "cache_floor_mib", "cache_ceiling_mib", "step_floor", "step_ceiling", "trusted", "tier"}]}.
  // Throws std::runtime_error with the file and what is wrong.
  Tenants(std::string secret, const std::string& file);

  // The tenant of a request. Throws Failure 401 without a known key.
  Tenant& of(const Exchange& exchange);
  // Whether others' names and numbers are shown to a request. Without keys there are no others. Throws Failure 401 for
  // a key that is not known.
  bool may_see_others(const Exchange& exchange);
  // Throws Failure 403 where they are not; `what`: "limits", say, are seen and changed with a trusted key.
  void want_trusted(const Exchange& exchange, const char* what);
  // Counts a request; throws Failure 429 where the tenant has made too many.
  void admit(Tenant& tenant);
  // Whose KV a request shares. `asked`: the body's cache_salt, which counts for a trusted tenant alone.
  std::string salt(const Tenant& tenant, const std::string& asked) const;
  // A salt without this server's secret, which peers have too, and back. Of an empty one: empty.
  std::string salt_name(const std::string& salt) const;
  std::string salt_named(const std::string& name) const;
  // Whether a request may name the character whose shared region its prompt begins with, which others of its tenant
  // then share whatever their salts.
  bool may_name_character(const Tenant& tenant) const { return by_key_.empty() || tenant.trusted; }
  // Throws std::runtime_error where a key has a tier that is none of these.
  void check_tiers(const std::map<std::string, std::map<std::string, double>>& tiers) const;
  // Gives the engine the floors and ceilings of all keys. Throws std::runtime_error where they do not fit it.
  void set_shares(Engine& engine) const;
  // What each key with a floor or a ceiling has on all replicas, by name.
  std::map<std::string, ShareUsage> shares_of(const Replicas& replicas) const;
  // By name.
  const std::map<std::string, Account>& accounts() const { return accounts_; }
  Shares& shares() { return *shares_; }

 private:
  void share();

  std::string secret_;
  std::map<std::string, Tenant> by_key_;
  Tenant everybody_;
  std::map<std::string, Account> accounts_;
  std::unique_ptr<Shares> shares_;
};

// One of a tenant's unfinished requests, for as long as it lives.
class AtOnce {
 public:
  explicit AtOnce(Tenant& tenant) : tenant_(tenant) { ++tenant_.at_once; }
  ~AtOnce() { --tenant_.at_once; }
  AtOnce(const AtOnce&) = delete;

 private:
  Tenant& tenant_;
};

}  // namespace kaiju::server
