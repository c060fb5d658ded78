// The options bag. Setters check against the table of option_rows.hpp, describe reads it, and the
// library's structs are filled from it.
#include "options.hpp"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kaiju/base/detail/number_text.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/sample/params.hpp"
#include "option_rows.hpp"

namespace {

using kaiju::number_text;
using kaiju::Status;
using kaiju::StatusCode;
using kaiju::capi::kInt64Max;
using kaiju::capi::kRows;
using kaiju::capi::Row;

const kaiju::SamplerInfo* find_sampler(kaiju_sampler sampler) {
  return kaiju::sampler_info(static_cast<kaiju::SamplerKind>(sampler));
}

// The options that a list of samplers takes the place of.
constexpr kaiju_option kSamplerOptions[] = {KAIJU_GENERATE_REPETITION_PENALTY,
                                            KAIJU_GENERATE_TEMPERATURE, KAIJU_GENERATE_TOP_K,
                                            KAIJU_GENERATE_MIN_P, KAIJU_GENERATE_TOP_P};

const Row* find_row(kaiju_option option) {
  for (const Row& row : kRows)
    if (row.option == option) return &row;
  return nullptr;
}

// The numbers are in scopes (kaiju.h); the session's are in three groups.
kaiju::capi::Group group_of(kaiju_option option) {
  using namespace kaiju::capi;
  if (option < 200) return kOfModel;
  if (option < 300) return kOfEngine;
  if (option < 400) return kOfRequest;
  if (option < KAIJU_SESSION_KEY) return kOfSharing;
  return option == KAIJU_SESSION_KEY ? kOfKey : kOfSavedKv;
}

const char* readers_of(kaiju::capi::Group group) {
  switch (group) {
    case kaiju::capi::kOfModel:
      return "kaiju_model_load";
    case kaiju::capi::kOfEngine:
      return "kaiju_engine_create";
    case kaiju::capi::kOfRequest:
      return "kaiju_engine_submit, kaiju_generate, kaiju_conversation_say and "
             "kaiju_conversation_swipe";
    case kaiju::capi::kOfSharing:
      return "the calls that request a reply or restore a session";
    case kaiju::capi::kOfKey:
      return "the calls that save or restore a session";
    case kaiju::capi::kOfSavedKv:
      return "the calls that save a session";
  }
  return "";
}

std::string limit_text(const Row& row, double limit) {
  if (row.type == 'f') return number_text(limit);
  return number_text(limit < kInt64Max ? static_cast<int64_t>(limit) : INT64_MAX);
}

const char* type_name(char type) {
  return type == 'i' ? "an int" : type == 'f' ? "a float" : "a string";
}

std::string option_name(kaiju_option option) {
  const Row* const row = find_row(option);
  return row ? row->name : "option " + std::to_string(option);
}

// A path is bytes: what the system takes, UTF-8 or not.
bool is_path(kaiju_option option) {
  return option == KAIJU_ENGINE_TIER_FILE || option == KAIJU_ENGINE_PRODUCTS_FILE;
}
// Paths and a backend's name would end at a zero byte; everything else is a text of any bytes.
bool has_no_zero(kaiju_option option) { return is_path(option) || option == KAIJU_ENGINE_BACKEND; }

template <class T>
Status check_number(const Row& row, T value, const char* name) {
  const kaiju::FloatState float_state;
  const auto number = static_cast<double>(value);
  if (row.option == KAIJU_GENERATE_TEMPERATURE) return kaiju::check_temperature(name, number);
  if (number >= row.minimum && number <= row.maximum) return {};
  return kaiju::invalid_argument(std::string(name) + " is " + number_text(value) +
                                 "; it must be from " + limit_text(row, row.minimum) + " to " +
                                 limit_text(row, row.maximum));
}

template <class T>
Status set(kaiju_options* options, kaiju_option option, T value) {
  constexpr char kType = std::is_same_v<T, int64_t> ? 'i' : std::is_same_v<T, double> ? 'f' : 's';
  if (!options) return kaiju::capi::missing("options");
  const Row* row = find_row(option);
  if (!row) return kaiju::invalid_argument("there is no option " + std::to_string(option));
  if (row->type != kType)
    return kaiju::invalid_argument(std::string(row->name) + " is " + type_name(row->type) +
                                   ", not " + type_name(kType));
  if constexpr (kType != 's') KAIJU_TRY(check_number(*row, value, row->name));
  auto& values = options->values[option];
  if (row->repeatable && values.size() >= kaiju::kMaxStopStrings)
    return kaiju::invalid_argument(std::string(row->name) + " may be given " +
                                   std::to_string(kaiju::kMaxStopStrings) + " times");
  if (!row->repeatable) values.clear();
  values.emplace_back(std::move(value));
  return {};
}

template <class T>
T get(const kaiju_options* options, kaiju_option option, T otherwise) {
  if (!options) return otherwise;
  const auto found = options->values.find(option);
  return found == options->values.end() || found->second.empty()
             ? otherwise
             : std::get<T>(found->second.back());
}

int32_t get_int32(const kaiju_options* options, kaiju_option option) {
  return static_cast<int32_t>(
      get<int64_t>(options, option, static_cast<int64_t>(find_row(option)->standard)));
}

double get_float(const kaiju_options* options, kaiju_option option) {
  return get<double>(options, option, find_row(option)->standard);
}

}  // namespace

