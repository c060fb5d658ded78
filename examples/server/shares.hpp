// Shares: whose request is next, by start-time fair queuing (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996).
//
// Each account has a virtual time: the tokens that it has taken, divided by its weight. A request starts at the larger
// of its account's time and the common one, which is the start of the latest request that came to its turn. The engine
// keeps the queue: a request's priority there is the higher the earlier its start. An account that was idle starts at
// the common time, so nobody saves up turns. Accounts with another strict priority are a class of their own, with its
// own common time. Lives on the I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kaiju/cache/share_limits.hpp"

namespace kaiju::server {

// What an account has asked for and got, since the server began.
struct Account {
  double weight = 1;
  int32_t strict = 0;  // requests of accounts with a higher one go first
  ShareLimits limits;  // of the engine's memory and steps

  size_t waiting = 0, running = 0;  // requests
  uint64_t requests = 0, disconnects = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;

  double time = 0;        // virtual
  double last_start = 0;  // of the newest request that waits; its requests stay in order
};

class Shares {
  struct Class;

 public:
  // `accounts`: all that there are; they live longer than this.
  explicit Shares(std::vector<Account*> accounts);

  // One request of an account. It waits until begin, then runs until it is destroyed.
  class Share {
   public:
    ~Share();
    Share(const Share&) = delete;
    // For the engine: higher goes first.
    int32_t priority() const { return priority_; }
    // It came to its turn: it has a first token.
    void begin();
    // What it takes of the tokens that it asked for. The rest is given back when it ends.
    void take_prompt(int64_t tokens, int64_t cached_tokens);
    void take_generated(int64_t tokens);

   private:
    friend class Shares;
    Share(Class& of, Account& account, double tokens_a_time, double start, double asked, int32_t priority)
        : class_(of),
          account_(account),
          tokens_a_time_(tokens_a_time),
          start_(start),
          asked_(asked),
          priority_(priority) {}

    Class& class_;
    Account& account_;
    double tokens_a_time_;              // tokens by which the account's time goes on by 1
    double start_, asked_, taken_ = 0;  // times
    int32_t priority_;
    bool begun_ = false;
  };

  // `tokens`: the most that the request can take, prompt and replies.
  std::unique_ptr<Share> ask(Account& account, int64_t tokens);

 private:
  // The accounts of one strict priority.
  struct Class {
    int32_t strict;
    std::vector<Account*> accounts;
    double time = 0;     // the common one
    size_t waiting = 0;  // requests
  };
  int32_t priority(const Class& of, double start) const;

  std::vector<Class> classes_;  // highest first
  double least_weight_ = 1;
};

}  // namespace kaiju::server
