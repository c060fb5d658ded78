// Peers: the other servers of a fleet, as this one asks them over HTTP.
//
// All of them have one secret, the peer key. It is never sent: requests carry a word that is made of it, and the KV
// that moves is sealed with it, so that a machine without the key can neither ask for KV nor give wrong KV. Everything
// here lives on the I/O thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "http.hpp"
#include "kaiju/kaiju.hpp"

namespace kaiju::server {

struct PeerAnswer {
  int status = 0;  // of HTTP; 0: it did not answer
  std::string peer, body;
};

class Peers {
 public:
  // `addresses`: "http://10.0.0.8:8080" each. `key_file`: at least kLeastKeyBytes bytes; empty: there is no fleet.
  // Throws std::runtime_error that names the option.
  Peers(asio::io_context& io, std::vector<std::string> addresses, const std::string& key_file);

  bool any() const { return !key_.empty(); }
  const std::vector<std::string>& addresses() const { return addresses_; }
  Sealer sealer() const;
  // A secret that all servers of the fleet have, and nobody else; for the salts of KV.
  std::string secret() const { return word_of("salts"); }
  // Throws Failure where a request does not come from a server of the fleet.
  void check(const Exchange& exchange) const;
  // Where the server that sent a request is asked back.
  static std::string sender(const Exchange& exchange);
  // The port at which this server is asked back.
  void set_port(uint16_t port) { port_ = port; }

  // Asks one of them, for `seconds` at most. Never throws.
  asio::awaitable<PeerAnswer> ask(std::string peer, std::string method, std::string path, nlohmann::json body,
                                  double seconds);
  // Asks all at once but those that did not answer a moment ago, and waits for all.
  asio::awaitable<std::vector<PeerAnswer>> ask_all(std::string method, std::string path, nlohmann::json body,
                                                   double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  std::string word_of(const std::string& what) const;
  static asio::awaitable<void> add(std::vector<PeerAnswer>& to, asio::awaitable<PeerAnswer> answer);
  asio::awaitable<PeerAnswer> exchange(std::string peer, http::request<http::string_body> request, double seconds);

  asio::io_context& io_;
  const std::vector<std::string> addresses_;
  std::string key_;
  uint16_t port_ = 0;
  std::map<std::string, Clock::time_point> silent_until_;
};

}  // namespace kaiju::server
