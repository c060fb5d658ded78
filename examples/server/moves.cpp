// See moves.hpp. Joining, leaving and the routes are in moves_fleet.cpp.
#include "moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <climits>

#include "failure.hpp"
#include "reply.hpp"
#include "step_turns.hpp"

namespace kaiju::server {

namespace {

constexpr auto kStepLook = std::chrono::milliseconds(2);
constexpr size_t kMostWishes = 16384;

Scope scope_of(const Region& region) {
  Scope scope;
  scope.character = region.character;
  scope.shared_tokens = static_cast<int32_t>(region.tokens.size());
  return scope;
}

WantedKv wanted_of(const Region& region) { return {region.tokens, scope_of(region)}; }

}  // namespace

Moves::Moves(Service& service, Peers& peers, const Options& options)
    : service_(service),
      peers_(peers),
      kv_(service, peers),
      options_(options),
      popular_(options.hot_share),
      signal_(service.io, asio::steady_timer::time_point::max()) {
  asio::co_spawn(service.io, work(), asio::detached);
}

void Moves::count(const std::string& what, const std::string& how, size_t bytes) {
  ++counts_.moves[{what, how}];
  counts_.bytes_in += bytes;
}

// --- a request

asio::awaitable<void> Moves::bring(Seat at, Scope scope, std::vector<int32_t> prompt, std::string chat, size_t turns) {
  if (!peers_.any()) co_return;
  const size_t shared = std::min(static_cast<size_t>(scope.shared_tokens), prompt.size());
  Region region;
  region.character = scope.character;
  region.tokens.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(shared));
  const bool new_region = !region.character.empty() && !popular_.knows(region.character);
  if (popular_.note(region)) asio::co_spawn(service_.io, tell(region, ""), asio::detached);
  const auto known = chats_.find(chat);
  const bool new_chat = !chat.empty() && turns > 0 && (known == chats_.end() || known->second.turns < turns);
  if (peers_.addresses().empty() || !(new_region || new_chat) || at.served() != service_.checkpoints.current())
    co_return;
  WantedKv wanted;
  wanted.tokens = std::move(prompt);
  wanted.scope = std::move(scope);
  (void)co_await kv_.fetch(std::move(at), std::move(wanted), "", new_chat ? "history" : "character");
}

asio::awaitable<void> Moves::bring_history(std::vector<std::string> names, Scope scope) {
  if (peers_.addresses().empty() || names.empty()) co_return;
  const auto unknown = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return service_.transcripts.find_named(name) != nullptr;
  });
  names.erase(unknown, names.end());
  if (!names.empty()) (void)co_await kv_.fetch_history(std::move(names), std::move(scope));
}

void Moves::replied(const std::string& chat, size_t turns, WantedKv kv) {
  if (!peers_.any()) return;
  const auto [at, added] = chats_.try_emplace(chat);
  if (!added) newest_.erase(at->second.place);
  newest_.push_front(chat);
  at->second = {std::move(kv), turns, newest_.begin()};
  if (chats_.size() <= kMostChats) return;
  chats_.erase(newest_.back());
  newest_.pop_back();
}

void Moves::forget(const std::string& chat) {
  const auto found = chats_.find(chat);
  if (found == chats_.end()) return;
  newest_.erase(found->second.place);
  chats_.erase(found);
}

// --- regions that shall be in the cache

void Moves::wish(Wish wish) {
  const auto same = [&](const Wish& one) {
    return !one.first &&
           ((!wish.card.empty() && one.card == wish.card) || one.region.character == wish.region.character);
  };
  if (!wish.first) std::erase_if(wishes_, same);
  if (wishes_.size() >= kMostWishes) return;
  wishes_.push_back(std::move(wish));
  signal_.cancel();
}

asio::awaitable<void> Moves::work() {
  for (;;) {
    if (wishes_.empty()) {
      boost::system::error_code cancelled;
      co_await signal_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
      continue;
    }
    Wish next = std::move(wishes_.front());
    wishes_.pop_front();
    const bool first = next.first;
    try {
      co_await fulfil(std::move(next));
    } catch (const std::exception&) {  // it is computed when a request needs it
    } catch (const Failure&) {
    }
    if (first) --warm_left_;
  }
}

asio::awaitable<void> Moves::fulfil(Wish wish) {
  const Seat at = service_.checkpoints.home(wish.region.character);
  const WantedKv wanted = wanted_of(wish.region);
  const auto all = static_cast<int32_t>(wanted.tokens.size());
  if (co_await KvExchange::cached(at, wanted) >= all) {
    count("character", "here");
  } else {
    bool fetched = false;
    if (!peers_.addresses().empty()) fetched = co_await kv_.fetch(at, wanted, wish.from, "character");
    if (!fetched || co_await KvExchange::cached(at, wanted) < all)
      count("character", co_await compute(at, wish.region) ? "computed" : "failed");
  }
  if (wish.tells && peers_.any()) co_await tell(wish.region, wish.card);
}

asio::awaitable<bool> Moves::compute(Seat at, const Region& region) {
  const size_t part = static_cast<size_t>(std::max(at->engine().info().step_tokens / 4, 32));
  Clock::duration took{};
  for (size_t done = 0; done < region.tokens.size();) {
    co_await wait_for_idle_step(took);
    const Clock::time_point begin = Clock::now();
    done = std::min(done + part, region.tokens.size());
    RequestOptions options;
    options.max_tokens = 0;
    options.priority = INT32_MIN;
    options.scope = scope_of(region);
    options.scope.shared_tokens = static_cast<int32_t>(done);
    const auto events = std::make_shared<ReplyEvents>(service_.io, nullptr);
    const auto request = at.driver().submit(std::span(region.tokens).first(done), options, events);
    if (!request.ok()) co_return false;
    bool ended = false;
    while (!ended) {
      const std::deque<Event> taken = co_await events->take();
      if (taken.back().kind == EventKind::kFailed) co_return false;
      ended = taken.back().kind == EventKind::kDone;
    }
    took = Clock::now() - begin;
  }
  co_return true;
}

// At once while nothing is computed, else now and then.
asio::awaitable<void> Moves::wait_for_idle_step(Clock::duration took) {
  const Clock::time_point until = Clock::now() + kBesideFactor * took;
  asio::steady_timer timer(service_.io);
  while (service_.checkpoints.unfinished() > 0 && Clock::now() < until) {
    timer.expires_after(kStepLook);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

}  // namespace kaiju::server
