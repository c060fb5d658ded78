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

TEST_CASE("a list of samplers gives the replies of the same options, and works in the order of the host") {
  Host host;
  const auto reply = [&](const Bag& bag) {
    const int32_t prompt[] = {1, 20, 30};
    REQUIRE(kaiju_session_truncate(host.session, 0, nullptr) == KAIJU_OK);
    REQUIRE(kaiju_engine_submit(host.engine, host.session, prompt, 3, bag.handle, nullptr, nullptr, nullptr) ==
            KAIJU_OK);
    return host.drain();
  };
  const auto add = [](const Bag& bag, kaiju_sampler sampler, std::vector<double> values) {
    return ask([&](kaiju_error** e) {
      return kaiju_options_add_sampler(bag.handle, sampler, values.data(), values.size(), e);
    });
  };
  const Bag options, list, plain;
  set(options, KAIJU_GENERATE_TEMPERATURE, 1.5);
  set(options, KAIJU_GENERATE_TOP_K, int64_t{40});
  set(options, KAIJU_GENERATE_TOP_P, 0.9);
  for (const Bag* bag : {&options, &list, &plain}) {
    set(*bag, KAIJU_GENERATE_MAX_TOKENS, int64_t{24});
    set(*bag, KAIJU_GENERATE_SEED, int64_t{9});
  }
  REQUIRE(add(list, KAIJU_SAMPLER_TEMPERATURE, {1.5}).status == KAIJU_OK);
  REQUIRE(add(list, KAIJU_SAMPLER_TOP_K, {40}).status == KAIJU_OK);
  REQUIRE(add(list, KAIJU_SAMPLER_TOP_P, {0.9}).status == KAIJU_OK);
  CHECK(reply(list) == reply(options));
  CHECK(reply(list) != reply(plain));
  // The likeliest token alone, whatever comes before or after; another order than the options have; a value left out.
  const Bag greedy, first, breakers;
  for (const Bag* bag : {&greedy, &first, &breakers}) {
    set(*bag, KAIJU_GENERATE_MAX_TOKENS, int64_t{24});
    set(*bag, KAIJU_GENERATE_SEED, int64_t{9});
  }
  set(greedy, KAIJU_GENERATE_TEMPERATURE, 0.0);
  REQUIRE(add(first, KAIJU_SAMPLER_TOP_P, {0.9}).status == KAIJU_OK);
  REQUIRE(add(first, KAIJU_SAMPLER_TOP_K, {1}).status == KAIJU_OK);
  REQUIRE(add(first, KAIJU_SAMPLER_TEMPERATURE, {2}).status == KAIJU_OK);
  REQUIRE(add(first, KAIJU_SAMPLER_XTC, {1}).status == KAIJU_OK);
  CHECK(reply(first) == reply(greedy));
  REQUIRE(add(first, KAIJU_SAMPLER_NO_REPEAT_NGRAM, {1}).status == KAIJU_OK);
  CHECK(reply(first) == reply(greedy));  // one token is left: nothing is dropped
  set(breakers, KAIJU_GENERATE_BREAKER, "x");
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_engine_submit(host.engine, host.session, nullptr, 0, breakers.handle, nullptr, nullptr, e);
        }).says("add the sampler dry"));
  CHECK(add(plain, KAIJU_SAMPLER_DRY, {1, 2, 3, 4, 5}).says("has 1 to 4 values, not 5"));
  CHECK(add(plain, KAIJU_SAMPLER_XTC, {0.5, 2}).says("xtc.threshold is 2"));
  CHECK(add(plain, KAIJU_SAMPLER_TOP_K, {1.5}).says("whole number"));
  CHECK(add(plain, KAIJU_SAMPLER_TOP_P, {0}).says("top_p.p is 0"));
  CHECK(add(plain, KAIJU_SAMPLER_TOP_P, {}).says("has one value"));
  CHECK(add(plain, 99, {1}).says("no sampler 99"));
  CHECK(add(plain, KAIJU_SAMPLER_MIROSTAT, {101}).says("mirostat.tau is 101"));
  CHECK(add(plain, KAIJU_SAMPLER_MIROSTAT, {5, -0.1}).says("mirostat.eta is -0.1"));
  const Bag steered;
  set(steered, KAIJU_GENERATE_MAX_TOKENS, int64_t{24});
  REQUIRE(add(steered, KAIJU_SAMPLER_MIROSTAT, {0}).status == KAIJU_OK);
  CHECK(reply(steered) == reply(greedy));  // no surprise
  REQUIRE(add(steered, KAIJU_SAMPLER_TEMPERATURE, {1}).status == KAIJU_OK);
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_engine_submit(host.engine, host.session, nullptr, 0, steered.handle, nullptr, nullptr, e);
        }).says("a sampler follows mirostat"));
  set(list, KAIJU_GENERATE_TOP_K, int64_t{3});
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_engine_submit(host.engine, host.session, nullptr, 0, list.handle, nullptr, nullptr, e);
        }).says("generate.top_k is set beside a list"));
  REQUIRE(kaiju_options_clear_samplers(list.handle) == KAIJU_OK);
  REQUIRE(kaiju_options_clear(list.handle, KAIJU_GENERATE_TOP_K) == KAIJU_OK);
  CHECK(reply(list) == reply(plain));
  kaiju_option_info info{};
  info.struct_size = sizeof info;
  REQUIRE(kaiju_sampler_describe(KAIJU_SAMPLER_MIN_P, 0, &info) == KAIJU_OK);
  CHECK(std::string(info.name) == "min_p.p");
  CHECK(kaiju_sampler_describe(KAIJU_SAMPLER_MIN_P, 1, &info) == KAIJU_NOT_FOUND);
  REQUIRE(kaiju_sampler_describe(KAIJU_SAMPLER_DRY, 2, &info) == KAIJU_OK);
  CHECK(std::string(info.name) == "dry.allowed_length");
  CHECK((info.type == 'i' && info.standard == 2));
}

