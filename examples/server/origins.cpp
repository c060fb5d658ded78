#include "origins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>

#include "failure.hpp"

namespace kaiju::server {

namespace {

bool equal(const std::string& a, const std::string& b) { return boost::beast::iequals(a, b); }

bool has(const std::vector<std::string>& list, const std::string& one) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& other) { return equal(other, one); });
}

// "localhost:8080" and "[::1]:8080" without their port.
std::string without_port(const std::string& host) {
  const size_t end = host.starts_with('[') ? host.find(']') : host.find(':');
  if (end == std::string::npos) return host;
  return host.substr(0, host.starts_with('[') ? end + 1 : end);
}

// "https://chat.example:8443" without its scheme: a proxy may speak TLS for us. "null" stays.
std::string without_scheme(const std::string& origin) {
  const size_t end = origin.find("://");
  return end == std::string::npos ? origin : origin.substr(end + 3);
}

}  // namespace

void Origins::check(const Exchange& exchange) const {
  const std::string host = exchange.header("host"), origin = exchange.header("origin");
  if (!any_host_ && !host.empty()) check_host(without_port(host));
  if (origin.empty() || equal(without_scheme(origin), host) || has(origins_, origin)) return;
  throw Failure{403,
                fmt::format("a page of {} may not ask this server, {}; --allow-origin {} lets it",
                            origin.substr(0, 100), host.substr(0, 100), origin.substr(0, 100)),
                {},
                "foreign_origin"};
}

void Origins::check_host(const std::string& host) const {
  if (equal(host, "localhost") || is_loopback(host) || has(hosts_, host)) return;
  throw Failure{403,
                fmt::format("this server is for its own machine and does not answer to the name {}; --allow-host {} "
                            "lets it",
                            host.substr(0, 100), host.substr(0, 100)),
                {},
                "foreign_host"};
}

bool is_loopback(const std::string& address) {
  const bool bracketed = address.starts_with('[') && address.ends_with(']');
  boost::system::error_code wrong;
  const auto read = boost::asio::ip::make_address(bracketed ? address.substr(1, address.size() - 2) : address, wrong);
  return !wrong && read.is_loopback();
}

}  // namespace kaiju::server
