// Sampler: one step of a chain of samplers. A chain takes the place of the fixed order of arithmetic.md, section 6: its
// samplers work one after another, in the order that the host sets (section 12).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kaiju {

// The enumerators have the same values as KAIJU_SAMPLER_* in the C header.
enum class SamplerKind : int32_t {
  kRepetitionPenalty = 1,    // penalty, window (Keskar et al. 2019)
  kTemperature = 2,          // temperature
  kTopK = 3,                 // k
  kMinP = 4,                 // p (Nguyen et al. 2024)
  kTopP = 5,                 // p (Holtzman et al. 2019)
  kFrequencyPenalty = 6,     // penalty, window
  kPresencePenalty = 7,      // penalty, window
  kTypicalP = 8,             // p (Meister et al. 2022)
  kTopNSigma = 9,            // n (Tang et al. 2024)
  kEpsilonCutoff = 10,       // epsilon (Hewitt et al. 2022)
  kEtaCutoff = 11,           // eta (Hewitt et al. 2022)
  kXtc = 12,                 // probability, threshold (exclude top choices: p-e-w 2024)
  kDry = 13,                 // multiplier, base, allowed_length, window (don't repeat yourself: p-e-w 2024)
  kNoRepeatNgram = 14,       // n (Paulus et al. 2017)
  kDynamicTemperature = 15,  // low, high, exponent (kalomaze 2023)
  kMirostat = 16,            // tau, eta (Basu et al. 2021, version 2); the last sampler of a chain
};
inline constexpr int32_t kSamplerKinds = 16;
inline constexpr size_t kMaxSamplers = 32;  // of one chain
inline constexpr size_t kMaxSamplerValues = 4;

struct Sampler {
  SamplerKind kind = SamplerKind::kTemperature;
  std::array<double, kMaxSamplerValues> values = {};

  bool operator==(const Sampler&) const = default;
};

// What a value of a sampler may be. A whole value has no fraction. Names and helps end with a zero byte.
struct SamplerValue {
  const char* name = "";
  const char* help = "";
  double low = 0, high = 0, default_value = 0;
  bool whole = false;
};

struct SamplerInfo {
  SamplerKind kind;
  const char* name;
  std::array<SamplerValue, kMaxSamplerValues> values;
  size_t value_count;
};

inline constexpr const char* kWindowHelp = "number of newest tokens that count; 0: all";

inline constexpr std::array<SamplerInfo, kSamplerKinds> kSamplers = {{
    {SamplerKind::kRepetitionPenalty,
     "repetition_penalty",
     {{{"repetition_penalty.penalty", "divides logits of tokens that occurred; 1: off", 0.01, 100, 1},
       {"repetition_penalty.window", kWindowHelp, 0, 1e9, 0, true}}},
     2},
    {SamplerKind::kTemperature,
     "temperature",
     {{{"temperature.temperature", "0: the likeliest token, else 0.001 to 100", 0, 100, 1}}},
     1},
    {SamplerKind::kTopK, "top_k", {{{"top_k.k", "keeps the k likeliest tokens; 0: off", 0, 2147483647, 0, true}}}, 1},
    {SamplerKind::kMinP,
     "min_p",
     {{{"min_p.p", "drops tokens below this share of the likeliest one's probability; 0: off", 0, 1, 0}}},
     1},
    {SamplerKind::kTopP,
     "top_p",
     {{{"top_p.p", "keeps the likeliest tokens of this total probability; 1: off", 1e-6, 1, 1}}},
     1},
    {SamplerKind::kFrequencyPenalty,
     "frequency_penalty",
     {{{"frequency_penalty.penalty", "subtracted for each time that a token occurred; 0: off", -100, 100, 0},
       {"frequency_penalty.window", kWindowHelp, 0, 1e9, 0, true}}},
     2},
    {SamplerKind::kPresencePenalty,
     "presence_penalty",
     {{{"presence_penalty.penalty", "subtracted once for a token that occurred; 0: off", -100, 100, 0},
       {"presence_penalty.window", kWindowHelp, 0, 1e9, 0, true}}},
     2},
    {SamplerKind::kTypicalP,
     "typical_p",
     {{{"typical_p.p", "keeps the tokens of usual surprise of this total probability; 1: off", 1e-6, 1, 1}}},
     1},
    {SamplerKind::kTopNSigma,
     "top_n_sigma",
     {{{"top_n_sigma.n", "keeps logits within n standard deviations of the largest; 0: off", 0, 100, 0}}},
     1},
    {SamplerKind::kEpsilonCutoff,
     "epsilon_cutoff",
     {{{"epsilon_cutoff.epsilon", "drops tokens below this probability; 0: off", 0, 1, 0}}},
     1},
    {SamplerKind::kEtaCutoff,
     "eta_cutoff",
     {{{"eta_cutoff.eta", "drops tokens below a probability that falls with the entropy; 0: off", 0, 1, 0}}},
     1},
    {SamplerKind::kXtc,
     "xtc",
     {{{"xtc.probability", "how often the likeliest choices are excluded; 0: off", 0, 1, 0},
       {"xtc.threshold", "the probability from which a token is such a choice", 0, 1, 0.1}}},
     2},
    {SamplerKind::kDry,
     "dry",
     {{{"dry.multiplier", "penalty of a token that goes on with a repetition; 0: off", 0, 100, 0},
       {"dry.base", "factor of the penalty for each further token of the repetition", 1, 10, 1.75},
       {"dry.allowed_length", "length of a repetition from which the penalty begins", 1, 1e6, 2, true},
       {"dry.window", kWindowHelp, 0, 1e9, 0, true}}},
     4},
    {SamplerKind::kNoRepeatNgram,
     "no_repeat_ngram",
     {{{"no_repeat_ngram.n", "no n tokens in a row occur twice; 0: off", 0, 1e6, 0, true}}},
     1},
    {SamplerKind::kDynamicTemperature,
     "dynamic_temperature",
     {{{"dynamic_temperature.low", "temperature where the model is certain", 0.001, 100, 1},
       {"dynamic_temperature.high", "temperature where it is not", 0.001, 100, 1},
       {"dynamic_temperature.exponent", "of the entropy's share in between", 0.01, 100, 1}}},
     3},
    {SamplerKind::kMirostat,
     "mirostat",
     {{{"mirostat.tau", "surprise of a token, in bits, that the reply is steered to", 0, 100, 5},
       {"mirostat.eta", "how fast it is steered: share of the error that each token corrects", 0, 1, 0.1}}},
     2},
}};

// Returns null if there is no such kind.
constexpr const SamplerInfo* sampler_info(SamplerKind kind) {
  const auto index = static_cast<int32_t>(kind) - 1;
  return index >= 0 && index < kSamplerKinds ? &kSamplers[static_cast<size_t>(index)] : nullptr;
}

}  // namespace kaiju
