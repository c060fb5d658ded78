// Conversation: a chat with one character, as text. A kaiju_conversation has its tokens and KV. Knows no terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "card.hpp"
#include "owned.hpp"
#include "safety.hpp"

namespace chat {

struct Sampling {
  double temperature = 0.7;
  double top_p = 0.9;
  double min_p = 0.05;
  int64_t top_k = 0;
  double repetition_penalty = 1.05;
  uint64_t seed = 0;
  int64_t max_tokens = 256;
  bool circles = false;            // a reply that goes in circles goes on
  std::optional<double> guidance;  // beam search, and what the classifier's scores are worth in it (docs/beams.md)
  std::string tier;                // the limits that end a reply; empty: none
};
inline constexpr int64_t kBeams = 4;  // of a search

// What the user said and the reply to it, as text.
struct Turn {
  std::string said;
  std::string reply;
  uint32_t retries = 0;  // how often another reply was asked for: the stream of the seed that drew this one
  // Of the reply, as it was drawn: tokenising its text may give others. Set where a chat is saved and loaded.
  std::optional<std::vector<int32_t>> reply_tokens = {};
};

struct Reply {
  std::string text;
  std::string finish;  // "stop", "length", "cancelled", "refused" at a limit, or "circle": it began to repeat itself,
                       // and the repeats were cut off
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of those, not computed again
  int32_t generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  size_t turns_dropped = 0;             // turns that left the context with this reply; the greeting is not counted
  std::vector<LabelScore> scores = {};  // empty where the model has no classifier, and of a search
  std::string refused_label = {};       // whose limit ended it

  double prefill_rate() const { return prefill_seconds > 0 ? (prompt_tokens - cached_tokens) / prefill_seconds : 0; }
  double decode_rate() const {
    return decode_seconds > 0 && generated_tokens > 1 ? (generated_tokens - 1) / decode_seconds : 0;
  }
};

class Conversation {
 public:
  // Gets pieces of the reply as they come, whole UTF-8; false stops it. Also called with no text between steps.
  using OnText = std::function<bool(std::string_view text)>;

  // Throws Problem when a sampling value is out of range and when the card leaves no room to talk; `card_file` is for
  // that message.
  Conversation(kaiju_model* model, kaiju_engine* engine, Card card, const Sampling& sampling,
               const std::string& card_file);

  const Card& card() const { return card_; }
  size_t tokens_in_context() const { return describe(talk_).tokens; }
  size_t context() const { return context_; }
  // Turns that left the context; the greeting is not counted.
  size_t dropped() const { return without_greeting(describe(talk_).turns_dropped); }
  uint64_t seed() const { return seed_; }
  const std::vector<Turn>& turns() const { return turns_; }
  // The same with tokens of replies, for a file.
  std::vector<Turn> turns_with_tokens() const;
  // What the user said in the last turn; throws Problem when there is none.
  const std::string& last_said() const;

  Reply say(const std::string& text, const OnText& on_text);
  // Another reply for the last turn, from another stream of the same seed.
  Reply retry(const OnText& on_text);
  // The last turn with other words of the user, and the reply to them. Whatever goes wrong, the last turn is then still
  // as it was.
  Reply edit(const std::string& text, const OnText& on_text);
  // Takes back the last turn; returns what the user said in it.
  std::string undo();
  // Goes on after these, as if they had been said here. Only before anything was. Returns how many replies it tokenised
  // anew because their tokens do not spell their text with this model.
  size_t restore(const std::vector<Turn>& turns);

 private:
  static kaiju_conversation_info describe(const ConversationHandle& talk);
  void need_turn() const;
  // The library counts a greeting as a turn, the oldest one.
  size_t without_greeting(size_t turns) const { return turns - (turns > 0 && !card_.greeting.empty()); }
  std::vector<int32_t> format(const std::vector<kaiju_message>& messages, int32_t flags = 0) const;
  std::vector<int32_t> asked(const std::string& text) const;  // the input of a turn
  // What a character says, without what the chat format puts around it, which the conversation adds.
  std::vector<int32_t> said_by_character(const std::string& text) const;
  bool spells(const std::vector<int32_t>& tokens, const std::string& reply) const;
  void append(const std::vector<int32_t>& input, const std::vector<int32_t>& reply);
  Reply say_in(const ConversationHandle& talk, const std::string& text, const OnText& on_text);
  // The reply to what `submit(options, &request, error)` submits.
  template <class Submit>
  Reply answer(const ConversationHandle& talk, size_t stream, const OnText& on_text, const Submit& submit);
  Reply collect(kaiju_request request, const OnText& on_text);

  kaiju_model* model_;
  kaiju_engine* engine_;
  OptionsHandle options_;
  Card card_;
  uint64_t seed_ = 0;
  bool one_reply_ = false;  // sampling or search gives no other
  std::vector<std::string> labels_;
  size_t context_ = 0;
  ConversationHandle talk_;
  std::vector<Turn> turns_;
};

}  // namespace chat
