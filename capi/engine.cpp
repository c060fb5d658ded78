// The C interface over kaiju.hpp: engine, sessions and the convenience loop.
#include "handles.hpp"
#include "options.hpp"

using kaiju::Status;
using kaiju::StatusCode;
using namespace kaiju::capi;

static_assert(KAIJU_EVENT_TOKEN == static_cast<int>(kaiju::EventKind::kToken) &&
              KAIJU_EVENT_DONE == static_cast<int>(kaiju::EventKind::kDone) &&
              KAIJU_EVENT_FAILED == static_cast<int>(kaiju::EventKind::kFailed) &&
              KAIJU_EVENT_SUSPENDED == static_cast<int>(kaiju::EventKind::kSuspended) &&
              KAIJU_EVENT_RESUMED == static_cast<int>(kaiju::EventKind::kResumed) &&
              KAIJU_EVENT_VERDICT == static_cast<int>(kaiju::EventKind::kVerdict) &&
              KAIJU_EVENT_PREFETCHED == static_cast<int>(kaiju::EventKind::kPrefetched));
static_assert(KAIJU_REUSE_WHOLE == static_cast<int>(kaiju::ReuseEnd::kWhole) &&
              KAIJU_REUSE_DIFFERENT == static_cast<int>(kaiju::ReuseEnd::kDifferent) &&
              KAIJU_REUSE_NEW == static_cast<int>(kaiju::ReuseEnd::kNew) &&
              KAIJU_REUSE_EVICTED == static_cast<int>(kaiju::ReuseEnd::kEvicted) &&
              KAIJU_REUSE_NO_WINDOW == static_cast<int>(kaiju::ReuseEnd::kNoWindow) &&
              KAIJU_REUSE_OTHER_SCOPE == static_cast<int>(kaiju::ReuseEnd::kOtherScope) &&
              KAIJU_REUSE_NO_ROOM == static_cast<int>(kaiju::ReuseEnd::kNoRoom));
static_assert(KAIJU_DONE_STOP_TOKEN == static_cast<int>(kaiju::DoneReason::kStopToken) &&
              KAIJU_DONE_STOP_STRING == static_cast<int>(kaiju::DoneReason::kStopString) &&
              KAIJU_DONE_REFUSED == static_cast<int>(kaiju::DoneReason::kRefused) &&
              KAIJU_DONE_LOOP == static_cast<int>(kaiju::DoneReason::kLoop) &&
              KAIJU_DONE_LENGTH == static_cast<int>(kaiju::DoneReason::kLength) &&
              KAIJU_DONE_CANCELLED == static_cast<int>(kaiju::DoneReason::kCancelled) &&
              KAIJU_DONE_DEADLINE == static_cast<int>(kaiju::DoneReason::kDeadline));

static_assert(KAIJU_SHARE_TENANT == static_cast<int>(kaiju::ShareOf::kTenant) &&
              KAIJU_SHARE_CHARACTER == static_cast<int>(kaiju::ShareOf::kCharacter));

