// chat_turns_to_drop: chooses which turns of a chat to drop when it does not fit the context any more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kaiju {

// How many of the oldest turns to drop so that card, turns and reply fit into the context. When they do not fit, turns
// are dropped until card and the turns that remain fit into half of the context. So the cut moves in large steps, and
// the prefix stays cached for many turns. The result depends on the history alone, so a chat that is loaded again gets
// the same cut. The newest turn always stays, even if it does not fit; the caller checks that. A turn is a unit that
// should stay together, such as a question and its answer.
inline size_t chat_turns_to_drop(std::span<const size_t> turn_tokens, size_t card_tokens, size_t reply_tokens,
                                 size_t context) {
  // Plays the conversation again from its beginning: after each turn the cut stays or moves.
  const auto minus = [](size_t a, size_t b) { return a > b ? a - b : 0; };
  const size_t room = minus(minus(context, card_tokens), reply_tokens);
  const size_t half = minus(context / 2, card_tokens);
  size_t dropped = 0, kept_tokens = 0;
  for (size_t turn = 0; turn < turn_tokens.size(); ++turn) {
    kept_tokens = kept_tokens > SIZE_MAX - turn_tokens[turn] ? SIZE_MAX : kept_tokens + turn_tokens[turn];
    if (kept_tokens <= room) continue;
    for (; dropped < turn && kept_tokens > std::min(half, room); ++dropped)
      kept_tokens = minus(kept_tokens, turn_tokens[dropped]);
  }
  return dropped;
}

}  // namespace kaiju
