// KvPool: sizes and allocates the KV cache of one GPU. See kv_pool.hpp.
#include "kv_pool.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tiles/layout.cuh"

namespace kaiju::cuda {

Result<KvPool> KvPool::make(const ExecutorInfo& info, std::vector<KvSlot> slots, const Split& split) {
  KvPool pool;
  pool.split_ = split;
  pool.host_slots_ = std::move(slots);
  KAIJU_TRY(take(pool.memory_, static_cast<size_t>(pool.lay_out(info)), "the KV cache"));
  BlockAddresses& blocks = pool.blocks_;
  blocks.first[1] = pool.memory_.data();
  blocks.first[0] = info.shares_memory() ? blocks.first[1] : blocks.first[1] + blocks.bytes[1] * blocks.count[1];
  for (KvSlot& slot : pool.slots_) slot.pool = blocks.first[slot.kind];
  return pool;
}

// Places this GPU's KV heads in blocks of its own. Returns the bytes of all blocks.
int64_t KvPool::lay_out(const ExecutorInfo& info) {
  slots_ = host_slots_;
  PerKind<int64_t>& bytes = blocks_.bytes;
  for (KvSlot& slot : slots_) {
    const Range heads = split_.kv_heads(slot.kv_heads);
    const int64_t head = KvSlot::head_bytes(slot.head_dim, slot.scaled);
    pieces_[slot.kind].push_back({bytes[slot.kind], slot.slot_offset + heads.first * head, heads.size * head,
                                  split_.is_first_with(slot.kv_heads)});
    slot.slot_offset = bytes[slot.kind];
    slot.kv_heads = heads.size;
    bytes[slot.kind] += heads.size * head;
  }
  if (split_.is_whole())
    for (const BlockKind kind : kBothKinds) pieces_[kind] = {{0, 0, info.block_bytes[kind]}};
  blocks_.count = info.block_count;
  int64_t all = 0;
  if (info.shares_memory()) {  // slabs of both kinds have one size; layers whose heads are divided otherwise leave a
                               // rest
    const PerKind<int32_t>& in_slab = info.slab_blocks;
    const int64_t unit = int64_t{16} * std::lcm(in_slab[0], in_slab[1]),
                  slab = (std::max(in_slab[0] * bytes[0], in_slab[1] * bytes[1]) + unit - 1) / unit * unit;
    for (const BlockKind kind : kBothKinds) bytes[kind] = slab / in_slab[kind];
    all = bytes[0] * info.block_count[0];
  } else {
    all = bytes[0] * info.block_count[0] + bytes[1] * info.block_count[1];
  }
  for (KvSlot& slot : slots_) slot.block_bytes = bytes[slot.kind];
  return all;
}

cudaError_t KvPool::copy(const BlockCopy& copy, cudaStream_t stream) const {
  return cudaMemcpyAsync(blocks_.of(copy.kind, copy.to), blocks_.of(copy.kind, copy.from),
                         static_cast<size_t>(blocks_.bytes_of(copy.kind)), cudaMemcpyDeviceToDevice, stream);
}

void KvPool::clear_tail(const BlockTransfer& transfer, arith::bf16 scale) const {
  for (KvSlot slot : host_slots_) {
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
    const int32_t all_heads = host_slots_[i].kv_heads, first_head = split_.kv_heads(all_heads).first;
    if (slot.kind != kind || !split_.is_first_with(all_heads)) continue;
    slot.pool = block.data();
    for (int32_t head = 0; head < slot.kv_heads; ++head) {
      const std::byte *keys = slot.keys(0, head), *values = slot.values(0, head);
      for (int32_t channel = 0; channel < slot.head_dim; ++channel) {
        const size_t first = static_cast<size_t>((first_head + head) * slot.head_dim + channel) * KvCounts::kBins;
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
