// Products of int8 weights with activations, exact, each with its ending fused in (tiles/epilogue.cuh): the choice of a
// kernel, and those that run everywhere.
//
// Few rows: bound by reading the weights once; a block takes 16 or 32 outputs, its warps share the summed index among
// them and add their sums in shared memory, which in integers needs no order. Many rows: tiles of outputs x rows in
// shared memory, copies running ahead, mma.sync; bound by the tensor cores.
#include <algorithm>

#include "../launch/tiles.hpp"
#include "../tiles/dependent_launch.cuh"
#include "../tiles/epilogue.cuh"
#include "../tiles/rms.cuh"
#include "../tiles/sm80_mma.cuh"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kWarps = kThreads / 32;
constexpr int32_t kStep = 64;  // summed index of one step; divides every `in`

template <GemmKind kKind>
constexpr Sign kActivation = kKind == GemmKind::kAddDown ? Sign::kUnsigned : Sign::kSigned;

// ---- few rows ----

__device__ __forceinline__ uint4 load_once(const int8_t* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// A warp takes pieces of 64 bytes of the summed index, two neighbouring ones (a line of memory) at a time, and asks for
// each piece of its weights kAhead pieces before it multiplies: the first ones even before the kernels in front have
// ended, since no kernel writes weights.
//
// Weights are the 16-row operand, activations the 8-column one. Both are read 16 contiguous bytes a lane: a dot product
// does not mind in which order the summed index is taken, so the bytes 16 t ... 16 t + 15 of a piece stand for the
// places that lane t holds in two instructions.
template <GemmKind kKind, int kOutTiles, int kRowTiles, int kAhead, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) gemm_skinny_kernel(GemmArgs args) {
  constexpr int kOuts = 16 * kOutTiles, kRows = 8 * kRowTiles;
  static_assert(kAhead % 2 == 0);
  __shared__ int32_t sums[kOuts][kRows + 1];
  const int32_t tid = static_cast<int32_t>(threadIdx.x), warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
  const int32_t first_out = static_cast<int32_t>(blockIdx.x) * kOuts;
  // Outputs and rows beyond the last read it again; their sums go nowhere.
  const int8_t* weights[kOutTiles][2];
#pragma unroll
  for (int m = 0; m < kOutTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      weights[m][half] = args.weight + int64_t{min(first_out + 16 * m + 8 * half + g, args.out - 1)} * args.in + 16 * t;
  const auto place = [&](int32_t turn) {
    return (turn / 2 * (2 * kWarps) + 2 * warp + turn % 2) * kStep;
  };  // of the warp's turn-th piece; the same in all lanes
  uint4 w[kAhead][kOutTiles][2];
  const auto load_weights = [&](uint4(&to)[kOutTiles][2], int32_t at) {
    if (at >= args.in) return;
#pragma unroll
    for (int m = 0; m < kOutTiles; ++m)
      to[m][0] = load_once(weights[m][0] + at), to[m][1] = load_once(weights[m][1] + at);
  };
  let_next_start();
#pragma unroll
  for (int u = 0; u < kAhead; ++u) load_weights(w[u], place(u));
  for (int32_t i = tid; i < kOuts * (kRows + 1); i += kThreads) (&sums[0][0])[i] = 0;
  __syncthreads();
  wait_for_inputs();

  const auto* a = static_cast<const int8_t*>(args.a) + 16 * t;
  int32_t row_at[kRowTiles];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) row_at[r] = min(8 * r + g, args.rows - 1) * args.in;
  int32_t c[kOutTiles][kRowTiles][4] = {};
  for (int32_t turn = 0; place(turn) < args.in; turn += kAhead) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int32_t at = place(turn + u);
      if (at >= args.in) break;
      uint4 b[kRowTiles];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) b[r] = *reinterpret_cast<const uint4*>(a + (row_at[r] + at));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int m = 0; m < kOutTiles; ++m) {
          const uint4 low = w[u][m][0], high = w[u][m][1];
          mma<Sign::kSigned, kActivation<kKind>>(c[m][r], low.x, high.x, low.y, high.y, b[r].x, b[r].y);
          mma<Sign::kSigned, kActivation<kKind>>(c[m][r], low.z, high.z, low.w, high.w, b[r].z, b[r].w);
        }
      load_weights(w[u], place(turn + u + kAhead));
    }
  }
#pragma unroll
  for (int m = 0; m < kOutTiles; ++m)
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int e = 0; e < 4; ++e) atomicAdd(&sums[16 * m + g + 8 * (e / 2)][8 * r + 2 * t + e % 2], c[m][r][e]);
  __syncthreads();
  for (int32_t i = tid; i < kOuts * args.rows; i += kThreads) {
    const int32_t n = first_out + i % kOuts, row = i / kOuts;
    if (n < args.out) store_sum<kKind>(args, int64_t{row} * args.out, n, sums[i % kOuts][row]);
  }
}

