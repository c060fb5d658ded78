// Fair shares between accounts, with a queue in the engine's place: the request of the highest priority is next, and of
// equal ones the one that came first.
#include "examples/server/shares.hpp"

#include <climits>
#include <cmath>
#include <cstdlib>
#include <list>
#include <map>
#include <random>
#include <string>

#include "catch.hpp"

using namespace kaiju::server;

namespace {

struct Waiting {
  Account* account;
  int number;  // of the account's requests
  std::unique_ptr<Shares::Share> share;
};

class Queue {
 public:
  explicit Queue(std::vector<Account*> accounts) : shares_(std::move(accounts)) {}

  void ask(Account& account, int64_t tokens) {
    waiting_.push_back({&account, numbers_[&account]++, shares_.ask(account, tokens)});
  }
  bool empty() const { return waiting_.empty(); }
  // Serves the next request, which takes `taken` tokens: whose it is, and its number.
  std::pair<Account*, int> serve(int64_t taken) {
    auto next = waiting_.begin();
    for (auto one = next; one != waiting_.end(); ++one)
      if (one->share->priority() > next->share->priority()) next = one;
    Waiting served = std::move(*next);
    waiting_.erase(next);
    served.share->begin();
    served.share->take_generated(taken);
    return {served.account, served.number};
  }

 private:
  Shares shares_;
  std::list<Waiting> waiting_;  // in the order in which they came
  std::map<Account*, int> numbers_;
};

}  // namespace

TEST_CASE("the request of one account is among the first, however many another account has sent") {
  Account many, one;
  Queue queue({&many, &one});
  for (int i = 0; i < 100; ++i) queue.ask(many, 500);
  for (int i = 0; i < 20; ++i) queue.serve(500);
  queue.ask(one, 500);
  int before = 0;
  while (queue.serve(500).first != &one) ++before;
  CHECK(before <= 1);
}

TEST_CASE("accounts that all wait are served in the ratio of their weights, whatever the size of their requests") {
  Account light{.weight = 1}, heavy{.weight = 3}, large{.weight = 2};
  Queue queue({&light, &heavy, &large});
  for (int i = 0; i < 3000; ++i) {
    queue.ask(light, 200);
    queue.ask(heavy, 200);
    if (i % 4 == 0) queue.ask(large, 800);
  }
  std::map<Account*, double> tokens;
  for (int i = 0; i < 1200; ++i) {
    Account* const account = queue.serve(0).first;  // what is given back changes nothing for those that wait
    tokens[account] += account == &large ? 800 : 200;
  }
  CHECK(tokens[&heavy] / tokens[&light] == Approx(3).epsilon(0.05));
  CHECK(tokens[&large] / tokens[&light] == Approx(2).epsilon(0.05));
}

TEST_CASE("an account that was idle has saved up no turns") {
  Account busy, idle;
  Queue queue({&busy, &idle});
  for (int i = 0; i < 1000; ++i) queue.ask(busy, 1000);
  for (int i = 0; i < 500; ++i) queue.serve(1000);
  for (int i = 0; i < 100; ++i) queue.ask(idle, 1000);
  int of_idle = 0;
  for (int i = 0; i < 100; ++i) of_idle += queue.serve(1000).first == &idle;
  CHECK(of_idle >= 48);
  CHECK(of_idle <= 52);
}

TEST_CASE("what a request did not take is given back: accounts are charged what they take") {
  Account modest, boastful;  // the one asks for what it takes, the other for ten times as much
  Queue queue({&modest, &boastful});
  std::map<Account*, int> served;
  queue.ask(modest, 100);
  queue.ask(boastful, 1000);
  for (int i = 0; i < 1000; ++i) {  // each has one request that waits
    Account* const account = queue.serve(100).first;
    ++served[account];
    queue.ask(*account, account == &modest ? 100 : 1000);
  }
  CHECK(served[&modest] >= 480);
  CHECK(served[&modest] <= 520);
}

TEST_CASE("a request that is withdrawn before its turn costs nothing") {
  Account account;
  Shares shares({&account});
  const auto first = shares.ask(account, 1000);
  const double before = account.time;
  shares.ask(account, 5000).reset();
  CHECK(account.time == before);
  CHECK(account.waiting == 1);
}

TEST_CASE("requests of one account stay in their order, whatever is given back") {
  const auto seed =
      std::getenv("KAIJU_SEED") ? std::strtoull(std::getenv("KAIJU_SEED"), nullptr, 10) : std::random_device{}();
  INFO("KAIJU_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::vector<Account> accounts(5);
  std::vector<Account*> all;
  for (Account& account : accounts) {
    account.weight = std::pow(10.0, static_cast<double>(random() % 5) - 2);
    all.push_back(&account);
  }
  Queue queue(all);
  std::map<Account*, int> next;
  for (int i = 0; i < 20000; ++i) {
    if (queue.empty() || random() % 100 < 52) {
      queue.ask(accounts[random() % 5], static_cast<int64_t>(random() % 5000));
    } else {
      const auto [account, number] = queue.serve(static_cast<int64_t>(random() % 5000));
      REQUIRE(number == next[account]++);
    }
  }
}

TEST_CASE("strict priorities go first, and every priority is within its class, however long the queue") {
  Account low{.strict = -1000}, middle{.strict = 0}, high{.strict = 7};
  Shares shares({&low, &middle, &high});
  std::vector<std::unique_ptr<Shares::Share>> waiting;
  std::map<Account*, std::pair<int32_t, int32_t>> range;
  for (Account* account : {&low, &middle, &high}) {
    range[account] = {INT_MAX, INT_MIN};
    for (int64_t tokens = 1; tokens < (int64_t{1} << 52); tokens *= 8) {
      waiting.push_back(shares.ask(*account, tokens));
      range[account].first = std::min(range[account].first, waiting.back()->priority());
      range[account].second = std::max(range[account].second, waiting.back()->priority());
    }
  }
  CHECK(range[&high].second == INT_MAX);
  CHECK(range[&high].first > range[&middle].second);
  CHECK(range[&middle].first > range[&low].second);
  CHECK(range[&low].first <= INT_MIN + 2);
}

TEST_CASE("an account of one class is not held up by what another class has taken") {
  Account high{.strict = 1}, low{.strict = 0}, later{.strict = 0};
  Queue queue({&high, &low, &later});
  for (int i = 0; i < 100; ++i) queue.ask(low, 1000);
  for (int i = 0; i < 1000; ++i) {
    queue.ask(high, 100000);
    CHECK(queue.serve(100000).first == &high);
  }
  queue.ask(later, 1000);
  CHECK((queue.serve(1000).first == &later || queue.serve(1000).first == &later));
}

TEST_CASE("shares are fair after more tokens than priorities can tell apart, where nobody waited in between") {
  Account many, one;
  Queue queue({&many, &one});
  for (int i = 0; i < 1000; ++i) {
    queue.ask(many, 1'000'000'000);
    queue.serve(1'000'000'000);
  }
  for (int i = 0; i < 100; ++i) queue.ask(many, 500);
  queue.ask(one, 500);
  CHECK((queue.serve(500).first == &one || queue.serve(500).first == &one));
}
