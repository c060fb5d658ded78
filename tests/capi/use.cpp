// What the C interface promises a host that uses it well.
#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <utility>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

std::vector<int32_t> chat_tokens(kaiju_model* model, const std::vector<kaiju_message>& messages, int32_t flags) {
  size_t count = 0;
  REQUIRE(kaiju_chat_format(model, messages.data(), sizeof(kaiju_message), messages.size(), flags, nullptr, 0, &count,
                            nullptr) == KAIJU_OK);
  std::vector<int32_t> tokens(count);
  REQUIRE(kaiju_chat_format(model, messages.data(), sizeof(kaiju_message), messages.size(), flags, tokens.data(), count,
                            &count, nullptr) == KAIJU_OK);
  return tokens;
}

kaiju_message message(int32_t role, const char* text) { return {role, 0, text, std::strlen(text), nullptr, 0}; }

}  // namespace

TEST_CASE("version, build and status names are available") {
  CHECK(kaiju_version() == KAIJU_VERSION);
  CHECK(std::string(kaiju_version_string()) == "0.1.0");
  CHECK(std::string(kaiju_build_info()).find("kaiju") == 0);
  for (kaiju_status status = KAIJU_OK; status <= KAIJU_INTERNAL; ++status)
    CHECK(std::string(kaiju_status_name(status)) != "unknown status");
}

TEST_CASE("a runtime lists the host device and its backends") {
  kaiju_runtime* runtime = nullptr;
  REQUIRE(kaiju_runtime_create(&runtime, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_runtime_device_count(runtime) >= 1);
  kaiju_device_info info{};
  info.struct_size = sizeof info;
  REQUIRE(kaiju_runtime_device_info(runtime, 0, &info) == KAIJU_OK);
  CHECK(std::string(info.name) == "cpu");
  CHECK(std::string(info.backends).find("reference") != std::string::npos);
  CHECK(info.memory_total >= info.memory_free);
  CHECK(info.memory_free > 0);
  kaiju_runtime_destroy(runtime);
}

TEST_CASE("a model reports its properties") {
  Host host;
  CHECK(number_of(host.model, KAIJU_MODEL_VOCABULARY) == kTinyVocabulary);
  CHECK(number_of(host.model, KAIJU_MODEL_CONTEXT) == kTinyContext);
  CHECK(number_of(host.model, KAIJU_MODEL_WEIGHT_BYTES) > 30000);
  CHECK(number_of(host.model, KAIJU_MODEL_PARAMETERS) > 30000);
  CHECK(number_of(host.model, KAIJU_MODEL_CHAT_CLOSE) == 6);
  const char* text = nullptr;
  size_t size = 0;
  REQUIRE(kaiju_model_text(host.model, KAIJU_MODEL_NAME, &text, &size) == KAIJU_OK);
  CHECK(std::string(text, size) == "tiny");
  REQUIRE(kaiju_model_text(host.model, KAIJU_MODEL_DIGEST, &text, &size) == KAIJU_OK);
  CHECK(size == 32);
}

TEST_CASE("each token has scores if the model has a classifier; otherwise scores are refused") {
  const std::string file = temporary_folder() + "/classifier.kaiju.safetensors";
  kaiju::ModelConfig config = tiny_config(kTinyVocabulary, kTinyContext);
  config.labels = {"violence", "self-harm", "spam"};
  REQUIRE(kaiju::write_random_checkpoint(file, config, 2).ok());
  Host host(file);
  REQUIRE(number_of(host.model, KAIJU_MODEL_LABELS) == 3);
  const char* text = nullptr;
  size_t size = 0;
  REQUIRE(kaiju_model_label(host.model, 1, &text, &size) == KAIJU_OK);
  CHECK(std::string(text, size) == "self-harm");
  CHECK(kaiju_model_label(host.model, 3, &text, &size) == KAIJU_NOT_FOUND);
  CHECK(kaiju_model_label(nullptr, 0, &text, &size) == KAIJU_INVALID_ARGUMENT);

  for (const bool asked : {true, false}) {
    REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_SCORES, asked, nullptr) == KAIJU_OK);
    host.submit({1, 20, 30});
    size_t told = 0;
    while (kaiju_engine_pending(host.engine) > 0) {
      REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
      for (kaiju_event event; polled(host.engine, &event, sizeof event, 1) == 1;) {
        const bool token = event.kind == KAIJU_EVENT_TOKEN;
        CHECK(event.score_count == (!asked ? 0 : token ? 3 : 9));  // DONE: three numbers of each label
        for (size_t i = 0; i < event.score_count; ++i) CHECK(std::abs(event.scores[i]) < 100.0f);
        told += token ? event.score_count : 0;
      }
    }
    CHECK(told == (asked ? 8 * 3 : 0));
  }

  Host without;
  CHECK(number_of(without.model, KAIJU_MODEL_LABELS) == 0);
  kaiju_options_set_int(without.options, KAIJU_GENERATE_SCORES, 1, nullptr);
  const int32_t token = 1;
  const Answer refused = ask([&](kaiju_error** e) {
    return kaiju_engine_submit(without.engine, without.session, &token, 1, without.options, nullptr, nullptr, e);
  });
  CHECK(refused.status == KAIJU_UNSUPPORTED);
  CHECK(refused.says("no classifier"));
}

