// StagedBackend: the CUDA backend as a Backend whose pointers are host memory. Each operation copies its inputs to the
// GPU, runs there, and copies its outputs back. It serves the self-check and the conformance tests, which run the same
// cases on every backend. It is slow.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend.hpp"

namespace kaiju::cuda {

class StagedBackend {
 public:
  explicit StagedBackend(std::shared_ptr<Device> device);
  ~StagedBackend();

  const char* isa() const { return "cuda"; }
  // The first failure of an operation; later ones do nothing.
  Status status() const;

  void embed(const Matrix& table, const float* scale, std::span<const int32_t> tokens, arith::bf16* x);
  void norm(const NormArgs& norm);
  void linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out);
  void up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h);
  void add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x);
  void add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x);
  void queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads, int32_t kv_heads,
               int32_t head_dim, const float* inverse, int8_t* out);
  void append(const float* k, const float* v, const Batch& batch, const arith::CosSin* angles, const float* k_inverse,
              const float* v_inverse, const KvSlot& kv);
  void attend(const AttentionArgs& args, const Batch& batch, const KvSlot& kv);
  void sample(const SampleArgs& args, SampledToken& result);

  // Version 2 of the arithmetic. Scratch memory of the arguments is not written.
  void embed_rows(const EmbedRows& args);
  void norm_rows(const NormRows& args);
  void quantise_rows(const QuantiseRows& args);
  void gate_rows(const GateRows& args);
  void add_rows(const AddRows& args);
  void add_norm_rows(const AddRows& args, const NormRows& norm);  // norm.x is args.x
  void logit_rows(const LogitRows& args);
  void query_rows(const QueryRows& args);
  void append_rows(const KeyValueRows& args, const Batch& batch, const KvSlot& kv);
  void attend(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv);

 private:
  class Call;
  CudaBackend backend_;
  Status shortage_;  // of memory, before any other failure
};

static_assert(Backend<StagedBackend> && ScaledBackend<StagedBackend>);

}  // namespace kaiju::cuda
