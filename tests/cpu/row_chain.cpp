// Chains of samplers by kernels and thresholds against arith::Chain, which sorts: the same tokens are left, with the
// same logits, and the same one is drawn. tests/sample/chain compares arith::Chain with the contract's text.
#include "src/cpu/row_chain.hpp"

#include <bit>
#include <cstdlib>
#include <random>

#include "catch.hpp"
#include "kaiju/base/float_state.hpp"
#include "src/cpu/instruction_sets.hpp"

namespace kaiju {
namespace {

using Rng = std::mt19937_64;
using Candidates = std::vector<arith::Candidate>;

int32_t below(Rng& rng, size_t n) { return static_cast<int32_t>(rng() % n); }
double unit(Rng& rng) { return std::uniform_real_distribution<double>()(rng); }
template <class T>
T one_of(Rng& rng, std::initializer_list<T> values) {
  return values.begin()[below(rng, values.size())];
}

constexpr double kLog2E = 1.4426950408889634;

// At a temperature of kLog2E the masses are powers of two, and two groups of tokens have the same share and the same
// distance from the entropy: rounding decides.
std::vector<float> balanced_row(Rng& rng) {
  const int32_t k = 1 + below(rng, 2);
  std::vector<float> row(static_cast<size_t>(k == 1 ? 4 : 16), -2.0f * static_cast<float>(k));
  row.push_back(0.0f);
  row.insert(row.end(), static_cast<size_t>(below(rng, 41)), -static_cast<float>(k));
  std::shuffle(row.begin(), row.end(), rng);
  return row;
}

std::vector<float> random_row(Rng& rng, int32_t size) {
  if (size < 60 && below(rng, 10) == 0) return balanced_row(rng);
  const auto gauss = [&](double scale) { return static_cast<float>(std::normal_distribution<double>(0, scale)(rng)); };
  const float level = one_of(rng, {0.0f, 1.0f, -7.0f, gauss(10)});
  const double scale = one_of(rng, {0.001, 0.3, 1.0, 3.0, 8.0}), huge = std::pow(10.0, below(rng, 26));
  const int32_t kind = below(rng, 11), period = 1 + below(rng, 7);
  std::vector<float> row;
  for (int32_t i = 0; i < size; ++i) {
    const float ulps = std::bit_cast<float>(std::bit_cast<uint32_t>(1.5f) + static_cast<uint32_t>(below(rng, 5)));
    const float of_kind[] = {level + gauss(scale),
                             level + gauss(scale),
                             level,
                             ulps,
                             static_cast<float>(below(rng, 6)) * static_cast<float>(scale),
                             -static_cast<float>(below(rng, 33)),
                             gauss(scale * huge),
                             gauss(scale / huge),
                             level + static_cast<float>(i) * 0.001f,
                             level - static_cast<float>(i) * 0.01f,
                             i % period == 0 ? level + gauss(1) : level - 12 + gauss(2)};
    row.push_back(of_kind[kind]);
  }
  if (below(rng, 3) == 0) row[static_cast<size_t>(below(rng, row.size()))] += static_cast<float>(5 + below(rng, 40));
  if (below(rng, 4) == 0) {
    const auto spared = static_cast<size_t>(below(rng, row.size()));
    for (size_t i = 0; i < row.size(); ++i)
      if (i != spared && below(rng, 5) < 2) row[i] = -HUGE_VALF;
  }
  return row;
}

Candidates candidates_of(const std::vector<float>& row) {
  Candidates all;
  for (size_t i = 0; i < row.size(); ++i) all.push_back({row[i], static_cast<int32_t>(i), 0});
  return all;
}

// A share in 0 ... 1, often one that the last unit of a mass decides. `left` has masses.
double random_share(Rng& rng, Candidates left, bool prefix) {
  if (below(rng, 2) == 0)
    return one_of(rng, {0.0, 1.0, 0.5, 1e-3, 1e-6, 1e-12, 1 - 1e-9, 0.9, 0.99, unit(rng), unit(rng)});
  std::sort(left.begin(), left.end());
  uint64_t total = 0, sum = 0;
  for (const auto& c : left) total += c.mass;
  const auto at = static_cast<size_t>(below(rng, std::min<size_t>(left.size(), 1 + (rng() % 2) * left.size())));
  for (size_t i = prefix ? 0 : at; i <= at; ++i) sum += left[i].mass;
  const double share = static_cast<double>(sum) / static_cast<double>(total);
  return std::clamp(share + one_of(rng, {0.0, 0.0, 0x1p-33, -0x1p-33, 0x1p-32, -0x1p-32}), 0.0, 1.0);
}

double random_window(Rng& rng) { return one_of(rng, {0.0, 0.0, 1.0, 5.0, 20.0, 1000.0}); }

// `left` is what the samplers before have left, with masses.
Sampler random_sampler(Rng& rng, SamplerKind kind, const Candidates& left) {
  const auto number = [&](std::initializer_list<double> few) {
    return below(rng, 2) ? one_of(rng, few) : 3 * unit(rng);
  };
  switch (kind) {
    case SamplerKind::kRepetitionPenalty:
      return {kind, {number({1, 1.1, 0.02, 50}), random_window(rng)}};
    case SamplerKind::kFrequencyPenalty:
    case SamplerKind::kPresencePenalty:
      return {kind, {number({0, 0.1, 2, -2, 100}), random_window(rng)}};
    case SamplerKind::kTemperature:
      return {kind, {number({0, 1, 0.01, 0.5, 1e-3, 100})}};
    case SamplerKind::kTopK:
      return {kind,
              {one_of(rng, {0.0, 1.0, 2.0, 40.0, std::floor(unit(rng) * static_cast<double>(left.size()) * 1.1)})}};
    case SamplerKind::kMinP: {
      const double share = left[static_cast<size_t>(below(rng, left.size()))].mass / 0x1p30;
      return {kind, {below(rng, 2) ? one_of(rng, {0.0, 1.0, 0.05, 1e-9, unit(rng)}) : share}};
    }
    case SamplerKind::kTopP:
    case SamplerKind::kTypicalP:
      return {kind, {random_share(rng, left, true)}};
    case SamplerKind::kTopNSigma:
      return {kind, {number({0, 1, 0.5, 1e-9, 100})}};
    case SamplerKind::kEpsilonCutoff:
    case SamplerKind::kEtaCutoff:
      return {kind, {random_share(rng, left, false)}};
    case SamplerKind::kXtc:
      return {kind, {one_of(rng, {1.0, 1.0, 0.5, unit(rng)}), random_share(rng, left, false)}};
    case SamplerKind::kDry:
      return {kind, {number({0, 0.8, 100}), number({1, 1.75, 10}), one_of(rng, {1.0, 2.0, 5.0}), random_window(rng)}};
    case SamplerKind::kNoRepeatNgram:
      return {kind, {one_of(rng, {0.0, 1.0, 2.0, 3.0, 6.0})}};
    case SamplerKind::kDynamicTemperature:
      return {kind, {number({0.1, 0.5, 1}), number({0.5, 1, 4, 100}), number({0.01, 1, 0.5, 2, 100})}};
  }
  return {};
}

struct Case {
  std::vector<float> row;
  std::vector<int32_t> history;
  std::vector<uint8_t> breakers;
  std::vector<Sampler> samplers;
  arith::ChainInput input;
};

// A chain about one sampler, or a random one if `kind` is 0.
Case random_case(Rng& rng, int32_t kind, int32_t size) {
  Case made;
  made.row = random_row(rng, size);
  size = static_cast<int32_t>(made.row.size());
  const auto few = static_cast<size_t>(1 + below(rng, static_cast<size_t>(std::min(size, 40))));
  for (int32_t n = below(rng, 80); n > 0; --n)
    made.history.push_back(below(rng, few) * (size / static_cast<int32_t>(few)));
  made.breakers.assign(made.row.size(), 0);
  if (below(rng, 3) == 0) made.breakers[static_cast<size_t>(below(rng, made.row.size()))] = 1;
  made.input = {{}, made.breakers, made.history, rng(), static_cast<uint32_t>(rng()), rng() >> below(rng, 60)};
  if (below(rng, 5) == 0) made.samplers.push_back({SamplerKind::kTemperature, {kLog2E}});
  const int32_t count = kind != 0 ? 1 + 2 * below(rng, 2) : 2 + below(rng, 5), main = kind != 0 ? count / 2 : -1;
  for (int32_t i = 0; i < count; ++i) {
    Candidates left = candidates_of(made.row);
    made.input.samplers = made.samplers;
    arith::Chain(made.input, left).token();
    const int32_t which = i == main ? kind : 1 + below(rng, kSamplerKinds);
    made.samplers.push_back(random_sampler(rng, static_cast<SamplerKind>(which), left));
  }
  made.input.samplers = made.samplers;
  return made;
}

std::string text_of(const Case& made) {
  std::string text = std::to_string(made.row.size()) + " tokens:";
  for (const Sampler& sampler : made.samplers) {
    text += " " + std::string(sampler_info(sampler.kind)->name);
    for (size_t i = 0; i < sampler_info(sampler.kind)->value_count; ++i) {
      char value[32];
      std::snprintf(value, sizeof value, " %.17g", sampler.values[i]);
      text += value;
    }
  }
  return text;
}

// Whether both have left the same tokens with the same logits.
bool same(const Candidates& expected, const cpu::Candidates& found) {
  size_t at = 0;
  for (int32_t place = 0; place < found.count(); ++place) {
    const float logit = found.logits()[place];
    if (logit == -HUGE_VALF) continue;  // dropped
    if (at == expected.size() || expected[at].token != found.token(place) || expected[at].logit != logit) return false;
    ++at;
  }
  return at == expected.size();
}

void check(const Case& made, cpu::RowChain& chain, const cpu::Kernels& kernels, int64_t& by_kernels) {
  Candidates expected = candidates_of(made.row);
  const int32_t token = arith::Chain(made.input, expected).token();
  const auto count = static_cast<int32_t>(made.row.size());
  const float best = kernels.maximum(made.row.data(), count);
  const uint64_t total = kernels.masses(made.row.data(), count, best, arith::kLog2E, nullptr);
  const cpu::RowChain::Row row{made.row.data(), count, best, made.input.seed % 2 == 0 ? total : 0};
  const int32_t drawn = chain.draw(made.input, row);
  if (chain.left()) ++by_kernels;
  if (drawn == token && (!chain.left() || same(expected, *chain.left()))) return;
  FAIL_CHECK(text_of(made) << ": drew " << drawn << ", not " << token << ", of "
                           << (chain.left() ? chain.left()->count() : 0) << " tokens, not " << expected.size());
}

}  // namespace

// KAIJU_CHAIN_DRAWS: so many of each sampler; a tenth of them of rows of thousands of tokens.
TEST_CASE("a chain by kernels leaves and draws what the plain chain does, each sampler on every instruction set") {
  const FloatState float_state;
  const char* const asked = std::getenv("KAIJU_CHAIN_DRAWS");
  const int64_t draws = asked ? std::atoll(asked) : 400;
  const char* const seeded = std::getenv("KAIJU_TEST_SEED");
  const uint64_t seed = seeded ? std::strtoull(seeded, nullptr, 10) : std::random_device{}();
  for (const cpu::InstructionSet& set : cpu::instruction_sets()) {
    if (!set.runs_here()) continue;
    const cpu::Kernels& kernels = set.kernels();
    cpu::RowChain chain(kernels);
    for (int32_t kind = 0; kind <= kSamplerKinds; ++kind) {
      INFO(kernels.isa << ", sampler " << kind << ", seed " << seed);
      Rng rng(seed + static_cast<uint64_t>(kind));
      int64_t by_kernels = 0;
      for (int64_t i = 0; i < draws; ++i) {
        const int32_t size = i % 1000 == 399 ? 65536 : i % 10 == 0 ? 300 + below(rng, 6000) : 1 + below(rng, 80);
        check(random_case(rng, kind, size), chain, kernels, by_kernels);
      }
      CHECK(by_kernels > draws / 2);  // not left to the plain chain
    }
  }
}

}  // namespace kaiju