TEST_CASE("an event of the first version's size is filled without the newer fields") {
  Host host;
  host.submit({1, 20, 30});
  REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  kaiju_event event;
  std::memset(&event, 0x5A, sizeof event);
  REQUIRE(polled(host.engine, &event, offsetof(kaiju_event, scores), 1) == 1);
  CHECK(event.kind == KAIJU_EVENT_TOKEN);
  CHECK(event.score_count == 0x5A5A5A5A5A5A5A5Au);
}

TEST_CASE("loading reports its progress and stops when asked") {
  kaiju_model* model = nullptr;
  double last = -1;
  const auto record = [](double done, void* last) -> int32_t {
    *static_cast<double*>(last) = done;
    return 0;
  };
  REQUIRE(kaiju_model_load(nullptr, chat_model_file().c_str(), nullptr, record, &last, &model, nullptr) == KAIJU_OK);
  kaiju_model_destroy(model);
  CHECK(last == 1.0);
  model = nullptr;
  CHECK(kaiju_model_load(
            nullptr, chat_model_file().c_str(), nullptr, [](double, void*) -> int32_t { return 1; }, nullptr, &model,
            nullptr) == KAIJU_CANCELLED);
  CHECK(model == nullptr);
}

TEST_CASE("text converts to tokens and back") {
  Host host;
  const std::string text = "hello world, na\xC3\xAFve \xF0\x9F\xA6\x96";
  size_t count = 0;
  REQUIRE(kaiju_tokenize(host.model, text.data(), text.size(), nullptr, 0, &count, nullptr) == KAIJU_OK);
  std::vector<int32_t> tokens(count);
  REQUIRE(kaiju_tokenize(host.model, text.data(), text.size(), tokens.data(), count, &count, nullptr) == KAIJU_OK);
  size_t size = 0;
  REQUIRE(kaiju_detokenize(host.model, tokens.data(), count, nullptr, 0, &size, nullptr) == KAIJU_OK);
  std::string back(size, '\0');
  REQUIRE(kaiju_detokenize(host.model, tokens.data(), count, back.data(), size, &size, nullptr) == KAIJU_OK);
  CHECK(back == text);
}

TEST_CASE("the texts of the tokens of a text are the text") {
  Host host;
  const std::string text = "hello world, na\xC3\xAFve";
  int32_t tokens[64];
  size_t count = 0, size = 0;
  REQUIRE(kaiju_tokenize(host.model, text.data(), text.size(), tokens, 64, &count, nullptr) == KAIJU_OK);
  std::string together;
  for (size_t i = 0; i < count; ++i) {
    char one[64];
    REQUIRE(kaiju_token_text(host.model, tokens[i], one, sizeof one, &size, nullptr) == KAIJU_OK);
    together.append(one, size);
  }
  CHECK(together == text);
  REQUIRE(kaiju_token_text(host.model, 1, nullptr, 0, &size, nullptr) == KAIJU_OK);  // a control symbol
  CHECK(size == 0);
  for (const int32_t token : {-1, kTinyVocabulary})
    CHECK(ask([&](kaiju_error** e) {
            return kaiju_token_text(host.model, token, nullptr, 0, &size, e);
          }).says(("token is " + std::to_string(token)).c_str()));
}