namespace {

constexpr size_t kFirstEvent = offsetof(kaiju_event, scores);  // size of the first version's

// Takes no memory. Pointers go into `polled`, which the engine's handle keeps until the next poll.
kaiju_event to_c(kaiju_polled_event& polled) {
  auto& [event, tokens, logprobs] = polled;
  tokens.clear();
  logprobs.clear();
  kaiju_event out{};
  out.request = event.request;
  out.user_data = event.user_data;
  out.kind = static_cast<int32_t>(event.kind);
  out.reason = static_cast<int32_t>(event.reason);
  out.status = static_cast<kaiju_status>(event.status.code());
  if (event.kind == kaiju::EventKind::kToken) {
    tokens.push_back(event.token);
    logprobs.push_back(event.logprob);
    for (const kaiju::TokenLogprob& top : event.top) {
      tokens.push_back(top.token);
      logprobs.push_back(top.logprob);
    }
  }
  out.tokens = tokens.data();
  out.token_count = tokens.size();
  out.logprobs = logprobs.data();
  out.logprob_count = logprobs.size();
  const std::string& text =
      event.kind == kaiju::EventKind::kFailed ? event.status.message() : event.text;
  out.text = text.data();
  out.text_size = text.size();
  out.prompt_tokens = event.counts.prompt_tokens;
  out.cached_tokens = event.counts.cached_tokens;
  out.generated_tokens = event.counts.generated;
  out.wait_nanoseconds = event.timing.wait_ns;
  out.prefill_nanoseconds = event.timing.prefill_ns;
  out.decode_nanoseconds = event.timing.decode_ns;
  out.label = event.label;
  out.scores = event.scores.data();
  out.score_count = event.scores.size();
  if (event.kind == kaiju::EventKind::kVerdict) {
    out.scores = &event.probability;
    out.score_count = 1;
  }
  static_assert(sizeof(kaiju::LabelStatistics) == 3 * sizeof(float));
  if (event.kind == kaiju::EventKind::kDone && !event.statistics.empty()) {
    out.scores = &event.statistics[0].maximum;
    out.score_count = 3 * event.statistics.size();
  }
  out.stop = event.stop;
  out.reuse_end = static_cast<int32_t>(event.reuse.end);
  out.known_tokens = event.reuse.known_tokens;
  out.known_end = static_cast<int32_t>(event.reuse.known_end);
  return out;
}

Status check_session(const kaiju_engine& engine, const kaiju_session& session) {
  if (session.engine == engine.engine) return {};
  return kaiju::invalid_argument("the session belongs to another engine");
}

}  // namespace

// -- engine --

kaiju_status kaiju_engine_create(const kaiju_model* model, const kaiju_options* options,
                                 kaiju_engine** out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!model || !out) return missing(model ? "out" : "model");
    KAIJU_TRY(check_groups(options, kOfEngine, "kaiju_engine_create"));
    auto engine = model->model->create_engine(run_options(options));
    if (!engine.ok()) return engine.status();
    *out = new kaiju_engine{
        std::move(engine).value(), model->model, {}, std::make_shared<const char>()};
    return {};
  });
}

// In a child of fork() another thread of the parent may have been in the middle of a poll: the
// handle stays as it is.
void kaiju_engine_destroy(kaiju_engine* engine) {
  if (engine && engine->engine->check_process().ok()) delete engine;
}

kaiju_status kaiju_engine_submit(kaiju_engine* engine, kaiju_session* session,
                                 const int32_t* tokens, size_t count, const kaiju_options* options,
                                 void* user_data, kaiju_request* out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !session) return missing(engine ? "session" : "engine");
    KAIJU_TRY(check_session(*engine, *session));
    KAIJU_TRY(check_span("tokens", tokens, count));
    KAIJU_TRY(check_groups(options, kOfRequest | kOfSharing, "kaiju_engine_submit"));
    kaiju::Result<kaiju::RequestOptions> request = request_options(options);
    if (!request.ok()) return request.status();
    request->user_data = user_data;
    auto id = engine->engine->submit(session->id, {tokens, count}, *request);
    if (!id.ok()) return id.status();
    if (out) *out = id.value();
    return {};
  });
}

kaiju_status kaiju_engine_guide(kaiju_engine* engine, kaiju_request request,
                                const kaiju_guide* guide, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !guide) return missing(engine ? "guide" : "engine");
    KAIJU_TRY(check_struct_size<kaiju_guide>("kaiju_guide", guide->struct_size));
    KAIJU_TRY(check_span("allowed", guide->allowed, guide->allowed_words));
    KAIJU_TRY(check_span("bias_tokens", guide->bias_tokens, guide->bias_count));
    KAIJU_TRY(check_span("bias", guide->bias, guide->bias_count));
    if (guide->allowed && guide->allowed_words == 0)
      return kaiju::invalid_argument(
          "allowed_words is 0 but allowed is not NULL: pass NULL to allow every token");
    std::vector<std::pair<int32_t, float>> biases;
    for (size_t i = 0; i < guide->bias_count; ++i)
      biases.emplace_back(guide->bias_tokens[i], guide->bias[i]);
    return engine->engine->guide(request, {{guide->allowed, guide->allowed_words}, biases});
  });
}

