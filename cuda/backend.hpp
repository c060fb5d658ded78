// CudaBackend: the operations of a Backend on a GPU. All pointers, also those within a Batch, are to device memory.
// Every operation is asynchronous on the device's stream. The Device keeps the first error, and later operations are
// skipped. The results have the same bits as ReferenceBackend's (tests/conformance, through StagedBackend).
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "device.hpp"
#include "exchange.hpp"
#include "kaiju/arith/sampling.hpp"
#include "kaiju/backend/backend.hpp"
#include "kaiju/model/forward.hpp"
#include "kaiju/run/slots.hpp"
#include "kernels.hpp"
#include "kernels/gated_matmul.hpp"
#include "launch/cublaslt.hpp"
#include "launch/gate_tiles.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

// How `spec` samples the token at `position`, under a guide or none; biases and masks come apart.
SampleRow sample_row_of(const SamplingSpec& spec, const TokenGuide* guide, int32_t slot, int64_t position,
                        int32_t top_logprobs);
// Appends the pieces of a row's mask that exclude tokens.
void append_mask(const TokenGuide& guide, int32_t row, std::vector<MaskPiece>& pieces);
// What was sampled, with log-probabilities; the logarithm is taken here, on the host. `top` [sampled.top_count] is put
// in order. Leaves result.slot alone.
void read_sampled(const Sampled& sampled, Alternative* top, SampledToken& result);

class CudaBackend {
 public:
  explicit CudaBackend(std::shared_ptr<Device> device);

  // What attention uses to split long histories over the GPU; without it every sequence's row is one multiprocessor's
  // work. `chunks`: of all histories that a batch may have, of every item (a KV head, or a part of its query heads).
  // And what products by cuBLASLt use, where it serves; kUnsupported where it is asked for and missing.
  Status take_memory(int32_t head_dim, int64_t chunks = 0, Products products = Products::kAuto);

  // cuBLASLt, where products may be its; else null.
  CublasLt* cublaslt() const { return cublaslt_.get(); }
  // Chooses what serves each of the model's products then (CublasLt::choose): up to `rows` of the workspace, and
  // `logit_rows` of logits.
  Status choose_matmuls(const Weights& weights, const Workspace& workspace, int32_t rows, float* logits,
                        int32_t logit_rows, const std::string& file);

  // From now on the matmuls that add to the residual stream are those of a part of the summed index: their sums are
  // added up with those of other GPUs. The exchange lives as long.
  void share_sums(Exchange* exchange) { exchange_ = exchange; }

  // From now on all activations that products read have memory for so many rows.
  void have_room(int32_t rows) { room_ = rows; }

  Device& device() const { return *device_; }

  // Another batch than the one before: what attention planned for that is void. embed() begins one, as forward() does.
  void begin_batch() { std::fill(std::begin(scratch_.planned), std::end(scratch_.planned), 0); }

