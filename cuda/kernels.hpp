// The host interface of the kernels: one function for each launch. Launches are asynchronous on the stream, and all
// pointers are to device memory. Each function returns the error of its launch.
#pragma once

#include <cuda_runtime_api.h>

#include <iterator>

#include "chip.hpp"
#include "kaiju/arith/float32.hpp"
#include "kaiju/arith/rotary.hpp"
#include "kaiju/backend/backend.hpp"
#include "kaiju/format/layer_shape.hpp"
#include "launch/tiles.hpp"
#include "shared_rows.hpp"

namespace kaiju::cuda {

// ---- kernels/embed_norm.cu ----
cudaError_t embed(cudaStream_t stream, const Chip& chip, const Matrix& table, const float* scale, const int32_t* tokens,
                  int32_t rows, arith::bf16* x);
cudaError_t norm(cudaStream_t stream, const Chip& chip, const arith::bf16* x, int32_t rows, int32_t width, float eps,
                 float inverse_scale, int8_t* a);
// angles [rows, half] of positions [rows] and frequencies [half].
cudaError_t fill_angles(cudaStream_t stream, const Chip& chip, const int32_t* positions, int32_t rows,
                        const uint64_t* frequencies, int32_t half, arith::CosSin* angles);
// out [count, row_bytes] = rows `row[i]` of x; row_bytes is a multiple of 16.
cudaError_t gather_rows(cudaStream_t stream, const Chip& chip, const std::byte* x, const int32_t* row, int32_t count,
                        int64_t row_bytes, std::byte* out);

// ---- kernels/matmul.cu ----
// A matmul by its operands and epilogue (docs/arithmetic.md, section 4). kSums and kSumsDown have none: they are
// kAddLinear and kAddDown of a GPU that has a part of the summed index, and their sums go to all GPUs (SumTargets).
// kGated has a launch of its own (kernels/gated_matmul.hpp).
enum class MatmulKind { kLinear, kUp, kAddLinear, kAddDown, kSums, kSumsDown, kGated };
template <MatmulKind kKind>
inline constexpr bool kHasUnsignedInput = kKind == MatmulKind::kAddDown || kKind == MatmulKind::kSumsDown;
template <MatmulKind kKind>
inline constexpr bool kStoresSums = kKind == MatmulKind::kSums || kKind == MatmulKind::kSumsDown;
constexpr MatmulShape shape_of(MatmulKind kind, int32_t out, int32_t in) {
  return {out, in, kind == MatmulKind::kAddLinear || kind == MatmulKind::kSums};
}

// Where kSums and kSumsDown store: memory of each GPU that shares the model, for the sums of this one. Where rows are
// spread, a row goes to the GPU that owns it, as one of the rows that it owns; else every GPU gets all rows.
struct SumTargets {
  int32_t* to[kMostGpus] = {};  // [rows, out], or [owned rows, out]
  int32_t count = 0;
  bool spread = false;
};

struct MatmulArgs {
  const int8_t* weight;  // [out, in], in a multiple of 64, 16-byte aligned
  int32_t out, in;
  const void* a;  // [rows, in] int8; uint8 for kAddDown and kSumsDown
  int32_t rows;
  const float* scale;  // [out]
  void* result;        // [rows, out] f32, uint8, bf16, bf16; kSums and kSumsDown have `sums` in its place
  int32_t room = 0;    // rows that `a` has memory for, if more: rows from `rows` on may be read, and change nothing
  // With x [rows, in] the activations are what norm() makes of it, and `a` is not read. Only where joins_norm() says
  // so.
  const arith::bf16* x = nullptr;
  float eps = 0.0f, inverse_scale = 0.0f;
  SumTargets sums = {};
};
// Whether a matmul of `rows` rows can compute the norm of its input itself.
bool joins_norm(const Chip& chip, int32_t rows, int32_t out, int32_t in);
// By the fastest kernel known for the chip and the shape (launch/tiles.hpp).
cudaError_t matmul(cudaStream_t stream, const Chip& chip, MatmulKind kind, const MatmulArgs& args);
// By the kernel that `tile` names, which must fit.
cudaError_t matmul_with_tile(cudaStream_t stream, const Chip& chip, const Tile& tile, MatmulKind kind,
                             const MatmulArgs& args);
// ---- kernels/sm90_matmul.cuh ----
template <MatmulKind kKind>
cudaError_t matmul_sm90(cudaStream_t stream, const Chip& chip, const Tile& tile, const MatmulArgs& args);

// ---- kernels/rope_quantise.cu ----
cudaError_t queries(cudaStream_t stream, const Chip& chip, const float* q, int32_t rows, const arith::CosSin* angles,
                    int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out);
cudaError_t append(cudaStream_t stream, const Chip& chip, const float* k, const float* v, const Batch& batch,
                   const arith::CosSin* angles, const float* k_inverse, const float* v_inverse, const KvSlot& kv);

// What queries() and append() do, in one launch, from rows of q, k and v side by side. Without `keys` there are no k
// and v.
struct RopeArgs {
  const float* q;  // [rows, stride]: heads, then kv_heads of keys, then of values
  int32_t rows, stride;
  const arith::CosSin* angles;  // [rows, head_dim / 2]
  int32_t heads, kv_heads, head_dim;
  const float *inverse, *k_inverse, *v_inverse;  // [kv_heads, head_dim]
  bool keys;
  int8_t* out;  // [rows, heads, head_dim]
};
cudaError_t rope_quantise(cudaStream_t stream, const Chip& chip, const RopeArgs& args, const Batch& batch,
                          const KvSlot& kv);

// ---- kernels/rows.cu, kernels/head_rows.cu ----
// The row operations of version 2 of the arithmetic (kaiju/arith/rows.hpp). Blocks of the Hadamard transform have up to
// kMostHadamard values, and head_dim is 64, 128, 256 or 512.
inline constexpr int32_t kMostHadamard = 256;
// Where each GPU has a part of every row, a row's largest magnitude is the largest of all parts': each GPU tells it to
// all others. All of them run such kernels in the same order.
struct SharedMost {
  int32_t count = 1, rank = 0;   // GPUs; this one among them
  uint64_t* of[kMostGpus] = {};  // [2, GPUs, rows] of each GPU: which time, and the magnitude's bits
  int32_t rows = 0;
  int32_t* state = nullptr;  // of this GPU: [2] how many times there were, blocks that are done
  int32_t* lost = nullptr;   // kernels/exchange.hpp
};
cudaError_t embed_rows(cudaStream_t stream, const Chip& chip, const EmbedRows& args);
cudaError_t norm_rows(cudaStream_t stream, const Chip& chip, const NormRows& args);
cudaError_t quantise_rows(cudaStream_t stream, const Chip& chip, const QuantiseRows& args, const SharedMost& most = {});
cudaError_t gate_rows(cudaStream_t stream, const Chip& chip, const GateRows& args, const SharedMost& most = {});
cudaError_t add_rows(cudaStream_t stream, const Chip& chip, const AddRows& args);
// add_rows(args) and norm_rows(norm) of the same residual stream in one kernel.
cudaError_t add_norm_rows(cudaStream_t stream, const Chip& chip, const AddRows& args, const NormRows& norm);
cudaError_t logit_rows(cudaStream_t stream, const Chip& chip, const LogitRows& args);
cudaError_t query_rows(cudaStream_t stream, const Chip& chip, const QueryRows& args);
cudaError_t append_rows(cudaStream_t stream, const Chip& chip, const KeyValueRows& args, const Batch& batch,
                        const KvSlot& kv);
// Both in one kernel.
cudaError_t project_rows(cudaStream_t stream, const Chip& chip, const QueryRows& queries, const KeyValueRows& kept,
                         const Batch& batch, const KvSlot& kv);

// ---- kernels/attention.cu, kernels/sm90_attention.cu, kernels/scaled_attention.cu ----
inline constexpr int32_t kAttentionTileRows = 64;
// Blocks of keys that the rows of a decode step see, of all KV heads together: twice as many are counted in 32 bits.
inline constexpr int64_t kMostSeenBlocks = 1 << 29;
// Rows of a sequence and KV head that decode takes as one item; more become several.
inline constexpr int32_t kAttentionItemRows = 40;
struct AttentionPart {
  int32_t maximum;  // INT32_MIN: the row sees no key of the chunk; in version 2 of the arithmetic the bits of a float
  float weight;     // sum of p
};
// Whether several blocks of threads may share a row's chunks. All but the first are for benches alone.
enum class ChunksApart { kWhereFaster, kNever, kAlways };
inline constexpr int32_t kAttentionPlanBytes = 384;  // of a block of threads
// Memory of attention: for plans, and for the partial sums of chunks that are kept apart. attend_sm80() divides the
// same memory into chunks of as many rows as its tiles have.
struct AttentionScratch {
  bool hopper = false;  // whether this is a Hopper GPU and its kernels are compiled in
  int32_t multiprocessors = 0;
  int32_t units = 0;                  // chunks of 64 rows that can be kept apart; 0: none are split
  int32_t head_dim = 0;               // that there is memory for
  AttentionPart* parts = nullptr;     // [units, 64]
  float* sums = nullptr;              // [units, 64, head_dim]
  int32_t* counters = nullptr;        // [units + 1], 0 between launches
  std::byte* plans = nullptr;         // [kBlockKinds, 2 multiprocessors, kAttentionPlanBytes] of KV slots of each kind
  int32_t planned[kBlockKinds] = {};  // 1 + the window of the layers whose plan is there already; 0: of none
  ChunksApart apart = ChunksApart::kWhereFaster;

