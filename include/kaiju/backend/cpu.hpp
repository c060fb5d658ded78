// CpuBackend: a Backend that computes on the host's cores, with kernels for several instruction sets. A CpuBackend
// gives the same bits as ReferenceBackend (tests/conformance). A CpuBackend owns its worker threads, unless it computes
// on the host's, and its scratch memory, and it uses the weights in place, without copying them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/backend/backend.hpp"
#include "kaiju/backend/row_sampler.hpp"
#include "kaiju/base/buffer.hpp"
#include "kaiju/base/detail/thread_pool.hpp"
#include "kaiju/base/host_threads.hpp"
#include "kaiju/base/status.hpp"

namespace kaiju {

namespace cpu {
struct Kernels;
struct MatmulArgs;
struct AttentionPiece;
struct AttentionKernels;
struct ChunkTask;
struct NextWeights;
class TransposedWeights;
class WeightOrder;
}  // namespace cpu

class CpuBackend {
 public:
  // Returns the names of the instruction sets that this machine can run, the fastest first. The names are "amx" (tiles
  // of bytes beside all of avx512's), "avx512" (needs F, BW, VL, DQ, VNNI), "avxvnni" and "avx2" (both need FMA),
  // "i8mm" and "neon" (Arm with the dot-product extension, with and without products of 8-bit matrices) and "portable",
  // which runs everywhere. To find out about amx, the process asks Linux for the use of tiles (arch_prctl), which makes
  // its signal frames larger; if the system refuses, amx is not among the names.
  static std::vector<std::string> isas();

  // Creates a CpuBackend. `isa` is one of isas(), or "auto" for the fastest. `threads` is the number of computing
  // threads, which includes the calling thread. Returns kInvalidArgument if `isa` is unknown, and kUnsupported if this
  // machine lacks that instruction set or if a thread cannot be started. With `host` no thread is started: the host's
  // compute, at most `threads` at a time.
  static Result<std::unique_ptr<CpuBackend>> create(std::string_view isa, int32_t threads,
                                                    const HostThreads& host = {});

  // The same with kernels that isas() does not list, which this machine must have the instructions for: a test's.
  static Result<std::unique_ptr<CpuBackend>> with_kernels(const cpu::Kernels& kernels, int32_t threads,
                                                          const HostThreads& host = {});

  ~CpuBackend();

  // Allocates scratch memory for steps of up to these sizes. A step that is larger than these sizes still runs and
  // allocates more memory.
  Status take_memory(const StepSizes& sizes);

  // Copies these matrices, of products add_down, by channels. From then on such products of four rows or fewer read the
  // channels alone that are not zero, if they are at most a quarter. Forgets the copies before. Returns kUnsupported if
  // the instruction set or a matrix does not allow it, kOutOfMemory if there is no memory for the copies.
  Status skip_zeros_of(std::span<const Matrix> downs);

  const char* isa() const;
  int32_t threads() const { return pool_.threads(); }

  // The following methods are the operations of backend/backend.hpp. One thread at a time may call these operations,
  // and that thread must have the floating-point state of base/float_state.hpp.
  void embed(const Matrix& table, const float* scale, std::span<const int32_t> tokens, arith::bf16* x);
  void norm(const NormArgs& norm);
  void linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out);
  void linears(std::span<const LinearProduct> products, const int8_t* a, int32_t rows);
  void wide_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out);
  void up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h);
  void add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x);
  void add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x);
  void queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads, int32_t kv_heads,
               int32_t head_dim, const float* inverse, int8_t* out);
  void append(const float* k, const float* v, const Batch& batch, const arith::CosSin* angles, const float* k_inverse,
              const float* v_inverse, const KvSlot& kv);
  void attend(const AttentionArgs& args, const Batch& batch, const KvSlot& kv);
  void weigh_rows(const float* logits, int32_t rows, int32_t vocab_size, RowTotal* totals);
  void sample(const SampleArgs& args, SampledToken& result) { sampler_.sample(args, result); }

  // The operations of version 2 of the arithmetic.
  void embed_rows(const EmbedRows& args);
  void norm_rows(const NormRows& args);
  void quantise_rows(const QuantiseRows& args);
  void gate_rows(const GateRows& args);
  void add_rows(const AddRows& args);
  void logit_rows(const LogitRows& args);
  void query_rows(const QueryRows& args);
  void append_rows(const KeyValueRows& args, const Batch& batch, const KvSlot& kv);
  void attend(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv);

 private:
  CpuBackend(const cpu::Kernels& kernels, int32_t threads, const HostThreads& host);

  // How a product is divided among the threads: parts of the outputs times parts of the rows.
  struct MatmulCut {
    int32_t out_parts = 1, row_parts = 1;
  };
  MatmulCut cut_matmul(int32_t out, int32_t in, int32_t rows) const;
  int32_t first_out(int32_t out, int32_t part, int32_t parts) const;
  int32_t first_row(int32_t rows, int32_t part, int32_t parts) const;
  void multiply(std::span<cpu::MatmulArgs> products);
  void prepare(cpu::MatmulArgs& args);
  bool add_down_skipping(const cpu::MatmulArgs& product);
  Matrix next_large(const Matrix& now, int32_t rows);
  void announce(int32_t thread, const Matrix& next, int32_t rows);
  void attend(const cpu::AttentionPiece& whole, int32_t heads, const cpu::AttentionKernels& kernels, const Batch& batch,
              const KvSlot& kv);
  struct AttentionCut {
    int32_t rows = 1;        // of a piece
    int32_t heads = 1;       // parts of the query heads of a KV head
    bool by_chunks = false;  // threads share chunks, not pieces
  };
  AttentionCut cut_attention(int32_t group, const Batch& batch, const KvSlot& kv) const;
  void attend_by_pieces(const cpu::AttentionKernels& kernels);
  void attend_by_chunks(const cpu::AttentionKernels& kernels);
  void sum_and_fold(const cpu::AttentionKernels& kernels);
  int32_t most_chunk_tasks() const;
  template <class Work>
  void for_each_kept(const Batch& batch, const KvSlot& kv, Work&& work);
  std::byte* scratch(int32_t thread) { return scratch_.data() + static_cast<size_t>(thread) * scratch_stride_; }
  Status take_prepared(int32_t rows, int32_t inputs);

  const cpu::Kernels& kernels_;
  std::unique_ptr<cpu::WeightOrder> order_;
  std::unique_ptr<cpu::NextWeights[]> next_weights_;  // of each thread, which alone touches it
  ThreadPool pool_;
  Buffer<std::byte> scratch_;  // [threads, scratch_stride_]
  size_t scratch_stride_ = 0;
  std::unique_ptr<cpu::TransposedWeights> transposed_;  // of skip_zeros_of
  Buffer<std::byte> prepared_;                          // activations in the layout of the matmul kernels
  std::vector<cpu::AttentionPiece> pieces_;
  std::vector<cpu::ChunkTask> chunk_tasks_;
  Buffer<std::byte> chunk_sums_;        // sums of tasks, and totals of pieces
  std::vector<RowTotal> piece_totals_;  // of weigh_rows
  RowSampler sampler_;
};

static_assert(Backend<CpuBackend> && ScaledBackend<CpuBackend> && MultipliesWideRows<CpuBackend> &&
              TakesMemory<CpuBackend>);

}  // namespace kaiju
