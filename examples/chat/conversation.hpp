// Conversation: one character, the turns so far, and the session that holds their KV. Knows no terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "card.hpp"
#include "owned.hpp"

namespace chat {

struct Sampling {
  double temperature = 0.7;
  double top_p = 0.9;
  double min_p = 0.05;
  int64_t top_k = 0;
  double repetition_penalty = 1.05;
  uint64_t seed = 0;
  int64_t max_tokens = 256;
};

// A message and its reply, as text.
struct Exchange {
  std::string question;
  std::string reply;
  uint32_t retries = 0;  // how often another reply was asked for: the stream of the seed that drew this one
};

struct Reply {
  std::string text;
  std::string finish;  // "stop", "length" or "cancelled"
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of those, not computed again
  int32_t generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  size_t turns_dropped = 0;  // turns that left the context with this reply
  size_t exchange = 0;       // of which exchange, from 1, and the stream that drew it
  uint32_t retries = 0;

  double prefill_rate() const { return prefill_seconds > 0 ? (prompt_tokens - cached_tokens) / prefill_seconds : 0; }
  double decode_rate() const { return decode_seconds > 0 && generated_tokens > 1 ? (generated_tokens - 1) / decode_seconds : 0; }
};

class Conversation {
 public:
  // Gets pieces of the reply as they come, whole UTF-8; false stops it. Also called with no text between steps.
  using OnText = std::function<bool(std::string_view text)>;

  // Throws Problem when a sampling value is out of range and when the card leaves no room to talk; `card_file` is for that message.
  Conversation(kaiju_model* model, kaiju_engine* engine, Card card, const Sampling& sampling, const std::string& card_file);

  const Card& card() const { return card_; }
  size_t tokens_in_context() const;
  size_t context() const { return context_; }
  size_t dropped() const { return dropped_; }
  uint64_t seed() const { return seed_; }
  std::vector<Exchange> exchanges() const;
  // The last message; throws Problem when there is none.
  const std::string& last_question() const;

  Reply say(const std::string& text, const OnText& on_text);
  // The last reply again, from another stream of the same seed.
  Reply retry(const OnText& on_text);
  // The last message in other words, and the reply to them. Whatever goes wrong, the last exchange is then still as it was.
  Reply edit(const std::string& text, const OnText& on_text);
  // Forgets the last question and its answer; gives back the question.
  std::string undo();
  // Goes on after these, as if they had been said here. Only before anything was.
  void restore(const std::vector<Exchange>& exchanges);

 private:
  struct Turn {
    Exchange said;                // empty for the greeting
    std::vector<int32_t> prompt;  // question and the symbol that asks for a reply
    std::vector<int32_t> tokens;  // the whole turn, closed
  };

  size_t first_exchange() const { return card_.greeting.empty() ? 0 : 1; }
  void need_exchange() const;
  Turn ask(const std::string& text) const;
  Reply answer_instead(Turn turn, const OnText& on_text);
  std::vector<int32_t> format(const std::vector<kaiju_message>& messages, int32_t flags) const;
  Reply answer(Turn turn, const OnText& on_text);
  // A session with the card alone, and its KV as long as there is memory for it.
  void fork(const SessionHandle& from, SessionHandle& to);
  // Brings the session to `history` and submits what it lacks.
  kaiju_request submit(const std::vector<int32_t>& history, const Turn& turn, int64_t max_tokens);
  Reply collect(kaiju_request request, const OnText& on_text);
  std::vector<int32_t> session_tokens() const;
  bool is_symbol(int32_t token) const;

  kaiju_model* model_;
  kaiju_engine* engine_;
  SessionHandle session_;
  SessionHandle card_session_;  // stays at the end of the card: where a cut begins anew
  OptionsHandle options_;
  Card card_;
  int64_t max_tokens_ = 0;
  uint64_t seed_ = 0;
  bool greedy_ = false;
  size_t context_ = 0;
  std::vector<int32_t> card_tokens_;
  std::vector<Turn> turns_;
  size_t dropped_ = 0;  // oldest turns no longer in the context
};

}  // namespace chat