TEST_CASE("a buffer that is too small gets the beginning, and the full size is returned") {
  Host host;
  const std::string text = "hello world, hello world";
  int32_t tokens[16] = {};
  size_t full = 0, count = 0;
  REQUIRE(kaiju_tokenize(host.model, text.data(), text.size(), tokens, 16, &full, nullptr) == KAIJU_OK);
  int32_t few[3] = {-7, -7, -7};
  REQUIRE(kaiju_tokenize(host.model, text.data(), text.size(), few, 2, &count, nullptr) == KAIJU_OK);
  CHECK(count == full);
  CHECK(few[0] == tokens[0]);
  CHECK(few[1] == tokens[1]);
  CHECK(few[2] == -7);
  char bytes[4] = {'x', 'x', 'x', 'x'};
  size_t size = 0;
  REQUIRE(kaiju_detokenize(host.model, tokens, full, bytes, 3, &size, nullptr) == KAIJU_OK);
  CHECK(size == text.size());
  CHECK(std::string(bytes, 4) == "helx");
  host.submit({1, 20, 30});
  host.drain();
  int32_t history[2] = {};
  CHECK(kaiju_session_tokens(host.session, history, 1) == 11);
  CHECK(history[0] == 1);
  CHECK(history[1] == 0);
}

TEST_CASE("a chat is formatted with the model's symbols") {
  Host host;
  const auto tokens = chat_tokens(
      host.model,
      {message(KAIJU_ROLE_CARD, "hello\nworld"), message(KAIJU_ROLE_CHARACTER, "hello"), message(KAIJU_ROLE_USER, "I")},
      KAIJU_CHAT_REPLY);
  CHECK(tokens[0] == 1);
  CHECK(tokens[1] == 3);
  CHECK(tokens.back() == 5);
  CHECK(std::count(tokens.begin(), tokens.end(), 6) == 3);
  CHECK(chat_tokens(host.model, {}, KAIJU_CHAT_CLOSE | KAIJU_CHAT_REPLY) == std::vector<int32_t>{6, 5});
  CHECK(chat_tokens(host.model, {message(KAIJU_ROLE_USER, "")}, KAIJU_CHAT_BEGIN) == std::vector<int32_t>{1, 4, 6});
}

TEST_CASE("a request streams tokens and ends with its counts") {
  Host host;
  int mine = 0;
  const kaiju_request request = host.submit({1, 20, 30, 40}, &mine);
  CHECK(request != 0);
  kaiju_event done{};
  const auto tokens = host.drain(&done);
  CHECK(tokens.size() == 8);
  CHECK(done.kind == KAIJU_EVENT_DONE);
  CHECK(done.reason == KAIJU_DONE_LENGTH);
  CHECK(done.request == request);
  CHECK(done.user_data == &mine);
  CHECK(done.prompt_tokens == 4);
  CHECK(done.cached_tokens == 0);
  CHECK(done.generated_tokens == 8);
  CHECK(done.prefill_nanoseconds > 0);
  CHECK(done.decode_nanoseconds > 0);
  std::vector<int32_t> history = {1, 20, 30, 40};
  history.insert(history.end(), tokens.begin(), tokens.end());
  CHECK(host.history() == history);
}

TEST_CASE("the second turn computes only what is new") {
  Host host;
  host.submit({1, 20, 30, 40});
  host.drain();
  host.submit({50, 60});
  kaiju_event done{};
  host.drain(&done);
  CHECK(done.prompt_tokens == 14);
  CHECK(done.cached_tokens == 11);  // all but the last token, which was drawn and never computed, and the new ones
}

TEST_CASE("truncate and generate again gives what a fresh session gives") {
  Host host, fresh;
  kaiju_options_set_float(host.options, KAIJU_GENERATE_TEMPERATURE, 1.0, nullptr);
  kaiju_options_set_float(fresh.options, KAIJU_GENERATE_TEMPERATURE, 1.0, nullptr);
  host.submit({1, 20, 30, 40});
  const auto first = host.drain();
  REQUIRE(kaiju_session_truncate(host.session, 4, nullptr) == KAIJU_OK);
  host.submit({});
  CHECK(host.drain() == first);
  fresh.submit({1, 20, 30, 40});
  CHECK(fresh.drain() == first);
  kaiju_options_set_int(host.options, KAIJU_GENERATE_VARIANT, 1, nullptr);
  REQUIRE(kaiju_session_truncate(host.session, 4, nullptr) == KAIJU_OK);
  host.submit({});
  CHECK(host.drain() != first);
}

