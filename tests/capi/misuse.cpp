// What the C interface promises a host that errs: refused by name, nothing crashes, nothing changes.
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

struct Options {
  kaiju_options* bag = nullptr;
  Options() { kaiju_options_create(&bag); }
  ~Options() { kaiju_options_destroy(bag); }
};

Answer set_int(kaiju_option option, int64_t value) {
  Options options;
  return ask([&](kaiju_error** e) { return kaiju_options_set_int(options.bag, option, value, e); });
}
Answer set_float(kaiju_option option, double value) {
  Options options;
  return ask([&](kaiju_error** e) { return kaiju_options_set_float(options.bag, option, value, e); });
}
Answer set_string(kaiju_option option, const std::string& value) {
  Options options;
  return ask(
      [&](kaiju_error** e) { return kaiju_options_set_string(options.bag, option, value.data(), value.size(), e); });
}
void refused(const Answer& answer, const char* what, kaiju_status status = KAIJU_INVALID_ARGUMENT) {
  INFO(answer.message);
  CHECK(answer.status == status);
  CHECK(answer.says(what));
}
Answer load_file(const std::string& path) {
  kaiju_model* model = nullptr;
  const Answer answer = ask(
      [&](kaiju_error** e) { return kaiju_model_load(nullptr, path.c_str(), nullptr, nullptr, nullptr, &model, e); });
  CHECK((model != nullptr) == (answer.status == KAIJU_OK));
  kaiju_model_destroy(model);
  return answer;
}
Answer submit(Host& host, const std::vector<int32_t>& tokens) {
  kaiju_request request = 0;
  return ask([&](kaiju_error** e) {
    return kaiju_engine_submit(host.engine, host.session, tokens.data(), tokens.size(), host.options, nullptr, &request,
                               e);
  });
}
Answer format(kaiju_model* model, const std::vector<kaiju_message>& messages, int32_t flags,
              size_t message_size = sizeof(kaiju_message)) {
  size_t count = 0;
  return ask([&](kaiju_error** e) {
    return kaiju_chat_format(model, messages.data(), message_size, messages.size(), flags, nullptr, 0, &count, e);
  });
}
std::string file_with(const std::string& name, const std::string& bytes) {
  const std::string path = temporary_folder() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}
std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("every destroy takes NULL", "[malformed]") {
  kaiju_error_destroy(nullptr);
  kaiju_runtime_destroy(nullptr);
  kaiju_options_destroy(nullptr);
  kaiju_model_destroy(nullptr);
  kaiju_engine_destroy(nullptr);
  kaiju_session_destroy(nullptr);
  kaiju_gate_destroy(nullptr);
}

TEST_CASE("queries on NULL handles have harmless answers", "[malformed]") {
  CHECK(kaiju_error_status(nullptr) == KAIJU_OK);
  CHECK(std::string(kaiju_error_message(nullptr)).empty());
  CHECK(kaiju_runtime_device_count(nullptr) == 0);
  CHECK(kaiju_model_stop_tokens(nullptr, nullptr, 0) == 0);
  CHECK(kaiju_engine_pending(nullptr) == 0);
  CHECK(kaiju_gate_label_count(nullptr) == 0);
  CHECK(kaiju_engine_wait(nullptr, 1000) == 0);
  CHECK(kaiju_session_tokens(nullptr, nullptr, 0) == 0);
  CHECK(kaiju_chat_turns_to_drop(nullptr, 5, 0, 0, 10) == 0);
  kaiju_engine_wake(nullptr);
}

