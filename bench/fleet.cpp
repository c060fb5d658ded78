// kaiju-bench fleet: simulates a fleet of machines behind a router and prints what its caches find, how evenly the rule
// loads the machines, and how a loss of machines or a sudden character is overcome. Needs no model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench.hpp"
#include "bench/fleet/report.hpp"
#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"

namespace kaiju::bench {
namespace fleet_command {
namespace {

struct Options {
  fleet::FleetOptions fleet;
  std::vector<std::string> rules;  // all when empty
  int64_t memory_bytes = 0;        // 0: the default of FleetOptions
  bool json = false;
};

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const fleet::RuleName& rule : fleet::kRules) names.emplace_back(rule.name);
  return names;
}

int run(Options options) {
  constexpr double kMostChats = 5e7;
  if (options.memory_bytes > 0) options.fleet.memory_bytes = static_cast<double>(options.memory_bytes);
  if (options.fleet.lost_machines >= options.fleet.machines)
    throw CLI::ValidationError("--lose", "at least one of --machines must stay");
  if (options.fleet.messages_per_second * options.fleet.every_seconds > kMostChats)
    throw CLI::ValidationError("--messages-per-second", fmt::format("gives more than {:.0f} chats at once with "
                                                                    "--every-seconds, the most that is simulated",
                                                                    kMostChats));
  std::vector<fleet::Outcome> outcomes;
  for (const fleet::RuleName& rule : fleet::kRules) {
    const auto asked = std::find(options.rules.begin(), options.rules.end(), rule.name);
    if (!options.rules.empty() && asked == options.rules.end()) continue;
    tools::print(stderr, "{}\n", rule.name);
    outcomes.push_back(fleet::simulate(rule.rule, options.fleet));
  }
  tools::print("{}\n", options.json ? to_json(options.fleet, outcomes) : to_table(options.fleet, outcomes));
  return 0;
}

void add_traffic(CLI::App& command, fleet::FleetOptions& fleet) {
  const auto option = [&](const char* name, auto& value, const CLI::Validator& range, const char* text) {
    command.add_option(name, value, text)->check(range)->capture_default_str()->group("Traffic");
  };
  const CLI::Validator tokens = tools::whole_number(1, 1 << 20);
  option("--seed", fleet.seed, tools::whole_number(), "the same seed gives the same figures");
  option("--characters", fleet.characters, tools::whole_number(1, int64_t{1} << 40), "number of characters");
  option("--zipf", fleet.zipf, tools::number_from(0, 10),
         "the r-th character is chosen r^-ZIPF times as often as the first; 0: all equally often");
  option("--messages-per-second", fleet.messages_per_second, tools::number_from(0.001, 1e7), "of the whole fleet");
  option("--every-seconds", fleet.every_seconds, tools::number_from(0.01, 86400),
         "from one message of a chat to its next, mean");
  option("--turns", fleet.turns, tools::number_from(1.001, 1e6), "messages of a sitting, mean");
  command.add_flag("--fresh", fleet.fresh, "chats begin with the simulation, without a history")->group("Traffic");
  option("--card-tokens", fleet.card_tokens, tokens, "length of a character's card");
  option("--user-tokens", fleet.user_tokens, tokens, "length of a message");
  option("--reply-tokens", fleet.reply_tokens, tokens, "length of a reply");
  option("--sudden-users", fleet.sudden_users, tools::whole_number(0, 10'000'000),
         "more users, who all begin to talk with one character that nobody knew");
  option("--sudden-after", fleet.sudden_after, tools::number_from(1, 1e6),
         "when they do, seconds of the measured time");
  option("--warm-up-seconds", fleet.warm_up_seconds, tools::number_from(0, 1e6),
         "not measured; in the first --every-seconds each chat sends once");
  option("--seconds", fleet.seconds, tools::number_from(1, 1e6), "measured time");
}

void add_machines(CLI::App& command, Options& options) {
  fleet::FleetOptions& fleet = options.fleet;
  const auto option = [&](const char* name, auto& value, const CLI::Validator& range, const char* text) {
    command.add_option(name, value, text)->check(range)->capture_default_str()->group("Machines");
  };
  option("--machines", fleet.machines, tools::whole_number(1, 1 << 20), "number of machines");
  command
      .add_option("--memory", options.memory_bytes,
                  "KV that a machine holds: 80GiB, or bytes; 0: 125 GB, an H200 with preset small")
      ->transform(tools::byte_count())
      ->group("Machines");
  option("--reply-seconds", fleet.reply_seconds, tools::number_from(0.001, 3600), "time that a reply takes");
  option("--prefill-per-second", fleet.prefill_per_second, tools::number_from(1, 1e9),
         "prompt tokens that are computed");
  option("--ring-points", fleet.router.ring_points, tools::whole_number(1, 1 << 16),
         "points of a machine on the ring; HAProxy has 16 for each unit of weight");
  option("--balance-factor", fleet.router.balance_factor, tools::whole_number(100, 100000),
         "hash-balance-factor of HAProxy: percent of the mean load that a machine may have");
  option("--beta", fleet.router.beta, tools::number_from(0, 1000),
         "of load-aware: what a load of twice the mean costs, in whole prompts");
  option("--lose", fleet.lost_machines, tools::whole_number(0, 1 << 20), "machines that fail, chosen by the seed");
  option("--lose-after", fleet.lost_after, tools::number_from(1, 1e6), "seconds of the measured time");
  option("--back-after", fleet.back_after, tools::number_from(0.001, 1e300),
         "seconds after that, when they come back empty");
}

}  // namespace
}  // namespace fleet_command

void add_fleet(CLI::App& app, int& status) {
  using namespace fleet_command;
  CLI::App* command = app.add_subcommand(
      "fleet",
      "simulates many machines behind a router: hit rate, balance, losses, a sudden character; needs no model");
  auto options = std::make_shared<Options>();
  command->add_option("--rules", options->rules, "routers' rules to simulate; all when not given")
      ->check(tools::name_from(rule_names()))
      ->delimiter(',');
  add_traffic(*command, options->fleet);
  add_machines(*command, *options);
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  command->footer(
      "Examples:\n  kaiju-bench fleet --rules hash-bounded,round-robin\n  kaiju-bench fleet --machines 110 --lose 5 "
      "--seconds 120\n  kaiju-bench fleet --machines 300 --sudden-users 100000 --seconds 120\n  kaiju-bench fleet "
      "--machines 3 --characters 200 --messages-per-second 5 --memory 64MiB --json");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