template <GemmKind kKind, int kOutTiles, int kRowTiles, int kAhead, int kBlocks>
cudaError_t launch_skinny(cudaStream_t stream, const Chip& chip, const GemmArgs& args) {
  const auto kernel = gemm_skinny_kernel<kKind, kOutTiles, kRowTiles, kAhead, kBlocks>;
  return launch(stream, chip, kernel, {pieces(args.out, 16 * kOutTiles), kThreads}, args);
}

// ---- one row ----

constexpr int32_t kGemvThreads = 512;
constexpr int32_t kGemvWarps = kGemvThreads / 32;
constexpr int32_t kGemvOuts = (48 << 10) / 4;  // that a block has room for the sums of

// One block a multiprocessor (more where few have very many outputs to share) takes an equal share of the outputs,
// whose weights are one run of memory; its warps share that run equally, wherever outputs begin, and add what they have
// of an output in shared memory. So every multiprocessor reads as much as every other, in the order of memory. Weights
// are asked for kAhead pieces before they are multiplied, the first before the kernels in front have ended. The kernel
// behind is not let in before the end: its blocks would take memory from these, and settle unevenly.
//
// With kNorm every block finds the norm of the whole row for itself, which is sooner done than another kernel is
// started and waited for.
template <GemmKind kKind, bool kNorm>
__global__ void __launch_bounds__(kGemvThreads, 2) gemv_kernel(GemmArgs args) {
  constexpr int kAhead = 8;
  extern __shared__ __align__(16)
      uint8_t gemv_memory[];  // with kNorm the row's bytes, the row, and its partial sums; the block's sums
  auto* sums = reinterpret_cast<int32_t*>(gemv_memory + (kNorm ? norm_bytes(args.in) : 0));
  const int32_t tid = static_cast<int32_t>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const auto blocks = static_cast<int32_t>(gridDim.x), block = static_cast<int32_t>(blockIdx.x);
  const auto first = static_cast<int32_t>(int64_t{args.out} * block / blocks),
             outs = static_cast<int32_t>(int64_t{args.out} * (block + 1) / blocks) - first;
  const int32_t steps_of_out = args.in / kGemvBytes, steps = outs * steps_of_out;
  int32_t step = steps * warp / kGemvWarps;
  const int32_t end = steps * (warp + 1) / kGemvWarps;
  const int8_t* weights = args.weight + int64_t{first} * args.in + 16 * lane;
  uint4 w[kAhead];
#pragma unroll
  for (int u = 0; u < kAhead; ++u)
    if (step + u < end) w[u] = load_once(weights + int64_t{step + u} * kGemvBytes);
  for (int32_t i = 32 * tid; i < outs; i += 32 * kGemvThreads)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(args.scale + first + i));
  for (int32_t i = tid; i < outs; i += kGemvThreads) sums[i] = 0;
  __syncthreads();
  wait_for_inputs();

  if constexpr (kNorm) norm_row<kGemvThreads>(gemv_memory, args.x, args.in, args.eps, args.inverse_scale);
  const auto* a =
      (kNorm ? reinterpret_cast<const int8_t*>(gemv_memory) : static_cast<const int8_t*>(args.a)) + 16 * lane;
  int32_t out = step / steps_of_out, k = step - out * steps_of_out, c = 0;
  const auto add_up = [&] {
    const int32_t sum = __reduce_add_sync(0xFFFFFFFFu, c);
    if (lane == 0) atomicAdd(&sums[out], sum);
    c = 0;
  };
  for (; step < end; step += kAhead) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (step + u >= end) break;
      const uint4 b = *reinterpret_cast<const uint4*>(a + k * kGemvBytes);
      c = dot4<kActivation<kKind>>(w[u].x, b.x, c);
      c = dot4<kActivation<kKind>>(w[u].y, b.y, c);
      c = dot4<kActivation<kKind>>(w[u].z, b.z, c);
      c = dot4<kActivation<kKind>>(w[u].w, b.w, c);
      if (step + u + kAhead < end) w[u] = load_once(weights + int64_t{step + u + kAhead} * kGemvBytes);
      if (++k == steps_of_out) add_up(), k = 0, ++out;
    }
  }
  if (k > 0) add_up();  // nothing where the warp had nothing; `out` is still within the block
  __syncthreads();
  for (int32_t i = tid; i < outs; i += kGemvThreads) store_sum<kKind>(args, 0, first + i, sums[i]);
}

