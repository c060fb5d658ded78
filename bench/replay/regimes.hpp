// Regimes: traffic whose prompts part from the ones before them somewhere before the end. docs/replay.md, "Regimes",
// explains their numbers, which are assumptions.
#pragma once

#include <optional>
#include <string_view>

#include "bench/replay/traffic.hpp"

namespace kaiju::replay {

enum class Regime {
  kRetokenised,  // half of the replies come back with other tokens at their end
  kEdits,        // a quarter of the turns rewrite a message up to 40 messages back; half of these keep what follows
  kLorebook,     // a lorebook's entries and an author's note lie 4 messages before the end; the entries change
  kGroup,        // four characters share a history; the one who speaks next is at the head of the prompt
  kVisitors,     // three of four requests come from visitors who send one long message and do not come back
  kAgents,       // agents at work: tools answer with long outputs, seconds apart
};
inline constexpr std::string_view kRegimeNames[] = {"retokenised", "edits", "lorebook", "group", "visitors", "agents"};

// None: no regime has this name.
std::optional<Regime> regime_called(std::string_view name);

// A trace of the regime. Of the options it uses seed, conversations, characters, hours, lengths, context, truncation,
// times and sittings; a conversation begins empty. The same options give the same trace.
Result<Trace> make_regime(Regime regime, const TrafficOptions& options);

}  // namespace kaiju::replay
