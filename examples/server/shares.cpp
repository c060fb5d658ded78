#include "shares.hpp"

#include <algorithm>

namespace kaiju::server {

namespace {

// Virtual tokens to a step of priority: with one class 2.7e11 tokens fit into an int32_t, which begins anew whenever
// nobody waits. Beyond, requests go in the order in which they came.
constexpr double kTokensAStep = 64;

}  // namespace

Shares::Shares(std::vector<Account*> accounts) {
  std::stable_sort(accounts.begin(), accounts.end(),
                   [](const Account* a, const Account* b) { return a->strict > b->strict; });
  for (Account* account : accounts) {
    if (classes_.empty() || classes_.back().strict != account->strict) classes_.push_back({account->strict, {}});
    classes_.back().accounts.push_back(account);
  }
  const auto lightest = std::min_element(accounts.begin(), accounts.end(),
                                         [](const Account* a, const Account* b) { return a->weight < b->weight; });
  if (lightest != accounts.end()) least_weight_ = (*lightest)->weight;
}

std::unique_ptr<Shares::Share> Shares::ask(Account& account, int64_t tokens) {
  Class& of =
      *std::find_if(classes_.begin(), classes_.end(), [&](const Class& one) { return one.strict == account.strict; });
  if (of.waiting == 0) {  // no priority that was given has a meaning any more: time begins at 0 again
    for (Account* one : of.accounts) one->time = std::max(one->time - of.time, 0.0);
    of.time = 0;
  }
  account.time = std::max(account.time, of.time);
  const double start = account.waiting > 0 ? std::max(account.time, account.last_start) : account.time;
  const double tokens_a_time = account.weight / least_weight_;
  const double asked = static_cast<double>(tokens) / tokens_a_time;
  account.last_start = start;
  account.time += asked;
  ++account.requests;
  ++account.waiting;
  ++of.waiting;
  return std::unique_ptr<Share>(new Share(of, account, tokens_a_time, start, asked, priority(of, start)));
}

int32_t Shares::priority(const Class& of, double start) const {
  const int64_t rank = &of - classes_.data();
  const int64_t steps = (int64_t{1} << 32) / static_cast<int64_t>(classes_.size());
  const auto step = static_cast<int64_t>(std::min(start / kTokensAStep, static_cast<double>(steps - 1)));
  return static_cast<int32_t>(INT32_MAX - rank * steps - step);
}

void Shares::Share::begin() {
  if (begun_) return;
  begun_ = true;
  --account_.waiting;
  --class_.waiting;
  ++account_.running;
  class_.time = std::max(class_.time, start_);
}

void Shares::Share::take_prompt(int64_t tokens, int64_t cached_tokens) {
  account_.prompt_tokens += static_cast<uint64_t>(tokens);
  account_.cached_tokens += static_cast<uint64_t>(cached_tokens);
  taken_ += static_cast<double>(tokens - cached_tokens) / tokens_a_time_;
}

void Shares::Share::take_generated(int64_t tokens) {
  account_.generated_tokens += static_cast<uint64_t>(tokens);
  taken_ += static_cast<double>(tokens) / tokens_a_time_;
}

Shares::Share::~Share() {
  if (begun_) {
    --account_.running;
  } else {
    --account_.waiting;
    --class_.waiting;
  }
  account_.time += taken_ - asked_;
}

}  // namespace kaiju::server