kaiju_status kaiju_engine_set_limit(kaiju_engine* engine, const char* tier, const char* label,
                                    double limit, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !tier || !label) return missing(!engine ? "engine" : tier ? "label" : "tier");
    return engine->engine->set_limit(tier, label,
                                     limit == 2.0 ? std::nullopt : std::optional<double>(limit));
  });
}

kaiju_status kaiju_engine_set_share(kaiju_engine* engine, int32_t of, const char* name,
                                    const kaiju_share* share, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !name || !share) return missing(!engine ? "engine" : name ? "share" : "name");
    KAIJU_TRY(check_struct_size<kaiju_share>("kaiju_share", share->struct_size));
    constexpr uint64_t kMost = INT64_MAX;
    return engine->engine->set_share(
        static_cast<kaiju::ShareOf>(of), name,
        {.cache_floor_bytes = static_cast<int64_t>(std::min(share->cache_floor_bytes, kMost)),
         .cache_ceiling_bytes = static_cast<int64_t>(std::min(share->cache_ceiling_bytes, kMost)),
         .step_floor = share->step_floor,
         .step_ceiling = share->step_ceiling});
  });
}

kaiju_status kaiju_engine_share_usage(const kaiju_engine* engine, int32_t of, const char* name,
                                      kaiju_share_usage* out) {
  return guard(nullptr, [&]() -> Status {
    if (!engine || !name || !out) return missing(!engine ? "engine" : name ? "out" : "name");
    KAIJU_TRY(check_struct_size<kaiju_share_usage>("kaiju_share_usage", out->struct_size));
    auto found = engine->engine->share_usage(static_cast<kaiju::ShareOf>(of), name);
    if (!found.ok()) return found.status();
    const size_t size = out->struct_size;
    const kaiju_share_usage usage{size, static_cast<uint64_t>(found->cache_bytes),
                                  static_cast<uint64_t>(found->running), found->tokens_computed};
    copy_sized(&usage, sizeof usage, out, size);
    return {};
  });
}

kaiju_status kaiju_engine_cancel(kaiju_engine* engine, kaiju_request request) {
  return guard(nullptr,
               [&] { return engine ? engine->engine->cancel(request) : missing("engine"); });
}

kaiju_status kaiju_engine_suspend(kaiju_engine* engine, kaiju_request request) {
  return guard(nullptr,
               [&] { return engine ? engine->engine->suspend(request) : missing("engine"); });
}

kaiju_status kaiju_engine_resume(kaiju_engine* engine, kaiju_request request) {
  return guard(nullptr,
               [&] { return engine ? engine->engine->resume(request) : missing("engine"); });
}

int64_t kaiju_engine_now(const kaiju_engine* engine) {
  if (!engine) return 0;
  return guard_value<int64_t>(0, [&] { return engine->engine->now().nanoseconds; });
}

kaiju_status kaiju_engine_step(kaiju_engine* engine, kaiju_error** error) {
  return guard(error, [&] { return engine ? engine->engine->step() : missing("engine"); });
}

kaiju_status kaiju_engine_poll(kaiju_engine* engine, kaiju_event* events, size_t event_size,
                               size_t capacity, size_t* count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !count) return missing(engine ? "count" : "engine");
    KAIJU_TRY(check_span("events", events, capacity));
    KAIJU_TRY(
        check_struct_size<kaiju_event>("kaiju_event", event_size, kFirstEvent, "event_size"));
    KAIJU_TRY(
        engine->engine->check_process());  // another thread of the parent may have been in here
    size_t polled_count = 0;
    // An event leaves the engine only when all its memory is there: what a shortage stops is told
    // by the next poll.
    const kaiju_status status = guard(nullptr, [&]() -> Status {
      for (; polled_count < capacity; ++polled_count) {
        if (polled_count == engine->polled.size()) engine->polled.emplace_back();
        kaiju_polled_event& polled = engine->polled[polled_count];
        if (!engine->engine->poll(polled.event)) break;
        const kaiju_event event = to_c(polled);
        copy_sized(&event, sizeof event,
                   reinterpret_cast<char*>(events) + polled_count * event_size, event_size);
      }
      return {};
    });
    for (size_t i = polled_count; i < engine->polled.size(); ++i)
      engine->polled[i].event.record.reset();
    if (status != KAIJU_OK && polled_count == 0) return kaiju::out_of_memory();
    *count = polled_count;
    return {};
  });
}

