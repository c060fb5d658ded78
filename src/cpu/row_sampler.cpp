// RowSampler: the same result as the reference's sample_row, without scalar exponentials and without sorting the whole
// vocabulary. Draws without a chain of samplers are those of the chain that has the same order (arithmetic.md, sections
// 6 and 12).
#include "kaiju/backend/row_sampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "instruction_sets.hpp"
#include "kernels.hpp"
#include "row_chain.hpp"

namespace kaiju {
namespace {

constexpr double kLn2To30 = 20.79441541679836;  // as in arith::log_total

// What is added to the logits of eight tokens, by their bits of a mask: 0 or -infinity.
struct Addends {
  float of[256][8];
};
constexpr Addends addends() {
  Addends made{};
  for (uint32_t bits = 0; bits < 256; ++bits)
    for (uint32_t i = 0; i < 8; ++i) made.of[bits][i] = (bits >> i & 1) != 0 ? 0.0f : -HUGE_VALF;
  return made;
}
constexpr Addends kAddends = addends();

// Sets the logits of excluded tokens to -infinity.
void exclude(const std::vector<uint32_t>& allowed, int32_t count, float* logits) {
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i] == ~0u) continue;
    float* const some = logits + 32 * i;
    const int32_t here = std::min(32, count - static_cast<int32_t>(32 * i));
    if (allowed[i] == 0) {
      std::fill_n(some, here, -HUGE_VALF);
      continue;
    }
    if (here < 32) {
      for (int32_t bit = 0; bit < here; ++bit)
        if ((allowed[i] >> bit & 1) == 0) some[bit] = -HUGE_VALF;
      continue;
    }
    for (int32_t byte = 0; byte < 4; ++byte) {
      const float* const addend = kAddends.of[allowed[i] >> (8 * byte) & 255];
      for (int32_t bit = 0; bit < 8; ++bit) some[8 * byte + bit] += addend[bit];
    }
  }
}

const cpu::Kernels& fastest_kernels() {
  const auto sets = cpu::instruction_sets();
  return std::find_if(sets.begin(), sets.end(), [](const auto& set) { return set.runs_here(); })->kernels();
}

}  // namespace

RowSampler::RowSampler() : RowSampler(fastest_kernels()) {}
RowSampler::RowSampler(const cpu::Kernels& kernels)
    : kernels_(&kernels), chain_(std::make_unique<cpu::RowChain>(kernels)) {}
RowSampler::~RowSampler() = default;

void RowSampler::reserve(int32_t vocab_size) {
  adjusted_.reserve(static_cast<size_t>(vocab_size));
  chain_->reserve(vocab_size);
}

// The logits after penalty, biases and mask (arithmetic.md, section 11); the same row where there are none.
const float* RowSampler::adjusted(const SampleArgs& args, const float* logits) {
  const SamplingSpec& spec = *args.spec;
  const TokenGuide* const guide = args.guide;
  const bool penalised = spec.repetition_penalty != 1.0f && args.seen, masked = guide && !guide->allowed.empty();
  if (!penalised && spec.logit_bias.empty() && !masked && (!guide || guide->logit_bias.empty())) return logits;
  adjusted_.assign(logits, logits + args.vocab_size);
  for (int32_t token = 0; penalised && token < args.vocab_size; ++token)
    if (args.seen[token])
      adjusted_[static_cast<size_t>(token)] = arith::penalise(logits[token], spec.repetition_penalty);
  const auto add = [&](const std::vector<std::pair<int32_t, float>>& biases) {
    for (const auto& [token, bias] : biases)
      adjusted_[static_cast<size_t>(token)] = arith::add(adjusted_[static_cast<size_t>(token)], bias);
  };
  add(spec.logit_bias);
  if (guide) add(guide->logit_bias);
  if (masked) exclude(guide->allowed, args.vocab_size, adjusted_.data());
  return adjusted_.data();
}

void RowSampler::sample(const SampleArgs& args, SampledToken& result) {
  const SamplingSpec& spec = *args.spec;
  const int32_t count = args.vocab_size;
  auto [best, total] = args.known;
  if (total == 0) {
    best = kernels_->maximum(args.logits, count);
    total = kernels_->masses(args.logits, count, best, arith::kLog2E, nullptr);
  }
  const cpu::RowChain::Row plain{args.logits, count, best, total};

  cpu::RowChain::Row row = plain;
  row.logits = adjusted(args, args.changed ? args.changed : args.logits);
  if (row.logits != plain.logits) row.best = kernels_->maximum(row.logits, count), row.total = 0;
  arith::ChainInput input{{}, {}, args.history, spec.seed, spec.stream, static_cast<uint64_t>(args.position), args.mu};
  const std::array<Sampler, 4> fixed = {{{SamplerKind::kTemperature, {spec.temperature}},
                                         {SamplerKind::kTopK, {static_cast<double>(spec.top_k)}},
                                         {SamplerKind::kMinP, {spec.min_p}},
                                         {SamplerKind::kTopP, {spec.top_p}}}};
  if (spec.chain)
    input.samplers = spec.chain->samplers, input.breakers = spec.chain->breakers;
  else
    input.samplers = std::span(fixed).first(spec.temperature == 0.0f ? 1 : fixed.size());
  result.token = chain_->draw(input, row);
  result.mu = chain_->mu();

  const double log_total = arith::natural_log(total) - kLn2To30;
  result.logprob = arith::logprob(args.logits[result.token], best, log_total);
  result.top.clear();
  if (args.top_logprobs <= 0) return;
  for (const arith::Candidate& c : chain_->first(args.top_logprobs, plain))
    result.top.push_back({c.token, arith::logprob(c.logit, best, log_total)});
}

}  // namespace kaiju