namespace kaiju::capi {

Status check_groups(const kaiju_options* options, uint32_t groups, const char* call) {
  if (!options) return {};
  const auto check = [&](const std::string& name, Group group) -> Status {
    if ((groups & group) != 0) return {};
    return invalid_argument(std::string(call) + " does not read " + name + ", which is for " +
                            readers_of(group) + ": clear it or use another options bag");
  };
  for (const auto& [option, values] : options->values)
    KAIJU_TRY(check(option_name(option), group_of(option)));
  if (!options->logit_bias.empty()) KAIJU_TRY(check("the logit biases", kOfRequest));
  if (!options->samplers.empty()) KAIJU_TRY(check("the list of samplers", kOfRequest));
  if (options->hook) KAIJU_TRY(check("the logits hook", kOfRequest));
  if (options->clock) KAIJU_TRY(check("the clock", kOfEngine));
  if (options->host_threads.run) KAIJU_TRY(check("the host's threads", kOfEngine));
  return {};
}

ModelOptions model_options(const kaiju_options* options) {
  ModelOptions out;
  const int32_t verifying = get_int32(options, KAIJU_MODEL_VERIFY);
  out.verify = verifying > 0 ? Verify::kFull : Verify::kNone;
  out.verify_threads = std::max(verifying, 1);
  out.head = get<std::string>(options, KAIJU_MODEL_HEAD, "");
  out.scales = get<std::string>(options, KAIJU_MODEL_SCALES, "");
  out.interleave = get_int32(options, KAIJU_MODEL_INTERLEAVE) != 0;
  return out;
}

RunOptions run_options(const kaiju_options* options) {
  RunOptions out;
  out.executor.backend = get<std::string>(options, KAIJU_ENGINE_BACKEND, "auto");
  out.executor.threads = get_int32(options, KAIJU_ENGINE_THREADS);
  if (options) out.executor.host_threads = options->host_threads;
  out.executor.interleave = get_int32(options, KAIJU_ENGINE_INTERLEAVE) != 0;
  out.executor.large_pages = get_int32(options, KAIJU_ENGINE_LARGE_PAGES) != 0;
  out.executor.skip_zeros = get_int32(options, KAIJU_ENGINE_SKIP_ZEROS) != 0;
  out.executor.slot_count = get_int32(options, KAIJU_ENGINE_MAX_RUNNING);
  out.executor.step_tokens = get_int32(options, KAIJU_ENGINE_STEP_TOKENS);
  out.executor.products_file = get<std::string>(options, KAIJU_ENGINE_PRODUCTS_FILE, "");
  out.executor.products = get<std::string>(options, KAIJU_ENGINE_PRODUCTS, "auto");
  if (options)
    if (const auto devices = options->values.find(KAIJU_ENGINE_DEVICES);
        devices != options->values.end())
      for (const auto& value : devices->second)
        out.executor.devices.push_back(static_cast<int32_t>(std::get<int64_t>(value)));
  out.executor.cache_bytes = get<int64_t>(options, KAIJU_ENGINE_CACHE_BYTES, 0);
  out.engine.chunk_tokens = get_int32(options, KAIJU_ENGINE_CHUNK_TOKENS);
  out.engine.prefill_tokens = get_int32(options, KAIJU_ENGINE_PREFILL_TOKENS);
  out.engine.max_waiting = get_int32(options, KAIJU_ENGINE_MAX_WAITING);
  out.engine.max_sessions = get_int32(options, KAIJU_ENGINE_MAX_SESSIONS);
  out.engine.max_events = get_int32(options, KAIJU_ENGINE_MAX_EVENTS);
  out.engine.reserve_tokens = get_int32(options, KAIJU_ENGINE_RESERVE_TOKENS);
  out.engine.cache.host_bytes = get<int64_t>(options, KAIJU_ENGINE_HOST_BYTES, 0);
  out.engine.cache.file_bytes = get<int64_t>(options, KAIJU_ENGINE_FILE_BYTES, 0);
  out.engine.cache.event_capacity =
      static_cast<size_t>(get_int32(options, KAIJU_ENGINE_CACHE_EVENTS));
  out.engine.cache.event_tokens = get_int32(options, KAIJU_ENGINE_CACHE_EVENT_TOKENS) != 0;
  out.engine.cache.publish_private = get_int32(options, KAIJU_ENGINE_CACHE_EVENTS_PRIVATE) != 0;
  out.engine.prefetch_blocks = get_int32(options, KAIJU_ENGINE_PREFETCH_BLOCKS);
  out.engine.prefetch_usual = get_int32(options, KAIJU_ENGINE_PREFETCH_USUAL) != 0;
  out.memory_limit = get<int64_t>(options, KAIJU_ENGINE_MEMORY_LIMIT, 0);
  out.tier_file = get<std::string>(options, KAIJU_ENGINE_TIER_FILE, "");
  if (options && options->clock)
    out.engine.clock = [clock = options->clock, data = options->clock_data] {
      return kaiju::TimePoint(clock(data));
    };
  return out;
}

Scope scope_of(const kaiju_options* options) {
  Scope scope;
  scope.character = get<std::string>(options, KAIJU_SESSION_CHARACTER, "");
  scope.shared_tokens = get_int32(options, KAIJU_SESSION_SHARED_TOKENS);
  scope.salt = get<std::string>(options, KAIJU_SESSION_SALT, "");
  scope.tenant = get<std::string>(options, KAIJU_SESSION_TENANT, "");
  return scope;
}

static Status take_samplers(const kaiju_options& options, SamplingParams& sampling) {
  for (const kaiju_option option : kSamplerOptions)
    if (const auto set = options.values.find(option);
        set != options.values.end() && !set->second.empty())
      return invalid_argument(option_name(option) +
                              " is set beside a list of samplers, which has to have all of them: "
                              "clear one of the two");
  sampling.samplers = options.samplers;
  return {};
}

// The values of an option whose values are "label=number".
static Result<LabelValues> label_values(const kaiju_options* options, kaiju_option option) {
  const FloatState float_state;  // strtod's
  LabelValues found;
  if (!options) return found;
  const auto set = options->values.find(option);
  if (set == options->values.end()) return found;
  for (const auto& value : set->second) {
    const std::string& text = std::get<std::string>(value);
    const size_t split = text.rfind('=');
    char* end = nullptr;
    const std::string number = split == std::string::npos ? "" : text.substr(split + 1);
    const double parsed = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != 0)
      return invalid_argument(option_name(option) + " is \"" + text +
                              "\"; it must be a label, =, and a number");
    found.emplace_back(text.substr(0, split), parsed);
  }
  return found;
}