TEST_CASE("a fork never changes its parent") {
  Host host;
  host.submit({1, 20, 30, 40});
  host.drain();
  const auto before = host.history();
  kaiju_session* fork = nullptr;
  REQUIRE(kaiju_session_fork(host.session, 6, &fork, nullptr) == KAIJU_OK);
  CHECK(kaiju_session_tokens(fork, nullptr, 0) == 6);
  kaiju_request request = 0;
  const int32_t token = 99;
  REQUIRE(kaiju_engine_submit(host.engine, fork, &token, 1, host.options, nullptr, &request, nullptr) == KAIJU_OK);
  host.drain();
  CHECK(kaiju_session_tokens(fork, nullptr, 0) == 15);
  CHECK(host.history() == before);
  kaiju_session_destroy(fork);
}

TEST_CASE("a reply that one engine began goes on in another as it would have gone on") {
  Host first, second;
  for (Host* const host : {&first, &second}) {
    REQUIRE(kaiju_options_set_int(host->options, KAIJU_GENERATE_SEED, 5, nullptr) == KAIJU_OK);
    REQUIRE(kaiju_options_set_float(host->options, KAIJU_GENERATE_TEMPERATURE, 1.5, nullptr) == KAIJU_OK);
  }
  std::vector<int32_t> prompt = {1, 20, 21, 22};
  first.submit(prompt);
  const std::vector<int32_t> reply = first.drain();
  REQUIRE(reply.size() == 8);
  prompt.insert(prompt.end(), reply.begin(), reply.begin() + 3);
  REQUIRE(kaiju_options_set_int(second.options, KAIJU_GENERATE_BEGUN_TOKENS, 3, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_int(second.options, KAIJU_GENERATE_MAX_TOKENS, 5, nullptr) == KAIJU_OK);
  second.submit(prompt);
  CHECK(second.drain() == std::vector<int32_t>(reply.begin() + 3, reply.end()));
}

TEST_CASE("the token's own log-probability comes first, then the alternatives, the best first") {
  Host host;
  kaiju_options_set_int(host.options, KAIJU_GENERATE_LOGPROBS, 3, nullptr);
  kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, 1, nullptr);
  host.submit({1, 20});
  REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  kaiju_event event{};
  REQUIRE(polled(host.engine, &event, sizeof event, 1) == 1);
  REQUIRE(event.kind == KAIJU_EVENT_TOKEN);
  REQUIRE(event.token_count == 4);
  REQUIRE(event.logprob_count == 4);
  CHECK(event.tokens[0] == event.tokens[1]);  // greedy: the likeliest
  CHECK(event.logprobs[0] == event.logprobs[1]);
  CHECK(event.logprobs[1] >= event.logprobs[2]);
  CHECK(event.logprobs[2] >= event.logprobs[3]);
  host.drain();
}

TEST_CASE("a cancelled request ends as cancelled and keeps its tokens") {
  Host host;
  kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, -1, nullptr);
  const kaiju_request request = host.submit({1, 20});
  for (int i = 0; i < 5; ++i) REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  CHECK(kaiju_engine_cancel(host.engine, request) == KAIJU_OK);
  kaiju_event done{};
  const auto tokens = host.drain(&done);
  CHECK(done.kind == KAIJU_EVENT_DONE);
  CHECK(done.reason == KAIJU_DONE_CANCELLED);
  CHECK(tokens.size() < 20);
  CHECK(host.history().size() == 2 + static_cast<size_t>(done.generated_tokens));
  CHECK(kaiju_engine_cancel(host.engine, request) == KAIJU_OK);  // finished: ignored
}

