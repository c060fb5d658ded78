// SessionBooks: what the scheduler remembers of a session between turns. The KV itself is the cache's, found again by
// comparing tokens, so a host may edit a history at will: whatever still agrees is found, and nothing else can be.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kaiju/cache/known_path.hpp"
#include "kaiju/cache/prefix_tree.hpp"
#include "kaiju/engine/request.hpp"

namespace kaiju {

struct SessionBook {
  SessionId family = 0;  // the session it was first forked from, or itself: they share what no salt says otherwise
  DomainId shared = kNoDomain;  // those of its last request, held until the next one's: a character's version stays
                                // while sessions use it
  DomainId own = kNoDomain;
  int32_t shared_tokens = 0;  // of its last request
  DomainId family_domain = kNoDomain;
  NodeId pinned = kNoNode;                 // the end of the path that is pinned for it
  std::deque<std::vector<NodeRef>> turns;  // resume points of its newest turns, newest last
};

// One thread at a time.
class SessionBooks {
 public:
  explicit SessionBooks(PrefixTree& tree) : tree_(tree) {}

  void open(SessionId session) { (void)book(session); }
  // The child shares its parent's family.
  void fork(SessionId parent, SessionId child) {
    const SessionId family = book(parent).family;
    SessionBook& to = books_[child];
    to.family = family;
    to.family_domain = tree_.domains().hold(DomainKind::kSession, std::to_string(family), tree_.namer());
  }
  // Looks the scope up; the session holds its domains until the next call or close.
  Regions regions(SessionId session, const Scope& scope) {
    SessionBook& to = book(session);
    const ShareId of_character = tree_.shares().find(ShareOf::kCharacter, scope.character),
                  of_tenant = tree_.shares().find(ShareOf::kTenant, scope.tenant);
    const DomainId shared = tree_.domains().hold(DomainKind::kShared, scope.character, tree_.namer(), of_character);
    const DomainId own =
        scope.salt.empty()
            ? tree_.domains().hold(DomainKind::kSession, std::to_string(to.family), tree_.namer(), of_tenant)
            : tree_.domains().hold(DomainKind::kSalt, scope.salt, tree_.namer(), of_tenant);
    release(to);
    to.shared = shared;
    to.own = own;
    to.shared_tokens = scope.shared_tokens;
    return {shared, scope.shared_tokens, own};
  }
  // The domains of the session's last request, to be compared with others; own is kNoDomain before the first.
  Regions regions_before(SessionId session) {
    const SessionBook& of = book(session);
    return {of.shared, of.shared_tokens, of.own};
  }
  // The same domains as for the session's last request; its family's before the first.
  Regions regions_of_last_request(SessionId session) {
    const SessionBook& of = book(session);
    return {of.shared, of.shared_tokens, of.own != kNoDomain ? of.own : of.family_domain};
  }
  // What is known of the session's history, in the domains of its last request, or else of its family.
  KnownPath known_path(SessionId session, std::span<const int32_t> tokens) const {
    const auto found = books_.find(session);
    if (found == books_.end()) return {};
    const SessionBook& of = found->second;
    return KnownPath::find(tree_, of.shared, of.own != kNoDomain ? of.own : of.family_domain, tokens);
  }
  // Pins the path that ends with `tip` for the session, in place of another that was; kNoNode: none.
  void pin(SessionId session, NodeId tip) {
    NodeId& pinned = book(session).pinned;
    if (tip != kNoNode) tree_.pin(tip);
    if (pinned != kNoNode) tree_.unpin(pinned);
    pinned = tip;
  }
  NodeId pinned(SessionId session) { return book(session).pinned; }
  // The resume points of a turn that ended; those of older turns stop being kept for it.
  void turn_ended(SessionId session, std::vector<NodeRef> points) {
    const auto found = books_.find(session);
    if (found == books_.end() || tree_.retention().turns == Retention::kAllTurns) return;
    std::deque<std::vector<NodeRef>>& turns = found->second.turns;
    turns.push_back(std::move(points));
    while (std::ssize(turns) > tree_.retention().turns) {
      for (const NodeRef& point : turns.front()) tree_.drop_point(point);
      turns.pop_front();
    }
  }
  void close(SessionId session) {
    const auto found = books_.find(session);
    if (found == books_.end()) return;
    if (found->second.pinned != kNoNode) tree_.unpin(found->second.pinned);
    release(found->second);
    if (found->second.family_domain != kNoDomain) tree_.release_domain(found->second.family_domain);
    books_.erase(found);
  }
  size_t count() const { return books_.size(); }

 private:
  SessionBook& book(SessionId session) {
    const auto [place, added] = books_.try_emplace(session);
    if (added) {
      place->second.family = session;
      place->second.family_domain = tree_.domains().hold(DomainKind::kSession, std::to_string(session), tree_.namer());
    }
    return place->second;
  }
  void release(SessionBook& of) {
    for (DomainId* domain : {&of.shared, &of.own})
      if (*domain != kNoDomain) tree_.release_domain(std::exchange(*domain, kNoDomain));
  }

  PrefixTree& tree_;
  std::unordered_map<SessionId, SessionBook> books_;
};

}  // namespace kaiju
