// SequenceState: where a sequence is between its submit and its last event, and the table of allowed transitions.
#pragma once

#include <cstdint>
#include <string>

#include "kaiju/base/status.hpp"

namespace kaiju {

enum class SequenceState : int32_t {
  kWaiting,     // for a slot and for memory, at its place in the order of service
  kPromoting,   // likewise; what lower tiers hold of it is being copied up for its start
  kRunning,     // has a slot and a lease; steps compute it
  kSuspending,  // suspended for the host, but a step that was planned before still computes it
  kCutting,     // will be cut back to fewer tokens once a step that was planned before has computed it
  kEnding,      // ended for the host, but a step that was planned before still computes it
  kSuspended,   // set aside until the host resumes it
  kEnded,       // gone from the scheduler
};
inline constexpr int32_t kSequenceStates = 8;

inline const char* name_of(SequenceState state) {
  constexpr const char* kNames[kSequenceStates] = {"waiting", "promoting", "running",   "suspending",
                                                   "cutting", "ending",    "suspended", "ended"};
  return kNames[static_cast<int32_t>(state)];
}

struct SequenceTransition {
  SequenceState from, to;
};
inline constexpr SequenceTransition kSequenceTransitions[] = {
    // Admission. A sequence whose prefix lies in a lower tier is promoted first.
    {SequenceState::kWaiting, SequenceState::kPromoting},
    {SequenceState::kWaiting, SequenceState::kRunning},
    {SequenceState::kPromoting, SequenceState::kRunning},
    // A running sequence waits again when its reserved memory is used up, or when it is cut back.
    {SequenceState::kRunning, SequenceState::kWaiting},
    {SequenceState::kCutting, SequenceState::kWaiting},
    // The host suspends it, at once or, where a planned step computes it, after that; and resumes it.
    {SequenceState::kWaiting, SequenceState::kSuspended},
    {SequenceState::kPromoting, SequenceState::kSuspended},
    {SequenceState::kRunning, SequenceState::kSuspended},
    {SequenceState::kRunning, SequenceState::kSuspending},
    {SequenceState::kCutting, SequenceState::kSuspending},
    {SequenceState::kSuspending, SequenceState::kSuspended},
    {SequenceState::kSuspending, SequenceState::kRunning},
    {SequenceState::kSuspending, SequenceState::kCutting},
    {SequenceState::kSuspended, SequenceState::kWaiting},
    // The host cuts it back while a planned step computes it.
    {SequenceState::kRunning, SequenceState::kCutting},
    // It ends, at once or, where a planned step computes it, after that.
    {SequenceState::kRunning, SequenceState::kEnding},
    {SequenceState::kSuspending, SequenceState::kEnding},
    {SequenceState::kCutting, SequenceState::kEnding},
    {SequenceState::kWaiting, SequenceState::kEnded},
    {SequenceState::kPromoting, SequenceState::kEnded},
    {SequenceState::kRunning, SequenceState::kEnded},
    {SequenceState::kSuspending, SequenceState::kEnded},
    {SequenceState::kSuspended, SequenceState::kEnded},
    {SequenceState::kEnding, SequenceState::kEnded},
};

constexpr bool may_move(SequenceState from, SequenceState to) {
  for (const SequenceTransition& transition : kSequenceTransitions)
    if (transition.from == from && transition.to == to) return true;
  return false;
}

// kInternal names both states when the table does not allow the transition.
inline Status check_transition(SequenceState from, SequenceState to) {
  if (may_move(from, to)) return {};
  return internal_error(std::string("a sequence that is ") + name_of(from) + " cannot become " + name_of(to));
}

}  // namespace kaiju