TEST_CASE("an engine says what it computes on, and computes on the device that is named") {
  kaiju_runtime* runtime = nullptr;
  REQUIRE(kaiju_runtime_create(&runtime, nullptr) == KAIJU_OK);
  const size_t devices = kaiju_runtime_device_count(runtime);
  const auto make = [](Host& host, std::vector<int64_t> indices, const char* backend = "auto") {
    Bag bag;
    for (const int64_t index : indices) set(bag, KAIJU_ENGINE_DEVICES, index);
    set(bag, KAIJU_ENGINE_BACKEND, std::string(backend));
    set(bag, KAIJU_ENGINE_THREADS, int64_t{1});
    kaiju_engine_destroy(std::exchange(host.engine, nullptr));
    return ask([&](kaiju_error** e) { return kaiju_engine_create(host.model, bag.handle, &host.engine, e); });
  };
  for (size_t i = 0; i < devices; ++i) {
    Host host;
    kaiju_session_destroy(std::exchange(host.session, nullptr));
    kaiju_device_info device{};
    device.struct_size = sizeof device;
    REQUIRE(kaiju_runtime_device_info(runtime, i, &device) == KAIJU_OK);
    CHECK((i == 0) == (device.kind == KAIJU_DEVICE_CPU));
    if (std::string(device.backends).empty()) continue;
    INFO(device.name);
    CHECK(device.memory_total > 0);
    const Answer made = make(host, {static_cast<int64_t>(i)});
    INFO(made.message);
    REQUIRE(made.status == KAIJU_OK);
    kaiju_engine_info info{};
    info.struct_size = sizeof info;
    REQUIRE(kaiju_engine_describe(host.engine, &info) == KAIJU_OK);
    CHECK(info.device == static_cast<int32_t>(i));
    CHECK(std::string(device.backends).rfind(info.backend, 0) == 0);  // the fastest
    CHECK(info.threads == 1);
    CHECK(info.context == kTinyContext);
    CHECK(info.max_running >= 8);
    CHECK(info.kv_bytes_per_token + info.window_kv_bytes_per_token > 0);
    CHECK(info.cache_bytes >= info.kv_bytes_per_token * static_cast<uint64_t>(kTinyContext));
  }
  Host host;
  kaiju_session_destroy(std::exchange(host.session, nullptr));
  CHECK(make(host, {999}).says("there is no device 999"));
  const Answer several = make(host, {0, 0});
  CHECK(several.status == KAIJU_UNSUPPORTED);
  CHECK(several.says("2 devices are named"));
  CHECK(make(host, {0}, "cuda").status != KAIJU_OK);
  kaiju_runtime_destroy(runtime);
}
