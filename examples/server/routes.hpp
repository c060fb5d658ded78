// ChatRoutes: /characters, /chats and /reports, with the store behind them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kept_kv.hpp"
#include "service.hpp"
#include "store/store.hpp"

namespace kaiju::server {

class ChatRoutes {
 public:
  // `keys`: chats belong to the keys that made them, else to everybody. `kv` may be nullptr.
  ChatRoutes(Service& service, std::unique_ptr<Store> store, bool keys, KeptKv* kv);
  ~ChatRoutes();
  void add(Server& server);
  // Waits for the store. Nothing may be asked for after that.
  void join();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct BundledCard {
  std::string file, bytes;
};
// Puts characters into a store that has none. Throws Failure that names the card's file.
void add_bundled_characters(Store& store, const Service& service, const std::vector<BundledCard>& cards);

}  // namespace kaiju::server
