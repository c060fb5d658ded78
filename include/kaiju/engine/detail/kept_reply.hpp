// kept_reply: what of a reply stays in its turn when a stop string or the guard against circles ended it: tokens that
// spell the text that the user saw.
//
// Tokens of that text stay as they were sampled. It may end inside a token: what comes before its end there
// is spelled anew, with the fewest tokens of the vocabulary. (A tokenizer's own encoding would not do in the middle of
// a text: it may put a space before what it is given.) What no token spells is left off.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kaiju/engine/detail/reply_text.hpp"
#include "kaiju/text/detail/pieces.hpp"

namespace kaiju {

// The fewest tokens whose pieces, joined, are `text`, or the longest beginning of it that there are tokens for. Of
// tokens with the same piece the last: a byte's own token comes before the others. O(vocab_size + text).
inline std::vector<int32_t> spell(std::string_view text, const Pieces& pieces, int32_t vocab_size) {
  struct Step {
    size_t from = 0;
    int32_t token = -1;
    size_t count = SIZE_MAX;  // tokens so far; SIZE_MAX: nothing leads here
  };
  std::vector<Step> at(text.size() + 1);
  std::vector<std::vector<std::pair<int32_t, size_t>>> beginning(text.size());  // tokens at a place, and their sizes
  for (int32_t token = 0; token < vocab_size; ++token) {
    const std::string_view piece = pieces.piece(token);
    if (piece.empty()) continue;
    for (size_t place = text.find(piece); place != text.npos; place = text.find(piece, place + 1))
      beginning[place].emplace_back(token, piece.size());
  }
  at[0].count = 0;
  size_t end = 0;
  for (size_t place = 0; place < text.size(); ++place) {
    if (at[place].count == SIZE_MAX) continue;
    for (const auto& [token, size] : beginning[place]) {
      end = std::max(end, place + size);
      if (at[place].count + 1 <= at[place + size].count) at[place + size] = {place, token, at[place].count + 1};
    }
  }
  std::vector<int32_t> tokens(at[end].count);
  for (size_t place = end; place > 0; place = at[place].from) tokens[at[place].count - 1] = at[place].token;
  return tokens;
}

// `reply`: the tokens of a whole reply, without the stop token.
inline std::vector<int32_t> kept_reply(std::span<const int32_t> reply, const std::vector<std::string>& stop_strings,
                                       bool loop_guard, const Pieces& pieces, int32_t vocab_size) {
  ReplyText text(stop_strings, loop_guard);
  std::string shown, whole;
  for (const int32_t token : reply)
    if (text.push(pieces.piece(token), shown) != TextEnd::kNone) break;
  text.finish(shown);
  if (!text.stopped()) return {reply.begin(), reply.end()};
  // The last place, up to where the text ends, at which a token ends and with it a code point.
  Utf8Stream utf8;
  size_t kept = 0, spelled = 0;
  for (size_t i = 0; i < reply.size() && whole.size() <= shown.size(); ++i) {
    if (utf8.held_bytes() == 0) kept = i, spelled = whole.size();
    utf8.push(pieces.piece(reply[i]), whole);
  }
  std::vector<int32_t> tokens(reply.begin(), reply.begin() + static_cast<std::ptrdiff_t>(kept));
  const std::vector<int32_t> rest = spell(std::string_view(shown).substr(spelled), pieces, vocab_size);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

}  // namespace kaiju
