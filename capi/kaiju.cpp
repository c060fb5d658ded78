// The C interface over kaiju.hpp: version, errors, runtime, model and text. Other files have
// engine and sessions, conversations, saved sessions, and options.
#include "kaiju.h"

#include "handles.hpp"
#include "kaiju/text/detail/truncate.hpp"
#include "options.hpp"

using kaiju::Status;
using kaiju::StatusCode;
using namespace kaiju::capi;

static_assert(KAIJU_MOST_TEXT_BYTES == kaiju::Tokenizer::kMaxTextBytes);
// The codes are shared, value for value.
static_assert(KAIJU_OK == static_cast<int>(StatusCode::kOk) &&
              KAIJU_INVALID_ARGUMENT == static_cast<int>(StatusCode::kInvalidArgument) &&
              KAIJU_NOT_FOUND == static_cast<int>(StatusCode::kNotFound) &&
              KAIJU_UNSUPPORTED == static_cast<int>(StatusCode::kUnsupported) &&
              KAIJU_OUT_OF_MEMORY == static_cast<int>(StatusCode::kOutOfMemory) &&
              KAIJU_BUSY == static_cast<int>(StatusCode::kBusy) &&
              KAIJU_CANCELLED == static_cast<int>(StatusCode::kCancelled) &&
              KAIJU_IO == static_cast<int>(StatusCode::kIo) &&
              KAIJU_BAD_MODEL == static_cast<int>(StatusCode::kBadModel) &&
              KAIJU_DEVICE_LOST == static_cast<int>(StatusCode::kDeviceLost) &&
              KAIJU_INTERNAL == static_cast<int>(StatusCode::kInternal));
static_assert(KAIJU_ROLE_CARD == static_cast<int>(kaiju::ChatRole::kCard) &&
              KAIJU_ROLE_USER == static_cast<int>(kaiju::ChatRole::kUser) &&
              KAIJU_ROLE_CHARACTER == static_cast<int>(kaiju::ChatRole::kCharacter) &&
              KAIJU_ROLE_SYSTEM == static_cast<int>(kaiju::ChatRole::kSystem));

#define KAIJU_STRING2(x) #x
#define KAIJU_STRING(x) KAIJU_STRING2(x)
#define KAIJU_VERSION_TEXT          \
  KAIJU_STRING(KAIJU_VERSION_MAJOR) \
  "." KAIJU_STRING(KAIJU_VERSION_MINOR) "." KAIJU_STRING(KAIJU_VERSION_PATCH)

// -- version and errors --

uint32_t kaiju_version(void) { return KAIJU_VERSION; }
const char* kaiju_version_string(void) { return KAIJU_VERSION_TEXT; }

const char* kaiju_build_info(void) {
#ifdef NDEBUG
  return "kaiju " KAIJU_VERSION_TEXT ", compiler " __VERSION__ ", release";
#else
  return "kaiju " KAIJU_VERSION_TEXT ", compiler " __VERSION__ ", debug";
#endif
}

const char* kaiju_status_name(kaiju_status status) {
  static constexpr const char* kNames[] = {
      "ok",        "invalid argument", "not found", "unsupported", "out of memory", "busy",
      "cancelled", "input or output",  "bad model", "device lost", "internal error"};
  return status >= 0 && static_cast<size_t>(status) < std::size(kNames) ? kNames[status]
                                                                        : "unknown status";
}

kaiju_status kaiju_error_status(const kaiju_error* error) {
  return error ? static_cast<kaiju_status>(error->status.code()) : KAIJU_OK;
}

const char* kaiju_error_message(const kaiju_error* error) {
  if (!error) return "";
  // A failure that left no room for a message still says what it was.
  return error->status.message().empty() ? kaiju_status_name(kaiju_error_status(error))
                                         : error->status.message().c_str();
}

void kaiju_error_destroy(kaiju_error* error) { delete error; }

// -- runtime --

kaiju_status kaiju_runtime_create(kaiju_runtime** out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!out) return missing("out");
    auto runtime = std::make_unique<kaiju_runtime>();
    runtime->devices = kaiju::devices();
    for (const kaiju::DeviceInfo& device : runtime->devices) {
      std::string& names = runtime->backends.emplace_back();
      for (const std::string& name : device.backends) names += (names.empty() ? "" : ",") + name;
    }
    *out = runtime.release();
    return {};
  });
}