TEST_CASE("the model's own symbols end a reply unless the host says otherwise") {
  Host host;
  kaiju_options* options = nullptr;
  REQUIRE(kaiju_options_create(&options) == KAIJU_OK);
  const int32_t close = 6;
  const float push = 10000.0f;
  REQUIRE(kaiju_options_set_logit_bias(options, &close, &push, 1, nullptr) == KAIJU_OK);
  const int32_t prompt[2] = {1, 20};
  kaiju_event done{};
  REQUIRE(kaiju_generate(host.engine, host.session, prompt, 2, options, nullptr, nullptr, &done, sizeof done,
                         nullptr) == KAIJU_OK);
  CHECK(done.reason == KAIJU_DONE_STOP_TOKEN);
  CHECK(done.generated_tokens == 1);
  REQUIRE(kaiju_options_set_int(options, KAIJU_GENERATE_STOP_TOKEN, -1, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_int(options, KAIJU_GENERATE_MAX_TOKENS, 3, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_generate(host.engine, host.session, prompt, 2, options, nullptr, nullptr, &done, sizeof done,
                         nullptr) == KAIJU_OK);
  CHECK(done.reason == KAIJU_DONE_LENGTH);
  kaiju_options_destroy(options);
}

TEST_CASE("generate passes whole UTF-8 to its callback, which can stop the reply") {
  Host host;
  const int32_t prompt[2] = {1, 20};
  kaiju_options_set_float(host.options, KAIJU_GENERATE_TEMPERATURE, 1.5, nullptr);
  kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, 200, nullptr);
  std::string text;
  const auto collect = [](const char* piece, size_t size, void* out) -> int32_t {
    CHECK(kaiju::utf8_valid_prefix({piece, size}) == size);
    static_cast<std::string*>(out)->append(piece, size);
    return 0;
  };
  REQUIRE(kaiju_generate(host.engine, host.session, prompt, 2, host.options, collect, &text, nullptr, 0, nullptr) ==
          KAIJU_OK);
  CHECK_FALSE(text.empty());
  kaiju_event done{};
  const auto stop = [](const char*, size_t, void*) -> int32_t { return 1; };
  CHECK(kaiju_generate(host.engine, host.session, prompt, 2, host.options, stop, nullptr, &done, sizeof done,
                       nullptr) == KAIJU_CANCELLED);
  CHECK(done.reason == KAIJU_DONE_CANCELLED);
  CHECK(kaiju_engine_pending(host.engine) == 0);
}

TEST_CASE("a request submitted from generate's callback keeps its events for poll, DONE included") {
  Host host;
  host.submit({1, 20, 30});
  const auto expected = host.drain();
  Host busy;
  kaiju_session* session = nullptr;
  REQUIRE(kaiju_session_create(busy.engine, &session, nullptr) == KAIJU_OK);
  const int32_t prompt[2] = {1, 25};
  kaiju_options_set_int(busy.options, KAIJU_GENERATE_STOP_TOKEN, -1, nullptr);
  kaiju_options* longer = nullptr;
  REQUIRE(kaiju_options_create(&longer) == KAIJU_OK);
  kaiju_options_set_int(longer, KAIJU_GENERATE_MAX_TOKENS, 60, nullptr);
  kaiju_options_set_int(longer, KAIJU_GENERATE_STOP_TOKEN, -1, nullptr);
  struct Seen {
    Host& host;
    kaiju_request request = 0;
  } seen{busy};
  const auto submit_once = [](const char*, size_t, void* user_data) -> int32_t {
    Seen& seen = *static_cast<Seen*>(user_data);
    if (seen.request == 0) seen.request = seen.host.submit({1, 20, 30}, &seen);
    return 0;
  };
  kaiju_event done{};
  const Answer answer = ask([&](kaiju_error** e) {
    return kaiju_generate(busy.engine, session, prompt, 2, longer, submit_once, &seen, &done, sizeof done, e);
  });
  INFO(answer.message);
  CHECK(answer.status == KAIJU_OK);
  CHECK(done.reason == KAIJU_DONE_LENGTH);
  CHECK(done.generated_tokens == 60);
  REQUIRE(seen.request != 0);
  CHECK(kaiju_engine_pending(busy.engine) == 1);
  kaiju_event events[16];
  const size_t count = polled(busy.engine, events, sizeof events[0], 16);
  REQUIRE(count == expected.size() + 1);
  for (size_t i = 0; i < count; ++i) {
    CHECK(events[i].request == seen.request);
    CHECK(events[i].user_data == &seen);
    if (i < expected.size()) CHECK(events[i].tokens[0] == expected[i]);
  }
  CHECK(events[count - 1].kind == KAIJU_EVENT_DONE);
  CHECK(kaiju_engine_pending(busy.engine) == 0);
  kaiju_options_destroy(longer);
  kaiju_session_destroy(session);
}

TEST_CASE("threads inside generate at once each get their reply") {
  Host host;
  const int32_t prompt[3] = {1, 20, 30};
  struct Reply {
    std::string text;
    std::atomic<size_t>* begun = nullptr;
    kaiju_session* session = nullptr;
    kaiju_status status = KAIJU_INTERNAL;
  };
  std::atomic<size_t> begun{0};
  std::vector<Reply> replies(4);
  // Each reply's first text waits for that of all others; without end where they do not share the engine.
  const auto collect = [](const char* piece, size_t size, void* out) -> int32_t {
    Reply& reply = *static_cast<Reply*>(out);
    if (reply.text.empty()) {
      ++*reply.begun;
      for (int tries = 0; *reply.begun < 4 && tries < 1000; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    reply.text.append(piece, size);
    return 0;
  };
  std::vector<std::thread> threads;
  for (Reply& reply : replies) {
    reply.begun = &begun;
    REQUIRE(kaiju_session_create(host.engine, &reply.session, nullptr) == KAIJU_OK);
  }
  for (Reply& reply : replies)
    threads.emplace_back([&] {
      reply.status =
          kaiju_generate(host.engine, reply.session, prompt, 3, host.options, collect, &reply, nullptr, 0, nullptr);
    });
  for (std::thread& thread : threads) thread.join();
  std::string alone;
  host.submit({1, 20, 30});
  host.drain(nullptr, &alone);
  REQUIRE_FALSE(alone.empty());
  CHECK(begun == 4);
  for (const Reply& reply : replies) {
    CHECK(reply.status == KAIJU_OK);
    CHECK(reply.text == alone);
    kaiju_session_destroy(reply.session);
  }
}

TEST_CASE("a drawn token that pads the vocabulary has no text, in its event and in detokenize") {
  Host host;
  const int32_t padding = kTinyVocabulary - 1;
  const float push = 10000.0f;
  REQUIRE(kaiju_options_set_logit_bias(host.options, &padding, &push, 1, nullptr) == KAIJU_OK);
  host.submit({1, 20});
  std::string text;
  const auto tokens = host.drain(nullptr, &text);
  CHECK(tokens == std::vector<int32_t>(8, padding));
  CHECK(text.empty());
  size_t size = 99;
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_detokenize(host.model, tokens.data(), tokens.size(), nullptr, 0, &size, e);
        }).message == "");
  CHECK(size == 0);
}