TEST_CASE("a NULL handle or out pointer is refused by name", "[malformed]") {
  Host host;
  kaiju_runtime* runtime = nullptr;
  kaiju_model* model = nullptr;
  kaiju_engine* engine = nullptr;
  kaiju_session* session = nullptr;
  kaiju_request request = 0;
  kaiju_device_info device{};
  device.struct_size = sizeof device;
  const char* text = nullptr;
  refused(ask([&](kaiju_error** e) { return kaiju_runtime_create(nullptr, e); }), "out is NULL");
  CHECK(kaiju_runtime_device_info(nullptr, 0, &device) == KAIJU_INVALID_ARGUMENT);
  REQUIRE(kaiju_runtime_create(&runtime, nullptr) == KAIJU_OK);
  CHECK(kaiju_runtime_device_info(runtime, 0, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_runtime_device_info(runtime, 999, &device) == KAIJU_NOT_FOUND);
  kaiju_runtime_destroy(runtime);
  CHECK(kaiju_options_create(nullptr) == KAIJU_INVALID_ARGUMENT);
  refused(ask([&](kaiju_error** e) { return kaiju_options_set_int(nullptr, KAIJU_GENERATE_SEED, 1, e); }),
          "options is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_options_set_float(nullptr, KAIJU_GENERATE_TOP_P, 1, e); }),
          "options is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_options_set_string(nullptr, KAIJU_GENERATE_STOP, "x", 1, e); }),
          "options is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_options_set_logit_bias(nullptr, nullptr, nullptr, 0, e); }),
          "options is NULL");
  CHECK(kaiju_option_describe(KAIJU_GENERATE_SEED, nullptr) == KAIJU_INVALID_ARGUMENT);
  refused(
      ask([&](kaiju_error** e) { return kaiju_model_load(nullptr, nullptr, nullptr, nullptr, nullptr, &model, e); }),
      "path is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_model_load(nullptr, "x", nullptr, nullptr, nullptr, nullptr, e); }),
          "out is NULL");
  CHECK(kaiju_model_text(nullptr, KAIJU_MODEL_NAME, &text, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_model_text(host.model, KAIJU_MODEL_NAME, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  refused(ask([&](kaiju_error** e) { return kaiju_tokenize(nullptr, "x", 1, nullptr, 0, nullptr, e); }),
          "model is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_detokenize(nullptr, nullptr, 0, nullptr, 0, nullptr, e); }),
          "model is NULL");
  refused(ask([&](kaiju_error** e) {
            return kaiju_chat_format(nullptr, nullptr, sizeof(kaiju_message), 0, 0, nullptr, 0, nullptr, e);
          }),
          "model is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_engine_create(nullptr, nullptr, &engine, e); }), "model is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_engine_create(host.model, nullptr, nullptr, e); }), "out is NULL");
  refused(ask([&](kaiju_error** e) {
            return kaiju_engine_submit(nullptr, host.session, nullptr, 0, nullptr, nullptr, &request, e);
          }),
          "engine is NULL");
  refused(ask([&](kaiju_error** e) {
            return kaiju_engine_submit(host.engine, nullptr, nullptr, 0, nullptr, nullptr, &request, e);
          }),
          "session is NULL");
  CHECK(kaiju_engine_cancel(nullptr, 1) == KAIJU_INVALID_ARGUMENT);
  refused(ask([&](kaiju_error** e) { return kaiju_engine_step(nullptr, e); }), "engine is NULL");
  CHECK(kaiju_engine_metrics(host.engine, nullptr) == KAIJU_INVALID_ARGUMENT);
  kaiju_event event{};
  size_t count = 0;
  const auto poll = [&](kaiju_engine* polling, kaiju_event* events, size_t* out) {
    return ask([&](kaiju_error** e) { return kaiju_engine_poll(polling, events, sizeof event, 1, out, e); });
  };
  refused(poll(nullptr, &event, &count), "engine is NULL");
  refused(poll(host.engine, nullptr, &count), "events is NULL");
  refused(poll(host.engine, &event, nullptr), "count is NULL");
  int64_t number = 0;
  CHECK(kaiju_model_number(nullptr, KAIJU_MODEL_CONTEXT, &number) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_model_number(host.model, KAIJU_MODEL_CONTEXT, nullptr) == KAIJU_INVALID_ARGUMENT);
  refused(ask([&](kaiju_error** e) { return kaiju_session_create(nullptr, &session, e); }), "engine is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_session_create(host.engine, nullptr, e); }), "out is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_session_fork(nullptr, 0, &session, e); }), "session is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_session_fork(host.session, 0, nullptr, e); }), "out is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_session_truncate(nullptr, 0, e); }), "session is NULL");
  refused(ask([&](kaiju_error** e) {
            return kaiju_generate(nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0, e);
          }),
          "NULL");
}

