// Conversation's calls. Part of conversation.hpp, which says what each promises; base/detail/inline.hpp says how it is
// compiled.
#pragma once

#include <algorithm>
#include <utility>

#include "kaiju/base/detail/inline.hpp"
#include "kaiju/engine/conversation.hpp"
#include "kaiju/engine/detail/kept_reply.hpp"
#include "kaiju/engine/detail/saved_conversation.hpp"
#include "kaiju/text/detail/pieces.hpp"
#include "kaiju/text/detail/truncate.hpp"

namespace kaiju {

KAIJU_INLINE Result<Conversation> Conversation::create(std::shared_ptr<Engine> engine, std::span<const int32_t> head,
                                                       std::span<const int32_t> close,
                                                       std::span<const int32_t> opening) {
  return guarded<Result<Conversation>>([&]() -> Result<Conversation> {
    if (!engine) return invalid_argument("no engine");
    const auto context = static_cast<size_t>(engine->info().context);
    if (head.size() > context / 2)
      return invalid_argument("the head is " + std::to_string(head.size()) +
                              " tokens long; it may fill half of the context, " + std::to_string(context / 2));
    Conversation made(std::move(engine), 0, {head.begin(), head.end()}, {close.begin(), close.end()},
                      {opening.begin(), opening.end()});
    KAIJU_TRY(made.check_tokens(head));
    KAIJU_TRY(made.check_tokens(close));
    KAIJU_TRY(made.check_tokens(opening));
    Result<SessionId> session = made.engine_->create_session();
    if (!session.ok()) return session.status();
    made.session_ = session.value();
    return made;
  });
}

KAIJU_INLINE Status Conversation::check_tokens(std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= engine_->info().vocab_size)
      return invalid_argument("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) + "; tokens are 0 to " +
                              std::to_string(engine_->info().vocab_size - 1));
  return {};
}

KAIJU_INLINE std::span<const int32_t> Conversation::in_prompt(size_t turn, std::span<const int32_t> input) const {
  const bool begun = turn == dropped_ && input.size() >= opening_.size() &&
                     std::equal(opening_.begin(), opening_.end(), input.begin());
  return begun ? input.subspan(opening_.size()) : input;
}

KAIJU_INLINE std::vector<int32_t> Conversation::history_of(size_t count) const {
  std::vector<int32_t> tokens = head_;
  const auto append = [&](std::span<const int32_t> more) { tokens.insert(tokens.end(), more.begin(), more.end()); };
  for (size_t i = dropped_; i < count; ++i) {
    append(in_prompt(i, turns_[i].input));
    if (!turns_[i].replies.empty()) append(turns_[i].replies[turns_[i].chosen]);
    append(close_);
  }
  return tokens;
}

KAIJU_INLINE Status Conversation::settle() {
  return guarded<Status>([&]() -> Status {
    if (!engine_) return invalid_argument("the conversation was moved to another object");
    KAIJU_TRY(engine_->check_process());
    if (asked_.request == 0) return {};
    Result<RequestId> unfinished = engine_->unfinished_request(session_);
    if (!unfinished.ok()) return unfinished.status();
    if (unfinished.value() != 0)
      return {StatusCode::kBusy, "a reply is under way, request " + std::to_string(asked_.request) +
                                     ": wait for its last event or cancel it"};
    KAIJU_TRY(engine_->status());  // a stopped engine has left the history as it was
    Result<std::vector<int32_t>> tokens = engine_->session_tokens(session_);
    if (!tokens.ok()) return tokens.status();
    std::vector<int32_t> reply(tokens->begin() + static_cast<std::ptrdiff_t>(asked_.prompt_count), tokens->end());
    if (!reply.empty() &&
        std::find(asked_.stop_tokens.begin(), asked_.stop_tokens.end(), reply.back()) != asked_.stop_tokens.end())
      reply.pop_back();
    if (!asked_.stop_strings.empty() || asked_.loop_guard)
      reply = kept_reply(reply, asked_.stop_strings, asked_.loop_guard, *engine_->pieces(), engine_->info().vocab_size);
    turns_.back().replies.push_back(std::move(reply));
    turns_.back().chosen = turns_.back().replies.size() - 1;
    asked_ = {};
    return {};
  });
}