static Status take_beams(const kaiju_options* options, RequestOptions& out) {
  BeamOptions& beams = out.beams;
  beams.width = get_int32(options, KAIJU_GENERATE_BEAMS);
  beams.candidates = get_int32(options, KAIJU_GENERATE_BEAM_CANDIDATES);
  beams.length_penalty = get_float(options, KAIJU_GENERATE_LENGTH_PENALTY);
  beams.early_stopping = get_int32(options, KAIJU_GENERATE_EARLY_STOPPING) != 0;
  beams.groups = get_int32(options, KAIJU_GENERATE_BEAM_GROUPS);
  beams.diversity = get_float(options, KAIJU_GENERATE_DIVERSITY);
  beams.stochastic = get_int32(options, KAIJU_GENERATE_STOCHASTIC) != 0;
  beams.guidance.weight = get_float(options, KAIJU_GENERATE_GUIDANCE);
  beams.guidance.risk =
      static_cast<Guidance::Risk>(get_int32(options, KAIJU_GENERATE_GUIDANCE_RISK));
  Result<LabelValues> weights = label_values(options, KAIJU_GENERATE_LABEL_WEIGHT);
  if (!weights.ok()) return weights.status();
  beams.guidance.label_weights = std::move(weights).value();
  Result<LabelValues> limits = label_values(options, KAIJU_GENERATE_LABEL_LIMIT);
  if (!limits.ok()) return limits.status();
  out.safety.limits = std::move(limits).value();
  out.safety.tier = get<std::string>(options, KAIJU_GENERATE_TIER, "");
  out.safety.run = get_int32(options, KAIJU_GENERATE_VERDICT_RUN);
  out.safety.reports = get_int32(options, KAIJU_GENERATE_VERDICT_REPORTS) != 0;
  out.safety.hold_back = get_int32(options, KAIJU_GENERATE_HOLD_BACK);
  out.record = get_int32(options, KAIJU_GENERATE_RECORD) != 0;
  out.begun_tokens = get_int32(options, KAIJU_GENERATE_BEGUN_TOKENS);
  return {};
}

