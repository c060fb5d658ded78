// What a call does with a bag of options: it reads those of its own, and refuses the rest.
#include <algorithm>
#include <functional>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

template <class Value>
void set(const Bag& bag, kaiju_option option, const Value& value) {
  const Answer answer = bag.set(option, value);
  INFO(answer.message);
  REQUIRE(answer.status == KAIJU_OK);
}

int32_t keep_nothing(const void*, size_t, void*) { return 0; }
int64_t read_nothing(void*, size_t, void*) { return 0; }

// Every call that takes options, with an option of each group that it reads.
struct Call {
  const char* name;
  std::vector<kaiju_option> reads;
  std::function<kaiju_status(Host&, const kaiju_options*, kaiju_error**)> run;
};

std::vector<Call> every_call() {
  static const int32_t prompt[] = {1, 2, 3};
  const std::vector<kaiju_option> of_a_reply = {KAIJU_GENERATE_TOP_K, KAIJU_SESSION_SALT};
  return {
      {"kaiju_model_load",
       {KAIJU_MODEL_VERIFY},
       [](Host&, const kaiju_options* options, kaiju_error** e) {
         kaiju_model* model = nullptr;
         const kaiju_status status =
             kaiju_model_load(nullptr, chat_model_file().c_str(), options, nullptr, nullptr, &model, e);
         kaiju_model_destroy(model);
         return status;
       }},
      {"kaiju_engine_create",
       {KAIJU_ENGINE_MAX_RUNNING},
       [](Host& host, const kaiju_options* options, kaiju_error** e) {
         kaiju_engine* engine = nullptr;
         const kaiju_status status = kaiju_engine_create(host.model, options, &engine, e);
         kaiju_engine_destroy(engine);
         return status;
       }},
      {"kaiju_engine_submit", of_a_reply,
       [](Host& host, const kaiju_options* options, kaiju_error** e) {
         return kaiju_engine_submit(host.engine, host.session, prompt, 3, options, nullptr, nullptr, e);
       }},
      {"kaiju_generate", of_a_reply,
       [](Host& host, const kaiju_options* options, kaiju_error** e) {
         return kaiju_generate(host.engine, host.session, prompt, 3, options, nullptr, nullptr, nullptr, 0, e);
       }},
      {"kaiju_conversation_say", of_a_reply,
       [](Host& host, const kaiju_options* options, kaiju_error** e) {
         kaiju_conversation* talk = nullptr;
         REQUIRE(kaiju_conversation_create(host.engine, nullptr, 0, &talk, nullptr) == KAIJU_OK);
         const kaiju_status status = kaiju_conversation_say(talk, prompt, 3, options, nullptr, nullptr, e);
         kaiju_conversation_destroy(talk);
         return status;
       }},
      {"kaiju_conversation_swipe", of_a_reply,
       [](Host& host, const kaiju_options* options, kaiju_error** e) {
         kaiju_conversation* talk = nullptr;
         REQUIRE(kaiju_conversation_create(host.engine, nullptr, 0, &talk, nullptr) == KAIJU_OK);
         REQUIRE(kaiju_conversation_append(talk, prompt, 3, prompt, 3, nullptr) == KAIJU_OK);
         const kaiju_status status = kaiju_conversation_swipe(talk, options, nullptr, nullptr, e);
         kaiju_conversation_destroy(talk);
         return status;
       }},
      {"a save",
       {KAIJU_SESSION_KEY, KAIJU_SESSION_KV},
       [](Host& host, const kaiju_options* options, kaiju_error** e) {
         return kaiju_session_save(host.session, options, keep_nothing, nullptr, e);
       }},
      {"a restore",
       {KAIJU_SESSION_KEY, KAIJU_SESSION_SALT},
       [](Host& host, const kaiju_options* options, kaiju_error** e) {
         kaiju_session* session = nullptr;
         const kaiju_status status = kaiju_session_restore(host.engine, options, read_nothing, nullptr, &session, e);
         kaiju_session_destroy(session);
         return status;
       }},
  };
}

void set_some_value(const Bag& bag, kaiju_option option) {
  kaiju_option_info info{};
  info.struct_size = sizeof info;
  REQUIRE(kaiju_option_describe(option, &info) == KAIJU_OK);
  if (info.type == 's')
    set(bag, option, std::string("sixteen bytes at least"));
  else
    set(bag, option, int64_t{1});
}

}  // namespace