KAIJU_INLINE Result<RequestId> Conversation::prefetch(PrefetchOptions options) {
  return guarded<Result<RequestId>>([&]() -> Result<RequestId> {
    KAIJU_TRY(settle());
    KAIJU_TRY(engine_->set_session_tokens(session_, history()));
    if (options.scope && !options.scope->character.empty() && options.scope->shared_tokens == 0)
      options.scope->shared_tokens = static_cast<int32_t>(head_.size());
    return engine_->prefetch(session_, options);
  });
}

KAIJU_INLINE Result<RequestId> Conversation::ask(size_t turn, std::span<const int32_t> input, uint32_t variant,
                                                 RequestOptions options) {
  const auto context = static_cast<size_t>(engine_->info().context);
  if (options.max_tokens < 0) options.max_tokens = engine_->info().context;
  const size_t reserved =
      std::min<size_t>(std::max<size_t>(context / 4, 1), static_cast<size_t>(std::max(options.max_tokens, 1)));
  const size_t reserved_before = std::exchange(reserved_, reserved),
               dropped = std::exchange(dropped_, turns_to_drop(turn, input.size()));
  size_t prompt_count = 0;
  Result<RequestId> request = guarded<Result<RequestId>>([&]() -> Result<RequestId> {
    if (options.sequence_count != 1) return invalid_argument("sequence_count must be 1: a turn has one reply");
    if (options.begun_tokens != 0)
      return invalid_argument("begun_tokens must be 0: a turn has its reply from the start");
    std::vector<int32_t> prompt = history_of(turn);
    const size_t before = prompt.size();
    const std::span<const int32_t> text = in_prompt(turn, input);
    prompt.insert(prompt.end(), text.begin(), text.end());
    prompt_count = prompt.size();
    const size_t least = options.max_tokens > 0 ? 1 : 0;  // generated
    if (prompt.size() + least > context)
      return invalid_argument("the input is " + std::to_string(input.size()) + " tokens long; there is room for " +
                              std::to_string(context - std::min(context, least + before)));
    options.max_tokens =
        static_cast<int32_t>(std::min(static_cast<size_t>(options.max_tokens), context - prompt.size()));
    options.sampling.variant = variant;
    if (!options.scope.character.empty() && options.scope.shared_tokens == 0)
      options.scope.shared_tokens = static_cast<int32_t>(head_.size());
    return engine_->submit_history(session_, prompt, options);
  });
  if (request.ok())
    asked_ = {request.value(), prompt_count,
              options.stop_tokens ? *std::move(options.stop_tokens) : engine_->options().stop_tokens,
              std::move(options.stop_strings), options.loop_guard};
  else
    dropped_ = dropped, reserved_ = reserved_before;
  return request;
}

KAIJU_INLINE size_t Conversation::turns_to_drop(size_t count, size_t input) const {
  std::vector<size_t> sizes;
  for (size_t i = 0; i < count; ++i) sizes.push_back(turns_[i].input.size() + turns_[i].reply_size() + close_.size());
  sizes.push_back(input);
  return chat_turns_to_drop(sizes, head_.size(), reserved_, static_cast<size_t>(engine_->info().context));
}

KAIJU_INLINE Result<RequestId> Conversation::say(std::span<const int32_t> input, const RequestOptions& options) {
  return guarded<Result<RequestId>>([&]() -> Result<RequestId> {
    KAIJU_TRY(settle());
    Turn turn;
    turn.input.assign(input.begin(), input.end());
    turn.variants = 1;
    turn.next_variant = options.sampling.variant + 1;
    turns_.reserve(turns_.size() + 1);
    Result<RequestId> request = ask(turns_.size(), input, options.sampling.variant, options);
    if (request.ok()) turns_.push_back(std::move(turn));
    return request;
  });
}

KAIJU_INLINE Result<RequestId> Conversation::swipe(const RequestOptions& options) {
  return guarded<Result<RequestId>>([&]() -> Result<RequestId> {
    KAIJU_TRY(settle());
    if (turns_.empty()) return invalid_argument("there is no turn to answer again");
    Turn& turn = turns_.back();
    if (turn.greeting)
      return invalid_argument("the newest turn was appended without an input: there is nothing to answer again");
    turn.replies.reserve(turn.replies.size() + 1);
    const uint32_t variant = std::max(options.sampling.variant + turn.variants, turn.next_variant);
    Result<RequestId> request = ask(turns_.size() - 1, turn.input, variant, options);
    if (request.ok()) ++turn.variants, turn.next_variant = variant + 1;
    return request;
  });
}