Result<RequestOptions> request_options(const kaiju_options* options) {
  RequestOptions out;
  out.max_tokens = get_int32(options, KAIJU_GENERATE_MAX_TOKENS);
  out.sampling.temperature = get_float(options, KAIJU_GENERATE_TEMPERATURE);
  out.sampling.top_k = get_int32(options, KAIJU_GENERATE_TOP_K);
  out.sampling.top_p = get_float(options, KAIJU_GENERATE_TOP_P);
  out.sampling.min_p = get_float(options, KAIJU_GENERATE_MIN_P);
  out.sampling.repetition_penalty = get_float(options, KAIJU_GENERATE_REPETITION_PENALTY);
  out.sampling.seed = static_cast<uint64_t>(get<int64_t>(options, KAIJU_GENERATE_SEED, 0));
  out.sampling.variant = static_cast<uint32_t>(get<int64_t>(options, KAIJU_GENERATE_VARIANT, 0));
  out.logprobs = get_int32(options, KAIJU_GENERATE_LOGPROBS);
  out.scores = get_int32(options, KAIJU_GENERATE_SCORES) != 0;
  out.guided = get_int32(options, KAIJU_GENERATE_GUIDED) != 0;
  out.priority = get_int32(options, KAIJU_GENERATE_PRIORITY);
  if (const auto deadline = get<int64_t>(options, KAIJU_GENERATE_DEADLINE, 0); deadline > 0)
    out.deadline = kaiju::TimePoint(deadline);
  out.scope = scope_of(options);
  out.loop_guard = get_int32(options, KAIJU_GENERATE_LOOP_GUARD) != 0;
  KAIJU_TRY(take_beams(options, out));
  if (!options) return out;
  if (!options->samplers.empty()) KAIJU_TRY(take_samplers(*options, out.sampling));
  if (const auto breakers = options->values.find(KAIJU_GENERATE_BREAKER);
      breakers != options->values.end())
    for (const auto& value : breakers->second)
      out.sampling.breakers.push_back(std::get<std::string>(value));
  if (const auto banned = options->values.find(KAIJU_GENERATE_BANNED);
      banned != options->values.end())
    for (const auto& value : banned->second)
      out.banned_phrases.push_back(std::get<std::string>(value));
  out.sampling.logit_bias = options->logit_bias;
  if (options->hook)
    out.logits_hook = [hook = options->hook, data = options->hook_data](
                          std::span<float> logits, std::span<const int32_t> tokens) {
      hook(logits.data(), logits.size(), tokens.data(), tokens.size(), data);
    };
  if (const auto stops = options->values.find(KAIJU_GENERATE_STOP); stops != options->values.end())
    for (const auto& value : stops->second)
      out.stop_strings.push_back(std::get<std::string>(value));
  if (const auto stops = options->values.find(KAIJU_GENERATE_STOP_TOKEN);
      stops != options->values.end()) {
    out.stop_tokens.emplace();
    for (const auto& value : stops->second)
      if (std::get<int64_t>(value) >= 0)
        out.stop_tokens->push_back(static_cast<int32_t>(std::get<int64_t>(value)));
  }
  return out;
}

