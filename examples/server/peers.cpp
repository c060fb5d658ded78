// See peers.hpp.
#include "peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "failure.hpp"
#include "together.hpp"

namespace kaiju::server {

namespace beast = boost::beast;
using asio::ip::tcp;

namespace peer_places {

struct Place {
  std::string host, port;
};

}  // namespace peer_places

namespace {

using peer_places::Place;

constexpr auto kSilence = std::chrono::seconds(5);  // a peer that did not answer is not asked for so long
constexpr uint64_t kMostAnswerBytes = uint64_t{1} << 32;
constexpr std::string_view kScheme = "http://";

// "http://10.0.0.8:8080", "http://[::1]:8080".
Place place_of(std::string_view address) {
  const std::string_view rest = address.substr(std::min(address.size(), kScheme.size()));
  const size_t colon = rest.rfind(':');
  if (!address.starts_with(kScheme) || colon == std::string_view::npos || colon == 0 || colon + 1 == rest.size() ||
      rest.substr(colon).find_first_not_of("0123456789", 1) != std::string_view::npos)
    throw std::runtime_error(
        fmt::format("--peer {}: give scheme, address and port, such as http://10.0.0.8:8080", address));
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {std::string(host), std::string(rest.substr(colon + 1))};
}

std::string key_in(const std::string& file) {
  if (file.empty()) return {};
  std::ifstream in(file, std::ios::binary);
  const std::string key(std::istreambuf_iterator<char>(in), {});
  if (key.size() < kLeastKeyBytes || key.size() > kMostKeyBytes)
    throw std::runtime_error(fmt::format("--peer-key {}: {}: head -c 32 /dev/urandom > FILE makes one for all servers",
                                         file, in ? "must have 16 to 1024 bytes" : "cannot be read"));
  return key;
}

// Takes as long wherever the two differ.
bool same(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace

Peers::Peers(asio::io_context& io, std::vector<std::string> addresses, const std::string& key_file)
    : io_(io), addresses_(std::move(addresses)), key_(key_in(key_file)) {
  for (const std::string& address : addresses_) (void)place_of(address);
}

Sealer Peers::sealer() const { return make_sealer(key_).value(); }

std::string Peers::word_of(const std::string& what) const {
  SealTag tag{};
  (void)sealer()(std::as_bytes(std::span(what)), tag);
  std::string word;
  for (const std::byte byte : tag) word += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return word;
}

void Peers::check(const Exchange& exchange) const {
  if (!same(exchange.header("x-kaiju-peer"), word_of("requests")))
    throw Failure{403,
                  "only servers of this fleet may ask this: start the one that asks with the same --peer-key",
                  {},
                  "not_a_peer"};
}

std::string Peers::sender(const Exchange& exchange) {
  const bool is_v6 = exchange.peer.find(':') != std::string::npos;
  return fmt::format("{}{}:{}", kScheme, is_v6 ? "[" + exchange.peer + "]" : exchange.peer,
                     exchange.header("x-kaiju-port"));
}

asio::awaitable<PeerAnswer> Peers::exchange(std::string peer, http::request<http::string_body> request,
                                            double seconds) {
  PeerAnswer answer;
  answer.peer = peer;
  try {
    const Place place = place_of(peer);
    tcp::resolver resolver(io_);
    beast::tcp_stream stream(io_);
    stream.expires_after(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
    const auto found = co_await resolver.async_resolve(place.host, place.port, asio::use_awaitable);
    (void)co_await stream.async_connect(found, asio::use_awaitable);
    (void)co_await http::async_write(stream, request, asio::use_awaitable);
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMostAnswerBytes);
    beast::flat_buffer buffer;
    (void)co_await http::async_read(stream, buffer, parser, asio::use_awaitable);
    answer.status = static_cast<int>(parser.get().result_int());
    answer.body = std::move(parser.get().body());
  } catch (const std::exception&) {  // it is as if it had nothing
  }
  co_return answer;
}

asio::awaitable<PeerAnswer> Peers::ask(std::string peer, std::string method, std::string path, nlohmann::json body,
                                       double seconds) {
  http::request<http::string_body> request{http::string_to_verb(method), path, 11};
  request.set(http::field::host, peer.substr(kScheme.size()));
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  request.set("x-kaiju-peer", word_of("requests"));
  request.set("x-kaiju-port", std::to_string(port_));
  if (!body.is_null()) request.body() = body.dump();
  request.prepare_payload();
  PeerAnswer answer = co_await exchange(peer, std::move(request), seconds);
  if (answer.status == 0)
    silent_until_[peer] = Clock::now() + kSilence;
  else
    silent_until_.erase(peer);
  co_return answer;
}

asio::awaitable<void> Peers::add(std::vector<PeerAnswer>& to, asio::awaitable<PeerAnswer> answer) {
  to.push_back(co_await std::move(answer));
}

asio::awaitable<std::vector<PeerAnswer>> Peers::ask_all(std::string method, std::string path, nlohmann::json body,
                                                        double seconds) {
  std::vector<PeerAnswer> answers;
  Together asked(io_);
  for (const std::string& peer : addresses_) {
    const auto silent = silent_until_.find(peer);
    if (silent == silent_until_.end() || Clock::now() >= silent->second)
      asked.start(add(answers, ask(peer, method, path, body, seconds)));
  }
  co_await asked.wait();
  co_return answers;
}

}  // namespace kaiju::server
