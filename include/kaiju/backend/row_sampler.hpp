// RowSampler: samples tokens from rows of logits in host memory, with the kernels of one instruction set. It gives the
// same bits as the reference's sample_row. The CPU backend samples with one; a GPU backend does where a chain of
// samplers or a hook has to see the logits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kaiju/backend/backend.hpp"

namespace kaiju {

namespace cpu {
struct Kernels;
class RowChain;
}  // namespace cpu

class RowSampler {
 public:
  // With the kernels of the fastest instruction set that this machine can run.
  RowSampler();
  explicit RowSampler(const cpu::Kernels& kernels);
  ~RowSampler();

  // Takes the memory that sampling from so many tokens needs; throws std::bad_alloc.
  void reserve(int32_t vocab_size);
  // One thread at a time may call sample, and it must have the floating-point state of base/float_state.hpp.
  void sample(const SampleArgs& args, SampledToken& result);

 private:
  const float* adjusted(const SampleArgs& args, const float* logits);

  const cpu::Kernels* kernels_;
  std::unique_ptr<cpu::RowChain> chain_;
  std::vector<float> adjusted_;  // logits after penalty, bias and mask
};

}  // namespace kaiju