Result<PrefetchOptions> prefetch_options(const kaiju_options* options, int64_t at, void* user_data,
                                         const char* call) {
  KAIJU_TRY(check_groups(options, kOfSharing, call));
  if (at < 0)
    return invalid_argument("at is " + std::to_string(at) +
                            "; it must be 0 or a time of the engine's clock");
  PrefetchOptions out;
  if (options && !options->values.empty()) out.scope = scope_of(options);
  if (at > 0) out.at = TimePoint(at);
  out.user_data = user_data;
  return out;
}

Result<Sealer> session_key(const kaiju_options* options) {
  const auto key = get<std::string>(options, KAIJU_SESSION_KEY, "");
  return key.empty() ? Sealer() : make_sealer(key);
}

bool session_kv(const kaiju_options* options) { return get_int32(options, KAIJU_SESSION_KV) != 0; }

}  // namespace kaiju::capi

using namespace kaiju::capi;

kaiju_status kaiju_options_create(kaiju_options** out) {
  return guard(nullptr, [&]() -> Status {
    if (!out) return missing("out");
    *out = new kaiju_options;
    return {};
  });
}

void kaiju_options_destroy(kaiju_options* options) { delete options; }

kaiju_status kaiju_options_copy(const kaiju_options* options, kaiju_options** out) {
  return guard(nullptr, [&]() -> Status {
    if (!options || !out) return missing(options ? "out" : "options");
    *out = new kaiju_options(*options);
    return {};
  });
}

kaiju_status kaiju_options_clear(kaiju_options* options, kaiju_option option) {
  return guard(nullptr, [&]() -> Status {
    if (!options) return missing("options");
    if (option == 0) {
      *options = {};
      return {};
    }
    if (!find_row(option)) return Status(StatusCode::kNotFound, "there is no such option");
    options->values.erase(option);
    return {};
  });
}

kaiju_status kaiju_option_find(const char* name, kaiju_option* out) {
  return guard(nullptr, [&]() -> Status {
    if (!name || !out) return missing(name ? "out" : "name");
    for (const Row& row : kRows) {
      if (std::strcmp(row.name, name) != 0) continue;
      *out = row.option;
      return {};
    }
    return Status(StatusCode::kNotFound, "there is no such option");
  });
}

kaiju_status kaiju_options_set_int(kaiju_options* options, kaiju_option option, int64_t value,
                                   kaiju_error** error) {
  return guard(error, [&] { return set(options, option, value); });
}

kaiju_status kaiju_options_set_float(kaiju_options* options, kaiju_option option, double value,
                                     kaiju_error** error) {
  return guard(error, [&] { return set(options, option, value); });
}

kaiju_status kaiju_options_set_string(kaiju_options* options, kaiju_option option,
                                      const char* text, size_t size, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    KAIJU_TRY(check_span("text", text, size));
    const std::string_view value(size ? text : "", size);
    const std::string name = option_name(option);
    if (const size_t zero = value.find('\0'); has_no_zero(option) && zero != value.npos)
      return kaiju::invalid_argument(name + " is zero at byte " + std::to_string(zero + 1) +
                                     "; it must be without zero bytes");
    if (const size_t good = kaiju::utf8_valid_prefix(value); !is_path(option) && good != size)
      return kaiju::invalid_argument(name + " is not UTF-8 at byte " + std::to_string(good + 1));
    if (option == KAIJU_GENERATE_STOP && (size == 0 || size > kaiju::kMaxStopStringBytes))
      return kaiju::invalid_argument("generate.stop is " + std::to_string(size) +
                                     " bytes long; it must be 1 to " +
                                     std::to_string(kaiju::kMaxStopStringBytes));
    if (option == KAIJU_SESSION_KEY && !kaiju::make_sealer(value).ok())
      return kaiju::make_sealer(value).status();
    return set(options, option, std::string(value));
  });
}