TEST_CASE("the same seed gives the same tokens, alone or beside other requests") {
  Host host;
  kaiju_options_set_float(host.options, KAIJU_GENERATE_TEMPERATURE, 1.0, nullptr);
  kaiju_options_set_int(host.options, KAIJU_GENERATE_SEED, 42, nullptr);
  host.submit({1, 20, 30});
  const auto alone = host.drain();
  kaiju_session* sessions[3] = {};
  kaiju_request requests[3] = {};
  const int32_t prompt[3] = {1, 20, 30};
  const int32_t stranger[3] = {1, 77, 88};
  for (int i = 0; i < 3; ++i) {
    REQUIRE(kaiju_session_create(host.engine, &sessions[i], nullptr) == KAIJU_OK);
    REQUIRE(kaiju_engine_submit(host.engine, sessions[i], i == 1 ? prompt : stranger, 3, host.options, nullptr,
                                &requests[i], nullptr) == KAIJU_OK);
  }
  host.drain();
  std::vector<int32_t> beside(11);
  REQUIRE(kaiju_session_tokens(sessions[1], beside.data(), 11) == 11);
  CHECK(std::vector<int32_t>(beside.begin() + 3, beside.end()) == alone);
  for (kaiju_session* session : sessions) kaiju_session_destroy(session);
}

