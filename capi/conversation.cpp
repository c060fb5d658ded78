// The C interface over kaiju.hpp: conversations.
#include "handles.hpp"
#include "options.hpp"

using kaiju::Status;
using namespace kaiju::capi;

static_assert(KAIJU_TURN_INPUT == static_cast<int>(kaiju::TurnPart::kInput) &&
              KAIJU_TURN_REPLY == static_cast<int>(kaiju::TurnPart::kReply));

namespace {

Status check_part(int32_t part) {
  if (part == KAIJU_TURN_INPUT || part == KAIJU_TURN_REPLY) return {};
  return kaiju::invalid_argument("part is " + std::to_string(part) +
                                 "; parts are 1 (input) and 2 (reply)");
}

kaiju::Result<kaiju::RequestOptions> request_of(const kaiju_options* options, void* user_data,
                                                const char* call) {
  KAIJU_TRY(check_groups(options, kOfRequest | kOfSharing, call));
  kaiju::Result<kaiju::RequestOptions> request = request_options(options);
  if (request.ok()) request->user_data = user_data;
  return request;
}

Status check_engine(const kaiju_conversation& conversation) {
  KAIJU_TRY(conversation.talk.engine()->check_process());
  if (!conversation.engine.expired()) return {};
  return kaiju::invalid_argument(
      "the conversation's engine was destroyed: save what it holds, and restore it in another");
}

Status tell(const kaiju::Result<kaiju::RequestId>& request, kaiju_request* out) {
  if (request.ok() && out) *out = request.value();
  return request.status();
}

// A reply that is under way is no reason not to look at the rest; another process than the
// engine's is.
Status settle_if_done(kaiju_conversation* conversation) {
  KAIJU_TRY(conversation->talk.engine()->check_process());
  (void)conversation->talk.settle();
  return {};
}

}  // namespace

kaiju_status kaiju_conversation_create(kaiju_engine* engine, const int32_t* head, size_t count,
                                       kaiju_conversation** out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !out) return missing(engine ? "out" : "engine");
    KAIJU_TRY(check_span("head", head, count));
    return adopt(engine->model->create_conversation(engine->engine, {head, count}), engine->open,
                 out);
  });
}

// In a child of fork() another thread of the parent may have been in the middle of a change: the
// handle stays as it is.
void kaiju_conversation_destroy(kaiju_conversation* conversation) {
  if (conversation && conversation->talk.engine()->check_process().ok()) delete conversation;
}

kaiju_status kaiju_conversation_say(kaiju_conversation* conversation, const int32_t* input,
                                    size_t count, const kaiju_options* options, void* user_data,
                                    kaiju_request* out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation) return missing("conversation");
    KAIJU_TRY(check_span("input", input, count));
    KAIJU_TRY(check_engine(*conversation));
    auto request = request_of(options, user_data, "kaiju_conversation_say");
    if (!request.ok()) return request.status();
    return tell(conversation->talk.say({input, count}, *request), out);
  });
}

kaiju_status kaiju_conversation_swipe(kaiju_conversation* conversation,
                                      const kaiju_options* options, void* user_data,
                                      kaiju_request* out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation) return missing("conversation");
    KAIJU_TRY(check_engine(*conversation));
    auto request = request_of(options, user_data, "kaiju_conversation_swipe");
    if (!request.ok()) return request.status();
    return tell(conversation->talk.swipe(*request), out);
  });
}

kaiju_status kaiju_conversation_prefetch(kaiju_conversation* conversation,
                                         const kaiju_options* options, int64_t at, void* user_data,
                                         kaiju_request* out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation) return missing("conversation");
    KAIJU_TRY(check_engine(*conversation));
    auto asked = prefetch_options(options, at, user_data, "kaiju_conversation_prefetch");
    if (!asked.ok()) return asked.status();
    return tell(conversation->talk.prefetch(*asked), out);
  });
}

kaiju_status kaiju_conversation_choose(kaiju_conversation* conversation, size_t reply,
                                       kaiju_error** error) {
  return guard(error, [&] {
    return conversation ? conversation->talk.choose(reply) : missing("conversation");
  });
}

kaiju_status kaiju_conversation_append(kaiju_conversation* conversation, const int32_t* input,
                                       size_t input_count, const int32_t* reply,
                                       size_t reply_count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation) return missing("conversation");
    KAIJU_TRY(check_span("input", input, input_count));
    KAIJU_TRY(check_span("reply", reply, reply_count));
    return conversation->talk.append({input, input_count}, {reply, reply_count});
  });
}

kaiju_status kaiju_conversation_edit(kaiju_conversation* conversation, size_t turn, int32_t part,
                                     const int32_t* tokens, size_t count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation) return missing("conversation");
    KAIJU_TRY(check_part(part));
    KAIJU_TRY(check_span("tokens", tokens, count));
    return conversation->talk.edit(turn, static_cast<kaiju::TurnPart>(part), {tokens, count});
  });
}

kaiju_status kaiju_conversation_undo(kaiju_conversation* conversation, kaiju_error** error) {
  return guard(error,
               [&] { return conversation ? conversation->talk.undo() : missing("conversation"); });
}

kaiju_status kaiju_conversation_fork(kaiju_conversation* conversation, size_t turns,
                                     kaiju_conversation** out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation || !out) return missing(conversation ? "out" : "conversation");
    return adopt(conversation->talk.fork(turns), conversation->engine, out);
  });
}

kaiju_status kaiju_conversation_describe(kaiju_conversation* conversation,
                                         kaiju_conversation_info* out) {
  return guard(nullptr, [&]() -> Status {
    if (!conversation || !out) return missing(conversation ? "out" : "conversation");
    KAIJU_TRY(
        check_struct_size<kaiju_conversation_info>("kaiju_conversation_info", out->struct_size));
    KAIJU_TRY(settle_if_done(conversation));
    const kaiju::Conversation& talk = conversation->talk;
    const size_t size = out->struct_size;
    const kaiju_conversation_info info{size,
                                       talk.turn_count(),
                                       talk.dropped_count(),
                                       talk.reply_count(),
                                       talk.chosen_reply(),
                                       talk.history().size()};
    copy_sized(&info, sizeof info, out, size);
    return {};
  });
}

kaiju_status kaiju_conversation_turn(kaiju_conversation* conversation, size_t turn, int32_t part,
                                     int32_t* tokens, size_t capacity, size_t* count,
                                     kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation) return missing("conversation");
    KAIJU_TRY(check_part(part));
    KAIJU_TRY(check_span("tokens", tokens, capacity));
    KAIJU_TRY(settle_if_done(conversation));
    const auto found = conversation->talk.turn(turn, static_cast<kaiju::TurnPart>(part));
    if (!found.ok()) return found.status();
    fill(found.value(), tokens, capacity, count);
    return {};
  });
}

kaiju_status kaiju_conversation_tokens(kaiju_conversation* conversation, int32_t* tokens,
                                       size_t capacity, size_t* count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation) return missing("conversation");
    KAIJU_TRY(check_span("tokens", tokens, capacity));
    KAIJU_TRY(settle_if_done(conversation));
    fill(conversation->talk.history(), tokens, capacity, count);
    return {};
  });
}
