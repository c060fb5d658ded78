// KvExchange: gives KV of this server's cache to peers, and brings theirs into it.
//
// What is given is a saved session (docs/cache.md) after a line of JSON that says what it is; both are sealed with the
// peer key. A saved session names the checkpoint, the arithmetic, the scale epoch and all tokens, so KV of anything
// else is refused, and so is a body that was changed or cut off. What is refused is computed instead.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "peers.hpp"
#include "service.hpp"

namespace kaiju::server {

// Tokens whose KV is wanted, and the scope of the requests that use it.
struct WantedKv {
  std::vector<int32_t> tokens;
  Scope scope;
};

// A chat over OpenAI's API: what its next request has to know beside the KV.
struct KnownReply {
  std::string name;  // of the history that ends with it (transcripts.hpp); empty: the chat is one of the store
  bool stopped = false;
  std::string checkpoint;
};

class KvExchange {
 public:
  KvExchange(Service& service, Peers& peers) : service_(service), peers_(peers) {}

  // How many of the tokens a request of the scope would find now.
  static asio::awaitable<int32_t> cached(Seat at, WantedKv wanted);
  // Brings what the peer `from` has, or what the peer with the most has, if that is at least `least` tokens. Whether
  // anything came. `least` 0: all that is missing, if it is worth a copy.
  asio::awaitable<bool> fetch(Seat at, WantedKv wanted, std::string from, const char* what);
  // Brings the longest of these histories that a peer has, and its transcript. `scope`: without the shared region.
  asio::awaitable<bool> fetch_history(std::vector<std::string> names, Scope scope);

  // POST /peers/kv.
  asio::awaitable<void> give(Exchange& exchange);

  // A scope and its tokens as JSON, without the secret of its salt, and back.
  nlohmann::json json_of(const WantedKv& wanted) const;
  WantedKv wanted_in(const Fields& fields) const;

 private:
  struct Given;
  asio::awaitable<Seat> holder(WantedKv wanted);
  asio::awaitable<std::string> saved(Seat at, const WantedKv& wanted, nlohmann::json head, int32_t least);
  asio::awaitable<bool> restore(Seat at, const PeerAnswer& answer, Given& given);

  Service& service_;
  Peers& peers_;
};

}  // namespace kaiju::server