TEST_CASE("the rounding mode of the thread that loads, creates and submits changes no bit") {
  (void)chat_model_file();
  const auto reply_under = [](int mode) {
    std::fesetround(mode);
    Host host;
    for (const auto& [option, value] :
         {std::pair{KAIJU_GENERATE_TEMPERATURE, 0.7}, {KAIJU_GENERATE_TOP_P, 0.9}, {KAIJU_GENERATE_MIN_P, 0.001}})
      kaiju_options_set_float(host.options, option, value, nullptr);
    kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, 40, nullptr);
    kaiju_options_set_int(host.options, KAIJU_GENERATE_LOGPROBS, 1, nullptr);
    host.submit({1, 20, 30});
    std::fesetround(FE_TONEAREST);
    std::vector<std::pair<int32_t, float>> reply;
    while (kaiju_engine_pending(host.engine) > 0) {
      REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
      for (kaiju_event event; polled(host.engine, &event, sizeof event, 1) == 1;)
        if (event.kind == KAIJU_EVENT_TOKEN) reply.emplace_back(event.tokens[0], event.logprobs[0]);
    }
    return reply;
  };
  const auto reply = reply_under(FE_TONEAREST);
  CHECK(reply.size() == 40);
  CHECK(reply_under(FE_UPWARD) == reply);
  CHECK(reply_under(FE_TOWARDZERO) == reply);
}

TEST_CASE("handles may be destroyed in any order") {
  const unsigned seed = 5;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 12; ++round) {
    Host host;
    host.submit({1, 20});
    kaiju_engine_step(host.engine, nullptr);
    int order[4] = {0, 1, 2, 3};
    std::shuffle(order, order + 4, random);
    for (const int which : order) {
      if (which == 0) kaiju_model_destroy(std::exchange(host.model, nullptr));
      if (which == 1) kaiju_options_destroy(std::exchange(host.options, nullptr));
      if (which == 2) kaiju_engine_destroy(std::exchange(host.engine, nullptr));
      if (which == 3) kaiju_session_destroy(std::exchange(host.session, nullptr));
      if (host.session) CHECK(kaiju_session_tokens(host.session, nullptr, 0) <= 2);
    }
  }
}

TEST_CASE("two engines share a model and nothing else") {
  Host host;
  kaiju_engine* other = nullptr;
  kaiju_session* session = nullptr;
  REQUIRE(kaiju_engine_create(host.model, host.engine_options, &other, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_session_create(other, &session, nullptr) == KAIJU_OK);
  host.submit({1, 20});
  CHECK(kaiju_engine_pending(host.engine) == 1);
  CHECK(kaiju_engine_pending(other) == 0);
  host.drain();
  kaiju_session_destroy(session);
  kaiju_engine_destroy(other);
}

TEST_CASE("ten threads submit while one steps") {
  Host host;
  std::atomic<int> submitted{0}, refused{0};
  std::vector<std::thread> threads;
  std::vector<kaiju_session*> sessions(10);
  for (auto& session : sessions) REQUIRE(kaiju_session_create(host.engine, &session, nullptr) == KAIJU_OK);
  for (int t = 0; t < 10; ++t)
    threads.emplace_back([&, t] {
      const int32_t prompt[2] = {1, 20 + t};
      kaiju_request request = 0;
      const bool ok = kaiju_engine_submit(host.engine, sessions[static_cast<size_t>(t)], prompt, 2, host.options,
                                          nullptr, &request, nullptr) == KAIJU_OK;
      (ok ? submitted : refused)++;
      kaiju_engine_wake(host.engine);
    });
  int done = 0;
  while (done < 10) {
    kaiju_engine_wait(host.engine, 1000000);
    REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
    kaiju_event event;
    while (polled(host.engine, &event, sizeof event, 1) == 1) done += event.kind == KAIJU_EVENT_DONE;
  }
  for (auto& thread : threads) thread.join();
  CHECK(submitted == 10);
  CHECK(refused == 0);
  kaiju_metrics metrics{};
  metrics.struct_size = sizeof metrics;
  REQUIRE(kaiju_engine_metrics(host.engine, &metrics) == KAIJU_OK);
  CHECK(metrics.requests_done == 10);
  CHECK(metrics.tokens_decoded == 80);
  for (kaiju_session* session : sessions) kaiju_session_destroy(session);
}

TEST_CASE("every option has a description and accepts its limits") {
  int described = 0;
  kaiju_options* options = nullptr;
  REQUIRE(kaiju_options_create(&options) == KAIJU_OK);
  for (kaiju_option option = 0; option < 1000; ++option) {
    kaiju_option_info info{};
    info.struct_size = sizeof info;
    if (kaiju_option_describe(option, &info) != KAIJU_OK) continue;
    ++described;
    INFO(info.name);
    CHECK(std::string(info.name).find('.') != std::string::npos);
    CHECK(std::strlen(info.help) > 5);
    if (info.type == 'i' && info.maximum < 1e18) {
      CHECK(kaiju_options_set_int(options, option, static_cast<int64_t>(info.minimum), nullptr) == KAIJU_OK);
      CHECK(kaiju_options_set_int(options, option, static_cast<int64_t>(info.maximum), nullptr) == KAIJU_OK);
      CHECK(kaiju_options_set_int(options, option, static_cast<int64_t>(info.maximum) + 1, nullptr) ==
            KAIJU_INVALID_ARGUMENT);
      CHECK(kaiju_options_set_int(options, option, static_cast<int64_t>(info.minimum) - 1, nullptr) ==
            KAIJU_INVALID_ARGUMENT);
    }
    if (info.type == 'f') {
      CHECK(kaiju_options_set_float(options, option, info.minimum, nullptr) == KAIJU_OK);
      CHECK(kaiju_options_set_float(options, option, info.maximum, nullptr) == KAIJU_OK);
      CHECK(kaiju_options_set_float(options, option, info.standard, nullptr) == KAIJU_OK);
    }
  }
  CHECK(described == 71);
  kaiju_options_destroy(options);
}

TEST_CASE("a struct of an older, smaller size stays valid, and a larger one is filled with zeros") {
  Host host;
  struct Larger {
    kaiju_metrics known;
    uint64_t more;
  } metrics;
  std::memset(&metrics, 0xFF, sizeof metrics);
  metrics.known.struct_size = sizeof metrics;
  REQUIRE(kaiju_engine_metrics(host.engine, &metrics.known) == KAIJU_OK);
  CHECK(metrics.known.struct_size == sizeof metrics);
  CHECK(metrics.known.steps == 0);
  CHECK(metrics.more == 0);

  struct LargerEvent {
    kaiju_event known;
    uint64_t more[2];
  } events[2];
  std::memset(events, 0xFF, sizeof events);
  kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, 1, nullptr);
  host.submit({1, 20});
  REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  REQUIRE(polled(host.engine, &events[0].known, sizeof events[0], 2) == 2);
  CHECK(events[0].known.kind == KAIJU_EVENT_TOKEN);
  CHECK(events[0].more[1] == 0);
  CHECK(events[1].known.kind == KAIJU_EVENT_DONE);
  CHECK(events[1].more[0] == 0);
}

