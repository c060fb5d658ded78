// Transcript: a chat as a self-contained JSON file with the card, all turns and the seed. It has no KV, so any model
// can continue it. The tokens of replies are kept for the model that drew them, which then goes on as if it had never
// stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "card.hpp"
#include "conversation.hpp"

namespace chat {

struct Transcript {
  Card card;
  uint64_t seed = 0;
  std::vector<Turn> turns;
};

// The file is the old one or the whole new one. A file that is no transcript is not overwritten. Both throw Problem.
void save_transcript(const Transcript& transcript, const std::string& file);
Transcript load_transcript(const std::string& file);

}  // namespace chat
