// KvPool: sizes and allocates the KV cache of one GPU. See kv_pool.hpp.
#include "kv_pool.hpp"

#include <utility>

#include "tiles/layout.cuh"

namespace kaiju::cuda {

Result<KvPool> KvPool::make(const ExecutorInfo& info, std::vector<KvSlot> slots) {
  KvPool pool;
  KAIJU_TRY(take(pool.memory_, static_cast<size_t>(info.cache_bytes()), "the KV cache"));
  BlockAddresses& blocks = pool.blocks_;
  for (int32_t kind = 0; kind < kBlockKinds; ++kind)
    blocks.bytes[kind] = info.block_bytes[kind], blocks.count[kind] = info.block_count[kind];
  blocks.first[1] = pool.memory_.data();
  blocks.first[0] = info.shares_memory() ? blocks.first[1] : blocks.first[1] + blocks.bytes[1] * blocks.count[1];
  pool.slots_ = std::move(slots);
  for (KvSlot& slot : pool.slots_) slot.pool = blocks.first[slot.kind];
  return pool;
}

cudaError_t KvPool::copy(const BlockCopy& copy, cudaStream_t stream) const {
  return cudaMemcpyAsync(blocks_.of(copy.kind, copy.to), blocks_.of(copy.kind, copy.from),
                         static_cast<size_t>(blocks_.bytes_of(copy.kind)), cudaMemcpyDeviceToDevice, stream);
}

void KvPool::clear_tail(const BlockTransfer& transfer, arith::bf16 scale) const {
  for (KvSlot slot : slots_) {
    if (slot.kind != transfer.kind) continue;
    slot.pool = transfer.host;
    for (int32_t head = 0; head < slot.kv_heads; ++head)
      for (int32_t token = transfer.token_count; token < kBlockTokens; ++token) {
        for (int32_t channel = 0; channel < slot.head_dim; ++channel)
          slot.keys(0, head)[key_byte(token, channel)] =
              slot.values(0, head)[value_byte(slot.head_dim, token, channel)] = std::byte{0};
        if (slot.scaled) slot.key_scales(0, head)[token] = slot.value_scales(0, head)[token] = scale;
      }
  }
}

void KvPool::count(BlockKind kind, std::span<std::byte> block, KvCounts& counts) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    KvSlot slot = slots_[i];
    if (slot.kind != kind) continue;
    slot.pool = block.data();
    for (int32_t head = 0; head < slot.kv_heads; ++head) {
      const std::byte *keys = slot.keys(0, head), *values = slot.values(0, head);
      for (int32_t channel = 0; channel < slot.head_dim; ++channel) {
        const size_t first = static_cast<size_t>(head * slot.head_dim + channel) * KvCounts::kBins;
        for (int32_t token = 0; token < kBlockTokens; ++token) {
          const std::byte key = keys[key_byte(token, channel)],
                          value = values[value_byte(slot.head_dim, token, channel)];
          ++counts.slots[i].keys[first + static_cast<size_t>(KvCounts::bin_of(static_cast<int8_t>(key)))];
          ++counts.slots[i].values[first + static_cast<size_t>(KvCounts::bin_of(static_cast<int8_t>(value)))];
        }
      }
    }
  }
}

}  // namespace kaiju::cuda