  // `units`, of layers with another head_dim.
  int32_t units_of(int32_t other) const {
    return other > head_dim ? static_cast<int32_t>(int64_t{units} * head_dim / other) : units;
  }
};
// The Hopper kernels where they serve the shape, else the one for every chip.
cudaError_t attend(cudaStream_t stream, const Chip& chip, const AttentionArgs& args, const Batch& batch,
                   const KvSlot& kv, const AttentionScratch& scratch);
cudaError_t attend_sm80(cudaStream_t stream, const Chip& chip, const AttentionArgs& args, const Batch& batch,
                        const KvSlot& kv, const AttentionScratch& scratch);
bool attends_sm90(const AttentionArgs& args, const KvSlot& kv, const AttentionScratch& scratch);
cudaError_t attend_sm90(cudaStream_t stream, const AttentionArgs& args, const Batch& batch, const KvSlot& kv,
                        const AttentionScratch& scratch);
// Launches every kernel that a batch may take, in a recording that never runs: which one it takes depends on more than
// its number of rows.
cudaError_t load_attention_sm90(cudaStream_t stream, const AttentionArgs& args, const Batch& batch, const KvSlot& kv,
                                const AttentionScratch& scratch);
// In version 2 of the arithmetic: the Hopper kernels where they serve the shape, else the one for every chip.
cudaError_t attend_scaled(cudaStream_t stream, const Chip& chip, const ScaledAttentionArgs& args, const Batch& batch,
                          const KvSlot& kv, const AttentionScratch& scratch);
cudaError_t attend_scaled_sm80(cudaStream_t stream, const Chip& chip, const ScaledAttentionArgs& args,
                               const Batch& batch, const KvSlot& kv, const AttentionScratch& scratch);
// Whether the next function serves the shape.
bool decodes_scaled_sm90(const ScaledAttentionArgs& args, const KvSlot& kv, const AttentionScratch& scratch);
// Of segments with one row each.
cudaError_t decode_scaled_sm90(cudaStream_t stream, const Chip& chip, const ScaledAttentionArgs& args,
                               std::span<const BatchSegment> segments, const KvSlot& kv,
                               const AttentionScratch& scratch);
// Whether the next function serves the shape, and its rows are enough for it.
bool prefills_scaled_sm90(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv,
                          const AttentionScratch& scratch);
cudaError_t prefill_scaled_sm90(cudaStream_t stream, const Chip& chip, const ScaledAttentionArgs& args,
                                const Batch& batch, const KvSlot& kv);

// ---- kernels/sm90_row_step.cu ----
// The shape of layers that row_step() computes, and a layer's matrices in the order in which it takes them: those that
// read the same bytes are packed.
inline constexpr LayerShape kRowStepShape = {Activations::kStaticClips, Ffn::kSquaredRelu, Residual::kBf16,
                                             OutputMatrix::kEmbedding};
struct RowMatrix {
  Site input;
  Operation operation;
};
inline constexpr RowMatrix kRowMatrices[] = {{Site::kAttentionIn, Operation::kLinear},
                                             {Site::kAttentionOut, Operation::kAddLinear},
                                             {Site::kFfnIn, Operation::kUp},
                                             {Site::kFfnMid, Operation::kAddDown}};
inline constexpr auto kRowMatrixCount = static_cast<int32_t>(std::size(kRowMatrices));
// What row_step() wants to know of a layer; in device memory.
struct alignas(16) RowLayer {
  // Of kRowMatrices; behind q's lie those of k and v where `keys` is set.
  const int8_t* weights[kRowMatrixCount];
  const float* scales[kRowMatrixCount];
  const float *q_inverse, *k_inverse, *v_inverse, *out_inverse;  // [kv_heads, head_dim]
  const arith::CosSin* angles;                                   // [head_dim / 2]
  float attn_in, ffn_in, z;
  int32_t keys;  // whether the layer makes the keys and values of its slot
  KvSlot kv;
};
struct RowStep {
  const RowLayer* layers;
  int32_t layer_count;
  int32_t d_model, d_ff, vocab, heads, kv_heads, head_dim;
  const int8_t* embed;
  const float* logit_scale;
  float final_in, eps;
  const BatchSegment* segment;       // of one row
  arith::bf16* x;                    // [d_model] embedded token; in the end the residual stream
  uint32_t* row;                     // [d_model] residual stream, half tagged
  float* logits;                     // [vocab]
  uint64_t* q;                       // [query width + 2 kv width]; tagged words, like the four below: zeros at first
  uint64_t* h;                       // [d_ff / 4]
  uint64_t* a;                       // [query width / 4]
  uint64_t* sums;                    // [row_step_chunks(), query width]
  uint64_t* parts;                   // [row_step_chunks(), heads, 2]
  int32_t* counters;                 // [3] 0 at first
  int32_t stages, activation_bytes;  // found by row_step()
};
// Chunks of 512 keys that a row may see: a block takes one, of one KV head.
constexpr int32_t row_step_chunks(const Chip& chip, int32_t kv_heads) { return chip.multiprocessors / kv_heads; }
// Whether row_step() can take a step of such a model, of layers of such a shape.
bool row_step_serves(const Chip& chip, const LayerShape& shape, const RowStep& step);
// From the embedded token to logits: all layers for one row, as one kernel.
cudaError_t row_step(cudaStream_t stream, const Chip& chip, RowStep step);

// ---- kernels/sample.cu ----
inline constexpr int32_t kMostTop = 128;  // alternatives reported with a token

// How one row of logits is sampled from; derived on the host from SamplingSpec.
struct SampleRow {
  int32_t slot = 0;  // whose seen tokens count
  int32_t greedy = 0;
  int32_t adjusted = 0;  // whether penalties, biases or a mask make the logits differ from the plain ones
  float penalty = 1.0f;
  float factor = 0.0f;      // of the temperature
  int32_t top_k = 0;        // 0: all
  uint32_t least_mass = 0;  // min_p; 0: all
  uint32_t cut = 0;         // whether top_p cuts
  uint64_t share = 0;       // top_p times 2^32
  uint64_t random = 0;
  int32_t top = 0;     // alternatives wanted, at most kMostTop
  int32_t answer = 0;  // where what is sampled goes
};

struct Alternative {
  float logit;
  int32_t token;
};

struct Sampled {
  uint64_t total;  // sum of masses of the plain logits
  float maximum;   // of the plain logits
  int32_t token;
  float logit;        // plain logit of the token
  int32_t top_count;  // alternatives found, in no order
};

// last [slots]: the tokens. sampled [answers], top [answers, kMostTop]. Without `adjusted` rows that penalties,
// biases or masks change are left out.
cudaError_t sample(cudaStream_t stream, const Chip& chip, const float* logits, const float* adjusted,
                   const SampleRow* samples, int32_t rows, int32_t vocab, int32_t* last, Sampled* sampled,
                   Alternative* top);

// ---- kernels/penalties.cu ----
struct Bias {
  int32_t row;
  int32_t token;
  float bias;
};

// A part of a row's mask: bit t % 32 of word t / 32 is token 32 * first_word + t.
struct MaskPiece {
  static constexpr int32_t kWords = 254;  // 1 KiB together: few pieces, which cost the host more than their bytes
  static constexpr int32_t kTokens = 32 * kWords;
  int32_t row;
  int32_t first_word;
  uint32_t allowed[kWords];
};

struct TokenMark {
  int32_t slot;
  int32_t token;
};

// seen [slots, vocab]: marks tokens of sequences.
cudaError_t mark_seen(cudaStream_t stream, const TokenMark* marks, int32_t count, int32_t vocab, uint8_t* seen);
// The same for the rows of a batch: row r belongs to slot segment_slot[row_segment[r]]. Tokens that are kSampledToken
// become last [slots].
cudaError_t mark_rows(cudaStream_t stream, int32_t* tokens, const int32_t* row_segment, const int32_t* segment_slot,
                      int32_t rows, int32_t vocab, const int32_t* last, uint8_t* seen);
// adjusted [rows, vocab]: plain logits under the repetition penalty, where samples[row].adjusted.
cudaError_t penalise(cudaStream_t stream, const float* logits, const SampleRow* samples, int32_t rows, int32_t vocab,
                     const uint8_t* seen, float* adjusted);
// Adds biases in place; a token at most once a row.
cudaError_t add_biases(cudaStream_t stream, const Bias* biases, int32_t count, int32_t vocab, float* adjusted);
// Sets the logits of tokens that a mask excludes to -infinity.
cudaError_t exclude_tokens(cudaStream_t stream, const MaskPiece* pieces, int32_t count, int32_t vocab, float* adjusted);

// ---- kernels/step.cu ----
struct TableWrite {
  int64_t index;  // into all tables
  BlockId block;
  int32_t unused;
};
cudaError_t write_tables(cudaStream_t stream, const TableWrite* writes, int32_t count, BlockId* tables);
// What the kernels' code for this GPU was compiled for: 90 for 9.0; less than the GPU is where PTX of an older
// capability serves it.
cudaError_t find_capability(int32_t& capability);

}  // namespace kaiju::cuda