KAIJU_INLINE Status Conversation::append(std::span<const int32_t> input, std::span<const int32_t> reply) {
  return guarded<Status>([&]() -> Status {
    KAIJU_TRY(settle());
    KAIJU_TRY(check_tokens(input));
    KAIJU_TRY(check_tokens(reply));
    Turn turn;
    turn.input.assign(input.begin(), input.end());
    turn.replies.emplace_back(reply.begin(), reply.end());
    turn.variants = turn.next_variant = 1;
    turn.greeting = input.empty();
    turns_.push_back(std::move(turn));
    dropped_ = turns_to_drop(turns_.size(), 0);
    return {};
  });
}

KAIJU_INLINE Status Conversation::choose(size_t reply) {
  return guarded<Status>([&]() -> Status {
    KAIJU_TRY(settle());
    if (reply >= reply_count())
      return {StatusCode::kNotFound,
              "there is no reply " + std::to_string(reply) + "; the newest turn has " + std::to_string(reply_count())};
    turns_.back().chosen = reply;
    return {};
  });
}

KAIJU_INLINE Status Conversation::edit(size_t turn, TurnPart part, std::span<const int32_t> tokens) {
  return guarded<Status>([&]() -> Status {
    KAIJU_TRY(settle());
    KAIJU_TRY(check_tokens(tokens));
    if (turn >= turns_.size())
      return {StatusCode::kNotFound,
              "there is no turn " + std::to_string(turn) + "; there are " + std::to_string(turns_.size())};
    std::vector<int32_t> copy(tokens.begin(), tokens.end());
    Turn& edited = turns_[turn];
    if (part == TurnPart::kReply) {
      if (edited.replies.empty()) edited.replies.emplace_back();
      edited.replies[edited.chosen] = std::move(copy);
    } else {
      edited = Turn();
      edited.input = std::move(copy);
      turns_.resize(turn + 1);
    }
    dropped_ = turns_to_drop(turns_.size(), 0);
    return {};
  });
}

KAIJU_INLINE Status Conversation::undo() {
  return guarded<Status>([&]() -> Status {
    KAIJU_TRY(settle());
    if (turns_.empty()) return {StatusCode::kNotFound, "there is no turn to undo"};
    turns_.pop_back();
    dropped_ = turns_to_drop(turns_.size(), 0);
    return {};
  });
}

KAIJU_INLINE Result<Conversation> Conversation::fork(size_t turns) {
  return guarded<Result<Conversation>>([&]() -> Result<Conversation> {
    KAIJU_TRY(settle());
    if (turns > turns_.size())
      return Status(StatusCode::kNotFound, "a fork after " + std::to_string(turns) +
                                               " turns was asked of a conversation of " +
                                               std::to_string(turns_.size()));
    Result<std::vector<int32_t>> tokens = engine_->session_tokens(session_);
    if (!tokens.ok()) return tokens.status();
    const std::vector<int32_t> wanted = history_of(std::max(turns, std::min(dropped_, turns_.size())));
    const auto same = static_cast<size_t>(
        std::mismatch(tokens->begin(), tokens->end(), wanted.begin(), wanted.end()).first - tokens->begin());
    Conversation child(engine_, 0, head_, close_, opening_);
    for (size_t i = 0; i < turns; ++i) {
      Turn turn = turns_[i];
      turn.replies.clear();
      turn.chosen = 0;
      if (!turns_[i].replies.empty()) turn.replies.push_back(turns_[i].replies[turns_[i].chosen]);
      child.turns_.push_back(std::move(turn));
    }
    child.reserved_ = reserved_;
    child.dropped_ = child.turns_to_drop(turns, 0);
    Result<SessionId> session = engine_->fork_session(session_, same);
    if (!session.ok()) return session.status();
    child.session_ = session.value();
    return child;
  });
}

