// Transcripts: clients that send the whole chat each time get the tokens that the model generated, not the tokens of
// its text.
//
// Tokenizing a reply's text again need not give the reply's tokens, and from the first different token on all KV has to
// be computed anew. So after each reply the tokens of the whole history are kept under a name of the messages that led
// to it; a request whose messages begin with those continues these tokens. Where nothing is kept (a server that was
// started again, a client that edits), the messages are formatted as they are.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kaiju/kaiju.hpp"

namespace kaiju::server {

struct Message {
  ChatRole role = ChatRole::kUser;
  std::string text, name;
};

class Transcripts {
 public:
  explicit Transcripts(size_t most_tokens) : most_tokens_(most_tokens) {}

  // The history that ended with a reply, and how the reply ended.
  struct Kept {
    std::vector<int32_t> tokens;
    bool stopped = false;    // its last token is a stop token
    std::string checkpoint;  // that wrote the reply
    Scope scope = {};        // of the request
    int later = 0;           // replies that a kept history has after this one; 2: or more
  };

  // `whose`: the salt, so that nobody is given somebody else's tokens. The reply is the last of `messages`.
  void keep(const std::string& whose, std::span<const Message> messages, Kept kept);
  // The longest kept history that `messages` begin with, and how many messages it has; nullptr: none.
  const Kept* find(const std::string& whose, std::span<const Message> messages, size_t& count);

  // For other servers: names of the histories that `messages` begin with and that end with a reply, the longest first,
  // as 32 hexadecimal digits; what is kept under such a name, or nullptr; and that which others kept.
  static std::vector<std::string> names_in_hex(const std::string& whose, std::span<const Message> messages);
  const Kept* find_named(const std::string& name);
  void keep_named(const std::string& name, Kept kept);
  // At most so many of the histories that were used last, the newest first: those that no later one goes on from, and
  // the ones before these, of which a swipe makes another reply.
  std::vector<std::pair<std::string, const Kept*>> newest(size_t most) const;

 private:
  struct Name {
    uint64_t low = 0, high = 0;
    bool operator==(const Name&) const = default;
  };
  struct Hash {
    size_t operator()(const Name& name) const { return name.low; }
  };
  static std::string hex(const Name& name);
  static Name named(const std::string& hex);
  void keep(const Name& name, Kept kept);
  // Names of the first 1, 2, ... messages. White space around a text does not count: clients trim it.
  static std::vector<Name> names(const std::string& whose, std::span<const Message> messages);

  struct Entry {
    Name name;
    Kept kept;
  };
  size_t most_tokens_, held_ = 0;
  std::list<Entry> entries_;  // the newest first
  std::unordered_map<Name, std::list<Entry>::iterator, Hash> by_name_;
};

}  // namespace kaiju::server
