// Engine's banned phrases: a reply that comes to have one goes back and takes another way. Part of engine_impl.hpp.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

// Tokens that are forbidden in one place before the reply goes back one token further, if that is not settled.
inline constexpr int32_t kMostForbidden = 64;

inline Status EngineImpl::check_banned(const RequestOptions& options) const {
  if (options.banned_phrases.empty()) return {};
  if (!pieces_) return invalid_argument("banned phrases need a tokenizer, and this engine has none");
  if (options.guided || options.beams.width > 0)
    return Status(StatusCode::kUnsupported, "a request with banned phrases cannot be guided and has no beams");
  if (options.banned_phrases.size() > kMaxStopStrings)
    return invalid_argument(std::to_string(options.banned_phrases.size()) + " banned phrases; at most " +
                            std::to_string(kMaxStopStrings));
  for (const std::string& phrase : options.banned_phrases)
    if (phrase.empty() || phrase.size() > kMaxStopStringBytes || !is_utf8(phrase))
      return invalid_argument("a banned phrase must be UTF-8 of 1 to " + std::to_string(kMaxStopStringBytes) +
                              " bytes");
  return {};
}

// Whether the newest token completes a banned phrase. The sequence then goes back to before the token in which the
// phrase begins, once no step computes it, and may not take that token there again. It never goes back before settled
// tokens: where many others have failed behind them, all that complete a phrase are forbidden at once. Stop tokens have
// no text, so a way is left.
inline bool EngineImpl::goes_back(Sequence& sequence) {
  int32_t place = sequence.banned.push(pieces_->piece(sequence.tokens->back()));
  if (place < 0) return false;
  auto& forbidden = sequence.forbidden;
  const auto count_at = [&](int32_t at) {
    return std::count_if(forbidden.begin(), forbidden.end(), [at](const auto& each) { return each.first == at; });
  };
  while (place > sequence.banned.settled() && count_at(place) >= kMostForbidden) --place;
  std::erase_if(forbidden, [place](const auto& each) { return each.first > place; });
  forbidden.emplace_back(place, (*sequence.tokens)[static_cast<size_t>(sequence.request->prompt_count + place)]);
  if (count_at(place) == kMostForbidden + 1)
    for (int32_t token = 0; token < info().vocab_size; ++token)
      if (sequence.banned.completes(place, pieces_->piece(token))) forbidden.emplace_back(place, token);
  sequence.drafts.clear();
  sequence.cut_to = sequence.request->prompt_count + place;
  if (sequence.state == SequenceState::kRunning) scheduler_.move(sequence, SequenceState::kCutting);
  return true;
}

}  // namespace kaiju
