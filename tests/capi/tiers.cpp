// Tiers through kaiju.h: KV that had to make room comes back from host memory and a file, with the same tokens; figures
// and refusals.
#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

std::vector<int32_t> some_tokens(int32_t seed, size_t count) {
  std::vector<int32_t> tokens{1};
  while (tokens.size() < count)
    tokens.push_back(8 + static_cast<int32_t>(tokens.size() * 7 + static_cast<size_t>(seed) * 13) % 40);
  return tokens;
}

// An engine with memory for little more than one request.
struct Tiered : Host {
  explicit Tiered(int64_t host_bytes, int64_t file_bytes = 0) {
    kaiju_session_destroy(session);
    kaiju_engine_destroy(engine);
    session = nullptr;
    engine = nullptr;
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_CACHE_BYTES, 1, nullptr);
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_MAX_RUNNING, 1, nullptr);
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_HOST_BYTES, host_bytes, nullptr);
    kaiju_options_set_int(engine_options, KAIJU_ENGINE_FILE_BYTES, file_bytes, nullptr);
    if (file_bytes > 0) {
      const std::string path = temporary_folder() + "/tier";
      kaiju_options_set_string(engine_options, KAIJU_ENGINE_TIER_FILE, path.data(), path.size(), nullptr);
    }
    check(ask([&](kaiju_error** e) { return kaiju_engine_create(model, engine_options, &engine, e); }));
  }
  std::vector<int32_t> say(int32_t seed) {
    check(ask([&](kaiju_error** e) { return kaiju_session_create(engine, &session, e); }));
    kaiju_options_set_string(options, KAIJU_SESSION_SALT, "us", 2, nullptr);
    submit(some_tokens(seed, 400));
    const std::vector<int32_t> reply = drain();
    kaiju_session_destroy(session);
    session = nullptr;
    return reply;
  }
  kaiju_metrics metrics() const {
    kaiju_metrics out{};
    out.struct_size = sizeof out;
    if (kaiju_engine_metrics(engine, &out) != KAIJU_OK) throw std::runtime_error("no metrics");
    return out;
  }
};

}  // namespace

TEST_CASE("evicted KV is promoted from host memory and from the file") {
  for (const bool with_file : {false, true}) {
    Tiered host(with_file ? 1 << 20 : 64 << 20, with_file ? 64 << 20 : 0);
    const std::vector<int32_t> first = host.say(0);
    for (int32_t seed = 1; seed < 40; ++seed) host.say(seed);
    CHECK(host.say(0) == first);
    const kaiju_metrics metrics = host.metrics();
    INFO(metrics.hit_host << " and " << metrics.hit_file << ", " << metrics.host_blocks_in << " down, "
                          << metrics.file_blocks_in << " into the file");
    CHECK((with_file ? metrics.hit_file : metrics.hit_host) == 399);
    CHECK(metrics.host_bytes <= (with_file ? 1 << 20 : 64 << 20));
    CHECK(metrics.host_bytes > 0);
    CHECK((metrics.file_bytes > 0) == with_file);
    CHECK(metrics.host_blocks_out > 0);
    CHECK(metrics.tier_blocks_lost == 0);
    CHECK(metrics.tier_file_failed == 0);
  }
}

TEST_CASE("contradictory tier options are refused when the engine is created") {
  const auto refused = [](int64_t host_bytes, int64_t file_bytes, const char* path) {
    Host host;
    kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_HOST_BYTES, host_bytes, nullptr);
    kaiju_options_set_int(host.engine_options, KAIJU_ENGINE_FILE_BYTES, file_bytes, nullptr);
    if (path) kaiju_options_set_string(host.engine_options, KAIJU_ENGINE_TIER_FILE, path, std::strlen(path), nullptr);
    kaiju_engine* engine = nullptr;
    const Answer answer =
        ask([&](kaiju_error** e) { return kaiju_engine_create(host.model, host.engine_options, &engine, e); });
    kaiju_engine_destroy(engine);
    return answer;
  };
  CHECK(refused(1, 0, nullptr).says("host_bytes is 1"));
  CHECK(refused(1 << 20, 1 << 20, nullptr).says("no file of that size: give a tier_file"));
  CHECK(refused(0, 1 << 20, nullptr).says("host_bytes 0"));
  CHECK(refused(1 << 20, 0, "/tmp/x").says("file_bytes is 0"));
  CHECK(refused(1 << 20, 1 << 20, "/nowhere/at/all").status == KAIJU_IO);
  CHECK(refused(INT64_C(1) << 62, 0, nullptr).status == KAIJU_OUT_OF_MEMORY);
}

TEST_CASE("a session is brought up before its request, and an event says so") {
  Tiered host(64 << 20);
  Host::check(ask([&](kaiju_error** e) { return kaiju_session_create(host.engine, &host.session, e); }));
  kaiju_session* const typing = host.session;
  kaiju_options_set_string(host.options, KAIJU_SESSION_SALT, "us", 2, nullptr);
  host.submit(some_tokens(0, 400));
  CHECK(ask([&](kaiju_error** e) { return kaiju_session_prefetch(typing, nullptr, 0, nullptr, nullptr, e); }).status ==
        KAIJU_BUSY);
  host.drain();
  for (int32_t seed = 1; seed < 40; ++seed) host.say(seed);
  host.session = typing;
  int mark = 0;
  kaiju_request prefetch = 0;
  Host::check(ask([&](kaiju_error** e) { return kaiju_session_prefetch(typing, nullptr, 0, &mark, &prefetch, e); }));
  kaiju_event event{};
  for (int steps = 0; event.kind != KAIJU_EVENT_PREFETCHED; ++steps) {
    REQUIRE(steps < 100);
    REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
    (void)polled(host.engine, &event, sizeof event, 1);
  }
  CHECK(event.request == prefetch);
  CHECK(event.user_data == &mark);
  CHECK(event.prompt_tokens == 408);
  CHECK(event.cached_tokens == 407);
  const uint64_t promoted = host.metrics().host_blocks_out;
  CHECK(promoted > 0);
  host.submit({9, 10});
  kaiju_event done{};
  host.drain(&done);
  CHECK(done.cached_tokens == 407);
  CHECK(host.metrics().host_blocks_out == promoted);
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_session_prefetch(typing, nullptr, -1, nullptr, nullptr, e);
        }).says("at is -1"));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_session_prefetch(typing, host.options, 0, nullptr, nullptr, e);
        }).says("does not read generate."));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_conversation_prefetch(nullptr, nullptr, 0, nullptr, nullptr, e);
        }).says("conversation is NULL"));
}