kaiju_status kaiju_options_set_logit_bias(kaiju_options* options, const int32_t* tokens,
                                          const float* bias, size_t count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!options) return missing("options");
    KAIJU_TRY(check_span("tokens", tokens, count));
    KAIJU_TRY(check_span("bias", bias, count));
    const kaiju::FloatState float_state;
    std::vector<std::pair<int32_t, float>> pairs;
    for (size_t i = 0; i < count; ++i) {
      if (tokens[i] < 0)
        return kaiju::invalid_argument("logit_bias names token " + std::to_string(tokens[i]));
      if (!(std::abs(bias[i]) <= 10000.0f))
        return kaiju::invalid_argument("logit_bias of token " + std::to_string(tokens[i]) +
                                       " is " + number_text(bias[i]) +
                                       "; it must be from -10000 to 10000");
      pairs.emplace_back(tokens[i], bias[i]);
    }
    options->logit_bias = std::move(pairs);
    return {};
  });
}

kaiju_status kaiju_options_add_sampler(kaiju_options* options, kaiju_sampler sampler,
                                       const double* values, size_t count, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!options) return missing("options");
    KAIJU_TRY(check_span("values", values, count));
    const kaiju::SamplerInfo* info = find_sampler(sampler);
    if (!info) return kaiju::invalid_argument("there is no sampler " + std::to_string(sampler));
    if (count < 1 || count > info->value_count)
      return kaiju::invalid_argument(
          std::string(info->name) + " has " +
          (info->value_count == 1 ? "one value"
                                  : "1 to " + std::to_string(info->value_count) + " values") +
          ", not " + std::to_string(count));
    if (options->samplers.size() == kaiju::kMaxSamplers)
      return kaiju::invalid_argument("a list has at most " + std::to_string(kaiju::kMaxSamplers) +
                                     " samplers");
    kaiju::Sampler added{info->kind, {}};
    for (size_t i = 0; i < info->value_count; ++i)
      added.values[i] = i < count ? values[i] : info->values[i].default_value;
    KAIJU_TRY(kaiju::detail::check_sampler(added));
    options->samplers.push_back(added);
    return {};
  });
}

kaiju_status kaiju_options_clear_samplers(kaiju_options* options) {
  return guard(nullptr, [&]() -> Status {
    if (!options) return missing("options");
    options->samplers.clear();
    return {};
  });
}

kaiju_status kaiju_options_set_logits_hook(kaiju_options* options, kaiju_logits_fn hook,
                                           void* user_data) {
  return guard(nullptr, [&]() -> Status {
    if (!options) return missing("options");
    options->hook = hook;
    options->hook_data = user_data;
    return {};
  });
}

kaiju_status kaiju_sampler_describe(kaiju_sampler sampler, size_t value, kaiju_option_info* out) {
  return guard(nullptr, [&]() -> Status {
    if (!out) return missing("out");
    KAIJU_TRY(check_struct_size<kaiju_option_info>("kaiju_option_info", out->struct_size));
    const kaiju::SamplerInfo* info = find_sampler(sampler);
    if (!info || value >= info->value_count)
      return Status(StatusCode::kNotFound, "no such sampler or value");
    const kaiju::SamplerValue& of = info->values[value];
    const size_t size = out->struct_size;
    const kaiju_option_info described{size, of.name, of.help, of.whole ? 'i' : 'f',
                                      0,    of.low,  of.high, of.default_value};
    copy_sized(&described, sizeof described, out, size);
    return {};
  });
}

kaiju_status kaiju_options_set_clock(kaiju_options* options, kaiju_clock_fn clock,
                                     void* user_data) {
  return guard(nullptr, [&]() -> Status {
    if (!options) return missing("options");
    options->clock = clock;
    options->clock_data = user_data;
    return {};
  });
}

kaiju_status kaiju_options_set_host_threads(kaiju_options* options, kaiju_host_threads_fn run,
                                            void* user_data) {
  return guard(nullptr, [&]() -> Status {
    if (!options) return missing("options");
    options->host_threads = {run, user_data};
    return {};
  });
}

kaiju_status kaiju_option_describe(kaiju_option option, kaiju_option_info* out) {
  return guard(nullptr, [&]() -> Status {
    if (!out) return missing("out");
    KAIJU_TRY(check_struct_size<kaiju_option_info>("kaiju_option_info", out->struct_size));
    const Row* row = find_row(option);
    if (!row) return Status(StatusCode::kNotFound, "there is no such option");
    const size_t size = out->struct_size;
    const kaiju_option_info info{size,         row->name,       row->help,
                                 row->type,    row->repeatable, row->minimum,
                                 row->maximum, row->standard};
    copy_sized(&info, sizeof info, out, size);
    return {};
  });
}