TEST_CASE("wait returns at once when there is work and after its time when there is none") {
  Host host;
  CHECK(kaiju_engine_wait(host.engine, 0) == 0);
  CHECK(kaiju_engine_wait(host.engine, -5) == 0);
  host.submit({1, 20});
  CHECK(kaiju_engine_wait(host.engine, INT64_C(10000000000)) == 1);
  host.drain();
}

TEST_CASE("backends give the same tokens") {
  kaiju_runtime* runtime = nullptr;
  REQUIRE(kaiju_runtime_create(&runtime, nullptr) == KAIJU_OK);
  std::string names;
  for (size_t i = 0; i < kaiju_runtime_device_count(runtime); ++i) {
    kaiju_device_info info{};
    info.struct_size = sizeof info;
    REQUIRE(kaiju_runtime_device_info(runtime, i, &info) == KAIJU_OK);
    if (*info.backends) names += (names.empty() ? "" : ",") + std::string(info.backends);
  }
  std::vector<int32_t> expected;
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    at = end + 1;
    INFO(name);
    Host host;
    kaiju_session_destroy(std::exchange(host.session, nullptr));
    kaiju_engine_destroy(std::exchange(host.engine, nullptr));
    REQUIRE(kaiju_options_set_string(host.engine_options, KAIJU_ENGINE_BACKEND, name.data(), name.size(), nullptr) ==
            KAIJU_OK);
    REQUIRE(kaiju_engine_create(host.model, host.engine_options, &host.engine, nullptr) == KAIJU_OK);
    REQUIRE(kaiju_session_create(host.engine, &host.session, nullptr) == KAIJU_OK);
    host.submit({1, 20, 30, 40, 50});
    const auto tokens = host.drain();
    if (expected.empty()) expected = tokens;
    CHECK(tokens == expected);
  }
  kaiju_runtime_destroy(runtime);
}