size_t kaiju_engine_pending(const kaiju_engine* engine) {
  return engine ? guard_value<size_t>(0, [&] { return engine->engine->pending(); }) : 0;
}

int32_t kaiju_engine_wait(kaiju_engine* engine, int64_t timeout_nanoseconds) {
  if (!engine) return 0;
  const kaiju::Nanoseconds timeout(std::max<int64_t>(timeout_nanoseconds, 0));
  return guard_value<int32_t>(0, [&] { return engine->engine->wait(timeout) ? 1 : 0; });
}

void kaiju_engine_wake(kaiju_engine* engine) {
  if (engine) guard(nullptr, [&] { return engine->engine->wake(), Status(); });
}

kaiju_status kaiju_engine_set_head(kaiju_engine* engine, const char* path, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine) return missing("engine");
    const auto& own = engine->checkpoint();
    if (!path) return engine->engine->set_head(own);
    const auto headed = kaiju::with_head(own, path);
    if (!headed.ok()) return headed.status();
    return engine->engine->set_head(*headed);
  });
}

kaiju_status kaiju_engine_update_weights(kaiju_engine* engine, const void* update, size_t size,
                                         kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine) return missing("engine");
    KAIJU_TRY(check_span("update", update, size));
    auto updated =
        kaiju::with_update(engine->checkpoint(), {static_cast<const std::byte*>(update), size});
    if (!updated.ok()) return updated.status();
    KAIJU_TRY(engine->engine->set_weights(*updated));
    engine->updated = std::move(updated).value();
    engine->scaled.reset();
    return {};
  });
}

kaiju_status kaiju_engine_scrub(kaiju_engine* engine, size_t most_bytes, size_t* bytes,
                                int32_t* whole, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine) return missing("engine");
    const kaiju::Result<kaiju::Scrubbed> looked = engine->engine->scrub(most_bytes);
    if (!looked.ok()) return looked.status();
    if (bytes) *bytes = looked->bytes;
    if (whole) *whole = looked->whole ? 1 : 0;
    return {};
  });
}

kaiju_status kaiju_engine_metrics(const kaiju_engine* engine, kaiju_metrics* out) {
  return guard(nullptr, [&]() -> Status {
    if (!engine || !out) return missing(engine ? "out" : "engine");
    KAIJU_TRY(check_struct_size<kaiju_metrics>("kaiju_metrics", out->struct_size,
                                               offsetof(kaiju_metrics, prompt_tokens)));
    KAIJU_TRY(engine->engine->check_process());
    const kaiju::Metrics now = engine->engine->metrics();
    const auto& global = now.blocks[kaiju::BlockKind::kGlobal];
    const auto& window = now.blocks[kaiju::BlockKind::kWindow];
    kaiju_metrics metrics{};
    const size_t size = metrics.struct_size = out->struct_size;
    metrics.steps = now.steps;
    metrics.step_nanoseconds = now.step_ns;
    metrics.tokens_prefilled = now.tokens_prefilled;
    metrics.tokens_decoded = now.tokens_decoded;
    metrics.tokens_from_cache = now.tokens_from_cache;
    metrics.requests_waiting = now.requests_waiting;
    metrics.requests_running = now.requests_running;
    metrics.requests_done = now.requests_done;
    metrics.requests_failed = now.requests_failed;
    metrics.requests_suspended = now.requests_suspended;
    metrics.sessions = now.sessions;
    metrics.cache_blocks_evicted = now.cache.blocks_evicted[0] + now.cache.blocks_evicted[1];
    metrics.cache_global_blocks_total = static_cast<uint64_t>(global.total);
    metrics.cache_global_blocks_free = static_cast<uint64_t>(global.free);
    metrics.cache_window_blocks_total = static_cast<uint64_t>(window.total);
    metrics.cache_window_blocks_free = static_cast<uint64_t>(window.free);
    metrics.prompt_tokens = now.cache.prompt_tokens;
    metrics.hit_shared = now.cache.hit_shared;
    metrics.hit_own = now.cache.hit_own;
    metrics.hit_other = now.cache.hit_other;
    metrics.miss_new = now.cache.miss_new;
    metrics.miss_evicted = now.cache.miss_evicted;
    metrics.miss_window = now.cache.miss_window;
    metrics.miss_last = now.cache.miss_last;
    metrics.hit_host = now.cache.hit_host;
    metrics.hit_file = now.cache.hit_file;
    const auto held = [](const kaiju::TierStats& tier) {
      return static_cast<uint64_t>(tier.blocks_held[0]) +
             static_cast<uint64_t>(tier.blocks_held[1]);
    };
    metrics.host_bytes = static_cast<uint64_t>(now.host.bytes);
    metrics.host_blocks = held(now.host);
    metrics.host_blocks_in = now.host.blocks_in;
    metrics.host_blocks_out = now.host.blocks_out;
    metrics.file_bytes = static_cast<uint64_t>(now.file.bytes);
    metrics.file_blocks = held(now.file);
    metrics.file_blocks_in = now.file.blocks_in;
    metrics.file_blocks_out = now.file.blocks_out;
    metrics.tier_blocks_lost = now.host.blocks_lost + now.file.blocks_lost;
    metrics.tier_file_failed = now.file_status.ok() ? 0 : 1;
    metrics.cache_blocks_over_floors = now.cache.blocks_over_floors;
    copy_sized(&metrics, sizeof metrics, out, size);
    return {};
  });
}