TEST_CASE("a NULL buffer with a size is refused by name", "[malformed]") {
  Host host;
  kaiju_request request = 0;
  refused(ask([&](kaiju_error** e) { return kaiju_tokenize(host.model, nullptr, 3, nullptr, 0, nullptr, e); }),
          "text is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_tokenize(host.model, "abc", 3, nullptr, 8, nullptr, e); }),
          "tokens is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_detokenize(host.model, nullptr, 3, nullptr, 0, nullptr, e); }),
          "tokens is NULL");
  refused(ask([&](kaiju_error** e) {
            return kaiju_chat_format(host.model, nullptr, sizeof(kaiju_message), 2, 0, nullptr, 0, nullptr, e);
          }),
          "messages is NULL");
  refused(format(host.model, {{KAIJU_ROLE_USER, 0, nullptr, 4, nullptr, 0}}, 0), "content is NULL");
  refused(ask([&](kaiju_error** e) {
            return kaiju_engine_submit(host.engine, host.session, nullptr, 4, nullptr, nullptr, &request, e);
          }),
          "tokens is NULL");
}

TEST_CASE("a text of more than KAIJU_MOST_TEXT_BYTES is refused wherever text is tokenized", "[malformed]") {
  Host host;
  const std::string text(KAIJU_MOST_TEXT_BYTES + 1, 'a');
  const char* says = "text of 1048577 bytes; the limit of one text is 1048576";
  refused(ask([&](kaiju_error** e) {
            return kaiju_tokenize(host.model, text.data(), text.size(), nullptr, 0, nullptr, e);
          }),
          says);
  for (const int32_t role : {KAIJU_ROLE_CARD, KAIJU_ROLE_USER, KAIJU_ROLE_CHARACTER})
    refused(format(host.model, {{role, 0, text.data(), text.size(), nullptr, 0}}, 0), says);
}

TEST_CASE("a NULL text of size 0 is an empty text") {
  Host host;
  size_t count = 9;
  CHECK(kaiju_tokenize(host.model, nullptr, 0, nullptr, 0, &count, nullptr) == KAIJU_OK);
  CHECK(count == 0);
  CHECK(format(host.model, {{KAIJU_ROLE_USER, 0, nullptr, 0, nullptr, 0}}, 0).status == KAIJU_OK);
}

