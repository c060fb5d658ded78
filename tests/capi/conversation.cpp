// Conversations and the order of service through the C interface.
#include <cstddef>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kaiju/text/utf8_stream.hpp"
#include "tests/capi/host.hpp"
#include "tests/capi/programs.hpp"

using namespace kaiju::tests;

namespace {

using Tokens = std::vector<int32_t>;

struct Chat : Host {
  kaiju_conversation* talk = nullptr;
  const Tokens head = {1, 3, 20, 30, 6};
  const Tokens hello = {4, 40, 41, 42, 6, 5};

  Chat() {
    kaiju_options_set_float(options, KAIJU_GENERATE_TEMPERATURE, 1.0, nullptr);
    check(ask([&](kaiju_error** e) { return kaiju_conversation_create(engine, head.data(), head.size(), &talk, e); }));
  }
  ~Chat() { kaiju_conversation_destroy(talk); }

  kaiju_request say(const Tokens& input) {
    kaiju_request request = 0;
    check(ask([&](kaiju_error** e) {
      return kaiju_conversation_say(talk, input.data(), input.size(), options, nullptr, &request, e);
    }));
    return request;
  }
  kaiju_request swipe() {
    kaiju_request request = 0;
    check(ask([&](kaiju_error** e) { return kaiju_conversation_swipe(talk, options, nullptr, &request, e); }));
    return request;
  }
  kaiju_conversation_info info(kaiju_conversation* of = nullptr) {
    kaiju_conversation_info info{};
    info.struct_size = sizeof info;
    REQUIRE(kaiju_conversation_describe(of ? of : talk, &info) == KAIJU_OK);
    return info;
  }
  Tokens turn(size_t index, int32_t part) {
    size_t count = 0;
    REQUIRE(kaiju_conversation_turn(talk, index, part, nullptr, 0, &count, nullptr) == KAIJU_OK);
    Tokens tokens(count);
    REQUIRE(kaiju_conversation_turn(talk, index, part, tokens.data(), count, &count, nullptr) == KAIJU_OK);
    return tokens;
  }
  Tokens tokens(kaiju_conversation* of = nullptr) {
    Tokens tokens(info(of).tokens);
    size_t count = 0;
    REQUIRE(kaiju_conversation_tokens(of ? of : talk, tokens.data(), tokens.size(), &count, nullptr) == KAIJU_OK);
    CHECK(count == tokens.size());
    return tokens;
  }
};

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("a conversation supports turns, swipes, edits and undo") {
  Chat chat;
  chat.say(chat.hello);
  const Tokens first = chat.drain();
  const Tokens one = chat.head + chat.hello + first + Tokens{6};
  CHECK(chat.tokens() == one);
  CHECK(chat.turn(0, KAIJU_TURN_INPUT) == chat.hello);
  CHECK(chat.turn(0, KAIJU_TURN_REPLY) == first);

  chat.swipe();
  kaiju_event done{};
  const Tokens second = chat.drain(&done);
  CHECK(second != first);
  CHECK(done.prompt_tokens - done.cached_tokens == 1);
  CHECK(chat.info().replies == 2);
  CHECK(chat.info().reply == 1);
  REQUIRE(kaiju_conversation_choose(chat.talk, 0, nullptr) == KAIJU_OK);
  CHECK(chat.tokens() == one);

  chat.say(chat.hello);
  const Tokens third = chat.drain();
  CHECK(chat.tokens() == one + chat.hello + third + Tokens{6});
  const Tokens told = {50, 51};
  REQUIRE(kaiju_conversation_edit(chat.talk, 0, KAIJU_TURN_REPLY, told.data(), 2, nullptr) == KAIJU_OK);
  CHECK(chat.info().turns == 2);
  CHECK(chat.tokens() == chat.head + chat.hello + told + Tokens{6} + chat.hello + third + Tokens{6});
  const Tokens asked = {4, 43, 6, 5};
  REQUIRE(kaiju_conversation_edit(chat.talk, 0, KAIJU_TURN_INPUT, asked.data(), asked.size(), nullptr) == KAIJU_OK);
  CHECK(chat.info().turns == 1);
  CHECK(chat.info().replies == 0);
  chat.swipe();
  const Tokens answer = chat.drain();
  CHECK(chat.tokens() == chat.head + asked + answer + Tokens{6});
  REQUIRE(kaiju_conversation_undo(chat.talk, nullptr) == KAIJU_OK);
  CHECK(chat.tokens() == chat.head);
  CHECK(kaiju_conversation_undo(chat.talk, nullptr) == KAIJU_NOT_FOUND);
}

TEST_CASE("a turn that a stop string ended detokenizes to the text of its events") {
  Chat chat;
  kaiju_options_set_int(chat.options, KAIJU_GENERATE_MAX_TOKENS, 60, nullptr);
  chat.say(chat.hello);
  std::string whole, text;
  const Tokens first = chat.drain(nullptr, &whole);
  REQUIRE(whole.size() > 8);
  const auto text_of = [&](const Tokens& tokens) {
    size_t size = 0;
    REQUIRE(kaiju_detokenize(chat.model, tokens.data(), tokens.size(), nullptr, 0, &size, nullptr) == KAIJU_OK);
    std::string out(size, ' ');
    REQUIRE(kaiju_detokenize(chat.model, tokens.data(), tokens.size(), out.data(), size, &size, nullptr) == KAIJU_OK);
    std::string shown;  // a random model draws bytes that are no code points
    kaiju::Utf8Stream utf8;
    utf8.push(out, shown);
    utf8.finish(shown);
    return shown;
  };
  size_t at = whole.size() / 2;  // inside a word or between two, as it comes
  while (at < whole.size() && (static_cast<signed char>(whole[at]) < 0 || static_cast<signed char>(whole[at + 1]) < 0))
    ++at;
  REQUIRE(at + 2 < whole.size());
  REQUIRE(kaiju_options_set_string(chat.options, KAIJU_GENERATE_STOP, whole.data() + at, 2, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_conversation_undo(chat.talk, nullptr) == KAIJU_OK);
  chat.say(chat.hello);
  kaiju_event done{};
  const Tokens drawn = chat.drain(&done, &text);
  CHECK(done.reason == KAIJU_DONE_STOP_STRING);
  CHECK(done.stop == 0);
  CHECK(whole.compare(0, text.size(), text) == 0);
  const Tokens kept = chat.turn(0, KAIJU_TURN_REPLY);
  CHECK(kept.size() < drawn.size());
  CHECK(text_of(kept) == text);
  CHECK(chat.tokens() == chat.head + chat.hello + kept + Tokens{6});
}

TEST_CASE("a forked conversation is independent of its parent") {
  Chat chat;
  chat.say(chat.hello);
  chat.drain();
  chat.say(chat.hello);
  chat.drain();
  const Tokens before = chat.tokens();
  kaiju_conversation* fork = nullptr;
  REQUIRE(kaiju_conversation_fork(chat.talk, 1, &fork, nullptr) == KAIJU_OK);
  kaiju_request request = 0;
  REQUIRE(kaiju_conversation_say(fork, chat.hello.data(), chat.hello.size(), chat.options, nullptr, &request,
                                 nullptr) == KAIJU_OK);
  CHECK(kaiju_conversation_undo(fork, nullptr) == KAIJU_BUSY);
  chat.drain();
  CHECK(chat.info(fork).turns == 2);
  CHECK(chat.tokens() == before);
  CHECK(chat.tokens(fork) == before);  // same history, seed and stream: same words
  kaiju_conversation_destroy(fork);
}

TEST_CASE("a greeting and a loaded chat are turns that are not computed") {
  Chat chat;
  chat.say(chat.hello);
  chat.drain();
  const Tokens spoken = chat.turn(0, KAIJU_TURN_REPLY), greeting = {5, 44, 45};
  Chat loaded;
  REQUIRE(kaiju_conversation_append(loaded.talk, nullptr, 0, greeting.data(), greeting.size(), nullptr) == KAIJU_OK);
  CHECK(loaded.tokens() == loaded.head + greeting + Tokens{6});
  CHECK(kaiju_conversation_swipe(loaded.talk, nullptr, nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  REQUIRE(kaiju_conversation_undo(loaded.talk, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_conversation_append(loaded.talk, chat.hello.data(), chat.hello.size(), spoken.data(), spoken.size(),
                                    nullptr) == KAIJU_OK);
  CHECK(loaded.tokens() == chat.tokens());
}

TEST_CASE("a conversation whose engine was destroyed can be saved and asks for no reply") {
  Chat chat;
  kaiju_conversation* child = nullptr;
  REQUIRE(kaiju_conversation_fork(chat.talk, 0, &child, nullptr) == KAIJU_OK);
  kaiju_engine_destroy(std::exchange(chat.engine, nullptr));
  const int32_t input[] = {12, 13};
  for (kaiju_conversation* talk : {chat.talk, child}) {
    CHECK(ask([&](kaiju_error** e) {
            return kaiju_conversation_say(talk, input, 2, nullptr, nullptr, nullptr, e);
          }).says("engine was destroyed"));
    CHECK(ask([&](kaiju_error** e) {
            return kaiju_conversation_swipe(talk, nullptr, nullptr, nullptr, e);
          }).says("engine was destroyed"));
  }
  const std::string file = temporary_folder() + "/of-a-destroyed-engine.saved";
  CHECK(kaiju_conversation_save_file(chat.talk, nullptr, file.c_str(), nullptr) == KAIJU_OK);
  kaiju_conversation_destroy(child);
}

TEST_CASE("conversations refuse wrong arguments by name") {
  Chat chat;
  kaiju_conversation_info info{};
  const int32_t token = 20;
  const auto refused = [](const Answer& answer, const char* what) {
    INFO(answer.message);
    CHECK(answer.status == KAIJU_INVALID_ARGUMENT);
    CHECK(answer.says(what));
  };
  kaiju_conversation_destroy(nullptr);
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_create(nullptr, nullptr, 0, nullptr, e); }),
          "engine is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_create(chat.engine, nullptr, 0, nullptr, e); }),
          "out is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_create(chat.engine, nullptr, 3, &chat.talk, e); }),
          "head is NULL");
  refused(
      ask([&](kaiju_error** e) { return kaiju_conversation_say(nullptr, &token, 1, nullptr, nullptr, nullptr, e); }),
      "conversation is NULL");
  refused(
      ask([&](kaiju_error** e) { return kaiju_conversation_say(chat.talk, nullptr, 1, nullptr, nullptr, nullptr, e); }),
      "input is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_swipe(nullptr, nullptr, nullptr, nullptr, e); }),
          "conversation is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_choose(nullptr, 0, e); }), "conversation is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_append(nullptr, nullptr, 0, nullptr, 0, e); }),
          "conversation is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_append(chat.talk, nullptr, 0, nullptr, 1, e); }),
          "reply is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_edit(nullptr, 0, 1, nullptr, 0, e); }),
          "conversation is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_edit(chat.talk, 0, 3, nullptr, 0, e); }), "part is 3");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_edit(chat.talk, 0, 1, nullptr, 1, e); }),
          "tokens is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_undo(nullptr, e); }), "conversation is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_fork(nullptr, 0, nullptr, e); }),
          "conversation is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_fork(chat.talk, 0, nullptr, e); }), "out is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_turn(nullptr, 0, 1, nullptr, 0, nullptr, e); }),
          "conversation is NULL");
  refused(ask([&](kaiju_error** e) { return kaiju_conversation_tokens(nullptr, nullptr, 0, nullptr, e); }),
          "conversation is NULL");
  CHECK(kaiju_conversation_describe(chat.talk, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_conversation_describe(chat.talk, &info) == KAIJU_INVALID_ARGUMENT);  // struct_size was never set
  CHECK(kaiju_conversation_edit(chat.talk, 0, 1, &token, 1, nullptr) == KAIJU_NOT_FOUND);
  CHECK(kaiju_conversation_turn(chat.talk, 0, 1, nullptr, 0, nullptr, nullptr) == KAIJU_NOT_FOUND);
  CHECK(kaiju_engine_suspend(nullptr, 1) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_resume(nullptr, 1) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_now(nullptr) == 0);
  CHECK(kaiju_options_set_clock(nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
}

TEST_CASE("a deadline on the host's clock ends running and suspended requests, with that reason") {
  Host host;
  int64_t time = 5000;
  kaiju_session_destroy(std::exchange(host.session, nullptr));
  kaiju_engine_destroy(std::exchange(host.engine, nullptr));
  REQUIRE(kaiju_options_set_clock(
              host.engine_options, [](void* data) { return *static_cast<int64_t*>(data); }, &time) == KAIJU_OK);
  REQUIRE(kaiju_engine_create(host.model, host.engine_options, &host.engine, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_session_create(host.engine, &host.session, nullptr) == KAIJU_OK);
  CHECK(kaiju_engine_now(host.engine) == 5000);
  kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, 100, nullptr);
  for (const bool suspend : {false, true}) {
    REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_DEADLINE, kaiju_engine_now(host.engine) + 10, nullptr) ==
            KAIJU_OK);
    const kaiju_request request = host.submit({1, 20});
    REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
    if (suspend) {
      kaiju_event event{};
      REQUIRE(kaiju_engine_suspend(host.engine, request) == KAIJU_OK);
      REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
      REQUIRE(polled(host.engine, &event, sizeof event, 1) == 1);
      REQUIRE(polled(host.engine, &event, sizeof event, 1) == 1);
      CHECK(event.kind == KAIJU_EVENT_SUSPENDED);
      kaiju_metrics metrics{};
      metrics.struct_size = sizeof metrics;
      REQUIRE(kaiju_engine_metrics(host.engine, &metrics) == KAIJU_OK);
      CHECK(metrics.requests_suspended == 1);
    }
    time += 10;
    kaiju_event done{};
    host.drain(&done);
    CHECK(done.kind == KAIJU_EVENT_DONE);
    CHECK(done.reason == KAIJU_DONE_DEADLINE);
    CHECK(done.generated_tokens >= 1);
  }
}

