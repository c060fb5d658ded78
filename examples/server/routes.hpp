// The routes of characters, chats and reports, and the characters that a new store is given.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "popular.hpp"
#include "stored_chats.hpp"

namespace kaiju::server {

void add_character_routes(StoredChats& chats);  // /characters
void add_chat_routes(StoredChats& chats);       // /chats, but for those that generate
void add_reply_routes(StoredChats& chats);      // /chats/{}/say, swipe and stop
void add_report_routes(StoredChats& chats);     // /chats/{}/report, /reports

// The newest versions of the store's characters, those that were made last first, as regions (popular.hpp).
std::function<asio::awaitable<std::vector<Region>>(size_t most)> store_regions(StoredChats& chats);

// /checkpoints; `chats`: whose characters a candidate computes first, null where there is no store.
void add_checkpoint_routes(Server& server, Service& service, StoredChats* chats);

struct BundledCard {
  std::string file, bytes;
};
// Puts characters into a store that has none. Throws Failure that names the card's file.
void add_bundled_characters(Store& store, const Service& service, const std::vector<BundledCard>& cards);

}  // namespace kaiju::server
