// Conversation: the turns of one chat, and the session that has the KV of these turns. A Conversation supports another
// reply to the newest turn (swipe), edit, undo and fork, and drops the oldest turns if a chat does not fit into the
// context. A Conversation works with tokens; text/chat.hpp converts text to tokens. The host program steps the engine
// and polls its events. When a request is done, the reply becomes part of the turn, without the stop token or stop
// string that ended the reply (kept_reply.hpp says what remains of a token inside which a stop string began). The
// session's own history keeps all generated tokens, stop tokens and stop strings included, until the next request.
//
//   history = head, then the turns that were not cut off;   a turn = input, reply, close
//
// The functions say and swipe submit the whole history, and the engine reuses the KV of the prefix that is in the
// cache. A swipe computes only the input's last token again, and a request after an edit computes only the edited
// tokens and those after them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/engine/engine.hpp"

namespace kaiju {

// The enumerators have the same values as in the C header.
enum class TurnPart : int32_t {
  kInput = 1,  // the input tokens, up to the symbol that starts the reply; empty for a greeting
  kReply = 2,
};

// A Conversation is movable and allows one thread at a time. Destroying a Conversation cancels its unfinished reply.
// Calls that change the conversation return kBusy while a reply is unfinished.
class Conversation {
 public:
  // `head` is the beginning of every prompt, usually a character's card, and is never dropped. The head may fill up to
  // half of the context. If a request's scope names a character but no shared_tokens, the head is the shared region of
  // the cache. The tokens of `close` follow the reply of every turn (ChatFormat::close): without them, a model reads
  // the next input as part of its own reply. If the head ends inside a user message, `opening` has the tokens with
  // which an input begins such a message: the first turn after the head leaves them out (ChatFormat::opening).
  // Model::create_conversation passes the tokens of the model's own chat format.
  static Result<Conversation> create(std::shared_ptr<Engine> engine, std::span<const int32_t> head,
                                     std::span<const int32_t> close, std::span<const int32_t> opening = {});
  Conversation(Conversation&& other) noexcept
      : engine_(std::move(other.engine_)),
        session_(std::exchange(other.session_, 0)),
        head_(std::move(other.head_)),
        close_(std::move(other.close_)),
        opening_(std::move(other.opening_)),
        turns_(std::move(other.turns_)),
        dropped_(other.dropped_),
        reserved_(other.reserved_),
        asked_(std::exchange(other.asked_, {})) {}
  Conversation& operator=(Conversation&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(session_, other.session_);
    std::swap(head_, other.head_);
    std::swap(close_, other.close_);
    std::swap(opening_, other.opening_);
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
  // Adds a turn and submits a request for its reply. The oldest turns are dropped until a quarter of the context, or
  // max_tokens if that is less, is free for the reply. If max_tokens is larger than the room that is left in the
  // context, max_tokens is reduced to that room. Returns kInvalidArgument if the input leaves no room for a reply even
  // without older turns; the message has the number of tokens that fit. If the input fits, say returns the result of
  // Engine::submit.
  Result<RequestId> say(std::span<const int32_t> input, const RequestOptions& options);
  // Submits a request for another reply to the newest turn; the turn's earlier replies stay. Each reply is sampled with
  // a variant that no other reply of the turn used: the next one, or sampling.variant plus the number of replies,
  // whichever is larger.
  Result<RequestId> swipe(const RequestOptions& options);

  // Engine::prefetch for the next turn, whose prompt begins with the head and the turns. If the scope names a character
  // but no shared_tokens, the head is the shared region.
  Result<RequestId> prefetch(PrefetchOptions options);

  // -- changing the turns --
  // Adds a turn without computing it: a greeting, or a turn of a chat that is loaded again.
  Status append(std::span<const int32_t> input, std::span<const int32_t> reply);
  // Chooses which reply to the newest turn is part of the chat; `reply` counts from 0.
  Status choose(size_t reply);
  // Replaces the input or the reply of a turn. A new input removes the turn's replies and all turns after that turn;
  // call swipe for a reply to the new input. A new reply leaves the turns after that turn as they are.
  Status edit(size_t turn, TurnPart part, std::span<const int32_t> tokens);
  // Removes the newest turn.
  Status undo();
  // Creates a conversation with the first `turns` turns and their chosen replies, in a session that shares the KV of
  // these turns.
  Result<Conversation> fork(size_t turns);
  // Adds a finished reply to its turn. All calls that need a finished reply in its turn call settle() themselves.
  Status settle();

  // -- saved conversations --
  // Writes the turns with all their replies, then the session by Engine::save_session, which says when it may be called
  // and what `options` are.
  Status save(const SaveOptions& options, const SessionSink& write);
  // Creates a conversation from what save wrote, with the rules and errors of Engine::restore_session. If the scope of
  // `options` names a character but no shared_tokens, the head is the shared region.
  static Result<Conversation> restore(std::shared_ptr<Engine> engine, const RestoreOptions& options,
                                      const SessionSource& read);

  // -- looking --
  size_t turn_count() const { return turns_.size(); }
  size_t dropped_count() const { return dropped_; }  // number of oldest turns that were dropped from the context
  size_t reply_count() const { return turns_.empty() ? 0 : turns_.back().replies.size(); }  // of the newest turn
  size_t chosen_reply() const { return turns_.empty() ? 0 : turns_.back().chosen; }
  // Returns the tokens of one part of a turn, without the closing tokens. The result is empty if the turn has no reply
  // yet. Returns kNotFound if the conversation has no turn of that number.
  Result<std::vector<int32_t>> turn(size_t turn, TurnPart part) const;
  // Returns the tokens that come before the next turn's input, unless that input or its max_tokens makes the
  // conversation drop more turns. Of all calls of a Conversation, only history() throws std::bad_alloc if memory runs
  // short.
  std::vector<int32_t> history() const { return history_of(turns_.size()); }
  SessionId session() const { return session_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }

 private:
  struct Turn {
    std::vector<int32_t> input;
    std::vector<std::vector<int32_t>> replies;
    size_t chosen = 0;
    uint32_t variants = 0;      // number of replies that were requested
    uint32_t next_variant = 0;  // one more than the last variant that was used
    bool greeting = false;      // appended without an input

    size_t reply_size() const { return replies.empty() ? 0 : replies[chosen].size(); }
  };
  struct Asked {
    RequestId request = 0;  // the request whose reply is not part of a turn yet; 0: none
    size_t prompt_count = 0;
    std::vector<int32_t> stop_tokens;
    std::vector<std::string> stop_strings;
    bool loop_guard = false;
  };

  Conversation(std::shared_ptr<Engine> engine, SessionId session, std::vector<int32_t> head, std::vector<int32_t> close,
               std::vector<int32_t> opening)
      : engine_(std::move(engine)),
        session_(session),
        head_(std::move(head)),
        close_(std::move(close)),
        opening_(std::move(opening)) {}

  Status check_tokens(std::span<const int32_t> tokens) const;
  // The conversation as numbers, and back: false where they are no conversation.
  std::vector<int32_t> words(size_t session_tokens) const;
  bool read_words(std::span<const int32_t> words);
  // Returns `input` as the prompt has it, where it is the input of turn `turn`.
  std::span<const int32_t> in_prompt(size_t turn, std::span<const int32_t> input) const;
  // Returns the head and the turns [dropped, count), each with its closing tokens.
  std::vector<int32_t> history_of(size_t count) const;
  // Returns how many of the first `count` turns are dropped if the next turn's input has `input` tokens.
  size_t turns_to_drop(size_t count, size_t input) const;
  // Submits a request whose prompt is the head, the turns before `turn`, and `input`.
  Result<RequestId> ask(size_t turn, std::span<const int32_t> input, uint32_t variant, RequestOptions options);

  std::shared_ptr<Engine> engine_;
  SessionId session_ = 0;
  std::vector<int32_t> head_;
  std::vector<int32_t> close_;
  std::vector<int32_t> opening_;
  std::vector<Turn> turns_;
  size_t dropped_ = 0;
  size_t reserved_ = 1;  // tokens of the context that the last request kept free for its reply
  Asked asked_;
};

}  // namespace kaiju

#if defined(KAIJU_HEADER_ONLY)
#include "kaiju/engine/detail/conversation-inl.hpp"
#endif
