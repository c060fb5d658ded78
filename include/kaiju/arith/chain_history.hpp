// What the samplers of a chain find in the tokens before the one to draw (arithmetic.md, section 12): repetitions, and
// the coin of xtc. Nothing here looks at logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kaiju/base/random.hpp"
#include "kaiju/base/sampler.hpp"

namespace kaiju::arith {

// What a chain is given beside the row. `history` is all tokens before the one to draw; its last token is the newest.
struct ChainInput {
  std::span<const Sampler> samplers;
  std::span<const uint8_t> breakers;  // [vocab_size] 1: DRY finds no repetition across this token; empty: none
  std::span<const int32_t> history;
  uint64_t seed = 0;
  uint32_t stream = 0;
  uint64_t position = 0;  // of the token to draw

  // The newest tokens of the history; 0: all of them.
  std::span<const int32_t> window(double size) const {
    const auto count = static_cast<size_t>(size);
    return size == 0.0 || count >= history.size() ? history : history.last(count);
  }
  bool breaks(int32_t token) const { return !breakers.empty() && breakers[static_cast<size_t>(token)] != 0; }
};

// A share of probability, in units of 2^-32.
inline uint64_t share_of(double probability) {
  return static_cast<uint64_t>(__builtin_rint(probability * 4294967296.0));
}

// Whether a sum of masses is at least this share of their total.
inline bool reaches(uint64_t sum, uint64_t share, uint64_t total) {
  return (static_cast<unsigned __int128>(sum) << 32) >= static_cast<unsigned __int128>(share) * total;
}

// Whether xtc works on this token.
inline bool xtc_works(const ChainInput& input, double probability) {
  const auto bits =
      philox4x32({static_cast<uint32_t>(input.position), static_cast<uint32_t>(input.position >> 32), input.stream, 1},
                 {static_cast<uint32_t>(input.seed), static_cast<uint32_t>(input.seed >> 32)});
  return uint64_t{bits[0]} < share_of(probability);
}

// Of each place: how many tokens from there on equal the first ones (the Z-function, Gusfield 1997).
inline std::vector<int64_t> common_prefixes(const std::vector<int32_t>& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  std::vector<int64_t> same(tokens.size(), 0);
  for (int64_t i = 1, left = 0, right = 0; i < count; ++i) {
    auto& here = same[static_cast<size_t>(i)];
    if (i < right) here = std::min(right - i, same[static_cast<size_t>(i - left)]);
    while (i + here < count && tokens[static_cast<size_t>(here)] == tokens[static_cast<size_t>(i + here)]) ++here;
    if (i + here > right) left = i, right = i + here;
  }
  return same;
}

// The sampler dry: each token that would go on with an echo of the newest tokens, with what is subtracted from its
// logit: multiplier * base^(length - allowed_length), where length is that of its longest echo.
inline std::vector<std::pair<int32_t, float>> echo_penalties(const ChainInput& input, const Sampler& dry) {
  const double multiplier = dry.values[0], base = dry.values[1];
  const auto allowed_length = static_cast<int64_t>(dry.values[2]);
  const std::span<const int32_t> tokens = input.window(dry.values[3]);
  std::vector<std::pair<int32_t, float>> penalties;
  if (multiplier == 0.0 || tokens.size() < 2) return penalties;
  const std::vector<int32_t> newest_first(tokens.rbegin(), tokens.rend());
  int64_t limit = 0;  // no echo is longer than the tokens after the newest breaker
  while (limit < static_cast<int64_t>(newest_first.size()) && !input.breaks(newest_first[static_cast<size_t>(limit)]))
    ++limit;
  std::vector<std::pair<int32_t, int64_t>> echoes;  // (token that followed, length)
  const std::vector<int64_t> same = common_prefixes(newest_first);
  for (size_t i = 1; i < same.size(); ++i)
    if (const int64_t length = std::min(same[i], limit); length >= allowed_length && !input.breaks(newest_first[i - 1]))
      echoes.emplace_back(newest_first[i - 1], length);
  std::sort(echoes.begin(), echoes.end());
  for (size_t i = 0; i < echoes.size(); ++i) {
    if (i + 1 < echoes.size() && echoes[i + 1].first == echoes[i].first) continue;  // a longer one follows
    double penalty = multiplier;
    for (int64_t k = allowed_length; k < echoes[i].second && penalty < 1e9; ++k) penalty *= base;
    penalties.emplace_back(echoes[i].first, static_cast<float>(std::min(penalty, 1e9)));
  }
  return penalties;
}

// The sampler no_repeat_ngram: the tokens that would complete a run of n tokens which the history has already,
// ascending; a token may occur more than once.
inline std::vector<int32_t> completing_tokens(std::span<const int32_t> history, size_t n) {
  std::vector<int32_t> tokens;
  if (n == 0 || history.size() < n) return tokens;
  const auto tail = history.last(n - 1);
  for (size_t i = 0; i + n <= history.size(); ++i)
    if (std::equal(tail.begin(), tail.end(), history.begin() + static_cast<std::ptrdiff_t>(i)))
      tokens.push_back(history[i + n - 1]);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace kaiju::arith
