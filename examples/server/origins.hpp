// Origins: which pages of browsers may ask.
//
// A browser sends requests for any web site that its user looks at, also to a server that only this machine can reach.
// A request from a page names the page's origin, and has to come from our own. A site can also have its name lead to
// this machine: so a server for this machine alone, without keys, answers to names of this machine only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "http.hpp"

namespace kaiju::server {

class Origins {
 public:
  // `origins`: more pages that may ask, "https://chat.example". `hosts`: more names to answer to, "chat.example".
  // `any_host`: to every name.
  Origins(std::vector<std::string> origins, std::vector<std::string> hosts, bool any_host)
      : origins_(std::move(origins)), hosts_(std::move(hosts)), any_host_(any_host) {}

  // Throws Failure 403.
  void check(const Exchange& exchange) const;

 private:
  void check_host(const std::string& host) const;

  std::vector<std::string> origins_, hosts_;
  bool any_host_;
};

// An address that only this machine reaches.
bool is_loopback(const std::string& address);

}  // namespace kaiju::server
