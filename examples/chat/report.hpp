// Report: what the chat tells about its model, its machine and its turns.
#pragma once

#include <string>

#include "conversation.hpp"

namespace chat {

// The sums over all replies since the program began.
struct Totals {
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0, decoded = 0;

  void add(const Reply& reply);
};

std::string counted(size_t count, const char* noun);  // "1 turn", "2 turns"

// For the first screen: what the model is, in a sentence or two.
std::string about_model(kaiju_model* model);
// "cpu, avx512, 2 threads"
std::string about_machine(kaiju_engine* engine);

// What the user should know about how this reply ended, whether or not figures are shown; often empty.
std::string ending(const Reply& reply);
std::string figures(const Reply& reply);
std::string stats(const Conversation& talk, const Totals& totals, kaiju_model* model, kaiju_engine* engine);
// The last turn of `talk`.
std::string json_line(const Reply& reply, const Conversation& talk);

}  // namespace chat