TEST_CASE("the error parameter may be NULL") {
  CHECK(kaiju_model_load(nullptr, "/nowhere", nullptr, nullptr, nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
}

TEST_CASE("an error is written only on failure") {
  Options options;
  kaiju_error* error = reinterpret_cast<kaiju_error*>(&options);
  CHECK(kaiju_options_set_int(options.bag, KAIJU_GENERATE_SEED, 1, &error) == KAIJU_OK);
  CHECK(error == reinterpret_cast<kaiju_error*>(&options));
}

TEST_CASE("an unknown option is refused by number", "[malformed]") { refused(set_int(299, 1), "299"); }
TEST_CASE("option 0 is refused", "[malformed]") { refused(set_string(0, "x"), "option 0"); }
TEST_CASE("a negative option is refused", "[malformed]") { refused(set_float(-1, 1), "-1"); }
TEST_CASE("an int for a float option is refused", "[malformed]") {
  refused(set_int(KAIJU_GENERATE_TEMPERATURE, 1), "generate.temperature is a float");
}
TEST_CASE("a float for an int option is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_SEED, 1.0), "generate.seed is an int");
}
TEST_CASE("a string for an int option is refused", "[malformed]") {
  refused(set_string(KAIJU_ENGINE_THREADS, "2"), "engine.threads is an int");
}
TEST_CASE("an int for a string option is refused", "[malformed]") {
  refused(set_int(KAIJU_GENERATE_STOP, 1), "generate.stop is a string");
}
TEST_CASE("a NaN temperature is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_TEMPERATURE, std::nan("")), "temperature is nan");
}
TEST_CASE("an infinite temperature is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_TEMPERATURE, INFINITY), "temperature is inf");
}
TEST_CASE("a temperature of 1e38 is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_TEMPERATURE, 1e38), "temperature is 1e+38");
}
TEST_CASE("a negative temperature is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_TEMPERATURE, -0.5), "0 (greedy) or from 0.001 to 100");
}
TEST_CASE("a temperature too small to divide by is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_TEMPERATURE, 0.0001),
          "generate.temperature is 1e-04; it must be 0 (greedy) or from 0.001 to 100");
}
TEST_CASE("a top_p of 0 is refused", "[malformed]") { refused(set_float(KAIJU_GENERATE_TOP_P, 0), "top_p is 0"); }
TEST_CASE("a top_p above 1 is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_TOP_P, 1.01), "top_p is 1.01");
}
TEST_CASE("a NaN top_p is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_TOP_P, std::nan("")), "top_p is nan");
}
TEST_CASE("a negative top_k is refused", "[malformed]") { refused(set_int(KAIJU_GENERATE_TOP_K, -1), "top_k is -1"); }
TEST_CASE("a min_p above 1 is refused", "[malformed]") { refused(set_float(KAIJU_GENERATE_MIN_P, 2), "min_p is 2"); }
TEST_CASE("a repetition penalty of 0 is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_REPETITION_PENALTY, 0), "repetition_penalty is 0");
}
TEST_CASE("a NaN repetition penalty is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_REPETITION_PENALTY, std::nan("")), "repetition_penalty is nan");
}
TEST_CASE("an infinite repetition penalty is refused", "[malformed]") {
  refused(set_float(KAIJU_GENERATE_REPETITION_PENALTY, -INFINITY), "repetition_penalty is -inf");
}
TEST_CASE("max_tokens below -1 is refused", "[malformed]") {
  refused(set_int(KAIJU_GENERATE_MAX_TOKENS, -2), "max_tokens is -2");
}
TEST_CASE("max_tokens beyond 32 bits is refused", "[malformed]") {
  refused(set_int(KAIJU_GENERATE_MAX_TOKENS, INT64_MAX), "max_tokens");
}
TEST_CASE("too many log-probabilities are refused", "[malformed]") {
  refused(set_int(KAIJU_GENERATE_LOGPROBS, 65), "logprobs is 65");
}
TEST_CASE("a stream beyond 32 bits is refused", "[malformed]") {
  refused(set_int(KAIJU_GENERATE_VARIANT, INT64_C(4294967296)), "variant");
}
TEST_CASE("threads below 0 and above 256 are refused", "[malformed]") {
  refused(set_int(KAIJU_ENGINE_THREADS, -1), "threads is -1");
  refused(set_int(KAIJU_ENGINE_THREADS, 257), "threads is 257");
}
TEST_CASE("a negative max_running is refused", "[malformed]") {
  refused(set_int(KAIJU_ENGINE_MAX_RUNNING, -1), "max_running is -1");
}
TEST_CASE("negative step_tokens are refused", "[malformed]") {
  refused(set_int(KAIJU_ENGINE_STEP_TOKENS, -1), "step_tokens is -1");
}
TEST_CASE("negative cache bytes are refused", "[malformed]") {
  refused(set_int(KAIJU_ENGINE_CACHE_BYTES, -1), "cache_bytes is -1");
}
TEST_CASE("an empty stop string is refused", "[malformed]") {
  refused(set_string(KAIJU_GENERATE_STOP, ""), "stop is 0 bytes");
}
TEST_CASE("an overlong stop string is refused", "[malformed]") {
  refused(set_string(KAIJU_GENERATE_STOP, std::string(1025, 'x')), "1025 bytes");
}
TEST_CASE("a zero byte in a path or a backend's name is refused by name, and kept in other strings", "[malformed]") {
  const std::string with_zero("a\0b and so on to 16", 18);
  refused(set_string(KAIJU_ENGINE_TIER_FILE, with_zero), "engine.tier_file is zero at byte 2");
  refused(set_string(KAIJU_ENGINE_PRODUCTS_FILE, with_zero), "engine.products_file is zero at byte 2");
  refused(set_string(KAIJU_ENGINE_BACKEND, with_zero), "engine.backend is zero at byte 2");
  for (const kaiju_option option :
       {KAIJU_SESSION_SALT, KAIJU_SESSION_CHARACTER, KAIJU_SESSION_KEY, KAIJU_GENERATE_STOP})
    CHECK(set_string(option, with_zero).status == KAIJU_OK);
}
TEST_CASE("a path need not be UTF-8; every other string must be, and its option is named", "[malformed]") {
  const std::string latin = temporary_folder() + "/caf\xE9";
  CHECK(set_string(KAIJU_ENGINE_PRODUCTS_FILE, latin).status == KAIJU_OK);
  Host host;
  kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_HOST_BYTES, 1 << 20, nullptr);
  kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_FILE_BYTES, 1 << 20, nullptr);
  CHECK(kaiju_options_set_string(host.engine_options, KAIJU_ENGINE_TIER_FILE, latin.data(), latin.size(), nullptr) ==
        KAIJU_OK);
  kaiju_engine* engine = nullptr;
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_engine_create(host.model, host.engine_options, &engine, e);
        }).message == "");
  kaiju_engine_destroy(engine);
  refused(load_file(latin), "/caf\xE9: cannot open", KAIJU_IO);
  refused(set_string(KAIJU_SESSION_SALT, "caf\xE9"), "session.salt is not UTF-8 at byte 4");
  refused(set_string(KAIJU_ENGINE_BACKEND, "caf\xE9"), "engine.backend is not UTF-8 at byte 4");
}
TEST_CASE("products by nobody that exists, and by cuBLASLt on a processor or on several GPUs, are refused",
          "[malformed]") {
  const auto made_with = [](const std::string& products, bool shared = false) {
    Host host;
    kaiju_options_set_string(host.engine_options, KAIJU_ENGINE_BACKEND, shared ? "auto" : "portable", shared ? 4 : 8,
                             nullptr);
    for (const int64_t device : {int64_t{1}, int64_t{2}})
      if (shared) kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_DEVICES, device, nullptr);
    kaiju_options_set_string(host.engine_options, KAIJU_ENGINE_PRODUCTS, products.data(), products.size(), nullptr);
    kaiju_engine* engine = nullptr;
    return ask([&](kaiju_error** e) { return kaiju_engine_create(host.model, host.engine_options, &engine, e); });
  };
  refused(made_with("cublas"), "\"auto\", \"own\" or \"cublaslt\", not \"cublas\"");
  refused(made_with("cublaslt"), "on GPUs alone", KAIJU_UNSUPPORTED);
  refused(made_with("cublaslt", true), "several GPUs share: leave products \"auto\"", KAIJU_UNSUPPORTED);
}
TEST_CASE("a stop string that is not UTF-8 is refused", "[malformed]") {
  refused(set_string(KAIJU_GENERATE_STOP, "a\xFF"), "byte 2");
}
TEST_CASE("a 65th stop string is refused", "[malformed]") {
  Options options;
  for (int i = 0; i < 64; ++i)
    REQUIRE(kaiju_options_set_string(options.bag, KAIJU_GENERATE_STOP, "x", 1, nullptr) == KAIJU_OK);
  refused(ask([&](kaiju_error** e) { return kaiju_options_set_string(options.bag, KAIJU_GENERATE_STOP, "x", 1, e); }),
          "64 times");
}
TEST_CASE("a NaN logit bias is refused and the old biases stay", "[malformed]") {
  Options options;
  const int32_t tokens[2] = {5, 6};
  const float bias[2] = {1.0f, std::nanf("")};
  refused(ask([&](kaiju_error** e) { return kaiju_options_set_logit_bias(options.bag, tokens, bias, 2, e); }),
          "token 6 is nan");
}
TEST_CASE("a logit bias of a negative token is refused", "[malformed]") {
  Options options;
  const int32_t token = -1;
  const float bias = 1.0f;
  refused(ask([&](kaiju_error** e) { return kaiju_options_set_logit_bias(options.bag, &token, &bias, 1, e); }),
          "token -1");
}
TEST_CASE("a refused value leaves the option as it was", "[malformed]") {
  Host host;
  kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, 2, nullptr);
  CHECK(kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, -9, nullptr) == KAIJU_INVALID_ARGUMENT);
  host.submit({1, 20});
  CHECK(host.drain().size() == 2);
}
TEST_CASE("describing an unknown option answers KAIJU_NOT_FOUND", "[malformed]") {
  kaiju_option_info info{};
  info.struct_size = sizeof info;
  CHECK(kaiju_option_describe(299, &info) == KAIJU_NOT_FOUND);
}

