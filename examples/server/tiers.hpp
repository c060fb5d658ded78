// Tiers: named limits of the classifier's labels (docs/safety.md), which keys and requests name. A limit may be changed
// while the server runs.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "kaiju/kaiju.hpp"
#include "tenants.hpp"

namespace kaiju::server {

class Tiers {
 public:
  explicit Tiers(Engine& engine) : engine_(engine) {}

  // Throws Failure where the model has no such label, or the limit is out of range. nullopt: no limit.
  void set(const std::string& tier, const std::string& label, std::optional<double> limit);
  // "adult:violence=0.5", as the command line has it. Throws std::runtime_error.
  void set(const std::string& text);
  // The tier of a request: its key's. A trusted key, or one without a tier, may name another; throws Failure.
  std::string of(const Tenant& tenant, const std::string& asked) const;
  const std::map<std::string, std::map<std::string, double>>& all() const { return limits_; }

 private:
  Engine& engine_;
  std::map<std::string, std::map<std::string, double>> limits_;
};

}  // namespace kaiju::server
