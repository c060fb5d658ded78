// AnyBackend: the operations of a Backend behind virtual calls, so that one test body holds every backend, whatever its
// type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kaiju/backend/backend.hpp"

namespace kaiju::test {

class AnyBackend {
 public:
  virtual ~AnyBackend() = default;
  virtual std::string name() const = 0;

  virtual void embed(const Matrix& table, const float* scale, std::span<const int32_t> tokens, arith::bf16* x) = 0;
  virtual void norm(const NormArgs& norm) = 0;
  virtual void linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) = 0;
  virtual void wide_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) = 0;
  virtual void up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h) = 0;
  virtual void add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x) = 0;
  virtual void add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x) = 0;
  virtual void queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads, int32_t kv_heads,
                       int32_t head_dim, const float* inverse, int8_t* out) = 0;
  virtual void append(const float* k, const float* v, const Batch& batch, const arith::CosSin* angles,
                      const float* k_inverse, const float* v_inverse, const KvSlot& kv) = 0;
  virtual void attend(const AttentionArgs& args, const Batch& batch, const KvSlot& kv) = 0;
  virtual void sample(const SampleArgs& args, SampledToken& result) = 0;

  // Version 2 of the arithmetic, for backends that have it.
  virtual bool is_scaled() const = 0;
  virtual void embed_rows(const EmbedRows& args) = 0;
  virtual void norm_rows(const NormRows& args) = 0;
  virtual void quantise_rows(const QuantiseRows& args) = 0;
  virtual void gate_rows(const GateRows& args) = 0;
  virtual void add_rows(const AddRows& args) = 0;
  virtual void add_norm_rows(const AddRows& args, const NormRows& norm) = 0;  // of the same residual stream
  virtual void logit_rows(const LogitRows& args) = 0;
  virtual void query_rows(const QueryRows& args) = 0;
  virtual void append_rows(const KeyValueRows& args, const Batch& batch, const KvSlot& kv) = 0;
  virtual void attend(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv) = 0;
};

template <Backend B>
class Held final : public AnyBackend {
 public:
  Held(std::unique_ptr<B> backend, std::string name) : backend_(std::move(backend)), name_(std::move(name)) {}
  std::string name() const override { return name_; }

  void embed(const Matrix& table, const float* scale, std::span<const int32_t> tokens, arith::bf16* x) override {
    backend_->embed(table, scale, tokens, x);
  }
  void norm(const NormArgs& norm) override { backend_->norm(norm); }
  void linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) override {
    backend_->linear(w, a, rows, scale, out);
  }
  void wide_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) override {
    if constexpr (MultipliesWideRows<B>) {
      backend_->wide_linear(w, a, rows, scale, out);
    } else {  // as the forward pass does it
      const auto width = static_cast<size_t>(w.out), count = static_cast<size_t>(rows) * width;
      std::vector<float> sums(2 * count);
      linear(w, a, 2 * rows, scale, sums.data());
      for (size_t i = 0; i < count; ++i) {
        const float* high = sums.data() + i / width * 2 * width + i % width;
        out[i] = arith::fma(256.0f, high[0], high[width]);
      }
    }
  }
  void up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h) override {
    backend_->up(w, a, rows, alpha, h);
  }
  void add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x) override {
    backend_->add_linear(w, a, rows, scale, x);
  }
  void add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x) override {
    backend_->add_down(w, h, rows, scale, x);
  }
  void queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads, int32_t kv_heads,
               int32_t head_dim, const float* inverse, int8_t* out) override {
    backend_->queries(q, batch, angles, heads, kv_heads, head_dim, inverse, out);
  }
  void append(const float* k, const float* v, const Batch& batch, const arith::CosSin* angles, const float* k_inverse,
              const float* v_inverse, const KvSlot& kv) override {
    backend_->append(k, v, batch, angles, k_inverse, v_inverse, kv);
  }
  void attend(const AttentionArgs& args, const Batch& batch, const KvSlot& kv) override {
    backend_->attend(args, batch, kv);
  }
  void sample(const SampleArgs& args, SampledToken& result) override { backend_->sample(args, result); }

  bool is_scaled() const override { return ScaledBackend<B>; }
  void embed_rows(const EmbedRows& args) override {
    if constexpr (ScaledBackend<B>) backend_->embed_rows(args);
  }
  void norm_rows(const NormRows& args) override {
    if constexpr (ScaledBackend<B>) backend_->norm_rows(args);
  }
  void quantise_rows(const QuantiseRows& args) override {
    if constexpr (ScaledBackend<B>) backend_->quantise_rows(args);
  }
  void gate_rows(const GateRows& args) override {
    if constexpr (ScaledBackend<B>) backend_->gate_rows(args);
  }
  void add_rows(const AddRows& args) override {
    if constexpr (ScaledBackend<B>) backend_->add_rows(args);
  }
  void add_norm_rows(const AddRows& args, const NormRows& norm) override {
    if constexpr (requires { backend_->add_norm_rows(args, norm); }) return backend_->add_norm_rows(args, norm);
    add_rows(args);
    norm_rows(norm);
  }
  void logit_rows(const LogitRows& args) override {
    if constexpr (ScaledBackend<B>) backend_->logit_rows(args);
  }
  void query_rows(const QueryRows& args) override {
    if constexpr (ScaledBackend<B>) backend_->query_rows(args);
  }
  void append_rows(const KeyValueRows& args, const Batch& batch, const KvSlot& kv) override {
    if constexpr (ScaledBackend<B>) backend_->append_rows(args, batch, kv);
  }
  void attend(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv) override {
    if constexpr (ScaledBackend<B>) backend_->attend(args, batch, kv);
  }

 private:
  std::unique_ptr<B> backend_;
  std::string name_;
};

static_assert(Backend<AnyBackend> && ScaledBackend<AnyBackend>);

}  // namespace kaiju::test