TEST_CASE("a suspended request resumes and gives the same reply") {
  Host host;
  kaiju_options_set_float(host.options, KAIJU_GENERATE_TEMPERATURE, 1.0, nullptr);
  kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_RESERVE_TOKENS, 2, nullptr);
  host.submit({1, 20, 30});
  const auto whole = host.drain();
  REQUIRE(kaiju_session_truncate(host.session, 3, nullptr) == KAIJU_OK);
  const kaiju_request request = host.submit({});
  for (int i = 0; i < 3; ++i) REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_engine_suspend(host.engine, request) == KAIJU_OK);
  for (int i = 0; i < 3; ++i) REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  CHECK(kaiju_engine_pending(host.engine) == 1);
  REQUIRE(kaiju_engine_resume(host.engine, request) == KAIJU_OK);
  CHECK(host.drain() == whole);
}

TEST_CASE("a struct of an older header is filled up to its size") {
  Host host;
  struct Canary {
    kaiju_metrics metrics;
  } old;
  std::memset(&old, 0x5A, sizeof old);
  old.metrics.struct_size = offsetof(kaiju_metrics, prompt_tokens);  // as first published
  REQUIRE(kaiju_engine_metrics(host.engine, &old.metrics) == KAIJU_OK);
  CHECK(old.metrics.sessions == 1);
  CHECK(old.metrics.prompt_tokens == 0x5A5A5A5A5A5A5A5A);  // not ours to write
}

