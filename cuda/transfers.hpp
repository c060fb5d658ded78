// Transfers: a step's copies of KV blocks between one GPU and the host: whole blocks, or where several GPUs share a
// model the KV heads that this one has. They run on their own streams, concurrently with the step's kernels.
//
// Down: a kernel before the step copies the blocks to a buffer on the GPU, so that the step may overwrite them. The
// buffer is copied to the host while the step computes. Up: blocks are copied directly to their place while a step
// computes that does not read them. These blocks are copied on the step's own stream: blocks that do not fit the
// buffer, blocks that the step reads, and all blocks before travel_beside_steps() is called.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device.hpp"
#include "kaiju/backend/batch.hpp"
#include "kaiju/step/plan.hpp"
#include "kv_pool.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace kaiju::cuda {

class Transfers {
 public:
  static constexpr int32_t kBufferBlocks = 256;  // of one step, of the larger kind

  Transfers(std::shared_ptr<Device> device, const KvPool& pool);

  // Takes the streams and the buffer for transfers beside steps; nothing when they are there.
  Status travel_beside_steps();

  // The four calls of one plan, in this order. Before anything of the plan writes to a block: what leaves the GPU.
  void send_down(std::span<const BlockTransfer> transfers);
  // After the plan's copies of blocks, before its rows. `segments` with the host's block tables.
  void bring_up(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments);
  // After the launches of its rows: starts what travels beside them.
  void start_beside();
  // Until what travels beside the step has arrived.
  void wait();

 private:
  // Copies that CUDA is given together.
  struct CopyBatch {
    std::vector<void*> to;
    std::vector<const void*> from;
    std::vector<size_t> bytes;
    void add(void* destination, const void* source, size_t count) {
      to.push_back(destination), from.push_back(source), bytes.push_back(count);
    }
    void reserve(size_t count) { to.reserve(count), from.reserve(count), bytes.reserve(count); }
    void clear() { to.clear(), from.clear(), bytes.clear(); }
    bool empty() const { return to.empty(); }
  };
  // What transfers beside steps need.
  struct Beside {
    Stream down, up;
    Event before_rows;  // of the step being run: its blocks are in the buffer, its copies are done
    DeviceBuffer<std::byte> buffer;
    PinnedBuffer buffered;  // [most blocks in the buffer] CopiedBlock, which the GPU reads where they are
    CopyBatch downs, ups;   // of the step being run
  };

  std::byte* block(const BlockTransfer& transfer) const { return blocks_.of(transfer.kind, transfer.block); }
  size_t bytes(const BlockTransfer& transfer) const { return static_cast<size_t>(blocks_.bytes_of(transfer.kind)); }
  bool sends(BlockKind kind) const;
  bool any_read(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments);
  bool is_pinned(const void* host);
  void copy_in_line(void* to, const void* from, size_t bytes, cudaMemcpyKind way);
  void send(const CopyBatch& batch, cudaMemcpyKind way, cudaStream_t stream);

  std::shared_ptr<Device> device_;
  BlockAddresses blocks_;
  BlockPieces pieces_;
  PerKind<std::vector<uint8_t>> coming_;  // by block: whether the plan brings it up; all 0 between plans
  std::optional<Beside> beside_;
};

}  // namespace kaiju::cuda
