// Conversation: the turns of one chat, and the session that has their KV. It supports another reply to the newest turn
// (swipe), edit, undo and fork, and drops the oldest turns when a chat does not fit the context. It works with tokens;
// text/chat.hpp converts text to tokens. The host steps the engine and polls. When a request is done, its reply becomes
// part of the turn, without the stop token or stop string that ended it (kept_reply.hpp says what remains of a token
// inside which a stop string began). The session's own history has all tokens until the next request.
//
//   history = head, then the turns that were not cut off;   a turn = input, reply, close
//
// say and swipe submit the whole history, and the prefix cache finds the part that is computed already. So a swipe
// computes only the input's last token again, and a request after an edit computes the tokens that follow the edit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/engine/engine.hpp"

namespace kaiju {

// The values are those of the C header.
enum class TurnPart : int32_t {
  kInput = 1,  // the input tokens, up to the symbol that starts the reply; empty for a greeting
  kReply = 2,
};

// Allows one thread at a time. Movable. Destroying it cancels an unfinished reply. Calls that change the conversation
// answer kBusy while a reply is unfinished.
class Conversation {
 public:
  // `head` is never dropped; it is usually a character's card. It may fill up to half of the context. If a request's
  // scope names a character but no shared_tokens, the head is the shared region. `close` follows every turn's reply.
  static Result<Conversation> create(std::shared_ptr<Engine> engine, std::span<const int32_t> head,
                                     std::span<const int32_t> close = {});
  Conversation(Conversation&& other) noexcept
      : engine_(std::move(other.engine_)),
        session_(std::exchange(other.session_, 0)),
        head_(std::move(other.head_)),
        close_(std::move(other.close_)),
        turns_(std::move(other.turns_)),
        dropped_(other.dropped_),
        reserved_(other.reserved_),
        asked_(std::exchange(other.asked_, {})) {}
  Conversation& operator=(Conversation&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(session_, other.session_);
    std::swap(head_, other.head_);
    std::swap(close_, other.close_);
    std::swap(turns_, other.turns_);
    std::swap(dropped_, other.dropped_);
    std::swap(reserved_, other.reserved_);
    std::swap(asked_, other.asked_);
    return *this;
  }
  ~Conversation() {
    if (engine_ && session_) (void)engine_->destroy_session(session_);  // fails only when it is gone already
  }

  // -- asking for a reply --
  // A new turn. Oldest turns are dropped until a quarter of the context, or max_tokens if that is less, is free for the
  // reply; max_tokens is cut to what the context has room for. kInvalidArgument, with the room there is, for an input
  // that leaves no room for a reply even without older turns; else what Engine::submit answers.
  Result<RequestId> say(std::span<const int32_t> input, const RequestOptions& options);
  // Another reply to the newest turn, after those it has. Each is sampled from a stream that no reply of the turn had:
  // the next one, or sampling.stream plus the number of replies, whichever is larger.
  Result<RequestId> swipe(const RequestOptions& options);

  // -- the book --
  // Adds a turn without computing it: a greeting, or a turn of a chat that is loaded again.
  Status append(std::span<const int32_t> input, std::span<const int32_t> reply);
  // Chooses which reply to the newest turn is part of the chat, from 0.
  Status choose(size_t reply);
  // Replaces a part of a turn. A new input removes the turn's replies and all later turns; call swipe for a reply to
  // it. A new reply leaves later turns as they are.
  Status edit(size_t turn, TurnPart part, std::span<const int32_t> tokens);
  // Removes the newest turn.
  Status undo();
  // Creates a conversation with the first `turns` turns and their chosen replies, in a session that shares their KV.
  Result<Conversation> fork(size_t turns);
  // Adds a finished reply to its turn. Calls that need this do it themselves.
  Status settle();

  // -- looking --
  size_t turn_count() const { return turns_.size(); }
  size_t dropped_count() const { return dropped_; }  // number of oldest turns that were dropped from the context
  size_t reply_count() const { return turns_.empty() ? 0 : turns_.back().replies.size(); }  // of the newest turn
  size_t chosen_reply() const { return turns_.empty() ? 0 : turns_.back().chosen; }
  // Without the close. Empty where there is no reply yet; kNotFound for an unknown turn.
  Result<std::vector<int32_t>> turn(size_t turn, TurnPart part) const;
  // What the next turn goes on from, unless its input or its max_tokens make it drop more turns. Of all calls this one
  // throws where memory runs short.
  std::vector<int32_t> history() const { return history_of(turns_.size()); }
  SessionId session() const { return session_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }

 private:
  struct Turn {
    std::vector<int32_t> input;
    std::vector<std::vector<int32_t>> replies;
    size_t chosen = 0;
    uint32_t streams = 0;      // replies asked for
    uint32_t next_stream = 0;  // after the last one sampled from
    bool greeting = false;     // appended without an input

    size_t reply_size() const { return replies.empty() ? 0 : replies[chosen].size(); }
  };
  struct Asked {
    RequestId request = 0;  // the unsettled one; 0: none
    size_t prompt_count = 0;
    std::vector<int32_t> stop_tokens;
    std::vector<std::string> stop_strings;
  };

  Conversation(std::shared_ptr<Engine> engine, SessionId session, std::vector<int32_t> head, std::vector<int32_t> close)
      : engine_(std::move(engine)), session_(session), head_(std::move(head)), close_(std::move(close)) {}

  Status check_tokens(std::span<const int32_t> tokens) const;
  // Head and turns [dropped, count), each closed.
  std::vector<int32_t> history_of(size_t count) const;
  // Oldest turns of the first `count` that a next turn with an input of so many tokens leaves out.
  size_t turns_to_drop(size_t count, size_t input) const;
  // Submits the turns before `turn`, and its input.
  Result<RequestId> ask(size_t turn, std::span<const int32_t> input, uint32_t stream, RequestOptions options);

  std::shared_ptr<Engine> engine_;
  SessionId session_ = 0;
  std::vector<int32_t> head_;
  std::vector<int32_t> close_;
  std::vector<Turn> turns_;
  size_t dropped_ = 0;
  size_t reserved_ = 1;  // tokens of the context that the last request kept free for its reply
  Asked asked_;
};

}  // namespace kaiju

#if defined(KAIJU_HEADER_ONLY)
#include "kaiju/engine/detail/conversation-inl.hpp"
#endif