TEST_CASE("step refuses with the limit while too many events are not polled") {
  Host host;
  kaiju_session_destroy(std::exchange(host.session, nullptr));
  kaiju_engine_destroy(std::exchange(host.engine, nullptr));
  kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_MAX_EVENTS, 3, nullptr);
  REQUIRE(kaiju_engine_create(host.model, host.engine_options, &host.engine, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_session_create(host.engine, &host.session, nullptr) == KAIJU_OK);
  host.submit({1, 20});
  for (int i = 0; i < 3; ++i) REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  const Answer full = ask([&](kaiju_error** e) { return kaiju_engine_step(host.engine, e); });
  CHECK(full.status == KAIJU_BUSY);
  CHECK(full.says("3 events are unread"));
  kaiju_event events[8];
  CHECK(polled(host.engine, events, sizeof events[0], 8) == 3);
  CHECK(host.drain().size() == 5);
}

TEST_CASE("a reply that goes in circles ends with the loop guard, and its turn spells what was shown") {
  Chat chat;
  const int32_t token = 40;
  const float bias = 9000;
  REQUIRE(kaiju_options_set_logit_bias(chat.options, &token, &bias, 1, nullptr) == KAIJU_OK);
  kaiju_options_set_int(chat.options, KAIJU_GENERATE_MAX_TOKENS, 100, nullptr);
  chat.say(chat.hello);
  kaiju_event done{};
  std::string text;
  CHECK(chat.drain(&done).size() == 100);
  CHECK(done.reason == KAIJU_DONE_LENGTH);
  CHECK(done.stop == -1);
  kaiju_options_set_int(chat.options, KAIJU_GENERATE_LOOP_GUARD, 1, nullptr);
  chat.swipe();
  const Tokens drawn = chat.drain(&done, &text);
  CHECK(done.reason == KAIJU_DONE_LOOP);
  CHECK(drawn.size() < 50);
  const Tokens kept = chat.turn(0, KAIJU_TURN_REPLY);
  CHECK(kept.size() < drawn.size());
  size_t size = 0;
  REQUIRE(kaiju_detokenize(chat.model, kept.data(), kept.size(), nullptr, 0, &size, nullptr) == KAIJU_OK);
  CHECK(size == text.size());
}

