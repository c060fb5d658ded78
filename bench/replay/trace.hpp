// Trace: the requests of a service and their arrival times, as plain data. A prompt is a path in a tree of texts: two
// prompts share exactly the prefix that their paths share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kaiju::replay {

inline constexpr int32_t kNone = -1;

// One piece of a prompt, behind everything before it: a character's prompt, a message, a block of a recorded trace.
struct Text {
  int32_t before = kNone;  // index of the text before it, which is smaller than its own; kNone: a prompt begins here
  int32_t end = 0;         // tokens from the prompt's beginning to the end of this text
  int32_t content = 0;     // which words: its i-th token is token_of(content, first + i)
  int32_t first = 0;
};

enum class RequestKind : uint8_t {
  kTurn = 0,     // a message and its reply
  kSwipe = 1,    // another reply to the same message
  kEdit = 2,     // an earlier message is written anew and answered
  kEarlier = 3,  // a prompt without a reply: a conversation before the trace begins, at the time of its last turn
};

struct Request {
  double seconds = 0;      // when it arrives
  int32_t prompt = kNone;  // its last text
  int32_t reply = kNone;   // the last text it generates: all of them are behind `prompt`; kNone: nothing
  int32_t conversation = 0;
  RequestKind kind = RequestKind::kTurn;
  bool leaves = false;  // the user goes away after it
};

struct Trace {
  std::vector<Text> texts;
  std::vector<Request> requests;  // in order of arrival
  double measured_from = 0;       // seconds; what arrives before fills the cache and is not counted
  // Whether the first text of every prompt is a character's, shared by all, and the rest the conversation's own.
  bool characters = false;
  int32_t conversation_count = 0;

  int32_t token_count(int32_t text) const {
    const Text& t = texts[static_cast<size_t>(text)];
    return t.before == kNone ? t.end : t.end - texts[static_cast<size_t>(t.before)].end;
  }
  int32_t prompt_tokens(const Request& request) const { return texts[static_cast<size_t>(request.prompt)].end; }
  int32_t reply_tokens(const Request& request) const {
    return request.reply == kNone ? 0 : texts[static_cast<size_t>(request.reply)].end - prompt_tokens(request);
  }
  // The first text of the prompt that ends with `text`.
  int32_t root(int32_t text) const {
    while (texts[static_cast<size_t>(text)].before != kNone) text = texts[static_cast<size_t>(text)].before;
    return text;
  }
  bool measured(const Request& request) const {
    return request.kind != RequestKind::kEarlier && request.seconds >= measured_from;
  }
  int32_t add(int32_t before, int32_t tokens, int32_t content, int32_t first = 0) {
    texts.push_back({before, tokens + (before == kNone ? 0 : texts[static_cast<size_t>(before)].end), content, first});
    return static_cast<int32_t>(texts.size()) - 1;
  }
};

// Words without meaning, the same in every run.
inline int32_t token_of(int32_t content, int32_t index, int32_t vocab) {
  uint64_t x = (uint64_t{static_cast<uint32_t>(content)} << 32 | static_cast<uint32_t>(index)) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return static_cast<int32_t>(((x >> 32) * static_cast<uint64_t>(vocab)) >> 32);
}

}  // namespace kaiju::replay
