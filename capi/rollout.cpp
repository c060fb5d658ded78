// The C interface of Rollout and of the memory that an engine would take.
#include "kaiju/rollout.hpp"

#include <mutex>

#include "handles.hpp"
#include "options.hpp"

using kaiju::Status;
using kaiju::StatusCode;
using namespace kaiju::capi;

// Knows the handle of each of the rollout's engines: the host gave them, and gets them back.
struct kaiju_rollout {
  struct Known {
    kaiju_engine* handle;
    const kaiju::Engine* engine;
    std::weak_ptr<const char> open;  // kaiju_engine::open: expired once the handle was destroyed
  };
  std::unique_ptr<kaiju::Rollout> rollout;
  std::mutex mutex;          // of `known`
  std::vector<Known> known;  // two at most
};

static_assert(KAIJU_ROLLOUT_STEADY == static_cast<int>(kaiju::RolloutPhase::kSteady) &&
              KAIJU_ROLLOUT_CANDIDATE == static_cast<int>(kaiju::RolloutPhase::kCandidate) &&
              KAIJU_ROLLOUT_DRAINING == static_cast<int>(kaiju::RolloutPhase::kDraining));
static_assert(KAIJU_FREE_MEMORY == kaiju::kFreeMemory);

namespace {

kaiju_engine* handle_of(kaiju_rollout& rollout, const std::shared_ptr<kaiju::Engine>& engine) {
  const std::lock_guard lock(rollout.mutex);
  for (const kaiju_rollout::Known& one : rollout.known)
    if (one.engine == engine.get() && !one.open.expired()) return one.handle;
  return nullptr;
}

kaiju_rollout::Known known(kaiju_engine* handle) {
  return {handle, handle->engine.get(), handle->open};
}

void forget(kaiju_rollout& rollout, const kaiju::Engine* engine) {
  const std::lock_guard lock(rollout.mutex);
  std::erase_if(rollout.known,
                [&](const kaiju_rollout::Known& one) { return one.engine == engine; });
}

}  // namespace

kaiju_status kaiju_model_memory_need(const kaiju_model* model, const kaiju_options* options,
                                     kaiju_memory_need* out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!model || !out) return missing(model ? "out" : "model");
    KAIJU_TRY(check_struct_size<kaiju_memory_need>("kaiju_memory_need", out->struct_size));
    KAIJU_TRY(check_groups(options, kOfEngine, "kaiju_model_memory_need"));
    const auto found = model->model->memory_need(run_options(options));
    if (!found.ok()) return found.status();
    kaiju_memory_need need{};
    const size_t size = need.struct_size = out->struct_size;
    need.device = found->device;
    need.weight_bytes = static_cast<uint64_t>(found->weights);
    need.kv_bytes = static_cast<uint64_t>(found->kv);
    need.workspace_bytes = static_cast<uint64_t>(found->workspace);
    need.host_tier_bytes = static_cast<uint64_t>(found->host_tier);
    copy_sized(&need, sizeof need, out, size);
    return {};
  });
}

kaiju_status kaiju_rollout_create(kaiju_engine* engine, int32_t move, kaiju_rollout** out,
                                  kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !out) return missing(engine ? "out" : "engine");
    if (move != 0 && move != 1)
      return kaiju::invalid_argument("move is " + std::to_string(move) + "; it must be 0 or 1");
    auto made = kaiju::Rollout::create(engine->model, engine->engine, {move == 1});
    if (!made.ok()) return made.status();
    auto rollout = std::make_unique<kaiju_rollout>();
    rollout->rollout = std::move(made).value();
    rollout->known.push_back(known(engine));
    *out = rollout.release();
    return {};
  });
}

void kaiju_rollout_destroy(kaiju_rollout* rollout) { delete rollout; }

