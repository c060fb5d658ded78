// What the tests of kaiju.h share: a tiny model that chats, handles that free themselves, a loop.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kaiju.h"
#include "tests/capi/tiny_model.hpp"
#include "tests/text/tiny_tokenizer.hpp"

namespace kaiju::tests {

inline constexpr int32_t kTinyContext = 512;

// A path; made on first use.
inline const std::string& plain_model_file() {
  static const std::string path = [] {
    const std::string file = temporary_folder() + "/plain.kaiju.safetensors";
    const Status status = write_random_checkpoint(file, tiny_config(kTinyVocabulary, kTinyContext), 1);
    if (!status.ok()) throw std::runtime_error(status.message());
    return file;
  }();
  return path;
}

inline const std::string& chat_model_file() {
  static const std::string path = [] {
    const std::string file = temporary_folder() + "/chat.kaiju.safetensors";
    add_tokenizer(plain_model_file(), file, tiny_model().bytes(), kTinyChat);
    return file;
  }();
  return path;
}

// Status and message of a call that takes an error last.
struct Answer {
  kaiju_status status = KAIJU_OK;
  std::string message;
  bool says(const char* what) const { return message.find(what) != std::string::npos; }
};

template <class Call>
Answer ask(const Call& call) {
  kaiju_error* error = nullptr;
  Answer answer{call(&error), kaiju_error_message(error)};
  if (kaiju_error_status(error) != (error ? answer.status : KAIJU_OK))
    answer.message = "the error's status differs from the call's";
  kaiju_error_destroy(error);
  return answer;
}

// What kaiju_engine_poll has moved into `events`.
inline size_t polled(kaiju_engine* engine, kaiju_event* events, size_t event_size, size_t capacity) {
  size_t count = 0;
  const Answer answer =
      ask([&](kaiju_error** e) { return kaiju_engine_poll(engine, events, event_size, capacity, &count, e); });
  if (answer.status != KAIJU_OK) throw std::runtime_error(answer.message);
  return count;
}

// A number of the model; -1 where it has none.
inline int64_t number_of(const kaiju_model* model, int32_t property) {
  int64_t value = -1;
  const kaiju_status status = kaiju_model_number(model, property, &value);
  if (status != KAIJU_OK && status != KAIJU_NOT_FOUND) throw std::runtime_error(kaiju_status_name(status));
  return value;
}

// A bag of options that frees itself.
struct Bag {
  kaiju_options* handle = nullptr;
  Bag() { kaiju_options_create(&handle); }
  explicit Bag(kaiju_options* made) : handle(made) {}
  ~Bag() { kaiju_options_destroy(handle); }
  Bag(const Bag&) = delete;
  Answer set(kaiju_option option, int64_t value) const {
    return ask([&](kaiju_error** e) { return kaiju_options_set_int(handle, option, value, e); });
  }
  Answer set(kaiju_option option, double value) const {
    return ask([&](kaiju_error** e) { return kaiju_options_set_float(handle, option, value, e); });
  }
  Answer set(kaiju_option option, const std::string& value) const {
    return ask(
        [&](kaiju_error** e) { return kaiju_options_set_string(handle, option, value.data(), value.size(), e); });
  }
};

struct Host {
  kaiju_model* model = nullptr;
  kaiju_options *engine_options = nullptr, *options = nullptr;  // the latter of requests
  kaiju_engine* engine = nullptr;
  kaiju_session* session = nullptr;

  // `more`: sets more options of the engine.
  explicit Host(const std::string& file = chat_model_file(), std::string_view backend = "auto",
                void (*more)(kaiju_options*) = nullptr) {
    check(ask([&](kaiju_error** e) {
      return kaiju_model_load(nullptr, file.c_str(), nullptr, nullptr, nullptr, &model, e);
    }));
    for (kaiju_options** bag : {&engine_options, &options})
      if (kaiju_options_create(bag) != KAIJU_OK) throw std::runtime_error("no options");
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_THREADS, 1, nullptr);
    kaiju_options_set_string(engine_options, KAIJU_ENGINE_BACKEND, backend.data(), backend.size(), nullptr);
    if (more) more(engine_options);
    check(ask([&](kaiju_error** e) { return kaiju_engine_create(model, engine_options, &engine, e); }));
    kaiju_options_set_int(options, KAIJU_GENERATE_MAX_TOKENS, 8, nullptr);
    kaiju_options_set_int(options, KAIJU_GENERATE_STOP_TOKEN, -1, nullptr);
    check(ask([&](kaiju_error** e) { return kaiju_session_create(engine, &session, e); }));
  }
  ~Host() {
    kaiju_session_destroy(session);
    kaiju_engine_destroy(engine);
    kaiju_options_destroy(options);
    kaiju_options_destroy(engine_options);
    kaiju_model_destroy(model);
  }
  Host(const Host&) = delete;

  static void check(const Answer& answer) {
    if (answer.status != KAIJU_OK) throw std::runtime_error(answer.message);
  }

  kaiju_request submit(const std::vector<int32_t>& tokens, void* user_data = nullptr) {
    kaiju_request request = 0;
    check(ask([&](kaiju_error** e) {
      return kaiju_engine_submit(engine, session, tokens.data(), tokens.size(), options, user_data, &request, e);
    }));
    return request;
  }

  // Steps until nothing is pending; the tokens of TOKEN events and the last event.
  std::vector<int32_t> drain(kaiju_event* last = nullptr, std::string* text = nullptr) {
    std::vector<int32_t> tokens;
    while (kaiju_engine_pending(engine) > 0) {
      check(ask([&](kaiju_error** e) { return kaiju_engine_step(engine, e); }));
      kaiju_event events[4];
      while (const size_t count = polled(engine, events, sizeof events[0], 4)) {
        for (size_t i = 0; i < count; ++i) {
          if (events[i].kind == KAIJU_EVENT_TOKEN) tokens.push_back(events[i].tokens[0]);
          if (text) text->append(events[i].text, events[i].text_size);
          if (last && events[i].kind != KAIJU_EVENT_TOKEN) *last = events[i];
        }
      }
    }
    return tokens;
  }

  std::vector<int32_t> history() const {
    std::vector<int32_t> tokens(kaiju_session_tokens(session, nullptr, 0));
    kaiju_session_tokens(session, tokens.data(), tokens.size());
    return tokens;
  }
};

}  // namespace kaiju::tests
