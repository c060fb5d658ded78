// Traffic: generates traces of a chat service from a seed. docs/performance.md, "Replay", explains its numbers.
#pragma once

#include "bench/replay/trace.hpp"
#include "kaiju/base/status.hpp"

namespace kaiju::replay {

struct TrafficOptions {
  uint64_t seed = 1;
  int32_t conversations = 2000;
  int32_t characters = 200;    // Zipf: the r-th is chosen 1/r as often as the first
  double warm_up_hours = 0.5;  // not counted; what was cached when the trace begins comes from before it
  double hours = 8;            // measured: longer than most users stay away

  int32_t prompt_tokens_least = 4096, prompt_tokens_most = 16384;  // of a character's prompt: uniform
  int32_t messages_least = 20, messages_most = 180;                // of a history when the trace begins: uniform
  double user_tokens = 30, reply_tokens = 100;                     // means; log-normal
  int32_t reply_tokens_most = 400;
  int32_t context = 24576;  // positions of a conversation, the reply's included
  // Tokens that a chat loses at its beginning when it outgrows the context, or a few more.
  int32_t truncation_step = 4096;

  double think_seconds = 40, think_sigma = 0.8;  // from a reply to the next message: log-normal, median and spread
  double reply_seconds = 5;                      // how long a reply takes to arrive and be followed
  double sitting_turns = 15;                     // turns before the user goes away: geometric, mean
  double gap_hours = 3, gap_sigma = 1.3;         // until the user comes back: log-normal, median and spread
  double swipe = 0.12;                           // of replies that are asked for once more
  double edit = 0.03;                            // of turns that rewrite an earlier message, mostly the last one
  double new_chat = 0.05;                        // of sittings that begin a new conversation instead of going on
  double versions_per_day = 0.2;  // edits of a character by its author; seen from a user's next sitting on
};

inline constexpr int32_t kUserTokensMost = 300;  // of a message

// kInvalidArgument when the options contradict each other: the message names the option.
Status check_traffic(const TrafficOptions& options);
// The same options give the same trace. kInvalidArgument when they contradict each other: the message names the option.
Result<Trace> make_traffic(const TrafficOptions& options);

// The worst case for a cache that drops the least recently used: sessions with nothing in common, each with a history
// of so many tokens, which take turns of 30 and 100 tokens one after another. The first round is not measured.
Trace make_in_turn(int32_t sessions, int32_t rounds, int32_t history_tokens);

// Conversations under way: each sends a message every so many seconds, from a moment of its own on, so that as many
// messages arrive in the first second as in the last. All messages have one length, and all replies have one.
struct ChatsOptions {
  uint64_t seed = 1;
  int32_t conversations = 0;
  int32_t first_conversation = 0;  // the first one's number; traces in one cache take different numbers
  int32_t characters = 1;
  int32_t cast = 0;  // which characters: two casts have nothing in common
  double zipf = 1;   // the r-th character is chosen r^-zipf as often as the first; 0: all alike
  int32_t prompt_tokens = 0, user_tokens = 0, reply_tokens = 0;
  // Of what a conversation said before the trace begins: uniform from none to twice as many, in whole turns.
  int32_t history_tokens = 0;
  double every_seconds = 60;
  double seconds = 60, measured_from = 0;
};
Trace make_chats(const ChatsOptions& options);
// Asks once, without a reply, for the prompts of its characters [first, first + count): to fill a cache before
// make_chats.
Trace make_prompts(const ChatsOptions& options, int32_t first, int32_t count);
// The same for the histories of its conversations [first, first + count), each in its conversation.
Trace make_histories(const ChatsOptions& options, int32_t first, int32_t count);

}  // namespace kaiju::replay