kaiju_status kaiju_rollout_begin(kaiju_rollout* rollout, kaiju_engine* candidate,
                                 kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!rollout || !candidate) return missing(rollout ? "candidate" : "rollout");
    const std::lock_guard lock(rollout->mutex);
    rollout->known.push_back(known(candidate));
    Status begun = rollout->rollout->begin(candidate->model, candidate->engine);
    if (!begun.ok()) rollout->known.pop_back();
    return begun;
  });
}

kaiju_status kaiju_rollout_add_prefix(kaiju_rollout* rollout, const int32_t* tokens, size_t count,
                                      const kaiju_options* options, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!rollout) return missing("rollout");
    KAIJU_TRY(check_span("tokens", tokens, count));
    KAIJU_TRY(check_groups(options, kOfSharing, "kaiju_rollout_add_prefix"));
    return rollout->rollout->add_prefix({tokens, count}, scope_of(options));
  });
}

kaiju_status kaiju_rollout_warm(kaiju_rollout* rollout, int32_t most_tokens, uint64_t* left,
                                kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!rollout) return missing("rollout");
    const kaiju::Result<int64_t> found = rollout->rollout->warm(most_tokens);
    if (!found.ok()) return found.status();
    if (left) *left = static_cast<uint64_t>(*found);
    return {};
  });
}

kaiju_status kaiju_rollout_set_share(kaiju_rollout* rollout, int32_t share, kaiju_error** error) {
  return guard(error,
               [&] { return rollout ? rollout->rollout->set_share(share) : missing("rollout"); });
}

kaiju_status kaiju_rollout_promote(kaiju_rollout* rollout, kaiju_error** error) {
  return guard(error, [&] { return rollout ? rollout->rollout->promote() : missing("rollout"); });
}

kaiju_status kaiju_rollout_roll_back(kaiju_rollout* rollout, kaiju_error** error) {
  return guard(error, [&] { return rollout ? rollout->rollout->rollback() : missing("rollout"); });
}

kaiju_engine* kaiju_rollout_take_drained(kaiju_rollout* rollout) {
  if (!rollout) return nullptr;
  return guard_value<kaiju_engine*>(nullptr, [&] {
    const std::shared_ptr<kaiju::Engine> engine = rollout->rollout->take_drained();
    kaiju_engine* const handle = handle_of(*rollout, engine);
    if (engine) forget(*rollout, engine.get());
    return handle;
  });
}

kaiju_engine* kaiju_rollout_engine_for(kaiju_rollout* rollout, const char* key, size_t size) {
  if (!rollout || (!key && size > 0)) return nullptr;
  return guard_value<kaiju_engine*>(
      nullptr, [&] { return handle_of(*rollout, rollout->rollout->engine_for({key, size})); });
}

kaiju_status kaiju_rollout_next_turn(const kaiju_rollout* rollout, kaiju_session* session,
                                     const char* key, size_t size, int32_t* moved,
                                     kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!rollout || !session) return missing(rollout ? "session" : "rollout");
    KAIJU_TRY(check_span("key", key, size));
    const auto found =
        rollout->rollout->next_turn(session->engine, session->id, std::string_view(key, size));
    if (!found.ok()) return found.status();
    if (moved) *moved = *found ? 1 : 0;
    return {};
  });
}

kaiju_status kaiju_rollout_describe(kaiju_rollout* rollout, kaiju_rollout_info* out) {
  return guard(nullptr, [&]() -> Status {
    if (!rollout || !out) return missing(rollout ? "out" : "rollout");
    KAIJU_TRY(check_struct_size<kaiju_rollout_info>("kaiju_rollout_info", out->struct_size));
    const kaiju::RolloutState state = rollout->rollout->state();
    kaiju_rollout_info info{};
    const size_t size = info.struct_size = out->struct_size;
    info.phase = static_cast<int32_t>(state.phase);
    info.share = state.share;
    info.warm_left = static_cast<uint64_t>(state.warm_left);
    info.current = handle_of(*rollout, state.current);
    info.other = handle_of(*rollout, state.other);
    copy_sized(&info, sizeof info, out, size);
    return {};
  });
}