TEST_CASE("a struct_size that was never set is refused", "[malformed]") {
  Host host;
  for (const size_t size :
       {size_t{0}, size_t{4}, offsetof(kaiju_metrics, prompt_tokens) - 8, sizeof(kaiju_metrics) + 1, SIZE_MAX}) {
    kaiju_metrics metrics{};
    metrics.struct_size = size;
    CHECK(kaiju_engine_metrics(host.engine, &metrics) == KAIJU_INVALID_ARGUMENT);
    kaiju_option_info info{};
    info.struct_size = size > 0 && size < 1000 ? 8 : size;
    CHECK(kaiju_option_describe(KAIJU_GENERATE_SEED, &info) == KAIJU_INVALID_ARGUMENT);
    kaiju_event event{};
    size_t count = 0;
    refused(ask([&](kaiju_error** e) {
              return kaiju_engine_poll(host.engine, &event, size > sizeof(kaiju_event) ? SIZE_MAX : 8, 1, &count, e);
            }),
            "sizeof(kaiju_event)");
  }
  refused(format(host.model, {{KAIJU_ROLE_USER, 0, "x", 1, nullptr, 0}}, 0, 8), "sizeof(kaiju_message)");
  kaiju_event event{};
  refused(ask([&](kaiju_error** e) {
            return kaiju_generate(host.engine, host.session, nullptr, 0, nullptr, nullptr, nullptr, &event, 7, e);
          }),
          "sizeof(kaiju_event)");
}