template <GemmKind kKind, bool kNorm = false>
cudaError_t launch_gemv(cudaStream_t stream, const Chip& chip, const GemmArgs& args) {
  const int32_t blocks = std::max(std::min(chip.multiprocessors, args.out), pieces(args.out, kGemvOuts));
  const int32_t bytes =
      (kNorm ? norm_bytes(args.in) : 0) + pieces(args.out, blocks) * static_cast<int32_t>(sizeof(int32_t));
  return launch(stream, chip, gemv_kernel<kKind, kNorm>, {blocks, kGemvThreads, bytes}, args);
}

// ---- few outputs ----

constexpr int32_t kNarrowOuts = 32;

// A warp an output of a row, of a classifier's few outputs: the other kernels would have a handful of blocks. Weights
// and rows are in the L2 cache.
__global__ void __launch_bounds__(kThreads) gemm_narrow_kernel(GemmArgs args) {
  let_next_start();
  wait_for_inputs();
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, row = item / args.out;
  if (row >= args.rows) return;
  const auto n = static_cast<int32_t>(item - row * args.out);
  const int8_t* weights = args.weight + int64_t{n} * args.in;
  const auto* a = static_cast<const int8_t*>(args.a) + row * args.in;
  int32_t c = 0;
  for (int32_t k = 16 * lane; k < args.in; k += kGemvBytes) {
    const uint4 w = *reinterpret_cast<const uint4*>(weights + k), b = *reinterpret_cast<const uint4*>(a + k);
    c = dot4<Sign::kSigned>(
        w.x, b.x, dot4<Sign::kSigned>(w.y, b.y, dot4<Sign::kSigned>(w.z, b.z, dot4<Sign::kSigned>(w.w, b.w, c))));
  }
  const int32_t sum = __reduce_add_sync(0xFFFFFFFFu, c);
  if (lane == 0) store_sum<GemmKind::kLinear>(args, row * args.out, n, sum);
}

// ---- many rows ----

constexpr int32_t kTileOuts = 128;
constexpr int32_t kStages = 4;

// Where 16-byte piece `piece` of row `row` stands in a [rows][64 bytes] tile, so that eight rows of one piece fall into
// different banks.
__device__ __forceinline__ uint32_t place(int32_t row, int32_t piece) {
  return static_cast<uint32_t>(row * kStep + ((piece ^ (row / 2 % 4)) * 16));
}

// Warps stand 2 (rows) x 4 (outputs). Activations are the 16-row operand, so that a lane ends with two neighbouring
// outputs.
template <GemmKind kKind, int kTileRows>
__global__ void __launch_bounds__(kThreads) gemm_tiled_kernel(GemmArgs args) {
  constexpr int kRowTiles = kTileRows / 32, kOutTiles = 4, kStageBytes = (kTileRows + kTileOuts) * kStep;
  extern __shared__ __align__(128) uint8_t memory[];
  const uint32_t base = shared_address(memory);
  const int32_t tid = static_cast<int32_t>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const int32_t row_tiles = (args.rows + kTileRows - 1) / kTileRows;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) % row_tiles * kTileRows,
                first_out = static_cast<int32_t>(blockIdx.x) / row_tiles * kTileOuts;
  const auto* a = static_cast<const int8_t*>(args.a);
  const int32_t steps = args.in / kStep;

  const auto load = [&](int32_t step) {
    const uint32_t rows_at = base + static_cast<uint32_t>(step % kStages * kStageBytes),
                   outs_at = rows_at + kTileRows * kStep;
#pragma unroll
    for (int j = 0; j < kTileRows * 4 / kThreads; ++j) {
      const int32_t i = tid + j * kThreads;
      const int32_t row = first_row + i / 4;
      const bool valid = row < args.rows;
      copy_async(rows_at + place(i / 4, i % 4),
                 a + (valid ? int64_t{row} * args.in + int64_t{step} * kStep + i % 4 * 16 : 0), valid);
    }
#pragma unroll
    for (int j = 0; j < kTileOuts * 4 / kThreads; ++j) {
      const int32_t i = tid + j * kThreads;
      const int32_t out = first_out + i / 4;
      const bool valid = out < args.out;
      copy_async(outs_at + place(i / 4, i % 4),
                 args.weight + (valid ? int64_t{out} * args.in + int64_t{step} * kStep + i % 4 * 16 : 0), valid);
    }
  };

  let_next_start();
  wait_for_inputs();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) load(s);
    commit_copies();
  }
  const int32_t warp_row = warp / 4 * (kTileRows / 2), warp_out = warp % 4 * 32;
  int32_t c[kRowTiles][kOutTiles][4] = {};
  for (int32_t step = 0; step < steps; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();  // step `step` has arrived for all, and nobody reads the stage that is loaded next
    if (step + kStages - 1 < steps) load(step + kStages - 1);
    commit_copies();
    const uint32_t rows_at = base + static_cast<uint32_t>(step % kStages * kStageBytes),
                   outs_at = rows_at + kTileRows * kStep;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint32_t rows[kRowTiles][4], outs[kOutTiles / 2][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
        load_matrices(rows[r], rows_at + place(warp_row + 16 * r + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int n = 0; n < kOutTiles / 2; ++n)
        load_matrices(outs[n], outs_at + place(warp_out + 16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n)
          mma<kActivation<kKind>, Sign::kSigned>(c[r][n], rows[r][0], rows[r][1], rows[r][2], rows[r][3],
                                                 outs[n / 2][n % 2 * 2], outs[n / 2][n % 2 * 2 + 1]);
    }
  }
  const int32_t g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t row = first_row + warp_row + 16 * r + g + 8 * (e / 2),
                      out = first_out + warp_out + 8 * n + 2 * t + e % 2;
        if (row < args.rows && out < args.out) store_sum<kKind>(args, int64_t{row} * args.out, out, c[r][n][e]);
      }
}