  void embed(const Matrix& table, const float* scale, std::span<const int32_t> tokens, arith::bf16* x) {
    begin_batch();
    launch("embed", [&](cudaStream_t s) {
      return cuda::embed(s, device_->chip(), table, scale, tokens.data(), static_cast<int32_t>(tokens.size()), x);
    });
  }
  void norm(const NormArgs& norm) {
    if (has_begun_sums()) return exchange_->finish_norm(norm);
    launch("norm", [&](cudaStream_t s) {
      return cuda::norm(s, device_->chip(), norm.x, norm.rows, norm.width, norm.eps, norm.inverse_scale, norm.a);
    });
  }
  void linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) {
    if (!w.is_part) return multiply(MatmulKind::kLinear, w, a, rows, scale, out);
    add_shared(MatmulKind::kSums, w, a, rows, scale);
    exchange_->finish_floats();  // at `out`, the room for them
  }
  void up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h) {
    multiply(MatmulKind::kUp, w, a, rows, alpha, h);
  }
  void add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x) {
    if (!exchange_) return multiply(MatmulKind::kAddLinear, w, a, rows, scale, x);
    add_shared(MatmulKind::kSums, w, a, rows, scale);
  }
  void add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x) {
    if (!exchange_) return multiply(MatmulKind::kAddDown, w, h, rows, scale, x);
    add_shared(MatmulKind::kSumsDown, w, h, rows, scale);
  }
  void norm_linear(const NormArgs& norm, const Matrix& w, const float* scale, float* out) {
    multiply_normed(MatmulKind::kLinear, norm, w, scale, out);
  }
  void norm_up(const NormArgs& norm, const Matrix& w, const float* alpha, uint8_t* h) {
    multiply_normed(MatmulKind::kUp, norm, w, alpha, h);
  }
  void queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads, int32_t kv_heads,
               int32_t head_dim, const float* inverse, int8_t* out) {
    launch("queries", [&](cudaStream_t s) {
      return cuda::queries(s, device_->chip(), q, batch.row_count, angles, heads, kv_heads, head_dim, inverse, out);
    });
  }
  void append(const float* k, const float* v, const Batch& batch, const arith::CosSin* angles, const float* k_inverse,
              const float* v_inverse, const KvSlot& kv) {
    launch("append", [&](cudaStream_t s) {
      return cuda::append(s, device_->chip(), k, v, batch, angles, k_inverse, v_inverse, kv);
    });
  }
  void attend(const AttentionArgs& args, const Batch& batch, const KvSlot& kv) {
    launch("attend", [&](cudaStream_t s) { return cuda::attend(s, device_->chip(), args, batch, kv, scratch_); });
    if (attends_sm90(args, kv, scratch_))
      scratch_.planned[static_cast<int32_t>(kv.kind)] = 1 + kv.window;  // the kernel for every chip plans nothing
  }
  // Version 2 of the arithmetic.
  void embed_rows(const EmbedRows& args) {
    begin_batch();
    launch("embedding", [&](cudaStream_t s) { return cuda::embed_rows(s, device_->chip(), args); });
  }
  void norm_rows(const NormRows& args) {
    launch("a norm", [&](cudaStream_t s) { return cuda::norm_rows(s, device_->chip(), args); });
  }
  void quantise_rows(const QuantiseRows& args) {
    launch("quantising rows",
           [&](cudaStream_t s) { return cuda::quantise_rows(s, device_->chip(), args, shared_most(args.to)); });
  }
  void gate_rows(const GateRows& args) {
    launch("gates", [&](cudaStream_t s) { return cuda::gate_rows(s, device_->chip(), args, shared_most(args.to)); });
  }
  // In one kernel for Hopper, and one that makes bytes, where there are tiles for that: not of a part of the columns,
  // whose largest magnitudes other GPUs have.
  void linear_gate_rows(const Linear& w, const int8_t* a, const GateRows& args) {
    const std::optional<Tile> tile = gate_tile(w, args);
    if (!tile) {
      linear(w, a, args.rows, w.scale, args.gates.sums);
      return gate_rows(args);
    }
    MatmulArgs matmul{w.weight, w.out, w.in, a, args.rows, w.scale, nullptr, room_};
    launch("a gated matmul",
           [&](cudaStream_t s) { return cuda::gated_matmul(s, device_->chip(), *tile, matmul, args); });
    launch("quantising gated values",
           [&](cudaStream_t s) { return cuda::quantise_gated(s, device_->chip(), *tile, args); });
  }
  void add_rows(const AddRows& args) {
    launch("adding rows", [&](cudaStream_t s) { return cuda::add_rows(s, device_->chip(), args); });
  }
  void add_norm_rows(const AddRows& add, const NormRows& norm) {
    launch("adding rows and a norm",
           [&](cudaStream_t s) { return cuda::add_norm_rows(s, device_->chip(), add, norm); });
  }
  void logit_rows(const LogitRows& args) {
    launch("logits", [&](cudaStream_t s) { return cuda::logit_rows(s, device_->chip(), args); });
  }
  void query_rows(const QueryRows& args) {
    launch("queries", [&](cudaStream_t s) { return cuda::query_rows(s, device_->chip(), args); });
  }
  void append_rows(const KeyValueRows& args, const Batch& batch, const KvSlot& kv) {
    launch("append", [&](cudaStream_t s) { return cuda::append_rows(s, device_->chip(), args, batch, kv); });
  }
  void project_rows(const QueryRows& queries, const KeyValueRows& kept, const Batch& batch, const KvSlot& kv) {
    launch("heads", [&](cudaStream_t s) { return cuda::project_rows(s, device_->chip(), queries, kept, batch, kv); });
  }
  void attend(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv) {
    launch("attend",
           [&](cudaStream_t s) { return cuda::attend_scaled(s, device_->chip(), args, batch, kv, scratch_); });
  }
  // In a recording that never runs.
  void load_attention(const AttentionArgs& args, const Batch& batch, const KvSlot& kv) {
    if (attends_sm90(args, kv, scratch_))
      launch("loading attention", [&](cudaStream_t s) { return load_attention_sm90(s, args, batch, kv, scratch_); });
  }
  void project(const PackedProjection& p, const Batch& batch, const KvSlot& kv) {
    norm_linear(p.norm, p.qkv, p.qkv.scale, p.floats);
    const RopeArgs args{p.floats,
                        batch.row_count,
                        p.qkv.out,
                        p.angles,
                        p.heads,
                        p.kv_heads,
                        p.head_dim,
                        p.q_inverse,
                        p.k_inverse,
                        p.v_inverse,
                        p.k_inverse != nullptr,
                        p.queries};
    launch("rope_quantise", [&](cudaStream_t s) { return cuda::rope_quantise(s, device_->chip(), args, batch, kv); });
  }

 private:
  template <class Launch>
  void launch(const char* what, Launch&& work) {
    if (device_->ok()) device_->check(work(device_->stream()), what);
  }
  void multiply(MatmulKind kind, const Matrix& w, const void* a, int32_t rows, const float* scale, void* result) {
    multiply(kind, {w.weight, w.out, w.in, a, rows, scale, result}, w.row_sum);
  }
  void multiply(MatmulKind kind, MatmulArgs args, const int32_t* row_sum) {
    args.room = room_;
    if (device_->ok() && kind != MatmulKind::kSums && kind != MatmulKind::kSumsDown &&
        is_cublaslts(args.rows, args.out, args.in))
      return cublaslt_->multiply({kind, args, row_sum});
    launch("a matmul", [&](cudaStream_t s) { return cuda::matmul(s, device_->chip(), kind, args); });
  }

  // Sends the sums to all GPUs. Those for the residual stream are added up when the next norm wants them.
  void add_shared(MatmulKind kind, const Matrix& w, const void* a, int32_t rows, const float* scale) {
    MatmulArgs args{w.weight, w.out, w.in, a, rows, scale, nullptr};
    args.sums = exchange_->begin(rows, scale);
    multiply(kind, args, w.row_sum);
  }
  SharedMost shared_most(const Quantiser& to) const {
    return exchange_ && !to.is_whole ? exchange_->shared_most() : SharedMost{};
  }
  std::optional<Tile> gate_tile(const Linear& w, const GateRows& args) {
    if (exchange_ || is_cublaslts(args.rows, w.out, w.in) || !is_gated_by_matmul(args)) return {};
    return choose_gate_tile(device_->chip(), args.rows, {w.out, w.in});
  }
  bool has_begun_sums() const { return exchange_ && exchange_->has_begun(); }

  bool is_cublaslts(int32_t rows, int32_t out, int32_t in) { return cublaslt_ && cublaslt_->serves(rows, out, in); }

  // In one kernel where there is one that takes the norm with it.
  void multiply_normed(MatmulKind kind, const NormArgs& input, const Matrix& w, const float* scale, void* result) {
    MatmulArgs args{w.weight, w.out, w.in, input.a, input.rows, scale, result};
    if (!has_begun_sums() && !is_cublaslts(input.rows, w.out, w.in) &&
        joins_norm(device_->chip(), input.rows, w.out, w.in))
      args.x = input.x, args.eps = input.eps, args.inverse_scale = input.inverse_scale;
    else
      norm(input);
    multiply(kind, args, w.row_sum);
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<CublasLt> cublaslt_;
  AttentionScratch scratch_;
  Exchange* exchange_ = nullptr;
  int32_t room_ = 0;
  DeviceBuffer<AttentionPart> parts_;
  DeviceBuffer<float> sums_;
  DeviceBuffer<int32_t> counters_;
  DeviceBuffer<std::byte> plans_;
};

}  // namespace kaiju::cuda
