// Portable kernels of chains of samplers over a row of logits or masses.
#include "kaiju/arith/sampling.hpp"
#include "portable.hpp"

namespace kaiju::cpu {
namespace {

int32_t collect(const float* x, int32_t count, float low, float high, int32_t* out) {
  int32_t found = 0;
  for (int32_t i = 0; i < count; ++i) {  // no branch: the next one overwrites what does not belong there
    out[found] = i;
    found += static_cast<int32_t>(x[i] >= low) & static_cast<int32_t>(x[i] <= high);
  }
  return found;
}

void buckets(const float* x, int32_t count, float centre, float scale, uint16_t* bucket) {
  for (int32_t i = 0; i < count; ++i) {
    const float difference = x[i] - centre;
    const float at = at_most(at_least(difference, -difference) * scale, static_cast<float>(kLastBucket));
    bucket[i] = static_cast<uint16_t>(static_cast<int32_t>(nearest(at)));
  }
}

int32_t maxima(const float* x, int32_t count, float* out) {
  constexpr int32_t kGroup = 16;
  int32_t groups = 0;
  for (int32_t first = 0; first < count; first += kGroup) {
    float best = x[first];
    for (int32_t i = first + 1; i < least(first + kGroup, count); ++i) best = x[i] > best ? x[i] : best;
    out[groups++] = best;
  }
  return groups;
}

Moments moments(const float* logits, int32_t count) {
  Moments of;
  for (int32_t i = 0; i < count; ++i) {
    if (logits[i] == -std::numeric_limits<float>::infinity()) continue;
    const auto l = static_cast<double>(logits[i]);
    ++of.count;
    of.sum += l;
    of.squares += l * l;
  }
  return of;
}

double surprise(const uint32_t* mass, int32_t count, double log_of_total, float* log) {
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) {
    log[i] = kLogOfNothing;
    if (mass[i] == 0) continue;
    const double ln = arith::natural_log(mass[i]);
    sum += static_cast<double>(mass[i]) * (log_of_total - ln);
    log[i] = static_cast<float>(ln);
  }
  return sum;
}

}  // namespace

void add_candidates_portable(Kernels& kernels) {
  kernels.collect = collect;
  kernels.maxima = maxima;
  kernels.buckets = buckets;
  kernels.moments = moments;
  kernels.surprise = surprise;
}

}  // namespace kaiju::cpu
