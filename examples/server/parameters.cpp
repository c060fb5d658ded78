#include "parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <random>

#include "../tools/nearest.hpp"
#include "failure.hpp"

namespace kaiju::server {

using nlohmann::json;

namespace {

[[noreturn]] void wrong(const char* name, const std::string& what) {
  throw bad_request(fmt::format("{} must be {}", name, what), name);
}

constexpr double kLeastTopP = 1e-6;  // of the engine

// Samplers of other servers that the engine does not have, with the value that changes nothing.
struct Foreign {
  const char* name;
  double neutral;
};
constexpr Foreign kForeign[] = {
    {"tfs", 1},  {"top_a", 0}, {"mirostat", 0}, {"mirostat_mode", 0}, {"smoothing_factor", 0}, {"guidance_scale", 1},
    {"skew", 0},
};

void refuse_foreign_samplers(const Fields& fields) {
  for (const auto& [name, neutral] : kForeign)
    if (fields.has(name) && fields.at(name).is_number() && fields.at(name).get<double>() != neutral)
      throw bad_request(fmt::format("{} is not supported: leave it out, or set it to {}", name, neutral), name);
}

// A field under the names that servers give it; the first one given counts.
double any_number(const Fields& fields, std::initializer_list<const char*> names, double otherwise, double least,
                  double most) {
  double value = otherwise;
  for (auto name = std::rbegin(names); name != std::rend(names); ++name)
    value = fields.number(*name, value, least, most);
  return value;
}

// A number of newest tokens; 0 and -1 are all.
double window(const Fields& fields, std::initializer_list<const char*> names) {
  int64_t value = 0;
  for (const char* name : names) value = fields.integer(name, value, -1, 1'000'000'000);
  return static_cast<double>(std::max<int64_t>(value, 0));
}

// The breakers of DRY: a list of texts, or such a list as a text, as SillyTavern sends it.
std::vector<std::string> breakers(const Fields& fields) {
  constexpr const char* kName = "dry_sequence_breakers";
  if (!fields.has(kName)) return {"\n", ":", "\"", "*"};
  const json given = fields.at(kName).is_string() ? json::parse(fields.at(kName).get<std::string>(), nullptr, false)
                                                  : fields.at(kName);
  std::vector<std::string> list;
  if (!given.is_array()) wrong(kName, "a list of texts");
  for (const json& text : given) {
    if (!text.is_string() || text.get<std::string>().empty() || text.get<std::string>().size() > kMaxBreakerBytes)
      wrong(kName, fmt::format("a list of texts of 1 to {} bytes", kMaxBreakerBytes));
    list.push_back(text.get<std::string>());
  }
  if (list.size() > kMaxBreakers) wrong(kName, fmt::format("a list of at most {} texts", kMaxBreakers));
  return list;
}

// Where a request names a sampler that the engine's fixed order does not have, all of its samplers become a chain, in
// the order that llama.cpp has by default: penalties first, temperature last.
void read_chain(const Fields& fields, SamplingParams& to) {
  using Kind = SamplerKind;
  std::vector<Sampler> chain;
  const auto add = [&chain](bool works, Kind kind, std::array<double, kMaxSamplerValues> values) {
    if (works) chain.push_back({kind, values});
  };
  const double last = window(fields, {"repetition_penalty_range", "repeat_last_n"});
  const double frequency = fields.number("frequency_penalty", 0, -100, 100);
  const double presence = fields.number("presence_penalty", 0, -100, 100);
  const double dry = fields.number("dry_multiplier", 0, 0, 100);
  const std::array<double, 4> dry_values = {dry, fields.number("dry_base", 1.75, 1, 10),
                                            static_cast<double>(fields.integer("dry_allowed_length", 2, 1, 1'000'000)),
                                            window(fields, {"dry_penalty_last_n"})};
  const std::vector<std::string> dry_breakers = breakers(fields);
  const auto ngram = static_cast<double>(fields.integer("no_repeat_ngram_size", 0, 0, 1'000'000));
  const double sigma = any_number(fields, {"top_n_sigma", "nsigma"}, 0, -1, 100);
  const double typical = any_number(fields, {"typical_p", "typical"}, 1, 1e-6, 1);
  const double epsilon = fields.number("epsilon_cutoff", 0, 0, 1), eta = fields.number("eta_cutoff", 0, 0, 1);
  const double xtc = fields.number("xtc_probability", 0, 0, 1), threshold = fields.number("xtc_threshold", 0.1, 0, 1);
  const double low = fields.number("dynatemp_low", 1, 0.001, 100), high = fields.number("dynatemp_high", 1, 0.001, 100);
  const double exponent = fields.number("dynatemp_exponent", 1, 0.01, 100);
  const bool dynamic = fields.flag("dynamic_temperature", false);

  add(to.repetition_penalty != 1, Kind::kRepetitionPenalty, {to.repetition_penalty, last});
  add(frequency != 0, Kind::kFrequencyPenalty, {frequency, last});
  add(presence != 0, Kind::kPresencePenalty, {presence, last});
  add(dry > 0, Kind::kDry, dry_values);
  add(ngram > 0, Kind::kNoRepeatNgram, {ngram});
  add(sigma > 0, Kind::kTopNSigma, {sigma});
  add(to.top_k > 0, Kind::kTopK, {static_cast<double>(to.top_k)});
  add(typical < 1, Kind::kTypicalP, {typical});
  add(to.top_p < 1, Kind::kTopP, {to.top_p});
  add(to.min_p > 0, Kind::kMinP, {to.min_p});
  add(epsilon > 0, Kind::kEpsilonCutoff, {epsilon});
  add(eta > 0, Kind::kEtaCutoff, {eta});
  add(xtc > 0, Kind::kXtc, {xtc, threshold});
  const bool beyond_order = dynamic || (last > 0 && to.repetition_penalty != 1) ||
                            std::ranges::any_of(chain, [](const Sampler& each) { return each.kind > Kind::kTopP; });
  if (!beyond_order) return;
  if (dynamic && to.temperature > 0)
    add(true, Kind::kDynamicTemperature, {low, high, exponent});
  else
    add(to.temperature != 1, Kind::kTemperature, {to.temperature});
  const SamplingParams defaults;
  to.temperature = defaults.temperature, to.top_k = defaults.top_k, to.top_p = defaults.top_p;
  to.min_p = defaults.min_p, to.repetition_penalty = defaults.repetition_penalty;
  to.samplers = std::move(chain);
  if (dry > 0) to.breakers = dry_breakers;
}

void read_sampling(const Fields& fields, const Defaults& defaults, int32_t vocabulary, SamplingParams& to) {
  to.temperature = fields.number("temperature", defaults.temperature, 0, 100);
  to.top_k = std::max<int64_t>(fields.integer("top_k", 0, -1, INT32_MAX), 0);
  to.top_p = fields.number("top_p", 1, kLeastTopP, 1);
  to.min_p = fields.number("min_p", 0, 0, 1);
  to.repetition_penalty = fields.number("repetition_penalty", fields.number("rep_pen", 1, 0.01, 100), 0.01, 100);
  if (fields.has("seed")) {
    to.seed = static_cast<uint64_t>(fields.integer("seed", 0, INT64_MIN, INT64_MAX));
  } else {
    static thread_local std::mt19937_64 random{std::random_device{}()};
    to.seed = random();
  }
  read_chain(fields, to);
  if (!fields.has("logit_bias")) return;
  const json& biases = fields.at("logit_bias");
  if (!biases.is_object()) wrong("logit_bias", "an object of token ids and numbers");
  for (const auto& [key, value] : biases.items()) {
    char* end = nullptr;
    const long token = std::strtol(key.c_str(), &end, 10);
    if (key.empty() || *end != 0 || token < 0 || token >= vocabulary || !value.is_number())
      wrong("logit_bias", fmt::format("an object of token ids, 0 to {}, and numbers", vocabulary - 1));
    to.logit_bias.emplace_back(static_cast<int32_t>(token), value.get<float>());
  }
}

// Numbers by label: {"violence": 0.5}.
LabelValues read_labels(const Fields& fields, const char* name) {
  LabelValues values;
  if (!fields.has(name)) return values;
  if (!fields.at(name).is_object()) wrong(name, "an object of labels and numbers");
  for (const auto& [label, value] : fields.at(name).items()) {
    if (!value.is_number()) wrong(name, "an object of labels and numbers");
    values.emplace_back(label, value.get<double>());
  }
  return values;
}

// Beam search under the names of other servers: num_beams, or use_beam_search with as many beams as best_of.
void read_beams(const Fields& fields, int32_t best_of, RequestOptions& to) {
  BeamOptions& beams = to.beams;
  const bool search = fields.flag("use_beam_search", false);
  beams.width = static_cast<int32_t>(fields.integer("num_beams", search ? best_of : 1, 1, kMaxBeams));
  beams.length_penalty = fields.number("length_penalty", 1, 0, 10);
  beams.early_stopping = fields.flag("early_stopping", false);
  beams.groups = static_cast<int32_t>(fields.integer("num_beam_groups", 1, 1, kMaxBeams));
  beams.diversity = fields.number("diversity_penalty", 0, 0, 100);
  beams.stochastic = fields.flag("stochastic_beams", false);
  beams.guidance.weight = fields.number("guidance", 0, -1000, 1000);
  beams.guidance.label_weights = read_labels(fields, "label_weights");
  const std::string risk = fields.text("guidance_risk", "maximum");
  if (risk != "maximum" && risk != "mean" && risk != "log_odds") wrong("guidance_risk", "maximum, mean or log_odds");
  beams.guidance.risk = risk == "maximum" ? Guidance::Risk::kMaximum
                        : risk == "mean"  ? Guidance::Risk::kMean
                                          : Guidance::Risk::kLogOdds;
  if (beams.width == 1 && !search) {
    beams = {};
    return;
  }
  for (const char* name : {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"})
    if (fields.has(name) && fields.at(name) != 0 && fields.at(name) != 1)
      throw bad_request(fmt::format("{} is for sampling: leave it out of a beam search", name), name);
  SamplingParams plain;
  plain.seed = to.sampling.seed;
  to.sampling = plain;
}

void read_safety(const Fields& fields, Wanted& wanted) {
  SafetyOptions& to = wanted.options.safety;
  for (auto& [label, limit] : read_labels(fields, "label_limits")) {
    const bool of_gate = label.starts_with(kOfGate);
    (of_gate ? wanted.gate_limits : to.limits).emplace_back(of_gate ? label.substr(kOfGate.size()) : label, limit);
  }
  wanted.tier = fields.text("tier");
  to.run = static_cast<int32_t>(fields.integer("verdict_run", 1, 1, 1000));
  to.hold_back = static_cast<int32_t>(fields.integer("hold_back", 0, 0, kMaxHoldBack));
}

void read_stops(const Fields& fields, const Model& model, RequestOptions& to) {
  to.stop_strings = fields.texts("stop");
  if (std::ranges::any_of(to.stop_strings, &std::string::empty))
    throw bad_request("stop has an empty text, which every reply contains", "stop");
  const std::vector<int32_t> more = fields.tokens("stop_token_ids", model.config().vocab_size);
  if (fields.flag("ignore_eos", false)) {
    to.stop_tokens.emplace();
    return;
  }
  if (more.empty()) return;
  to.stop_tokens = model.stop_tokens();
  for (const int32_t token : more)
    if (std::find(to.stop_tokens->begin(), to.stop_tokens->end(), token) == to.stop_tokens->end())
      to.stop_tokens->push_back(token);
}

}  // namespace

bool Fields::has(const char* name) const {
  asked_.insert(name);
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

double Fields::number(const char* name, double otherwise, double least, double most) const {
  if (!has(name)) return otherwise;
  const json& value = at(name);
  if (!value.is_number()) wrong(name, "a number");
  const auto number = value.get<double>();
  if (!(number >= least && number <= most)) wrong(name, fmt::format("from {} to {}", least, most));
  return number;
}

int64_t Fields::integer(const char* name, int64_t otherwise, int64_t least, int64_t most) const {
  if (!has(name)) return otherwise;
  const json& value = at(name);
  const std::string range = fmt::format("a whole number from {} to {}", least, most);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    if (most < INT64_MAX) wrong(name, range);
    return static_cast<int64_t>(value.get<uint64_t>());  // a seed of 64 bits
  }
  int64_t number = 0;
  if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>() &&
             std::abs(value.get<double>()) < 9e15) {
    number = static_cast<int64_t>(value.get<double>());  // 5.0
  } else {
    wrong(name, range);
  }
  if (number < least || number > most) wrong(name, range);
  return number;
}

bool Fields::flag(const char* name, bool otherwise) const {
  if (!has(name)) return otherwise;
  if (!at(name).is_boolean()) wrong(name, "true or false");
  return at(name).get<bool>();
}

std::string Fields::text(const char* name, const std::string& otherwise) const {
  if (!has(name)) return otherwise;
  if (!at(name).is_string()) wrong(name, "a string");
  return at(name).get<std::string>();
}

std::vector<std::string> Fields::texts(const char* name) const {
  if (!has(name)) return {};
  if (at(name).is_string()) return {at(name).get<std::string>()};
  std::vector<std::string> list;
  if (!at(name).is_array()) wrong(name, "a string, or a list of strings");
  for (const json& item : at(name)) {
    if (!item.is_string()) wrong(name, "a string, or a list of strings");
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::vector<int32_t> Fields::tokens(const char* name, int32_t vocabulary) const {
  if (!has(name)) return {};
  std::vector<int32_t> list;
  const std::string what = fmt::format("a list of token ids, 0 to {}", vocabulary - 1);
  if (!at(name).is_array()) wrong(name, what);
  for (const json& item : at(name)) {
    if (!item.is_number_integer() || item.get<double>() < 0 || item.get<double>() >= vocabulary) wrong(name, what);
    list.push_back(item.get<int32_t>());
  }
  return list;
}

void Fields::refuse_others() const {
  const std::vector<std::string> known(asked_.begin(), asked_.end());
  for (const auto& [name, value] : object_.items())
    if (!asked_.contains(name))
      throw bad_request(
          fmt::format("there is no field {:?} here{}", name.substr(0, 60), tools::did_you_mean(name, known)),
          name.substr(0, 60));
}

void refuse_unsupported(const Fields& fields) {
  static constexpr const char* kRefused[] = {"tools",      "functions",          "audio",
                                             "prediction", "web_search_options", "suffix"};
  for (const char* name : kRefused)
    if (fields.has(name) && !(fields.at(name).is_array() && fields.at(name).empty()))
      throw bad_request(fmt::format("the field {} is not supported by this server: leave it out", name), name);
  if (fields.has("tool_choice") && fields.at("tool_choice") != "none")
    throw bad_request("tool_choice is not supported by this server: leave it out", "tool_choice");
  if (fields.has("priority") && fields.at("priority") != 0)
    throw bad_request("priority is a field of a key (README.md, Keys and limits), not of a request: leave it out",
                      "priority");
  if (fields.has("modalities") && fields.at("modalities") != json::array({"text"}))
    throw bad_request("modalities other than text are not supported", "modalities");
}

Wanted read_wanted(const Fields& fields, bool chat, const Defaults& defaults, const Model& model) {
  refuse_unsupported(fields);
  refuse_foreign_samplers(fields);
  Wanted wanted;
  RequestOptions& options = wanted.options;
  read_sampling(fields, defaults, model.config().vocab_size, options.sampling);
  read_stops(fields, model, options);
  constexpr int64_t kMost = 1 << 24;
  const char* const newer = "max_completion_tokens";
  wanted.max_tokens_given = fields.has("max_tokens") || (chat && fields.has(newer));
  options.max_tokens = static_cast<int32_t>(fields.integer("max_tokens", defaults.max_tokens, 1, kMost));
  if (chat) options.max_tokens = static_cast<int32_t>(fields.integer(newer, options.max_tokens, 1, kMost));
  wanted.min_tokens = static_cast<int32_t>(fields.integer("min_tokens", 0, 0, kMost));
  if (wanted.min_tokens > options.max_tokens) wrong("min_tokens", "at most max_tokens");
  options.loop_guard = fields.flag("loop_guard", false);
  options.banned_phrases = fields.texts("banned_strings");
  if (std::ranges::any_of(options.banned_phrases, &std::string::empty) ||
      options.banned_phrases.size() > kMaxStopStrings)
    wrong("banned_strings", fmt::format("at most {} texts, none of them empty", kMaxStopStrings));
  wanted.n = static_cast<int32_t>(fields.integer("n", 1, 1, kMaxSequences));
  wanted.best_of = static_cast<int32_t>(fields.integer("best_of", wanted.n, 1, kMaxSequences));
  wanted.stream = fields.flag("stream", false);
  if (wanted.best_of < wanted.n) wrong("best_of", "at least n");
  if (wanted.best_of > wanted.n && wanted.stream) wrong("best_of", "n where the answer is a stream");
  options.sequence_count = wanted.best_of;
  read_beams(fields, wanted.best_of, options);
  if (options.beams.width > 0) options.sequence_count = wanted.best_of = wanted.n;
  read_safety(fields, wanted);
  if (fields.has("stream_options")) {
    if (!wanted.stream) throw bad_request("stream_options needs stream", "stream_options");
    if (!fields.at("stream_options").is_object()) wrong("stream_options", "an object");
    wanted.usage_in_stream = Fields(fields.at("stream_options")).flag("include_usage", false);
  }
  if (chat) {
    wanted.logprobs = fields.flag("logprobs", false);
    options.logprobs = static_cast<int32_t>(fields.integer("top_logprobs", 0, 0, 20));
    if (options.logprobs > 0 && !wanted.logprobs) throw bad_request("top_logprobs needs logprobs", "top_logprobs");
  } else {
    wanted.logprobs = fields.has("logprobs");
    options.logprobs = static_cast<int32_t>(fields.integer("logprobs", 0, 0, kMaxTopLogprobs));
    wanted.echo = fields.flag("echo", false);
    if (wanted.echo && wanted.logprobs)
      throw bad_request("echo together with logprobs is not supported: kaiju-score computes those of a prompt", "echo");
  }
  return wanted;
}

}  // namespace kaiju::server