kaiju_status kaiju_engine_describe(const kaiju_engine* engine, kaiju_engine_info* out) {
  return guard(nullptr, [&]() -> Status {
    if (!engine || !out) return missing(engine ? "out" : "engine");
    KAIJU_TRY(check_struct_size<kaiju_engine_info>("kaiju_engine_info", out->struct_size));
    const kaiju::ExecutorInfo& from = engine->engine->info();
    const kaiju::EngineOptions& options = engine->engine->options();
    kaiju_engine_info info{};
    const size_t size = info.struct_size = out->struct_size;
    info.backend = from.backend.c_str();
    info.device = from.device;
    info.threads = from.threads;
    info.max_running = from.slot_count;
    info.step_tokens = from.step_tokens;
    info.max_waiting = options.max_waiting;
    info.max_sessions = options.max_sessions;
    info.max_events = options.max_events;
    info.context = from.context;
    info.window = from.window;
    info.kv_bytes_per_token =
        static_cast<uint64_t>(from.block_bytes[kaiju::BlockKind::kGlobal] / kaiju::kBlockTokens);
    info.window_kv_bytes_per_token =
        static_cast<uint64_t>(from.block_bytes[kaiju::BlockKind::kWindow] / kaiju::kBlockTokens);
    info.cache_bytes = static_cast<uint64_t>(from.cache_bytes());
    copy_sized(&info, sizeof info, out, size);
    return {};
  });
}

// -- sessions --

kaiju_status kaiju_session_create(kaiju_engine* engine, kaiju_session** out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !out) return missing(engine ? "out" : "engine");
    return adopt(engine->engine, engine->engine->create_session(), out);
  });
}

kaiju_status kaiju_session_fork(kaiju_session* session, size_t length, kaiju_session** out,
                                kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!session || !out) return missing(session ? "out" : "session");
    return adopt(session->engine, session->engine->fork_session(session->id, length), out);
  });
}

kaiju_status kaiju_session_truncate(kaiju_session* session, size_t length, kaiju_error** error) {
  return guard(error, [&] {
    return session ? session->engine->truncate_session(session->id, length) : missing("session");
  });
}

size_t kaiju_session_tokens(const kaiju_session* session, int32_t* tokens, size_t capacity) {
  if (!session) return 0;
  return guard_value<size_t>(0, [&]() -> size_t {
    const auto history = session->engine->session_tokens(session->id);
    if (!history.ok()) return 0;
    size_t count = 0;
    fill(history.value(), tokens, capacity, &count);
    return count;
  });
}

