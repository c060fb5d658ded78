// The C interface over kaiju.hpp: records of replies, and replies computed again.
#include "handles.hpp"
#include "kaiju/records.hpp"

using kaiju::Status;
using kaiju::StatusCode;
using namespace kaiju::capi;

namespace {

std::string_view bytes_of(const void* record, size_t size) {
  return {static_cast<const char*>(record), size};
}

}  // namespace

kaiju_status kaiju_engine_record(const kaiju_engine* engine, kaiju_request request, void* record,
                                 size_t capacity, size_t* size, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine) return missing("engine");
    KAIJU_TRY(check_span("record", record, capacity));
    for (const kaiju_polled_event& polled : engine->polled) {
      if (!polled.event.record || polled.event.request != request) continue;
      fill(kaiju::encode_record(*polled.event.record), static_cast<char*>(record), capacity, size);
      return {};
    }
    return {StatusCode::kNotFound,
            "the events of the last poll have no record of this request: ask for one with "
            "KAIJU_GENERATE_RECORD, and call this after the poll that gave its DONE event"};
  });
}

kaiju_status kaiju_record_describe(const void* record, size_t size, char* text, size_t capacity,
                                   size_t* text_size, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    KAIJU_TRY(check_span("record", record, size));
    KAIJU_TRY(check_span("text", text, capacity));
    kaiju::Result<std::string> described = kaiju::describe_record(bytes_of(record, size));
    if (!described.ok()) return described.status();
    fill(*described, text, capacity, text_size);
    return {};
  });
}

kaiju_status kaiju_record_tokens(const void* record, size_t size, int32_t* tokens, size_t capacity,
                                 size_t* count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    KAIJU_TRY(check_span("record", record, size));
    KAIJU_TRY(check_span("tokens", tokens, capacity));
    kaiju::Result<kaiju::ReplyRecord> read = kaiju::decode_record(bytes_of(record, size));
    if (!read.ok()) return read.status();
    fill(*read->tokens, tokens, capacity, count);
    return {};
  });
}

kaiju_status kaiju_engine_replay(kaiju_engine* engine, const void* record, size_t size,
                                 kaiju_replayed* out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !out) return missing(engine ? "out" : "engine");
    KAIJU_TRY(check_struct_size<kaiju_replayed>("kaiju_replayed", out->struct_size));
    KAIJU_TRY(check_span("record", record, size));
    kaiju::Result<kaiju::ReplyRecord> read = kaiju::decode_record(bytes_of(record, size));
    if (!read.ok()) return read.status();
    kaiju::Result<kaiju::Replayed> replayed = kaiju::replay(*engine->engine, *read);
    if (!replayed.ok()) return replayed.status();
    kaiju_replayed found{};
    const size_t caller_bytes = found.struct_size = out->struct_size;
    found.same_model = replayed->same_model;
    found.reason = static_cast<int32_t>(replayed->reason);
    found.recorded_tokens = read->tokens->size() - static_cast<size_t>(read->prompt_tokens);
    found.compared_tokens = replayed->reply.size();
    found.differs_at = replayed->differs_at;
    found.recorded = found.generated = -1;
    if (const auto at = static_cast<size_t>(replayed->differs_at); replayed->differs_at >= 0) {
      if (at < found.recorded_tokens)
        found.recorded = (*read->tokens)[static_cast<size_t>(read->prompt_tokens) + at];
      if (at < replayed->reply.size()) found.generated = replayed->reply[at];
    }
    copy_sized(&found, sizeof found, out, caller_bytes);
    return {};
  });
}
