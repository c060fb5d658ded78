// The C interface over kaiju.hpp: sessions and conversations saved and restored.
#include "handles.hpp"
#include "options.hpp"

using kaiju::Status;
using kaiju::StatusCode;
using namespace kaiju::capi;

namespace {

Status save_options(const kaiju_options* options, kaiju::SaveOptions& out) {
  KAIJU_TRY(check_groups(options, kOfKey | kOfSavedKv, "a save"));
  kaiju::Result<kaiju::Sealer> key = session_key(options);
  if (!key.ok()) return key.status();
  out.key = std::move(*key);
  out.kv = session_kv(options);
  return {};
}

Status restore_options(const kaiju_options* options, kaiju::RestoreOptions& out) {
  KAIJU_TRY(check_groups(options, kOfKey | kOfSharing, "a restore"));
  kaiju::Result<kaiju::Sealer> key = session_key(options);
  if (!key.ok()) return key.status();
  out.key = std::move(*key);
  out.scope = scope_of(options);
  return {};
}

kaiju::SessionSink sink_of(kaiju_write_fn write, void* user_data) {
  return [=](std::span<const std::byte> bytes) -> Status {
    if (write(bytes.data(), bytes.size(), user_data) == 0) return {};
    return {StatusCode::kCancelled, "write stopped the save"};
  };
}

kaiju::SessionSource source_of(kaiju_read_fn read, void* user_data) {
  return [=](std::span<std::byte> bytes) -> kaiju::Result<size_t> {
    const int64_t count = read(bytes.data(), bytes.size(), user_data);
    if (count < 0) return Status(StatusCode::kCancelled, "read stopped the restore");
    return static_cast<size_t>(count);
  };
}

}  // namespace

kaiju_status kaiju_session_save(kaiju_session* session, const kaiju_options* options,
                                kaiju_write_fn write, void* user_data, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!session || !write) return missing(session ? "write" : "session");
    kaiju::SaveOptions saving;
    KAIJU_TRY(save_options(options, saving));
    return session->engine->save_session(session->id, saving, sink_of(write, user_data));
  });
}

kaiju_status kaiju_session_restore(kaiju_engine* engine, const kaiju_options* options,
                                   kaiju_read_fn read, void* user_data, kaiju_session** out,
                                   kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !read || !out) return missing(!engine ? "engine" : !read ? "read" : "out");
    kaiju::RestoreOptions restoring;
    KAIJU_TRY(restore_options(options, restoring));
    return adopt(engine->engine,
                 engine->engine->restore_session(restoring, source_of(read, user_data)), out);
  });
}

kaiju_status kaiju_session_save_file(kaiju_session* session, const kaiju_options* options,
                                     const char* path, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!session || !path) return missing(session ? "path" : "session");
    kaiju::SaveOptions saving;
    KAIJU_TRY(save_options(options, saving));
    return kaiju::save_session(*session->engine, session->id, path, saving);
  });
}

kaiju_status kaiju_session_restore_file(kaiju_engine* engine, const kaiju_options* options,
                                        const char* path, kaiju_session** out,
                                        kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !path || !out) return missing(!engine ? "engine" : !path ? "path" : "out");
    kaiju::RestoreOptions restoring;
    KAIJU_TRY(restore_options(options, restoring));
    return adopt(engine->engine, kaiju::restore_session(*engine->engine, path, restoring), out);
  });
}

kaiju_status kaiju_conversation_save(kaiju_conversation* conversation,
                                     const kaiju_options* options, kaiju_write_fn write,
                                     void* user_data, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation || !write) return missing(conversation ? "write" : "conversation");
    kaiju::SaveOptions saving;
    KAIJU_TRY(save_options(options, saving));
    return conversation->talk.save(saving, sink_of(write, user_data));
  });
}

kaiju_status kaiju_conversation_restore(kaiju_engine* engine, const kaiju_options* options,
                                        kaiju_read_fn read, void* user_data,
                                        kaiju_conversation** out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !read || !out) return missing(!engine ? "engine" : !read ? "read" : "out");
    kaiju::RestoreOptions restoring;
    KAIJU_TRY(restore_options(options, restoring));
    return adopt(
        kaiju::Conversation::restore(engine->engine, restoring, source_of(read, user_data)),
        engine->open, out);
  });
}

kaiju_status kaiju_conversation_save_file(kaiju_conversation* conversation,
                                          const kaiju_options* options, const char* path,
                                          kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!conversation || !path) return missing(conversation ? "path" : "conversation");
    kaiju::SaveOptions saving;
    KAIJU_TRY(save_options(options, saving));
    return kaiju::save_conversation(conversation->talk, path, saving);
  });
}

kaiju_status kaiju_conversation_restore_file(kaiju_engine* engine, const kaiju_options* options,
                                             const char* path, kaiju_conversation** out,
                                             kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !path || !out) return missing(!engine ? "engine" : !path ? "path" : "out");
    kaiju::RestoreOptions restoring;
    KAIJU_TRY(restore_options(options, restoring));
    return adopt(kaiju::restore_conversation(engine->engine, path, restoring), engine->open, out);
  });
}
