// Transfers: a step's copies of whole blocks between the GPU and the host, on streams of their own beside the step's
// kernels.
//
// Down: a block is set aside on the GPU in front of the step, which may then overwrite it, and travels to the host
// while the step computes. Up: straight into its place, beside a step that does not read it. Whatever finds no room
// aside, or is read at once, is copied in line on the step's own stream; before take_memory, everything is.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device.hpp"
#include "kaiju/backend/batch.hpp"
#include "kaiju/step/plan.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

class Transfers {
 public:
  static constexpr int32_t kAside = 256;  // blocks of one step, of the larger kind

  explicit Transfers(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // `pool` says where block 0 of each kind lies.
  void create(const Facts& facts, std::byte* const (&pool)[kBlockKinds]);
  // What travelling beside steps needs. Once.
  Status take_memory();

  // In this order, of one plan. First what leaves the GPU, so that everything behind it may overwrite it.
  void send_down(std::span<const BlockTransfer> transfers);
  // Behind the plan's copies of blocks, in front of its rows.
  void bring_up(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments);
  // Behind the launches of its rows: what travels beside them.
  void go_beside();
  void wait();

 private:
  // Copies that CUDA is given together.
  struct Travels {
    std::vector<void*> to;
    std::vector<const void*> from;
    std::vector<size_t> bytes;
    void add(void* there, const void* here, size_t count) {
      to.push_back(there), from.push_back(here), bytes.push_back(count);
    }
    void reserve(size_t count) { to.reserve(count), from.reserve(count), bytes.reserve(count); }
    void clear() { to.clear(), from.clear(), bytes.clear(); }
    bool empty() const { return to.empty(); }
  };

  std::byte* block(const BlockTransfer& transfer) const;
  size_t bytes(const BlockTransfer& transfer) const;
  bool any_read(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments);
  // Whether the copy engine may take it in a batch: what the host gave may be memory of any kind.
  bool is_pinned(const void* host);
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind way, cudaStream_t stream);
  void send(const Travels& travels, cudaMemcpyKind way, cudaStream_t stream);

  std::shared_ptr<Device> device_;
  int64_t block_bytes_[kBlockKinds] = {0, 0};
  std::byte* pool_[kBlockKinds] = {nullptr, nullptr};
  DeviceBuffer<std::byte> aside_;
  PinnedBuffer setting_aside_;  // [most blocks that find room there] CopiedBlock, which the GPU reads where they are
  cudaStream_t down_ = nullptr, up_ = nullptr;
  cudaEvent_t in_front_ = nullptr;            // of the step being run: its blocks are aside, its copies done
  std::vector<uint8_t> coming_[kBlockKinds];  // by block: whether the plan brings it up; all 0 between plans
  Travels downs_, ups_;                       // beside the step being run
};

}  // namespace kaiju::cuda