KAIJU_INLINE std::vector<int32_t> Conversation::words(size_t session_tokens) const {
  std::vector<int32_t> out;
  const auto number = [&](size_t value) { out.push_back(static_cast<int32_t>(static_cast<uint32_t>(value))); };
  const auto list = [&](const std::vector<int32_t>& tokens) {
    number(tokens.size());
    out.insert(out.end(), tokens.begin(), tokens.end());
  };
  number(session_tokens);
  for (const auto* tokens : {&head_, &close_, &opening_}) list(*tokens);
  number(dropped_);
  number(reserved_);
  number(turns_.size());
  for (const Turn& turn : turns_) {
    list(turn.input);
    number(turn.greeting ? 1 : 0);
    number(turn.variants);
    number(turn.next_variant);
    number(turn.chosen);
    number(turn.replies.size());
    for (const std::vector<int32_t>& reply : turn.replies) list(reply);
  }
  return out;
}

KAIJU_INLINE bool Conversation::read_words(std::span<const int32_t> words) {
  WordReader reader(words);
  (void)reader.number(UINT32_MAX);  // of the session's tokens
  for (auto* tokens : {&head_, &close_, &opening_}) *tokens = reader.list();
  const auto context = static_cast<size_t>(engine_->info().context);
  dropped_ = reader.number(words.size());
  reserved_ = reader.number(context);
  const size_t count = reader.number(words.size());
  bool good = reader.ok() && head_.size() <= context / 2 && dropped_ <= count;
  for (const auto* tokens : {&head_, &close_, &opening_}) good = good && check_tokens(*tokens).ok();
  for (size_t i = 0; good && i < count; ++i) {
    Turn turn;
    turn.input = reader.list();
    turn.greeting = reader.number(1) != 0;
    turn.variants = static_cast<uint32_t>(reader.number(UINT32_MAX));
    turn.next_variant = static_cast<uint32_t>(reader.number(UINT32_MAX));
    turn.chosen = reader.number(words.size());
    const size_t replies = reader.number(words.size());
    good = check_tokens(turn.input).ok() && (turn.chosen < replies || (turn.chosen == 0 && replies == 0));
    for (size_t j = 0; good && reader.ok() && j < replies; ++j) {
      turn.replies.push_back(reader.list());
      good = check_tokens(turn.replies.back()).ok();
    }
    good = good && reader.ok();
    turns_.push_back(std::move(turn));
  }
  return good && reader.at_end();
}

KAIJU_INLINE Status Conversation::save(const SaveOptions& options, const SessionSink& write) {
  return guarded<Status>([&]() -> Status {
    KAIJU_TRY(settle());
    Result<std::vector<int32_t>> tokens = engine_->session_tokens(session_);
    if (!tokens.ok()) return tokens.status();
    SavedTurnsWriter turns(options.key, options.before, write);
    KAIJU_TRY(turns.write(words(tokens->size())));
    SaveOptions session = options;
    session.before = turns.last();
    return engine_->save_session(session_, session, write);
  });
}

KAIJU_INLINE Result<Conversation> Conversation::restore(std::shared_ptr<Engine> engine, const RestoreOptions& options,
                                                        const SessionSource& read) {
  return guarded<Result<Conversation>>([&]() -> Result<Conversation> {
    if (!engine) return invalid_argument("no engine");
    KAIJU_TRY(engine->check_process());
    std::vector<int32_t> words;
    SavedTurnsReader turns(options.key, read);
    KAIJU_TRY(turns.read(words));
    RestoreOptions session = options;
    session.before = turns.last();
    // The words begin with the sizes of the session's history and of the head.
    if (!session.scope.character.empty() && session.scope.shared_tokens == 0 && words.size() > 1)
      session.scope.shared_tokens = std::min(words[0], words[1]);
    Conversation made(std::move(engine), 0, {}, {}, {});
    Result<SessionId> restored = made.engine_->restore_session(session, read);
    if (!restored.ok()) return restored.status();
    made.session_ = restored.value();
    if (!made.read_words(words)) return bad_model("the saved conversation is damaged: its turns are wrong");
    return made;
  });
}

KAIJU_INLINE Result<std::vector<int32_t>> Conversation::turn(size_t turn, TurnPart part) const {
  return guarded<Result<std::vector<int32_t>>>([&]() -> Result<std::vector<int32_t>> {
    if (turn >= turns_.size())
      return Status(StatusCode::kNotFound,
                    "there is no turn " + std::to_string(turn) + "; there are " + std::to_string(turns_.size()));
    if (part == TurnPart::kInput) return turns_[turn].input;
    return turns_[turn].replies.empty() ? std::vector<int32_t>() : turns_[turn].replies[turns_[turn].chosen];
  });
}

}  // namespace kaiju
