// RowSampler: the same result as the reference's sample_row, without scalar exponentials and without sorting
// the whole vocabulary. Kernels compute the masses. Only logits above a floor are sorted, and the floor is lowered
// until all needed candidates are certainly among them. The order is by logit, so these candidates are a prefix of the
// contract's order.
#include "kaiju/backend/row_sampler.hpp"

#include <algorithm>
#include <cmath>

#include "instruction_sets.hpp"
#include "kaiju/backend/chain_draw.hpp"
#include "kaiju/base/random.hpp"
#include "kernels.hpp"

namespace kaiju {
namespace {

constexpr double kLn2To30 = 20.79441541679836;         // as in arith::log_total
constexpr float kFloors[] = {5.0f, 10.0f, HUGE_VALF};  // below the best logit, in units of the temperature

using Candidates = std::vector<arith::Candidate>;

// Every token whose logit is at least `floor`, by ascending id.
void gather(const float* logits, const uint32_t* masses, int32_t count, float floor, Candidates& out) {
  out.clear();
  for (int32_t token = 0; token < count; ++token)
    if (logits[token] >= floor) out.push_back({logits[token], token, masses ? masses[token] : 0});
}

uint64_t sum_of(const Candidates& candidates) {
  uint64_t sum = 0;
  for (const arith::Candidate& c : candidates) sum += c.mass;
  return sum;
}

bool reaches(uint64_t sum, float top_p, uint64_t total) {
  const auto share = static_cast<uint64_t>(__builtin_rint(static_cast<double>(top_p) * 4294967296.0));
  return (static_cast<unsigned __int128>(sum) << 32) >= static_cast<unsigned __int128>(share) * total;
}

// Leaves in `out` what the contract keeps of the candidates (arithmetic.md, section 6, step 4).
void keep(const SamplingSpec& spec, const float* logits, const uint32_t* masses, int32_t count, float best,
          uint64_t total, Candidates& out) {
  const bool cut_by_rank = spec.top_k > 0 && spec.top_k < count;
  if (!cut_by_rank && spec.min_p > 0.0f) {  // min_p knows its own floor
    const auto least = static_cast<uint32_t>(__builtin_rint(static_cast<double>(spec.min_p) * 1073741824.0));
    out.clear();
    for (int32_t token = 0; token < count; ++token)
      if (masses[token] >= least) out.push_back({logits[token], token, masses[token]});
    return arith::truncate(out, spec.top_k, spec.top_p, spec.min_p);
  }
  for (const float below : kFloors) {
    gather(logits, masses, count, best - below * spec.temperature, out);
    const bool all = out.size() == static_cast<size_t>(count);
    if (cut_by_rank) {
      if (!all && out.size() < static_cast<size_t>(spec.top_k)) continue;
      return arith::truncate(out, spec.top_k, spec.top_p, spec.min_p);
    }
    if (!all && !reaches(sum_of(out), spec.top_p, total)) continue;
    std::sort(out.begin(), out.end());
    size_t kept = 0;
    for (uint64_t sum = 0; kept < out.size();) {
      sum += out[kept++].mass;
      if (reaches(sum, spec.top_p, total)) break;
    }
    out.resize(kept);
    return;
  }
}

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

// The token of a plain draw: first by id whose running mass exceeds the target.
int32_t draw_from_all(const std::vector<uint32_t>& masses, int32_t count, uint64_t total, uint64_t random) {
  const auto target = static_cast<uint64_t>((static_cast<unsigned __int128>(random) * total) >> 64);
  uint64_t sum = 0;
  int32_t token = 0;
  for (; token < count - 1; ++token) {
    sum += masses[static_cast<size_t>(token)];
    if (sum > target) break;
  }
  return token;
}

}  // namespace

RowSampler::RowSampler() {
  for (const cpu::InstructionSet& set : cpu::instruction_sets())
    if (set.runs_here()) {
      kernels_ = &set.kernels();
      return;
    }
}

void RowSampler::reserve(int32_t vocab_size) {
  const auto count = static_cast<size_t>(vocab_size);
  masses_.reserve(count);
  adjusted_.reserve(count);
  candidates_.reserve(count);
}

void RowSampler::sample(const SampleArgs& args, SampledToken& result) {
  const SamplingSpec& spec = *args.spec;
  const int32_t count = args.vocab_size;
  const float plain_maximum = kernels_->maximum(args.logits, count);
  const double log_total =
      arith::natural_log(kernels_->masses(args.logits, count, plain_maximum, arith::kLog2E, nullptr)) - kLn2To30;

  const float* logits = args.changed ? args.changed : args.logits;
  float best = args.changed ? kernels_->maximum(logits, count) : plain_maximum;
  const TokenGuide* const guide = args.guide;
  const bool penalised = spec.repetition_penalty != 1.0f && args.seen, masked = guide && !guide->allowed.empty();
  if (penalised || !spec.logit_bias.empty() || masked || (guide && !guide->logit_bias.empty())) {
    adjusted_.assign(logits, logits + count);
    for (int32_t token = 0; penalised && token < count; ++token)
      if (args.seen[token])
        adjusted_[static_cast<size_t>(token)] = arith::penalise(logits[token], spec.repetition_penalty);
    const auto add = [&](const std::vector<std::pair<int32_t, float>>& biases) {
      for (const auto& [token, bias] : biases)
        adjusted_[static_cast<size_t>(token)] = arith::add(adjusted_[static_cast<size_t>(token)], bias);
    };
    add(spec.logit_bias);
    if (guide) add(guide->logit_bias);
    if (masked) exclude(guide->allowed, count, adjusted_.data());
    logits = adjusted_.data();
    best = kernels_->maximum(logits, count);
  }

  if (spec.chain) {
    candidates_.clear();
    for (int32_t token = 0; token < count; ++token) candidates_.push_back({logits[token], token, 0});
    result.token = draw_by_chain(args, candidates_);
  } else if (spec.temperature == 0.0f) {
    result.token = static_cast<int32_t>(std::find(logits, logits + count, best) - logits);
  } else {
    const uint64_t random = random_bits(spec.seed, spec.stream, static_cast<uint64_t>(args.position));
    masses_.resize(static_cast<size_t>(count));
    const uint64_t total =
        kernels_->masses(logits, count, best, arith::temperature_factor(spec.temperature), masses_.data());
    const bool whole = (spec.top_k <= 0 || spec.top_k >= count) && spec.min_p <= 0.0f && spec.top_p >= 1.0f;
    if (whole) {
      result.token = draw_from_all(masses_, count, total, random);
    } else {
      keep(spec, logits, masses_.data(), count, best, total, candidates_);
      result.token = arith::draw(candidates_, random);
    }
  }
  result.logprob = arith::logprob(args.logits[result.token], plain_maximum, log_total);

  result.top.clear();
  if (args.top_logprobs <= 0) return;
  const auto wanted = static_cast<size_t>(std::min(args.top_logprobs, count));
  for (const float below : kFloors) {
    gather(args.logits, nullptr, count, plain_maximum - below, candidates_);
    if (candidates_.size() >= wanted) break;
  }
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(wanted), candidates_.end());
  for (size_t i = 0; i < wanted; ++i)
    result.top.push_back({candidates_[i].token, arith::logprob(candidates_[i].logit, plain_maximum, log_total)});
}

}  // namespace kaiju