template <GemmKind kKind, int kTileRows>
cudaError_t launch_tiled(cudaStream_t stream, const Chip& chip, const GemmArgs& args) {
  constexpr int kBytes = kStages * (kTileRows + kTileOuts) * kStep;
  const auto kernel = gemm_tiled_kernel<kKind, kTileRows>;
  // Per device and kernel; cheap, and needed anew for every device a process uses.
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  return launch(stream, chip, kernel,
                {int64_t{pieces(args.rows, kTileRows)} * pieces(args.out, kTileOuts), kThreads, kBytes}, args);
}

template <GemmKind kKind>
cudaError_t gemm_of(cudaStream_t stream, const Chip& chip, const Tile& tile, const GemmArgs& args) {
#if defined(KAIJU_CUDA_SM90A)
  if (tile.path == Path::kSm90) return gemm_sm90<kKind>(stream, chip, tile, args);
#endif
  if (tile.path == Path::kSkinny) {
    if (serves_gemv(args.rows, args.in)) {
      if constexpr (kKind == GemmKind::kLinear || kKind == GemmKind::kUp)
        if (args.x) return launch_gemv<kKind, true>(stream, chip, args);
      return launch_gemv<kKind>(stream, chip, args);
    }
    if (args.rows <= 8) return launch_skinny<kKind, 1, 1, 4, 3>(stream, chip, args);
    if (args.rows <= 16) return launch_skinny<kKind, 1, 2, 4, 3>(stream, chip, args);
    if (args.rows <= 32) return launch_skinny<kKind, 1, 4, 4, 2>(stream, chip, args);
    if (args.rows <= kSkinnyRows) return launch_skinny<kKind, 2, 8, 2, 1>(stream, chip, args);
    return cudaErrorInvalidConfiguration;
  }
  return args.rows <= 96 ? launch_tiled<kKind, 64>(stream, chip, args) : launch_tiled<kKind, 128>(stream, chip, args);
}

}  // namespace

cudaError_t gemm_with_tile(cudaStream_t stream, const Chip& chip, const Tile& tile, GemmKind kind,
                           const GemmArgs& args) {
  switch (kind) {
    case GemmKind::kLinear:
      return gemm_of<GemmKind::kLinear>(stream, chip, tile, args);
    case GemmKind::kUp:
      return gemm_of<GemmKind::kUp>(stream, chip, tile, args);
    case GemmKind::kAddLinear:
      return gemm_of<GemmKind::kAddLinear>(stream, chip, tile, args);
    default:
      return gemm_of<GemmKind::kAddDown>(stream, chip, tile, args);
  }
}

bool joins_norm(const Chip& chip, int32_t rows, int32_t out, int32_t in) {
  if (!serves_gemv(rows, in) || choose_tile(chip, rows, {out, in}).path != Path::kSkinny) return false;
  return norm_bytes(in) + pieces(out, chip.multiprocessors) * static_cast<int32_t>(sizeof(int32_t)) <= 48 << 10;
}

cudaError_t gemm(cudaStream_t stream, const Chip& chip, GemmKind kind, const GemmArgs& args) {
  if (kind == GemmKind::kLinear && args.rows > 1 && args.out <= kNarrowOuts)
    return launch(stream, chip, gemm_narrow_kernel, {pieces(args.rows * args.out, kWarps), kThreads}, args);
  return gemm_with_tile(stream, chip, choose_tile(chip, args.rows, shape_of(kind, args.out, args.in)), kind, args);
}

}  // namespace kaiju::cuda