void kaiju_runtime_destroy(kaiju_runtime* runtime) { delete runtime; }

size_t kaiju_runtime_device_count(const kaiju_runtime* runtime) {
  return runtime ? runtime->devices.size() : 0;
}

kaiju_status kaiju_runtime_device_info(const kaiju_runtime* runtime, size_t index,
                                       kaiju_device_info* out) {
  return guard(nullptr, [&]() -> Status {
    if (!runtime || !out) return missing(runtime ? "out" : "runtime");
    KAIJU_TRY(check_struct_size<kaiju_device_info>("kaiju_device_info", out->struct_size,
                                                   offsetof(kaiju_device_info, kind)));
    if (index >= runtime->devices.size())
      return Status(StatusCode::kNotFound, "there is no such device");
    const kaiju::DeviceInfo& device = runtime->devices[index];
    const size_t size = out->struct_size;
    const kaiju_device_info info{size,
                                 device.name.c_str(),
                                 runtime->backends[index].c_str(),
                                 device.memory_total,
                                 device.memory_free,
                                 static_cast<int32_t>(device.kind),
                                 0,
                                 device.description.c_str()};
    copy_sized(&info, sizeof info, out, size);
    return {};
  });
}

// -- model --

kaiju_status kaiju_model_load(kaiju_runtime*, const char* path, const kaiju_options* options,
                              kaiju_progress_fn progress, void* user_data, kaiju_model** out,
                              kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!path || !out) return missing(path ? "out" : "path");
    KAIJU_TRY(check_groups(options, kOfModel, "kaiju_model_load"));
    kaiju::ModelOptions load = model_options(options);
    if (progress)
      load.progress = [=](double done) { return static_cast<int>(progress(done, user_data)); };
    auto model = kaiju::Model::load(path, load);
    if (!model.ok()) return model.status();
    *out = new kaiju_model{std::move(model).value()};
    return {};
  });
}

void kaiju_model_destroy(kaiju_model* model) { delete model; }

namespace {

// A chat symbol that the model lacks is -1.
Status find_number(const kaiju::Model& model, int32_t property, int64_t& out) {
  const kaiju::ModelConfig& config = model.config();
  const auto symbol = [&](int32_t token, const char* name) -> Status {
    if (token < 0)
      return {StatusCode::kNotFound, std::string("the model has no chat symbol ") + name};
    out = token;
    return {};
  };
  switch (property) {
    case KAIJU_MODEL_VOCABULARY:
      return out = config.vocab_size, Status();
    case KAIJU_MODEL_CONTEXT:
      return out = config.context, Status();
    case KAIJU_MODEL_LABELS:
      return out = config.label_count(), Status();
    case KAIJU_MODEL_WEIGHT_BYTES:
      return out = model.weight_bytes(), Status();
    case KAIJU_MODEL_PARAMETERS:
      return out = model.parameter_count(), Status();
    case KAIJU_MODEL_CHAT_BEGIN:
      return symbol(config.chat.begin, "begin");
    case KAIJU_MODEL_CHAT_CARD:
      return symbol(config.chat.card, "card");
    case KAIJU_MODEL_CHAT_USER:
      return symbol(config.chat.user, "user");
    case KAIJU_MODEL_CHAT_CHARACTER:
      return symbol(config.chat.character, "character");
    case KAIJU_MODEL_CHAT_CLOSE:
      return symbol(config.chat.close, "close");
    case KAIJU_MODEL_CHAT_END:
      return symbol(config.chat.end, "end");
    case KAIJU_MODEL_CHAT_TEXT:
      return symbol(config.chat.text, "text");
    default:
      return kaiju::invalid_argument("no property of models has the number " +
                                     std::to_string(property));
  }
}

}  // namespace

kaiju_status kaiju_model_number(const kaiju_model* model, int32_t property, int64_t* out) {
  return guard(nullptr, [&]() -> Status {
    if (!model || !out) return missing(model ? "out" : "model");
    int64_t value = 0;
    KAIJU_TRY(find_number(*model->model, property, value));
    *out = value;
    return {};
  });
}