TEST_CASE("a model file that does not exist is refused by path", "[malformed]") {
  refused(load_file("/nowhere/model.safetensors"), "/nowhere/model.safetensors", KAIJU_IO);
}
TEST_CASE("a folder is refused as a model", "[malformed]") { CHECK(load_file(temporary_folder()).status != KAIJU_OK); }
TEST_CASE("an empty file is refused as a model", "[malformed]") {
  CHECK(load_file(file_with("empty", "")).status == KAIJU_BAD_MODEL);
}
TEST_CASE("a text file is refused as a model", "[malformed]") {
  CHECK(load_file(file_with("text", "this is a text, not a model, and long enough to have a header")).status ==
        KAIJU_BAD_MODEL);
}
TEST_CASE("a truncated model file is refused", "[malformed]") {
  const std::string whole = bytes_of(chat_model_file());
  for (const size_t size : {size_t{7}, size_t{8}, size_t{100}, whole.size() / 2, whole.size() - 1})
    CHECK(load_file(file_with("cut", whole.substr(0, size))).status == KAIJU_BAD_MODEL);
}
TEST_CASE("a model with one changed byte is refused", "[malformed]") {
  std::string bytes = bytes_of(chat_model_file());
  bytes[bytes.size() / 2] ^= 1;
  CHECK(load_file(file_with("changed", bytes)).status == KAIJU_BAD_MODEL);
}
TEST_CASE("a model whose tokenizer is damaged is refused by name", "[malformed]") {
  const std::string path = temporary_folder() + "/bad_tokenizer";
  add_tokenizer(plain_model_file(), path, "no sentencepiece", kTinyChat);
  refused(load_file(path), "tokenizer", KAIJU_BAD_MODEL);
}
TEST_CASE("a model whose tokenizer has too many pieces is refused by name", "[malformed]") {
  auto tiny = tiny_model();
  for (int i = 0; i < 100; ++i) tiny.add("word" + std::to_string(i), -9, kaiju::PieceKind::kNormal);
  const std::string path = temporary_folder() + "/large_tokenizer";
  add_tokenizer(plain_model_file(), path, tiny.bytes(), kTinyChat);
  refused(load_file(path), "vocabulary", KAIJU_BAD_MODEL);
}
TEST_CASE("a model whose chat symbols are plain text is refused", "[malformed]") {
  const std::string path = temporary_folder() + "/bad_symbols";
  kaiju::ChatSymbols chat = kTinyChat;
  chat.user = 300;
  add_tokenizer(plain_model_file(), path, tiny_model().bytes(), chat);
  refused(load_file(path), "'user'", KAIJU_BAD_MODEL);
}

