// KvPool: the KV cache in the memory of one GPU: the blocks of both kinds, and the place of each KV slot of the model
// in them. tiles/layout.cuh defines the layout of keys and values within a block. Of several GPUs that share a model
// each has blocks of its own KV heads; the host's copy of a block has all heads.
#pragma once

#include <span>
#include <vector>

#include "kaiju/backend/batch.hpp"
#include "kaiju/step/kv_counts.hpp"
#include "kaiju/step/plan.hpp"
#include "memory.hpp"
#include "split.hpp"

namespace kaiju::cuda {

// Where blocks lie, by kind. Valid as long as their pool.
struct BlockAddresses {
  PerKind<std::byte*> first;
  PerKind<int64_t> bytes;  // of a block
  PerKind<int32_t> count;

  std::byte* of(BlockKind kind, BlockId block) const { return first[kind] + block * bytes_of(kind); }
  int64_t bytes_of(BlockKind kind) const { return bytes[kind]; }
};

// Bytes of a block that lie together on this GPU and in the host's copy.
struct BlockPiece {
  int64_t here, in_host, bytes;
  bool is_sent = true;  // to the host: of the GPUs that have the same KV heads, one sends them
};
using BlockPieces = PerKind<std::vector<BlockPiece>>;

class KvPool {
 public:
  // Takes the GPU's part of info.cache_bytes() of memory, zeroed. `slots`: the whole model's, without pools.
  static Result<KvPool> make(const ExecutorInfo& info, std::vector<KvSlot> slots, const Split& split = {});

  // [slots of the model]
  const std::vector<KvSlot>& slots() const { return slots_; }
  const BlockAddresses& blocks() const { return blocks_; }
  const BlockPieces& pieces() const { return pieces_; }

  // Copies a whole block to another one of its kind.
  cudaError_t copy(const BlockCopy& copy, cudaStream_t stream) const;
  // Zeros the tokens from `token_count` on in the host's copy of a block, of all KV heads. Where keys and values have
  // scales, theirs become `scale`.
  void clear_tail(const BlockTransfer& transfer, arith::bf16 scale) const;
  // Adds the keys and values of one of this GPU's blocks without scales, which was copied to the host, to `counts`; of
  // KV heads that several GPUs have only on the first.
  void count(BlockKind kind, std::span<std::byte> block, KvCounts& counts) const;

 private:
  KvPool() = default;
  int64_t lay_out(const ExecutorInfo& info);

  Split split_;
  DeviceBuffer<std::byte> memory_;
  BlockAddresses blocks_;
  BlockPieces pieces_;
  std::vector<KvSlot> slots_, host_slots_;  // of this GPU's blocks; of the host's copies
};

}  // namespace kaiju::cuda
