// SessionCaches: the KV that sessions keep between turns, and which of it goes first when others need the room.
// What the host sees of a session (its history) is in engine/desk.hpp; the two meet by comparing tokens, so a host may edit its history at
// will: whatever still agrees is found again, and nothing else can be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "kaiju/cache/table.hpp"
#include "kaiju/engine/request.hpp"

namespace kaiju {

struct SessionCache {
  std::vector<int32_t> tokens;  // whose KV the tables hold: tables.written() of each kind is at most this many
  Tables tables;
  bool running = false;                       // a request computes on it; else it is idle and may be dropped
  std::list<SessionId>::iterator idle_place;  // while idle

  // Tokens at the beginning of `other` that are here too.
  int32_t common_prefix(const std::vector<int32_t>& other) const {
    return static_cast<int32_t>(std::mismatch(tokens.begin(), tokens.end(), other.begin(), other.end()).first - tokens.begin());
  }
};

// Records stay where they are while they exist. One thread at a time.
class SessionCaches {
 public:
  explicit SessionCaches(Cache& cache) : cache_(cache) {}

  SessionCache* find(SessionId session) {
    const auto found = records_.find(session);
    return found == records_.end() ? nullptr : &found->second;
  }
  // The record of a session, idle and the last to be dropped; empty if there was none.
  SessionCache& touch(SessionId session) {
    const auto [place, added] = records_.try_emplace(session);
    SessionCache& record = place->second;
    if (added) {
      try {
        record.idle_place = idle_.insert(idle_.end(), session);
      } catch (...) {
        records_.erase(place);
        throw;
      }
    } else if (!record.running) {
      idle_.splice(idle_.end(), idle_, record.idle_place);
    }
    return record;
  }
  void start(SessionCache& record) {
    record.running = true;
    parked_.splice(parked_.end(), idle_, record.idle_place);
  }
  void stop(SessionCache& record) {
    record.running = false;
    idle_.splice(idle_.end(), parked_, record.idle_place);
  }

  // The child shares what the parent holds of its first `length` tokens.
  void fork(SessionId parent, SessionId child, int32_t length) {
    const SessionCache* from = find(parent);
    if (!from) return;
    SessionCache& to = touch(child);
    to.tokens.assign(from->tokens.begin(), from->tokens.begin() + std::min<std::ptrdiff_t>(length, std::ssize(from->tokens)));
    to.tables.fork(cache_, from->tables, length);
  }

  // Drops the KV of an idle session. Its next turn computes it again.
  void drop(SessionId session) {
    const auto found = records_.find(session);
    if (found == records_.end() || found->second.running) return;
    found->second.tables.clear(cache_);
    idle_.erase(found->second.idle_place);
    records_.erase(found);
  }
  // Drops the idle session used longest ago, but not `except`. False when there is none.
  bool drop_oldest(SessionId except) {
    for (const SessionId session : idle_) {
      if (session == except) continue;
      drop(session);
      return true;
    }
    return false;
  }
  // Blocks that would surely become free if all idle sessions but `except` were dropped (those shared among them are not counted).
  int32_t droppable(BlockKind kind, SessionId except) const {
    int32_t count = 0;
    for (const SessionId session : idle_)
      if (session != except) count += records_.at(session).tables.own_count(cache_, kind);
    return count;
  }

  const std::unordered_map<SessionId, SessionCache>& records() const { return records_; }

 private:
  Cache& cache_;
  std::unordered_map<SessionId, SessionCache> records_;
  std::list<SessionId> idle_;    // least recently used first
  std::list<SessionId> parked_;  // list places of running sessions
};

}  // namespace kaiju
