// KvPool: the KV cache in the memory of one GPU: the blocks of both kinds, and the place of each KV slot of the model
// in them. tiles/layout.cuh defines the layout of keys and values within a block.
#pragma once

#include <span>
#include <vector>

#include "kaiju/backend/batch.hpp"
#include "kaiju/step/kv_counts.hpp"
#include "kaiju/step/plan.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

// Where blocks lie, by kind. Valid as long as their pool.
struct BlockAddresses {
  PerKind<std::byte*> first;
  PerKind<int64_t> bytes;  // of a block
  PerKind<int32_t> count;

  std::byte* of(BlockKind kind, BlockId block) const { return first[kind] + block * bytes_of(kind); }
  int64_t bytes_of(BlockKind kind) const { return bytes[kind]; }
};

class KvPool {
 public:
  // Takes info.cache_bytes() of memory, zeroed. `slots`: the model's, without pools.
  static Result<KvPool> make(const ExecutorInfo& info, std::vector<KvSlot> slots);

  // [slots of the model]
  const std::vector<KvSlot>& slots() const { return slots_; }
  const BlockAddresses& blocks() const { return blocks_; }

  // Copies a whole block to another one of its kind.
  cudaError_t copy(const BlockCopy& copy, cudaStream_t stream) const;
  // Zeros the tokens from `token_count` on in the host's copy of a block. Where keys and values have scales, theirs
  // become `scale`.
  void clear_tail(const BlockTransfer& transfer, arith::bf16 scale) const;
  // Adds the keys and values of a block without scales, which was copied to the host, to `counts`.
  void count(BlockKind kind, std::span<std::byte> block, KvCounts& counts) const;

 private:
  KvPool() = default;

  DeviceBuffer<std::byte> memory_;
  BlockAddresses blocks_;
  std::vector<KvSlot> slots_;
};

}  // namespace kaiju::cuda
