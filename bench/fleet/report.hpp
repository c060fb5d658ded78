// Report: what a simulation of a fleet prints.
#pragma once

#include <string>
#include <vector>

#include "bench/fleet/simulate.hpp"

namespace kaiju::fleet {

const char* name_of(Rule rule);
std::string to_table(const FleetOptions& options, const std::vector<Outcome>& outcomes);
std::string to_json(const FleetOptions& options, const std::vector<Outcome>& outcomes);

}  // namespace kaiju::fleet
