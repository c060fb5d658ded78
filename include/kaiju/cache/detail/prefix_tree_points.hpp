// PrefixTree: resume points. It adds, measures and drops them, tells the policy when they are used, and gives up the
// one that is worth least. Part of prefix_tree.hpp, which states the contract.
#pragma once

#include "kaiju/cache/prefix_tree.hpp"

namespace kaiju {

inline void PrefixTree::add_point(NodeId id, bool branch) {
  if (++node(id).points == 1) {
    node(id).point = points_.add(id);
    enter_ring(id);
    count_kept(id, 0);
    change_retainers(id, 1);
    relist(id);
  }
  ResumePoint& point = points_.at(at(id).point);
  if (!branch || point.branch) return;
  point.branch = true;
  points_.touch(point, PointClass::branch(0), 0);
}

inline void PrefixTree::drop_point(const NodeRef& ref) {
  if (alive(ref) && at(ref.node).points > 0 && --node(ref.node).points == 0) remove_point(ref.node);
}

// The node's point goes, and its neighbours become each other's.
inline void PrefixTree::remove_point(NodeId id) {
  const ResumePoint point = points_.at(at(id).point);
  ResumePoint* const above = point_at(point.above);
  ResumePoint* const below = point_at(point.below);
  if (below && below->above.node == id) {
    below->above = point.above;
    below->blocks_above += point.blocks_above;
  }
  if (above && above->below.node == id) {
    above->below = point.below;
    if (at(above->node).kept_children > 0)
      above->blocks_below = below ? point.blocks_above + point.blocks_below : reach_ + 1;
  }
  leave_ring(id);
  if (const NodeId moved = points_.remove(at(id).point); moved != kNoNode) node(moved).point = at(id).point;
  node(id).points = 0;
  node(id).point = -1;
  change_retainers(id, -1);
  relist(id);
}

inline ResumePoint* PrefixTree::point_at(const NodeRef& ref) {
  return alive(ref) && at(ref.node).points > 0 ? &points_.at(at(ref.node).point) : nullptr;
}

// Finds the point above, unless it is known and has not gone.
inline void PrefixTree::measure(ResumePoint& point) {
  if (point.blocks_above > 0 && (point.above.node == kNoNode || point_at(point.above))) return;
  NodeId above = at(point.node).parent;
  for (point.blocks_above = 1; above != kRoot && at(above).points == 0; ++point.blocks_above) above = at(above).parent;
  point.above = above == kRoot ? NodeRef{} : ref(above);
}

// A request resumes at the end of `id`, or in it: the nearest point made that possible.
inline uint32_t PrefixTree::use_point(NodeId id) {
  while (id != kRoot && at(id).points == 0) id = at(id).parent;
  if (id == kRoot) return 0;
  ResumePoint& point = points_.at(at(id).point);
  points_.observe(point, true);
  if (!point.branch) return point.uses + 1;
  points_.touch(point, PointClass::branch(point.uses + 1), point.uses + 1);
  return 0;  // what follows is a path of its own
}

// The path that ends with `tip` was used. Its points are classed by their distance from its end, and thinned: the
// farther they are, the fewer stay, at distances of powers of two.
inline void PrefixTree::use_path(NodeId tip, uint32_t uses) {
  int32_t distance = 0, kept = -1;
  NodeId below = kNoNode;
  int32_t blocks = 0;  // from the point below
  for (NodeId id = tip, parent = kNoNode; id != kRoot; id = parent, ++distance, ++blocks) {
    parent = at(id).parent;
    if (at(id).points == 0) continue;
    if (ResumePoint& point = points_.at(at(id).point); !point.branch) {
      if (distance < 2 * kept) {
        points_.observe(point, false);
        remove_point(id);
        continue;
      }
      kept = distance;
      points_.touch(point, PointClass::behind(distance, uses), uses);
    }
    ResumePoint& point = points_.at(at(id).point);
    point.below = below == kNoNode ? NodeRef{} : ref(below);
    point.blocks_below = at(id).kept_children == 0 ? 0 : below == kNoNode ? reach_ + 1 : blocks;
    if (below != kNoNode) {
      points_.at(at(below).point).above = ref(id);
      points_.at(at(below).point).blocks_above = blocks;
    }
    below = id;
    blocks = 0;
  }
  if (below == kNoNode) return;
  points_.at(at(below).point).above = {};
  points_.at(at(below).point).blocks_above = blocks;
}

// Gives up the point that is worth least: what only it kept may be evicted now, and is found as long as it is not.
// False: there is none.
inline bool PrefixTree::give_up_point(EvictionPass pass, const Claimant& claimant) {
  const FloatState float_state;
  constexpr int kTries = 8;
  const auto unheld = [&](int32_t place) {
    const Node& own = at(points_.at(place).node);
    return own.refs == 0 && own.pins == 0;
  };
  int32_t worst = -1;
  for (int tries = 0; tries < kTries; ++tries) {
    worst = worst_point(pass, claimant, unheld);
    if (worst < 0) break;
    ResumePoint& point = points_.at(worst);
    const float before = points_.worth(point);
    measure(point);
    if (points_.worth(point) <= before) break;
  }
  if (worst < 0)
    worst = worst_point(pass, claimant, [&](int32_t place) { return at(points_.at(place).node).pins == 0; });
  if (worst < 0) return false;
  const NodeId id = points_.at(worst).node;
  points_.pay(points_.worth(points_.at(worst)));
  points_.forget(points_.at(worst), at(id).name);
  if (ResumePoint* const above = point_at(points_.at(worst).above)) points_.inherit(*above, points_.at(worst));
  remove_point(id);
  if (tiers_) for_reach(id, [&](NodeId each) { want_window_below(each); });
  return true;
}

}  // namespace kaiju