kaiju_status kaiju_model_text(const kaiju_model* model, int32_t property, const char** text,
                              size_t* size) {
  return guard(nullptr, [&]() -> Status {
    if (!model || !text) return missing(model ? "text" : "model");
    if (property != KAIJU_MODEL_NAME && property != KAIJU_MODEL_DIGEST)
      return kaiju::invalid_argument("no text property of models has the number " +
                                     std::to_string(property));
    const std::string& value = property == KAIJU_MODEL_NAME ? model->model->config().name
                                                            : model->model->checkpoint()->digest();
    *text = value.c_str();
    if (size) *size = value.size();
    return {};
  });
}

size_t kaiju_model_stop_tokens(const kaiju_model* model, int32_t* tokens, size_t capacity) {
  if (!model) return 0;
  return guard_value<size_t>(0, [&] {
    size_t count = 0;
    fill(model->model->stop_tokens(), tokens, capacity, &count);
    return count;
  });
}

kaiju_status kaiju_model_label(const kaiju_model* model, size_t index, const char** text,
                               size_t* size) {
  return guard(nullptr, [&]() -> Status {
    if (!model || !text) return missing(model ? "text" : "model");
    const std::vector<std::string>& labels = model->model->config().labels;
    if (index >= labels.size()) return Status(StatusCode::kNotFound, "no such label");
    *text = labels[index].c_str();
    if (size) *size = labels[index].size();
    return {};
  });
}

// -- text --

kaiju_status kaiju_tokenize(const kaiju_model* model, const char* text, size_t size,
                            int32_t* tokens, size_t capacity, size_t* count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!model) return missing("model");
    KAIJU_TRY(check_span("text", text, size));
    KAIJU_TRY(check_span("tokens", tokens, capacity));
    auto tokenizer = model->model->tokenizer();
    if (!tokenizer.ok()) return tokenizer.status();
    auto ids = (*tokenizer)->encode({size ? text : "", size});
    if (!ids.ok()) return ids.status();
    fill(*ids, tokens, capacity, count);
    return {};
  });
}

kaiju_status kaiju_detokenize(const kaiju_model* model, const int32_t* tokens, size_t count,
                              char* text, size_t capacity, size_t* size, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!model) return missing("model");
    KAIJU_TRY(check_span("tokens", tokens, count));
    KAIJU_TRY(check_span("text", text, capacity));
    auto tokenizer = model->model->tokenizer();
    if (!tokenizer.ok()) return tokenizer.status();
    auto bytes = (*tokenizer)->decode({tokens, count});
    if (!bytes.ok()) return bytes.status();
    fill(*bytes, text, capacity, size);
    return {};
  });
}

kaiju_status kaiju_token_text(const kaiju_model* model, int32_t token, char* text, size_t capacity,
                              size_t* size, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!model) return missing("model");
    KAIJU_TRY(check_span("text", text, capacity));
    auto tokenizer = model->model->tokenizer();
    if (!tokenizer.ok()) return tokenizer.status();
    const int32_t vocabulary = model->model->config().vocab_size;
    if (token < 0 || token >= vocabulary)
      return kaiju::invalid_argument("token is " + std::to_string(token) + "; tokens are 0 to " +
                                     std::to_string(vocabulary - 1));
    fill((*tokenizer)->piece(token), text, capacity, size);
    return {};
  });
}