kaiju_status kaiju_session_prefetch(kaiju_session* session, const kaiju_options* options,
                                    int64_t at, void* user_data, kaiju_request* out,
                                    kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!session) return missing("session");
    auto asked = prefetch_options(options, at, user_data, "kaiju_session_prefetch");
    if (!asked.ok()) return asked.status();
    auto id = session->engine->prefetch(session->id, *asked);
    if (!id.ok()) return id.status();
    if (out) *out = id.value();
    return {};
  });
}

void kaiju_session_destroy(kaiju_session* session) {
  if (!session) return;
  guard(nullptr, [&] { return session->engine->destroy_session(session->id); });
  delete session;
}

// -- prefixes --

kaiju_status kaiju_prefix_warm(kaiju_engine* engine, const int32_t* tokens, size_t count,
                               const kaiju_options* options, void* user_data, kaiju_prefix** out,
                               kaiju_request* request, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !out) return missing(engine ? "out" : "engine");
    KAIJU_TRY(check_span("tokens", tokens, count));
    KAIJU_TRY(check_groups(options, kOfRequest | kOfSharing, "kaiju_prefix_warm"));
    kaiju::Result<kaiju::RequestOptions> asked = request_options(options);
    if (!asked.ok()) return asked.status();
    if (asked->scope.character.empty() && asked->scope.salt.empty())
      return kaiju::invalid_argument(
          "no other session could use the prefix: set session.character or session.salt, as for "
          "the requests that "
          "shall use it");
    asked->max_tokens = 0;
    asked->user_data = user_data;
    if (!asked->scope.character.empty() && asked->scope.shared_tokens == 0)
      asked->scope.shared_tokens = static_cast<int32_t>(count);
    auto prefix = std::make_unique<kaiju_prefix>();
    const auto session = engine->engine->create_session();
    if (!session.ok()) return session.status();
    const auto id = engine->engine->submit(session.value(), {tokens, count}, *asked);
    if (!id.ok()) {
      (void)engine->engine->destroy_session(session.value());
      return id.status();
    }
    prefix->engine = engine->engine;
    prefix->session = session.value();
    if (request) *request = id.value();
    *out = prefix.release();
    return {};
  });
}

kaiju_status kaiju_prefix_pin(kaiju_prefix* prefix, size_t* tokens, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!prefix) return missing("prefix");
    const auto pinned = prefix->engine->pin_session(prefix->session);
    if (!pinned.ok()) return pinned.status();
    if (tokens) *tokens = static_cast<size_t>(pinned.value());
    return {};
  });
}

void kaiju_prefix_destroy(kaiju_prefix* prefix) {
  if (!prefix) return;
  guard(nullptr, [&] { return prefix->engine->destroy_session(prefix->session); });
  delete prefix;
}

// -- convenience --

kaiju_status kaiju_generate(kaiju_engine* engine, kaiju_session* session, const int32_t* tokens,
                            size_t count, const kaiju_options* options, kaiju_text_fn on_text,
                            void* user_data, kaiju_event* done, size_t event_size,
                            kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !session) return missing(engine ? "session" : "engine");
    if (done)
      KAIJU_TRY(
          check_struct_size<kaiju_event>("kaiju_event", event_size, kFirstEvent, "event_size"));
    KAIJU_TRY(check_session(*engine, *session));
    KAIJU_TRY(check_span("tokens", tokens, count));
    KAIJU_TRY(check_groups(options, kOfRequest | kOfSharing, "kaiju_generate"));
    bool stopped = false;
    const auto hear = [&](std::string_view text) {
      stopped = on_text && on_text(text.data(), text.size(), user_data) != 0;
      return !stopped;
    };
    kaiju::Result<kaiju::RequestOptions> request = request_options(options);
    if (!request.ok()) return request.status();
    kaiju_polled_event last;
    const Status status =
        engine->engine->generate(session->id, {tokens, count}, *request, hear, last.event);
    if (done && last.event.kind == kaiju::EventKind::kDone) {
      kaiju_event event = to_c(last);
      event.tokens = nullptr;
      event.logprobs = nullptr;
      event.text = nullptr;
      event.scores = nullptr;
      event.text_size = 0;
      copy_sized(&event, sizeof event, done, event_size);
    }
    if (status.ok() && stopped) return Status(StatusCode::kCancelled, "on_text stopped the reply");
    return status;
  });
}
