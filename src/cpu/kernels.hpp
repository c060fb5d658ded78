// Kernels: the table of functions that one instruction set provides to CpuBackend. A kernel computes a piece of one
// operation on one thread; cpu_backend.cpp divides operations into pieces.
//
// An instruction set is one file (avx512.cpp, ...), compiled with its own flags. It includes its vectors (isa/) and the
// loops that all instruction sets share (loops/). Only its table may have external linkage: an inline function or
// template that is shared with other files would be compiled in several versions, of which the linker keeps an
// arbitrary one. So this header has plain data only, isa/ and loops/ are in unnamed namespaces, and those files call
// nothing but intrinsics and memcpy (tests/cpu checks their objects for weak symbols).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kaiju/arith/row_args.hpp"

namespace kaiju::cpu {

using Bf16 = uint16_t;

inline constexpr int32_t kBlock = 64;         // tokens of a cache block
inline constexpr int32_t kChunk = 512;        // keys under one maximum (arithmetic.md, section 5)
inline constexpr int32_t kMaxQueryRows = 48;  // query rows (row x head) of one piece of attention
inline constexpr int32_t kMaxHeadDim = 512;
inline constexpr int32_t kInUnit = 64;  // the inputs of a product are a multiple of it

enum class MatmulKind : int32_t { kLinear, kUp, kAddLinear, kAddDown, kWide };
inline constexpr int32_t kProducts = 5;

// result[row, n] = epilogue(sum over k of bytes[row, k] * weight[n, k]). kWide: rows come in twos, high and low bytes
// of the same values, and make one row of results.
struct MatmulArgs {
  const int8_t* weight = nullptr;    // [out, in], in a multiple of 64
  const int32_t* row_sum = nullptr;  // [out]
  int32_t out = 0;
  int32_t in = 0;
  const void* bytes = nullptr;  // [rows, in]: int8, unsigned for kAddDown
  int32_t rows = 0;
  const float* scale = nullptr;  // [out]
  void* result = nullptr;        // [rows, out]: float, uint8 (kUp) or bf16; kWide [rows / 2, out] float
  MatmulKind kind = MatmulKind::kLinear;
  void* prepared = nullptr;  // what prepare() made of the bytes
};

// Rows and columns of the bytes.
struct PreparePiece {
  int32_t first_row = 0, end_row = 0;  // first_row a multiple of row_unit
  int32_t first_in = 0, end_in = 0;    // multiples of 64
};

struct MatmulPiece {
  int32_t first_out = 0, end_out = 0;   // first_out a multiple of out_unit
  int32_t first_row = 0, end_row = 0;   // first_row a multiple of row_unit
  const int8_t* next_weight = nullptr;  // of so many outputs that this thread multiplies next, of as many inputs
  int32_t next_outs = 0;                // 0: unknown
};

// A product `down` that reads the channels alone (columns of the weights) which are not zero in every row.
inline constexpr int32_t kSkipOuts = 64;  // outputs come in multiples of it
inline constexpr int32_t kMostSkipRows = 4;
inline constexpr int32_t kSkipGroup = 4;  // channels
struct SkipArgs : MatmulArgs {            // weight: transposed, [in, out]
  const int32_t* channels = nullptr;      // [count], a multiple of kSkipGroup
  int32_t count = 0;
  int32_t packed_rows = 1;          // 1, 2 or 4, at least `rows`
  const uint8_t* packed = nullptr;  // [count / kSkipGroup][packed_rows][kSkipGroup] bytes of the channels
};

// Consecutive rows of one sequence and consecutive query heads that share one KV head.
struct AttentionPiece {
  const int8_t* queries = nullptr;  // [row_count] rows, row_stride elements apart, of [head_count, head_dim]
  void* out = nullptr;              // likewise: int8, or float with scales
  int64_t row_stride = 0;
  int32_t row_count = 0;  // row_count * head_count <= kMaxQueryRows; query row = row * head_count + head
  int32_t head_count = 0;
  int32_t head_dim = 0;
  int32_t position = 0;              // of the first row
  int32_t window = 0;                // 0: sees everything
  const int32_t* table = nullptr;    // block of position p: table[p / 64]
  const std::byte* cache = nullptr;  // block 0's half of keys for this KV head; its values follow
  int64_t block_bytes = 0;
  const float* z = nullptr;  // one; with scales [row_count] rows, z_stride floats apart, of [head_count]
  int64_t z_stride = 0;
  const float* out_factor = nullptr;  // [head_dim] from float to byte; with scales the step of the values
};

// Sums of weights and weighted values under a maximum, per query row.
struct AttentionSums {
  float* maximum = nullptr;  // kNothingSeen before the first chunk
  float* total = nullptr;
  float* out = nullptr;  // [query rows, head_dim]
};
inline constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();

// Attention, without or with scales of keys and values (versions 1 and 2 of the arithmetic): sums over the visible keys
// of one chunk; folding a later chunk's sums into a total; the results.
struct AttentionKernels {
  void (*sum_chunk)(const AttentionPiece& piece, int32_t chunk, const AttentionSums& sums,
                    std::byte* scratch) = nullptr;
  void (*fold)(const AttentionPiece& piece, const AttentionSums& total, const AttentionSums& later) = nullptr;
  void (*finish)(const AttentionPiece& piece, const AttentionSums& total) = nullptr;
};

using Angle = arith::CosSin;

struct Moments {
  int32_t count = 0;
  double sum = 0, squares = 0;
};
inline constexpr int32_t kCollectRoom = 16;  // numbers
inline constexpr int32_t kLastBucket = 4095;
inline constexpr float kLogOfNothing = -1e30f;

struct Kernels {
  const char* isa = nullptr;

