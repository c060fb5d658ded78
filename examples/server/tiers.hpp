// Tiers: named limits of the classifier's labels and of the gate's (docs/safety.md), which keys and requests name. A
// limit may be changed while the server runs.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kaiju/kaiju.hpp"
#include "parameters.hpp"
#include "tenants.hpp"

namespace kaiju::server {

class Checkpoints;

class Tiers {
 public:
  // `gate_labels`: those of the server's gate; none: it has no gate.
  Tiers(Checkpoints& checkpoints, std::vector<std::string> gate_labels)
      : checkpoints_(checkpoints), gate_labels_(std::move(gate_labels)) {}

  // Throws Failure where there is no such label, or the limit is out of range. nullopt: no limit.
  void set(const std::string& tier, const std::string& label, std::optional<double> limit);
  // "adult:violence=0.5", as the command line has it. Throws std::runtime_error.
  void set(const std::string& text);
  // The tier of requests whose key has none and that name none. Throws std::runtime_error where it has no limits.
  void set_default(const std::string& tier);
  // Fills in the tier of a request and the limits that follow. The tier is its key's; a trusted key, or one without a
  // tier, may name another. Throws Failure.
  void apply(const Tenant& tenant, Wanted& wanted) const;
  // The limit of a label of the classifier for a request.
  double limit(const Wanted& wanted, const std::string& label) const;
  // Gives a checkpoint that comes later all limits. Throws Failure.
  void set_all(Engine& engine) const;
  const std::map<std::string, std::map<std::string, double>>& all() const { return limits_; }

 private:
  std::string of(const Tenant& tenant, const std::string& asked) const;
  void check_gate_limit(const std::string& label, std::optional<double> limit) const;

  Checkpoints& checkpoints_;
  const std::vector<std::string> gate_labels_;
  std::string default_;
  std::map<std::string, std::map<std::string, double>> limits_;  // by tier and label, "gate.violence" too
  std::set<std::string> in_engine_;                              // tiers that the engine knows
};

}  // namespace kaiju::server