namespace {

constexpr int32_t kChatFlags = KAIJU_CHAT_REPLY | KAIJU_CHAT_CLOSE | KAIJU_CHAT_BEGIN |
                               KAIJU_CHAT_OPEN | KAIJU_CHAT_AFTER_STOP;

kaiju::ChatParts chat_parts(int32_t flags) {
  const auto flag = [&](int32_t bit) { return (flags & bit) != 0; };
  return {.begin = flag(KAIJU_CHAT_BEGIN),
          .close = flag(KAIJU_CHAT_CLOSE),
          .after_stop = flag(KAIJU_CHAT_AFTER_STOP),
          .reply = flag(KAIJU_CHAT_REPLY),
          .open = flag(KAIJU_CHAT_OPEN)};
}

std::string_view text_of(const char* data, size_t size) {
  return std::string_view(size ? data : "", size);
}

Status read_messages(const kaiju_message* messages, size_t message_size, size_t message_count,
                     std::vector<kaiju::ChatMessage>& list) {
  KAIJU_TRY(check_span("messages", messages, message_count));
  constexpr size_t kFirstSize = offsetof(kaiju_message, name);  // of the header's first version
  if (message_count > 0)
    KAIJU_TRY(check_struct_size<kaiju_message>("kaiju_message", message_size, kFirstSize,
                                               "message_size"));
  for (size_t i = 0; i < message_count; ++i) {
    kaiju_message message{};
    std::memcpy(&message, reinterpret_cast<const char*>(messages) + i * message_size,
                std::min(message_size, sizeof message));
    if (message.role < KAIJU_ROLE_CARD || message.role > KAIJU_ROLE_SYSTEM)
      return kaiju::invalid_argument(
          "message " + std::to_string(i) + " has role " + std::to_string(message.role) +
          "; roles are 1 (card), 2 (user), 3 (character) and 4 (system)");
    KAIJU_TRY(check_span("content", message.content, message.content_size));
    KAIJU_TRY(check_span("name", message.name, message.name_size));
    list.push_back({static_cast<kaiju::ChatRole>(message.role),
                    text_of(message.content, message.content_size),
                    text_of(message.name, message.name_size)});
  }
  return {};
}

}  // namespace

kaiju_status kaiju_chat_format(const kaiju_model* model, const kaiju_message* messages,
                               size_t message_size, size_t message_count, int32_t flags,
                               int32_t* tokens, size_t capacity, size_t* count,
                               kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!model) return missing("model");
    KAIJU_TRY(check_span("tokens", tokens, capacity));
    std::vector<kaiju::ChatMessage> list;
    KAIJU_TRY(read_messages(messages, message_size, message_count, list));
    if (flags & ~kChatFlags)
      return kaiju::invalid_argument("unknown flags " + std::to_string(flags));
    auto chat = model->model->chat();
    if (!chat.ok()) return chat.status();
    std::vector<int32_t> out;
    KAIJU_TRY((*chat)->format(list, chat_parts(flags), out));
    fill(out, tokens, capacity, count);
    return {};
  });
}

kaiju_status kaiju_chat_format_volatile(const kaiju_model* model, const kaiju_message* messages,
                                        size_t message_size, size_t message_count, int32_t flags,
                                        kaiju_volatile* text, int32_t* tokens, size_t capacity,
                                        size_t* count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!model || !text) return missing(model ? "text" : "model");
    KAIJU_TRY(check_struct_size<kaiju_volatile>("kaiju_volatile", text->struct_size));
    KAIJU_TRY(check_span("text", text->text, text->text_size));
    KAIJU_TRY(check_span("tokens", tokens, capacity));
    std::vector<kaiju::ChatMessage> list;
    KAIJU_TRY(read_messages(messages, message_size, message_count, list));
    if (flags & ~kChatFlags)
      return kaiju::invalid_argument("unknown flags " + std::to_string(flags));
    auto chat = model->model->chat();
    if (!chat.ok()) return chat.status();
    std::vector<int32_t> out;
    const kaiju::VolatileText placed{text_of(text->text, text->text_size), text->depth};
    auto cost = kaiju::format_volatile(**chat, list, placed, chat_parts(flags), out);
    if (!cost.ok()) return cost.status();
    text->prompt_tokens = cost->prompt_tokens;
    text->stable_tokens = cost->stable_tokens;
    text->stable_behind_history = cost->stable_behind_history;
    fill(out, tokens, capacity, count);
    return {};
  });
}

size_t kaiju_chat_turns_to_drop(const size_t* turn_tokens, size_t turn_count, size_t card_tokens,
                                size_t reply_tokens, size_t context) {
  if (!turn_tokens) return 0;
  return kaiju::chat_turns_to_drop({turn_tokens, turn_count}, card_tokens, reply_tokens, context);
}