TEST_CASE("an option that a call does not read is refused by name, and one that it reads is not") {
  constexpr kaiju_option kOneOfEach[] = {KAIJU_MODEL_VERIFY, KAIJU_ENGINE_MAX_RUNNING, KAIJU_GENERATE_TOP_K,
                                         KAIJU_SESSION_SALT, KAIJU_SESSION_KEY,        KAIJU_SESSION_KV};
  for (const Call& call : every_call())
    for (const kaiju_option option : kOneOfEach) {
      Host host;
      const Bag bag;
      set_some_value(bag, option);
      kaiju_option_info info{};
      info.struct_size = sizeof info;
      REQUIRE(kaiju_option_describe(option, &info) == KAIJU_OK);
      const Answer answer = ask([&](kaiju_error** e) { return call.run(host, bag.handle, e); });
      INFO(call.name << " with " << info.name << ": " << answer.message);
      const bool reads = std::find(call.reads.begin(), call.reads.end(), option) != call.reads.end();
      CHECK(answer.says("does not read") == !reads);
      if (reads) continue;
      CHECK(answer.status == KAIJU_INVALID_ARGUMENT);
      CHECK(answer.says(info.name));
      CHECK(answer.says(call.name));
    }
}

TEST_CASE("logit biases and a clock are refused by calls that do not read them") {
  Host host;
  const int32_t token = 5;
  const float bias = 1.0f;
  const Bag biases, clock;
  REQUIRE(kaiju_options_set_logit_bias(biases.handle, &token, &bias, 1, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_clock(clock.handle, [](void*) -> int64_t { return 0; }, nullptr) == KAIJU_OK);
  for (const Call& call : every_call()) {
    INFO(call.name);
    const bool replies = call.reads[0] == KAIJU_GENERATE_TOP_K, creates = call.reads[0] == KAIJU_ENGINE_MAX_RUNNING;
    CHECK(ask([&](kaiju_error** e) { return call.run(host, biases.handle, e); }).says("the logit biases") == !replies);
    if (replies) host.drain();
    CHECK(ask([&](kaiju_error** e) { return call.run(host, clock.handle, e); }).says("the clock") == !creates);
  }
}

TEST_CASE("options are cleared one by one or all at once, and a copy keeps what its original loses") {
  Host host;
  const Bag bag;
  set(bag, KAIJU_GENERATE_MAX_TOKENS, int64_t{3});
  set(bag, KAIJU_GENERATE_STOP_TOKEN, int64_t{-1});
  kaiju_options* made = nullptr;
  REQUIRE(kaiju_options_copy(bag.handle, &made) == KAIJU_OK);
  const Bag copy(made);
  REQUIRE(kaiju_options_clear(bag.handle, KAIJU_GENERATE_MAX_TOKENS) == KAIJU_OK);
  set(bag, KAIJU_GENERATE_MAX_TOKENS, int64_t{2});
  const auto length = [&](const kaiju_options* options) {
    const int32_t prompt[] = {1, 2, 3};
    REQUIRE(kaiju_engine_submit(host.engine, host.session, prompt, 3, options, nullptr, nullptr, nullptr) == KAIJU_OK);
    return host.drain().size();
  };
  CHECK(length(copy.handle) == 3);
  CHECK(length(bag.handle) == 2);
  set(bag, KAIJU_MODEL_VERIFY, int64_t{1});
  REQUIRE(kaiju_options_clear(bag.handle, 0) == KAIJU_OK);
  set(bag, KAIJU_GENERATE_MAX_TOKENS, int64_t{1});
  CHECK(length(bag.handle) == 1);  // the option of models is gone
  CHECK(kaiju_options_clear(bag.handle, 299) == KAIJU_NOT_FOUND);
  CHECK(kaiju_options_clear(nullptr, 0) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_options_copy(nullptr, &made) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_options_copy(bag.handle, nullptr) == KAIJU_INVALID_ARGUMENT);
}

TEST_CASE("every option is found by its name") {
  int32_t count = 0;
  for (kaiju_option option = 0; option < 1000; ++option) {
    kaiju_option_info info{};
    info.struct_size = sizeof info;
    if (kaiju_option_describe(option, &info) != KAIJU_OK) continue;
    kaiju_option found = 0;
    CHECK(kaiju_option_find(info.name, &found) == KAIJU_OK);
    CHECK(found == option);
    ++count;
  }
  CHECK(count > 30);
  kaiju_option found = 7;
  CHECK(kaiju_option_find("generate.temperatur", &found) == KAIJU_NOT_FOUND);
  CHECK(found == 7);
  CHECK(kaiju_option_find(nullptr, &found) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_option_find("generate.top_k", nullptr) == KAIJU_INVALID_ARGUMENT);
}