  // x [rows, width] = bytes of each token's row times its scale
  void (*embed)(const int8_t* weight, int32_t width, const float* scale, const int32_t* tokens, int32_t rows,
                Bf16* x) = nullptr;
  void (*norm)(const Bf16* x, int32_t rows, int32_t width, float eps, float inverse, int8_t* a) = nullptr;

  // Matrix products. Bytes that prepare() needs; in which steps rows (of both) and outputs may be cut.
  size_t (*prepared_bytes)(int32_t rows, int32_t in) = nullptr;
  void (*prepare)(const MatmulArgs& args, const PreparePiece& piece) = nullptr;
  int32_t row_unit = 1;  // even, if there is kWide
  int32_t out_unit = 1;
  void (*matmul[kProducts])(const MatmulArgs& args, const MatmulPiece& piece) = {};
  // Outputs [first_out, end_out) of a product `down`; null if the instruction set has no such loop.
  void (*multiply_skipping)(const SkipArgs& args, int32_t first_out, int32_t end_out) = nullptr;

  // q [rows, heads, head_dim] -> rotated bytes; angles [rows, head_dim / 2]; inverse [kv_heads, head_dim]
  void (*queries)(const float* q, int32_t rows, const Angle* angles, int32_t heads, int32_t kv_heads, int32_t head_dim,
                  const float* inverse, int8_t* out) = nullptr;
  // One token's key and value of one KV head [head_dim] into its block; token within the block.
  void (*append)(const float* k, const float* v, const Angle* angles, int32_t head_dim, const float* k_inverse,
                 const float* v_inverse, int32_t token, std::byte* keys, std::byte* values) = nullptr;

  size_t attention_scratch_bytes = 0;
  AttentionKernels attention, scaled_attention;

  // The row operations of version 2 of the arithmetic, rows [first, end).
  void (*embed_rows)(const EmbedRows& args, int32_t first, int32_t end) = nullptr;
  void (*norm_rows)(const NormRows& args, int32_t first, int32_t end) = nullptr;
  void (*quantise_rows)(const QuantiseRows& args, int32_t first, int32_t end) = nullptr;
  void (*gate_rows)(const GateRows& args, int32_t first, int32_t end) = nullptr;
  void (*add_rows)(const AddRows& args, int32_t first, int32_t end) = nullptr;
  void (*logit_rows)(const LogitRows& args, int32_t first, int32_t end) = nullptr;
  void (*query_rows)(const QueryRows& args, int32_t first, int32_t end) = nullptr;
  // The key and value of one row and KV head into its block, and their scales.
  void (*append_rows)(const KeyValueRows& args, int32_t row, int32_t kv_head, int32_t token, std::byte* keys,
                      std::byte* values, Bf16* key_scale, Bf16* value_scale) = nullptr;

  // Sampling: the largest logit; masses under a maximum, summed (mass may be null).
  float (*maximum)(const float* logits, int32_t count) = nullptr;
  uint64_t (*masses)(const float* logits, int32_t count, float maximum, float factor, uint32_t* mass) = nullptr;

  // Chains of samplers. Writes the numbers i with low <= x[i] <= high, ascending, and returns how many. `out` has room
  // for count + kCollectRoom.
  int32_t (*collect)(const float* x, int32_t count, float low, float high, int32_t* out) = nullptr;
  // Divides x into groups, writes the maximum of each, and returns the number of groups: at most count / 16 + 1. What
  // is left over of a multiple of 256 may be one group.
  int32_t (*maxima)(const float* x, int32_t count, float* out) = nullptr;
  // bucket = the integer nearest to |x - centre| * scale, at most kLastBucket.
  void (*buckets)(const float* x, int32_t count, float centre, float scale, uint16_t* bucket) = nullptr;
  // Sums over the logits above -infinity, in any order: within count * 2^-52 of the sum of the magnitudes.
  Moments (*moments)(const float* logits, int32_t count) = nullptr;
  // Returns the sum of mass * (log_of_total - ln(mass)), in any order and with logarithms within 2^-32, that of 2^30
  // within 2^-47. Writes the logarithms as floats, and kLogOfNothing for those of 0.
  double (*surprise)(const uint32_t* mass, int32_t count, double log_of_total, float* log) = nullptr;
};

const Kernels& amx_kernels();
const Kernels& avx512_kernels();
const Kernels& avxvnni_kernels();
const Kernels& avx2_kernels();
const Kernels& i8mm_kernels();
const Kernels& neon_kernels();
const Kernels& portable_kernels();

}  // namespace kaiju::cpu
