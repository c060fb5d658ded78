// StoredChats: what the routes of characters, chats and reports share: the store, the owners of chats, and which chats
// have a reply that is being written. Everything here lives on the I/O thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chats.hpp"
#include "kept_kv.hpp"
#include "openai.hpp"
#include "service.hpp"
#include "store/store.hpp"
#include "store_thread.hpp"

namespace kaiju::server {

// A chat as the store has it, its texts encoded by this model's tokenizer.
struct LoadedChat {
  std::string owner, id;
  Chat chat;
  Cast cast;
};

// The chats whose reply is being written, with the runs that write them.
class BusyChats {
 public:
  bool contains(const std::string& id) const { return runs_.contains(id); }
  // Cancels the reply of a chat that is being written. Whether there was one.
  bool cancel(const std::string& id) const;
  // Throws Failure where a reply of the chat is being written.
  void check_idle(const std::string& id) const;

  // The chat is busy while this lives, or until end(). The run must live as long.
  class Mark {
   public:
    Mark(BusyChats& busy, std::string id, const Run& run);
    ~Mark() { end(); }
    Mark(const Mark&) = delete;
    void end();

   private:
    BusyChats& busy_;
    std::string id_;
    const Run& run_;
  };

 private:
  std::map<std::string, const Run*> runs_;
};

class StoredChats {
 public:
  // `keys`: chats belong to the keys that made them, else to everybody. `kv` may be nullptr: none is kept.
  StoredChats(Service& service, std::unique_ptr<Store> store, bool keys, KeptKv* kv)
      : service(service), store(std::move(store)), keys(keys), kv(kv) {}
  // Waits for the store. Nothing may be asked for after that.
  void join() { store.join(); }

  using Route = asio::awaitable<void> (*)(StoredChats&, Exchange&);
  // Adds a route to the server. Its requests need a known key if the server has keys.
  void route(const char* method, const char* path, Route handler);

  const ChatFormat& format() const { return service.chat(); }
  size_t context() const { return service.checkpoints.current()->context(); }
  // The checkpoint that writes a chat's next reply.
  Seat place(const LoadedChat& loaded) const;
  std::string owner(const Exchange& exchange) const { return keys ? service.tenants.of(exchange).name : ""; }

  // The chat that the path names. Throws Failure where its owner has none of this id.
  asio::awaitable<LoadedChat> load(Exchange& exchange);
  // Likewise, to change it: throws Failure where a reply of it is being written.
  asio::awaitable<LoadedChat> load_idle(Exchange& exchange);
  asio::awaitable<Cast> load_cast(std::vector<ChatCharacter> wanted, std::string user);
  Service& service;
  StoreThread store;
  const bool keys;
  KeptKv* const kv;
  BusyChats busy;

 private:
  void tell_foreign(const std::string& id);

  bool told_foreign_ = false;
};

// The one parameter that a query may have, a whole number.
int64_t query_number(const Exchange& exchange, const std::string& name, int64_t otherwise);
// Throws Failure for a body that has fields.
void refuse_fields(const Exchange& exchange);
// The first words of a text, whole characters.
std::string title_of(std::string text);
// {"name": value}. GCC 12 does not compile lists in braces inside a coroutine.
nlohmann::ordered_json one_field(const char* name, nlohmann::ordered_json value);

}  // namespace kaiju::server