TEST_CASE("a conversation is saved with all turns and replies and continues elsewhere without computing them again") {
  Chat chat;
  chat.say(chat.hello);
  chat.drain();
  chat.swipe();
  chat.drain();
  REQUIRE(kaiju_conversation_choose(chat.talk, 0, nullptr) == KAIJU_OK);
  chat.say(chat.hello);
  chat.drain();
  std::string bytes;
  const auto append = [](const void* data, size_t size, void* to) -> int32_t {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data), size);
    return 0;
  };
  const std::string path = temporary_folder() + "/talk.kaiju";
  for (const bool keyed : {false, true}) {
    INFO("keyed: " << keyed);
    Bag bag;
    if (keyed) REQUIRE(bag.set(KAIJU_SESSION_KEY, std::string("a key of sixteen bytes")).status == KAIJU_OK);
    bytes.clear();
    Host::check(
        ask([&](kaiju_error** e) { return kaiju_conversation_save(chat.talk, bag.handle, append, &bytes, e); }));
    Host::check(
        ask([&](kaiju_error** e) { return kaiju_conversation_save_file(chat.talk, bag.handle, path.c_str(), e); }));
    CHECK(slurp(path) == bytes);

    Chat other;
    kaiju_conversation_destroy(std::exchange(other.talk, nullptr));
    Host::check(ask([&](kaiju_error** e) {
      return kaiju_conversation_restore_file(other.engine, bag.handle, path.c_str(), &other.talk, e);
    }));
    CHECK(other.tokens() == chat.tokens());
    CHECK(other.info().turns == 2);
    for (const size_t turn : {0, 1})
      for (const int32_t part : {KAIJU_TURN_INPUT, KAIJU_TURN_REPLY})
        CHECK(other.turn(turn, part) == chat.turn(turn, part));
    REQUIRE(kaiju_conversation_undo(other.talk, nullptr) == KAIJU_OK);
    CHECK(other.info().replies == 2);
    CHECK(other.info().reply == 0);
    other.swipe();  // with the variant that the first conversation would have had
    kaiju_event done{};
    other.drain(&done);
    CHECK(done.cached_tokens > 0);

    struct Reading {
      std::string bytes;
      size_t at;
    };
    const auto next = [](void* data, size_t size, void* from) -> int64_t {
      auto* reading = static_cast<Reading*>(from);
      const size_t count = std::min(size, reading->bytes.size() - reading->at);
      std::memcpy(data, reading->bytes.data() + reading->at, count);
      reading->at += count;
      return static_cast<int64_t>(count);
    };
    for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 97) {
      for (const bool cut : {false, true}) {
        Reading reading{bytes, 0};
        if (cut)
          reading.bytes.resize(at);
        else
          reading.bytes[at] = static_cast<char>(reading.bytes[at] ^ 0x20);
        kaiju_conversation* made = nullptr;
        const Answer answer = ask([&](kaiju_error** e) {
          return kaiju_conversation_restore(other.engine, bag.handle, next, &reading, &made, e);
        });
        INFO((cut ? "cut at " : "changed at ") << at << ": " << answer.message);
        CHECK(answer.status != KAIJU_OK);
        CHECK(made == nullptr);
      }
    }
  }
  CHECK(ask([&](kaiju_error** e) {
          kaiju_conversation* made = nullptr;
          return kaiju_conversation_restore_file(chat.engine, nullptr, path.c_str(), &made, e);
        }).says("with a key"));
  chat.say(chat.hello);
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_conversation_save_file(chat.talk, nullptr, path.c_str(), e);
        }).status == KAIJU_BUSY);
  chat.drain();
}
