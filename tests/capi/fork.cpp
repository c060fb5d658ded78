// fork() through kaiju.h: what a child may do with its parent's handles, and what it is refused.
#include "catch.hpp"
#include "tests/capi/host.hpp"
#include "tests/child.hpp"

using namespace kaiju::tests;
using kaiju::test::in_child;
using kaiju::test::Promises;

namespace {

bool refused(const Answer& answer) { return answer.status == KAIJU_INVALID_ARGUMENT && answer.says("forked"); }

// A host whose engine has workers of its own, and a file.
struct Forking : Host {
  Forking() {
    kaiju_session_destroy(session);
    kaiju_engine_destroy(engine);
    session = nullptr;
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_THREADS, kThreads, nullptr);
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_CACHE_BYTES, 1, nullptr);
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_MAX_RUNNING, 1, nullptr);
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_HOST_BYTES, 1 << 20, nullptr);
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_FILE_BYTES, 64 << 20, nullptr);
    kaiju_options_set_string(options, KAIJU_SESSION_SALT, "us", 2, nullptr);
    engine = make();
    check(ask([&](kaiju_error** e) { return kaiju_conversation_create(engine, nullptr, 0, &conversation, e); }));
  }
  ~Forking() { kaiju_conversation_destroy(conversation); }

  kaiju_engine* make() {
    const std::string path = temporary_folder() + "/forked";
    kaiju_options_set_string(engine_options, KAIJU_ENGINE_TIER_FILE, path.data(), path.size(), nullptr);
    kaiju_engine* made = nullptr;
    check(ask([&](kaiju_error** e) { return kaiju_engine_create(model, engine_options, &made, e); }));
    return made;
  }
  std::vector<int32_t> say(int32_t seed) {
    check(ask([&](kaiju_error** e) { return kaiju_session_create(engine, &session, e); }));
    std::vector<int32_t> tokens{1};
    while (tokens.size() < 400)
      tokens.push_back(8 + static_cast<int32_t>(tokens.size() * 7 + static_cast<size_t>(seed) * 13) % 40);
    submit(tokens);
    std::vector<int32_t> reply = drain();
    kaiju_session_destroy(session);
    session = nullptr;
    return reply;
  }
  kaiju_metrics metrics() const {
    kaiju_metrics out{};
    out.struct_size = sizeof out;
    check({kaiju_engine_metrics(engine, &out), "no metrics"});
    return out;
  }

#if defined(__SANITIZE_THREAD__)  // it lets a child of threads start none
  static constexpr int64_t kThreads = 1;
#else
  static constexpr int64_t kThreads = 4;
#endif
  kaiju_conversation* conversation = nullptr;
};

}  // namespace

TEST_CASE("a child of fork() is refused with a reason, destroys its parent's handles and makes an engine of its own") {
  Forking host;
  const std::vector<int32_t> first = host.say(0);
  const auto child = [&] {
    Promises must;
    const int32_t token = 9;
    kaiju_session* session = nullptr;
    kaiju_conversation* conversation = nullptr;
    must(refused(ask([&](kaiju_error** e) { return kaiju_engine_step(host.engine, e); })));
    must(refused(ask([&](kaiju_error** e) { return kaiju_session_create(host.engine, &session, e); })));
    must(refused(ask([&](kaiju_error** e) {
      return kaiju_engine_submit(host.engine, host.session, &token, 1, nullptr, nullptr, nullptr, e);
    })));
    must(refused(ask([&](kaiju_error** e) {
      return kaiju_generate(host.engine, host.session, &token, 1, nullptr, nullptr, nullptr, nullptr, 0, e);
    })));
    must(refused(ask([&](kaiju_error** e) { return kaiju_session_fork(host.session, 0, &session, e); })));
    must(refused(ask([&](kaiju_error** e) { return kaiju_session_truncate(host.session, 0, e); })));
    const std::string path = temporary_folder() + "/saved";
    must(
        refused(ask([&](kaiju_error** e) { return kaiju_session_save_file(host.session, nullptr, path.c_str(), e); })));
    must(kaiju_session_tokens(host.session, nullptr, 0) == 0);
    must(kaiju_engine_cancel(host.engine, 1) == KAIJU_INVALID_ARGUMENT);
    must(kaiju_engine_suspend(host.engine, 1) == KAIJU_INVALID_ARGUMENT);
    must(kaiju_engine_resume(host.engine, 1) == KAIJU_INVALID_ARGUMENT);
    must(kaiju_engine_pending(host.engine) == 0);
    must(kaiju_engine_wait(host.engine, INT64_MAX) == 0);
    kaiju_engine_wake(host.engine);
    kaiju_event event{};
    size_t count = 0;
    must(refused(
        ask([&](kaiju_error** e) { return kaiju_engine_poll(host.engine, &event, sizeof event, 1, &count, e); })));
    kaiju_metrics metrics{};
    metrics.struct_size = sizeof metrics;
    must(kaiju_engine_metrics(host.engine, &metrics) == KAIJU_INVALID_ARGUMENT);
    must(refused(ask([&](kaiju_error** e) {
      return kaiju_conversation_say(host.conversation, &token, 1, nullptr, nullptr, nullptr, e);
    })));
    must(refused(
        ask([&](kaiju_error** e) { return kaiju_conversation_append(host.conversation, &token, 1, &token, 1, e); })));
    must(
        refused(ask([&](kaiju_error** e) { return kaiju_conversation_fork(host.conversation, 0, &conversation, e); })));
    must(refused(
        ask([&](kaiju_error** e) { return kaiju_conversation_tokens(host.conversation, nullptr, 0, nullptr, e); })));
    kaiju_conversation_info info{};
    info.struct_size = sizeof info;
    must(kaiju_conversation_describe(host.conversation, &info) == KAIJU_INVALID_ARGUMENT);

    kaiju_session_destroy(host.session);
    kaiju_engine_destroy(host.engine);
    kaiju_conversation_destroy(host.conversation);
    host.engine = host.make();  // of the parent's model and options
    must(host.say(0) == first);
    kaiju_engine_destroy(host.engine);
    kaiju_model_destroy(host.model);
    return must.broken;
  };
  Host::check(ask([&](kaiju_error** e) { return kaiju_session_create(host.engine, &host.session, e); }));
  for (int32_t seed = 1; seed < 40; ++seed) {
    if (seed % 13 == 0) CHECK(in_child(child) == 0);
    kaiju_session_destroy(host.session);
    host.say(seed);
    Host::check(ask([&](kaiju_error** e) { return kaiju_session_create(host.engine, &host.session, e); }));
  }
  kaiju_session_destroy(host.session);
  CHECK(host.say(0) == first);
  CHECK(host.metrics().hit_file > 0);  // nothing that a child did reached the file
  CHECK(host.metrics().tier_blocks_lost == 0);
}