TEST_CASE("a model without a tokenizer says so and still generates", "[malformed]") {
  Host host(plain_model_file());
  size_t count = 0;
  refused(ask([&](kaiju_error** e) { return kaiju_tokenize(host.model, "x", 1, nullptr, 0, &count, e); }),
          "no tokenizer", KAIJU_UNSUPPORTED);
  refused(format(host.model, {{KAIJU_ROLE_USER, 0, "x", 1, nullptr, 0}}, 0), "cannot chat", KAIJU_UNSUPPORTED);
  CHECK(number_of(host.model, KAIJU_MODEL_CHAT_CLOSE) == -1);
  host.submit({1, 20});
  std::string text;
  CHECK(host.drain(nullptr, &text).size() == 8);
  CHECK(text.empty());
  kaiju_session_truncate(host.session, 0, nullptr);
  REQUIRE(kaiju_options_set_string(host.options, KAIJU_GENERATE_STOP, "x", 1, nullptr) == KAIJU_OK);
  CHECK(submit(host, {1, 20}).status != KAIJU_OK);  // no text, no stop strings
}

TEST_CASE("text that is not UTF-8 is refused with the position of the first wrong byte", "[malformed]") {
  Host host;
  refused(ask([&](kaiju_error** e) { return kaiju_tokenize(host.model, "ab\xFF", 3, nullptr, 0, nullptr, e); }),
          "byte 3");
  refused(
      format(host.model, {{KAIJU_ROLE_CARD, 0, "ok", 2, nullptr, 0}, {KAIJU_ROLE_USER, 0, "\xC3", 1, nullptr, 0}}, 0),
      "message 1");
}
TEST_CASE("unknown roles, unknown flags and a card after other messages are refused", "[malformed]") {
  Host host;
  refused(format(host.model, {{0, 0, "x", 1, nullptr, 0}}, 0), "role 0");
  refused(format(host.model, {{5, 0, "x", 1, nullptr, 0}}, 0), "role 5");
  CHECK(format(host.model, {{KAIJU_ROLE_SYSTEM, 0, "x", 1, nullptr, 0}}, 0).status == KAIJU_UNSUPPORTED);
  refused(format(host.model, {{KAIJU_ROLE_USER, 0, "x", 1, nullptr, 0}, {KAIJU_ROLE_CARD, 0, "x", 1, nullptr, 0}}, 0),
          "card comes first");
  refused(format(host.model, {{KAIJU_ROLE_CARD, 0, "x", 1, nullptr, 0}}, KAIJU_CHAT_CLOSE), "card comes first");
  refused(format(host.model, {{KAIJU_ROLE_USER, 0, "x", 1, nullptr, 0}}, 64), "flags");
  refused(format(host.model, {{KAIJU_ROLE_CARD, 0, "", 0, nullptr, 0}}, 0), "empty");
}
TEST_CASE("token ids outside the vocabulary are refused by number", "[malformed]") {
  Host host;
  for (const int32_t token : {-1, kTinyVocabulary, INT32_MAX, INT32_MIN}) {
    const std::string number = std::to_string(token);
    refused(submit(host, {1, token}), number.c_str());
    refused(ask([&](kaiju_error** e) { return kaiju_detokenize(host.model, &token, 1, nullptr, 0, nullptr, e); }),
            number.c_str());
  }
  CHECK(host.history().empty());
}
TEST_CASE("a prompt longer than the context is refused", "[malformed]") {
  Host host;
  CHECK(submit(host, std::vector<int32_t>(kTinyContext + 1, 20)).status == KAIJU_INVALID_ARGUMENT);
  CHECK(submit(host, std::vector<int32_t>(kTinyContext - 3, 20)).status ==
        KAIJU_INVALID_ARGUMENT);  // no room for max_tokens
  CHECK(host.history().empty());
}
TEST_CASE("a reply to a history that fills the context is refused for that reason", "[malformed]") {
  Host host;
  const std::vector<int32_t> tokens(kTinyContext, 20);
  for (const int64_t most : {-1, 5}) {
    REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, most, nullptr) == KAIJU_OK);
    refused(submit(host, tokens), "fills the context of");
  }
  CHECK(host.history().empty());
}
TEST_CASE("an empty prompt in an empty session is refused", "[malformed]") {
  Host host;
  CHECK(submit(host, {}).status == KAIJU_INVALID_ARGUMENT);
}
TEST_CASE("a logit bias or stop token outside the vocabulary is refused", "[malformed]") {
  Host host;
  const int32_t token = kTinyVocabulary;
  const float bias = 1;
  REQUIRE(kaiju_options_set_logit_bias(host.options, &token, &bias, 1, nullptr) == KAIJU_OK);
  refused(submit(host, {1}), "320");
  REQUIRE(kaiju_options_set_logit_bias(host.options, nullptr, nullptr, 0, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_STOP_TOKEN, 100000, nullptr) == KAIJU_OK);
  refused(submit(host, {1}), "100000");
}
TEST_CASE("an unknown backend is refused with a list of the known ones", "[malformed]") {
  Host host;
  REQUIRE(kaiju_options_set_string(host.engine_options, KAIJU_ENGINE_BACKEND, "quantum", 7, nullptr) == KAIJU_OK);
  kaiju_engine* engine = nullptr;
  const Answer answer =
      ask([&](kaiju_error** e) { return kaiju_engine_create(host.model, host.engine_options, &engine, e); });
  refused(answer, "quantum");
  CHECK(answer.says("reference"));
  CHECK(engine == nullptr);
}
TEST_CASE("engine options that contradict each other are refused by name", "[malformed]") {
  Host host;
  kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_STEP_TOKENS, 16, nullptr);
  kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_CHUNK_TOKENS, 17, nullptr);
  kaiju_engine* engine = nullptr;
  refused(ask([&](kaiju_error** e) { return kaiju_engine_create(host.model, host.engine_options, &engine, e); }),
          "chunk_tokens is 17");
  CHECK(engine == nullptr);
}
TEST_CASE("a session of another engine is refused", "[malformed]") {
  Host host, other;
  kaiju_request request = 0;
  const int32_t token = 1;
  refused(ask([&](kaiju_error** e) {
            return kaiju_engine_submit(host.engine, other.session, &token, 1, nullptr, nullptr, &request, e);
          }),
          "another engine");
}
TEST_CASE("a second request of a busy session is refused", "[malformed]") {
  Host host;
  host.submit({1, 20});
  CHECK(submit(host, {30}).status == KAIJU_BUSY);
  CHECK(kaiju_session_truncate(host.session, 0, nullptr) == KAIJU_BUSY);
  kaiju_session* fork = nullptr;
  CHECK(kaiju_session_fork(host.session, 0, &fork, nullptr) == KAIJU_BUSY);
  CHECK(fork == nullptr);
  const int32_t token = 1;
  CHECK(kaiju_generate(host.engine, host.session, &token, 1, host.options, nullptr, nullptr, nullptr, 0, nullptr) ==
        KAIJU_BUSY);
  host.drain();
}
TEST_CASE("truncate and fork beyond the history are refused", "[malformed]") {
  Host host;
  CHECK(kaiju_session_truncate(host.session, 1, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_session_truncate(host.session, SIZE_MAX, nullptr) == KAIJU_INVALID_ARGUMENT);
  kaiju_session* fork = nullptr;
  CHECK(kaiju_session_fork(host.session, 1, &fork, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(fork == nullptr);
}
TEST_CASE("cancelling an unknown request is ignored", "[malformed]") {
  Host host;
  CHECK(kaiju_engine_cancel(host.engine, 0) == KAIJU_OK);
  CHECK(kaiju_engine_cancel(host.engine, UINT64_MAX) == KAIJU_OK);
}
TEST_CASE("destroying a session cancels its running request", "[malformed]") {
  Host host;
  host.submit({1, 20});
  kaiju_engine_step(host.engine, nullptr);
  kaiju_session_destroy(std::exchange(host.session, nullptr));
  kaiju_event done{};
  host.drain(&done);
  CHECK(done.kind == KAIJU_EVENT_DONE);
  CHECK(done.reason == KAIJU_DONE_CANCELLED);
}
TEST_CASE("unknown properties of a model are refused", "[malformed]") {
  Host host;
  const char* text = nullptr;
  int64_t number = 5;
  CHECK(kaiju_model_number(host.model, 999, &number) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_model_number(host.model, -1, &number) == KAIJU_INVALID_ARGUMENT);
  CHECK(number == 5);
  CHECK(kaiju_model_text(host.model, 999, &text, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(text == nullptr);
  CHECK(std::string(kaiju_status_name(-1)) == "unknown status");
  CHECK(std::string(kaiju_status_name(11)) == "unknown status");
}
