// Moves: a machine of a fleet joins, leaves, and helps when a character is suddenly everybody's, with warm caches.
//
//   A request     for a chat or a character that is new to this server brings the KV that a peer has of it.
//   Joining       computes or brings the peers' most used characters; /health answers 503 until that is done.
//   Leaving       tells peers of the chats that were used last, and they bring the KV before this server ends.
//   A hot one     peers bring a character's KV before the router sends them any of its requests.
//   An edit       the next version of a card is computed before its first chat needs it; of many edits, the newest.
//
// What is computed for nobody is computed in idle steps. Everything here lives on the I/O thread.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv_exchange.hpp"
#include "peers.hpp"
#include "popular.hpp"

namespace kaiju::server {

// A region that shall be in the cache.
struct Wish {
  Region region;
  std::string from = {};  // the peer that has it; empty: any
  std::string card = {};  // id of the character of which it is the newest version; an earlier wish for that one goes
  bool tells = false;     // peers are told when it is there
  bool first = false;     // /health says 503 until it is there
};

class Moves {
 public:
  static constexpr size_t kMostChats = 4096;  // that are handed over, of the store and others, each

  struct Options {
    size_t warm = 0;         // characters that a server has in its cache before it takes requests
    double hot_share = 0.1;  // of a server's requests
  };
  // The store's characters, as regions, at most so many.
  using StoreRegions = std::function<asio::awaitable<std::vector<Region>>(size_t most)>;

  Moves(Service& service, Peers& peers, const Options& options);

  // Before a request begins: counts it, and brings what peers have if it is new here. `chat`: the store's id of its
  // chat, whose KV this server has when it has answered the turn before; empty: the chat's KV is not looked for.
  asio::awaitable<void> bring(Seat at, Scope scope, std::vector<int32_t> prompt, std::string chat, size_t turns);
  // Likewise, of a chat over OpenAI's API: its transcript.
  asio::awaitable<void> bring_history(std::vector<std::string> names, Scope scope);
  // A reply to a stored chat's turn has ended: it has so many turns now.
  void replied(const std::string& chat, size_t turns, WantedKv kv);
  // The chat was deleted.
  void forget(const std::string& chat);
  void wish(Wish wish);

  // Begins at once; `store` may be empty.
  void join(StoreRegions store);
  // Until peers have the newest chats, at most until `until`.
  asio::awaitable<void> leave(std::chrono::steady_clock::time_point until);
  // Throws Failure 503 while it joins.
  void check_ready() const;
  size_t warm_left() const { return warm_left_; }
  size_t hot_count() const { return popular_.hot_count(); }
  const MoveCounts& counts() const { return counts_; }
  void count(const std::string& what, const std::string& how, size_t bytes = 0);
  void count_given(size_t bytes) { counts_.bytes_out += bytes; }

  // GET /peers/characters, POST /peers/warm, POST /peers/kv.
  void add_routes(Server& server);

 private:
  using Clock = std::chrono::steady_clock;
  using NamedChats = std::vector<std::pair<std::string, nlohmann::json>>;  // as peers are told of them
  struct Chat {
    WantedKv kv;
    size_t turns = 0;
    std::list<std::string>::iterator place;
  };

  asio::awaitable<void> work();
  asio::awaitable<void> fulfil(Wish wish);
  asio::awaitable<bool> compute(Seat at, const Region& region);
  asio::awaitable<void> wait_for_idle_step(Clock::duration took);
  asio::awaitable<void> begin_joining(StoreRegions store);
  asio::awaitable<void> tell(Region region, std::string card);
  asio::awaitable<void> hand_over(std::string peer, NamedChats& chats, Clock::time_point until);
  NamedChats newest_chats() const;
  asio::awaitable<void> take_chat(const nlohmann::json& chat, std::string from);
  asio::awaitable<void> answer_characters(Exchange& exchange);
  asio::awaitable<void> answer_warm(Exchange& exchange);

  Service& service_;
  Peers& peers_;
  KvExchange kv_;
  const Options options_;
  Popular popular_;
  std::deque<Wish> wishes_;
  asio::steady_timer signal_;  // that there is a wish
  bool joining_ = false;       // peers are asked for their characters
  size_t warm_left_ = 0, warm_all_ = 0;
  Clock::time_point joined_at_most_{};
  std::unordered_map<std::string, Chat> chats_;  // of the store, that this server answered last
  std::list<std::string> newest_;                // their ids
  MoveCounts counts_;
};

}  // namespace kaiju::server
