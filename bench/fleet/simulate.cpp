// The event loop of the simulation and its accounts.
#include "bench/fleet/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace kaiju::fleet {
namespace {

struct Chat {
  uint64_t name = 0, character = 0;
  int32_t turns = 0;  // so far
};

constexpr uint64_t kSudden = uint64_t{1} << 62;  // a character beyond all others

struct InFlight {
  double ends = 0;
  int32_t machine = 0;
  uint32_t life = 0;  // of the machine: one that failed has another when it is back
  Message message;
  bool operator<(const InFlight& other) const { return ends > other.ends; }  // a heap's first ends first
};

double most_over_mean(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return *std::max_element(values.begin(), values.end()) * static_cast<double>(values.size()) / std::max(1.0, sum);
}

class Simulation {
 public:
  Simulation(Rule rule, const FleetOptions& options)
      : options_(options),
        arrivals_(options.seed, 0),
        choices_(options.seed, 1),
        failures_(options.seed, 2),
        characters_(options.characters, options.zipf),
        caches_(options.machines, options.memory_bytes, options.kv),
        loads_(options.machines),
        router_(rule, options.router, caches_, loads_),
        lives_(static_cast<size_t>(options.machines)),
        received_(static_cast<size_t>(options.machines)),
        prefilled_(static_cast<size_t>(options.machines)),
        rate_(options.messages_per_second) {
    outcome_.rule = rule;
    chats_.resize(static_cast<size_t>(std::max(1.0, options.messages_per_second * options.every_seconds)));
    for (Chat& chat : chats_) {
      begin(chat);
      // How far it is: the age of a geometric sitting is geometric.
      if (!options.fresh)
        chat.turns = static_cast<int32_t>(std::log1p(-choices_.uniform()) / std::log1p(-1 / options_.turns));
    }
  }

  Outcome run() {
    const double begin = options_.warm_up_seconds, end = begin + options_.seconds;
    const double lost = begin + options_.lost_after, back = lost + options_.back_after;
    const double crowd = begin + options_.sudden_after;
    double arrival = 0, tick = begin + 1;
    bool failed = options_.lost_machines == 0, returned = failed, crowded = options_.sudden_users == 0;
    for (;;) {
      const double reply = in_flight_.empty() ? 1e300 : in_flight_.front().ends;
      const double next =
          std::min({arrival, reply, tick, failed ? 1e300 : lost, returned ? 1e300 : back, crowded ? 1e300 : crowd});
      measuring_ = next >= begin;
      if (next == reply) {
        finish();
      } else if (next == tick) {
        count_second();
        if (++tick > end) break;
      } else if (!failed && next == lost) {
        failed = true;
        fail(next);
      } else if (!returned && next == back) {
        returned = true;
        come_back();
      } else if (!crowded && next == crowd) {
        crowded = true;
        let_crowd_in();
      } else {
        send(next, next_message());
        arrival += arrivals_.exponential(1 / rate_);
      }
    }
    conclude();
    return std::move(outcome_);
  }

 private:
  void begin(Chat& chat) { chat = {++names_, characters_.draw(choices_), 0}; }

  Message next_message() {
    const size_t number = seen_ < chats_.size() ? seen_++ : choices_.below(chats_.size());
    Chat& chat = chats_[number];
    Message message;
    message.character = chat.character;
    message.chat = chat.name;
    message.card_tokens = options_.card_tokens;
    message.history_tokens = chat.turns * (options_.user_tokens + options_.reply_tokens);
    message.new_tokens = options_.user_tokens;
    ++chat.turns;
    if (choices_.uniform() * options_.turns < 1) begin(chat);
    return message;
  }

  void send(double now, const Message& message) {
    const int32_t machine = router_.choose(message);
    const Found found = found_at(caches_, message, machine);
    const int32_t missed = message.prompt_tokens() - found.tokens();
    // The card after the history: what is used later stays longer, and a history needs its card.
    caches_.put(history_of(message.chat), machine, message.history_tokens + message.new_tokens + options_.reply_tokens);
    caches_.put(card_of(message.character), machine, message.card_tokens);
    loads_.begin(machine);
    in_flight_.push_back({now + options_.reply_seconds + missed / options_.prefill_per_second, machine,
                          lives_[static_cast<size_t>(machine)], message});
    std::push_heap(in_flight_.begin(), in_flight_.end());
    if (measuring_) count(message, found, machine, missed);
  }

  void finish() {
    const InFlight& done = in_flight_.front();
    if (done.life == lives_[static_cast<size_t>(done.machine)]) loads_.end(done.machine);
    std::pop_heap(in_flight_.begin(), in_flight_.end());
    in_flight_.pop_back();
  }

