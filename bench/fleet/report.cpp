// Writes outcomes as tables and as JSON.
#include "bench/fleet/report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kaiju::fleet {
namespace {

double part(uint64_t some, uint64_t all) { return all == 0 ? 0 : static_cast<double>(some) / static_cast<double>(all); }
std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }

std::string main_table(const std::vector<Outcome>& outcomes) {
  std::string out = fmt::format("{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>12}\n", "rule", "found", "card",
                                "history", "load", "messages", "prefill", "first card", "copies");
  for (const Outcome& o : outcomes)
    out += fmt::format("{:<18}{:>10}{:>10}{:>10}{:>10.2f}{:>10.2f}{:>10.2f}{:>12.0f}{:>12}\n", name_of(o.rule),
                       percent(o.all.hit_rate()), percent(part(o.all.card, o.all.prompt)),
                       percent(part(o.all.history, o.all.prompt)), o.balance, o.message_balance, o.prefill_balance,
                       o.copies_of_card, o.copy_count);
  return out +
         "found: of all prompt tokens. load (in flight at an instant), messages, prefill (of the measured time): the\n"
         "busiest machine's, divided by the mean.\n"
         "first card: machines that hold the most popular card at the end.\n";
}

std::string rank_table(const std::vector<Outcome>& outcomes) {
  std::string out = fmt::format("\n{:<18}", "found, by rank");
  uint64_t from = 1;
  for (const uint64_t limit : kRankLimits) {
    out += fmt::format("{:>18}", fmt::format("{} to {}", from, limit));
    from = limit + 1;
  }
  out += fmt::format("{:>18}\n", "others");
  for (const Outcome& o : outcomes) {
    out += fmt::format("{:<18}", name_of(o.rule));
    for (const Tokens& tokens : o.by_rank) out += fmt::format("{:>18}", percent(tokens.hit_rate()));
    out += '\n';
  }
  return out;
}

std::string event_table(const FleetOptions& options, const std::vector<Outcome>& outcomes) {
  std::string out = "\n";
  if (options.lost_machines > 0)
    out += fmt::format("{} machines lost after {:g} s\n", options.lost_machines, options.lost_after);
  if (options.sudden_users > 0)
    out += fmt::format("{} more users after {:g} s, all with one character that was new\n", options.sudden_users,
                       options.sudden_after);
  out += fmt::format("{:<18}{:>14}{:>10}{:>12}{:>14}{:>10}{:>12}{:>10}\n", "", "found before", "lowest", "99% again",
                     "load before", "highest", "sent again", "its card");
  for (const Outcome& o : outcomes) {
    if (!o.event) continue;
    const std::string again = o.recovered_seconds < 0 ? "not yet" : fmt::format("{:g} s", o.recovered_seconds);
    out += fmt::format("{:<18}{:>14}{:>10}{:>12}{:>14.2f}{:>10.2f}{:>12}{:>10.0f}\n", name_of(o.rule),
                       percent(o.hit_before), percent(o.hit_lowest), again, o.balance_before, o.balance_most,
                       o.sent_again, o.copies_of_sudden);
  }
  if (options.sudden_users > 0) out += "its card: machines that hold the new character's card at the end.\n";
  return out;
}

nlohmann::ordered_json json_of(const Outcome& o) {
  nlohmann::ordered_json out = {{"rule", name_of(o.rule)},
                                {"messages", o.all.messages},
                                {"prompt_tokens", o.all.prompt},
                                {"token_hit_rate", o.all.hit_rate()},
                                {"token_hit_rate_card", part(o.all.card, o.all.prompt)},
                                {"token_hit_rate_history", part(o.all.history, o.all.prompt)},
                                {"load_most_over_mean", o.balance},
                                {"messages_most_over_mean", o.message_balance},
                                {"prefill_most_over_mean", o.prefill_balance},
                                {"copies_of_first_card", o.copies_of_card},
                                {"copies", o.copy_count}};
  for (size_t rank = 0; rank < o.by_rank.size(); ++rank) {
    nlohmann::ordered_json one = {{"messages", o.by_rank[rank].messages},
                                  {"token_hit_rate", o.by_rank[rank].hit_rate()}};
    if (rank < kRankLimits.size()) one["rank_at_most"] = kRankLimits[rank];
    out["by_rank"].push_back(one);
  }
  if (o.event)
    out["event"] = {{"token_hit_rate_before", o.hit_before},         {"token_hit_rate_lowest", o.hit_lowest},
                    {"recovered_seconds", o.recovered_seconds},      {"load_most_over_mean_before", o.balance_before},
                    {"load_most_over_mean_highest", o.balance_most}, {"sent_again", o.sent_again},
                    {"copies_of_sudden_card", o.copies_of_sudden}};
  for (const Second& second : o.seconds)
    out["seconds"].push_back({{"token_hit_rate", second.tokens.hit_rate()}, {"load_most_over_mean", second.balance}});
  return out;
}

}  // namespace

const char* name_of(Rule rule) {
  for (const RuleName& one : kRules)
    if (one.rule == rule) return one.name;
  return "";
}

std::string to_table(const FleetOptions& options, const std::vector<Outcome>& outcomes) {
  std::string out = fmt::format(
      "{} machines, {} characters, {:g} messages a second from {:.0f} chats, seed {}: {:g} s measured after {:g} s\n\n",
      options.machines, options.characters, options.messages_per_second,
      options.messages_per_second * options.every_seconds, options.seed, options.seconds, options.warm_up_seconds);
  out += main_table(outcomes) + rank_table(outcomes);
  if (options.lost_machines > 0 || options.sudden_users > 0) out += event_table(options, outcomes);
  return out;
}

std::string to_json(const FleetOptions& options, const std::vector<Outcome>& outcomes) {
  nlohmann::ordered_json out = {{"seed", options.seed},
                                {"machines", options.machines},
                                {"characters", options.characters},
                                {"zipf", options.zipf},
                                {"messages_per_second", options.messages_per_second},
                                {"every_seconds", options.every_seconds},
                                {"turns", options.turns},
                                {"memory_bytes", options.memory_bytes},
                                {"seconds", options.seconds},
                                {"lost_machines", options.lost_machines},
                                {"sudden_users", options.sudden_users}};
  for (const Outcome& outcome : outcomes) out["rules"].push_back(json_of(outcome));
  return out.dump(2);
}

}  // namespace kaiju::fleet