  void fail(double now) {
    std::vector<int32_t> order(static_cast<size_t>(options_.machines));
    std::iota(order.begin(), order.end(), 0);
    for (int32_t i = 0; i < options_.lost_machines; ++i) {
      const auto from = static_cast<size_t>(i);
      std::swap(order[from], order[from + failures_.below(order.size() - from)]);
      const int32_t machine = order[from];
      caches_.clear(machine);
      loads_.stop(machine);
      ++lives_[static_cast<size_t>(machine)];
      down_.push_back(machine);
    }
    router_.machines_changed();
    std::vector<Message> unanswered;
    for (const InFlight& one : in_flight_)
      if (one.life != lives_[static_cast<size_t>(one.machine)]) unanswered.push_back(one.message);
    for (const Message& message : unanswered) send(now, message);
    outcome_.sent_again += unanswered.size();
  }

  void come_back() {
    for (const int32_t machine : down_) loads_.start(machine);
    down_.clear();
    router_.machines_changed();
  }

  // From now on the chats of all users together send more often.
  void let_crowd_in() {
    for (int32_t user = 0; user < options_.sudden_users; ++user) chats_.push_back({++names_, kSudden, 0});
    rate_ += options_.sudden_users / options_.every_seconds;
    seen_ = chats_.size();  // they send after gaps like all others, not all at once
  }

  void count(const Message& message, const Found& found, int32_t machine, int32_t missed) {
    outcome_.all.add(message, found);
    second_.tokens.add(message, found);
    size_t rank = 0;
    while (rank < kRankLimits.size() && message.character > kRankLimits[rank]) ++rank;
    outcome_.by_rank[rank].add(message, found);
    received_[static_cast<size_t>(machine)] += 1;
    prefilled_[static_cast<size_t>(machine)] += missed;
  }

  void count_second() {
    second_.balance = loads_.most() / std::max(1e-9, loads_.mean());
    outcome_.seconds.push_back(second_);
    second_ = {};
  }

  void conclude() {
    for (const Second& second : outcome_.seconds)
      outcome_.balance += second.balance / static_cast<double>(outcome_.seconds.size());
    outcome_.message_balance = most_over_mean(received_);
    outcome_.prefill_balance = most_over_mean(prefilled_);
    outcome_.copy_count = caches_.copy_count();
    caches_.for_holders(card_of(1), [&](int32_t, int32_t) { ++outcome_.copies_of_card; });
    caches_.for_holders(card_of(kSudden), [&](int32_t, int32_t) { ++outcome_.copies_of_sudden; });
    double event = 1e300;
    if (options_.lost_machines > 0) event = options_.lost_after;
    if (options_.sudden_users > 0) event = std::min(event, options_.sudden_after);
    measure_event(event);
  }

  void measure_event(double after) {
    constexpr double kRecovered = 0.99;
    const std::vector<Second>& seconds = outcome_.seconds;
    if (after < 1 || after >= static_cast<double>(seconds.size())) return;
    const auto first = static_cast<size_t>(after);
    outcome_.event = true;
    for (size_t s = 0; s < first; ++s) {
      outcome_.hit_before += seconds[s].tokens.hit_rate() / static_cast<double>(first);
      outcome_.balance_before += seconds[s].balance / static_cast<double>(first);
    }
    outcome_.hit_lowest = 1;
    outcome_.recovered_seconds = -1;
    for (size_t s = first; s < seconds.size(); ++s) {
      const double hit = seconds[s].tokens.hit_rate();
      outcome_.hit_lowest = std::min(outcome_.hit_lowest, hit);
      outcome_.balance_most = std::max(outcome_.balance_most, seconds[s].balance);
      if (hit < kRecovered * outcome_.hit_before)
        outcome_.recovered_seconds = -1;
      else if (outcome_.recovered_seconds < 0)
        outcome_.recovered_seconds = static_cast<double>(s - first);
    }
  }

  FleetOptions options_;
  Dice arrivals_, choices_, failures_;
  Zipf characters_;
  Caches caches_;
  Loads loads_;
  Router router_;
  std::vector<Chat> chats_;
  std::vector<InFlight> in_flight_;           // a heap
  std::vector<uint32_t> lives_;               // by machine
  std::vector<double> received_, prefilled_;  // by machine, messages and computed prompt tokens of the measured time
  std::vector<int32_t> down_;
  uint64_t names_ = 0;
  size_t seen_ = 0;  // chats that have sent their first message
  double rate_;      // messages a second
  bool measuring_ = false;
  Second second_;
  Outcome outcome_;
};

}  // namespace

Outcome simulate(Rule rule, const FleetOptions& options) {
  FleetOptions used = options;
  if (rule == Rule::kOneCache) {
    used.machines = 1;
    used.memory_bytes *= options.machines;
    used.lost_machines = 0;
  }
  return Simulation(rule, used).run();
}

}  // namespace kaiju::fleet
