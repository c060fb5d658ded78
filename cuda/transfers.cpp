#include "transfers.hpp"

#include <algorithm>

namespace kaiju::cuda {

Transfers::~Transfers() {
  if (in_front_) cudaEventDestroy(in_front_);
  for (const cudaStream_t stream : {down_, up_})
    if (stream) cudaStreamDestroy(stream);
}

void Transfers::create(const Facts& facts, std::byte* const (&pool)[kBlockKinds]) {
  for (int32_t kind = 0; kind < kBlockKinds; ++kind) {
    block_bytes_[kind] = facts.block_bytes[kind];
    pool_[kind] = pool[kind];
    coming_[kind].assign(static_cast<size_t>(facts.block_count[kind]), 0);
  }
}

Status Transfers::take_memory() {
  if (aside_.data()) return {};
  downs_.reserve(kAside);
  const auto check = [&](cudaError_t error) { device_->check(error, "taking streams for copies of blocks"); };
  if (!down_) check(cudaStreamCreateWithFlags(&down_, cudaStreamNonBlocking));
  if (!up_) check(cudaStreamCreateWithFlags(&up_, cudaStreamNonBlocking));
  if (!in_front_) check(cudaEventCreateWithFlags(&in_front_, cudaEventDisableTiming));
  KAIJU_TRY(device_->status());
  return take(aside_, kAside * static_cast<size_t>(std::max(block_bytes_[0], block_bytes_[1])), "blocks on their way to host memory");
}

void Transfers::send_down(std::span<const BlockTransfer> transfers) {
  downs_.clear();
  size_t used = 0;
  for (const BlockTransfer& transfer : transfers) {
    if (transfer.way != BlockTransfer::Way::kDown) continue;
    const size_t count = bytes(transfer);
    if (used + count > aside_.size()) {
      copy(transfer.host, block(transfer), count, cudaMemcpyDeviceToHost, device_->stream());
      continue;
    }
    std::byte* const aside = aside_.data() + used;
    copy(aside, block(transfer), count, cudaMemcpyDeviceToDevice, device_->stream());
    downs_.push_back({transfer.host, aside, count});
    used += count;
  }
}

void Transfers::bring_up(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments) {
  ups_.clear();
  const bool in_line = !up_ || any_read(transfers, segments);
  for (const BlockTransfer& transfer : transfers) {
    if (transfer.way != BlockTransfer::Way::kUp) continue;
    if (in_line)
      copy(block(transfer), transfer.host, bytes(transfer), cudaMemcpyHostToDevice, device_->stream());
    else
      ups_.push_back({transfer.host, block(transfer), bytes(transfer)});
  }
  if (device_->ok() && (!downs_.empty() || !ups_.empty())) device_->check(cudaEventRecord(in_front_, device_->stream()), "an event in front of a step");
}

void Transfers::go_beside() {
  if (!device_->ok()) return;
  if (!downs_.empty()) device_->check(cudaStreamWaitEvent(down_, in_front_, 0), "copies of blocks");
  for (const Travel& down : downs_) copy(down.host, down.device, down.bytes, cudaMemcpyDeviceToHost, down_);
  if (device_->ok() && !ups_.empty()) device_->check(cudaStreamWaitEvent(up_, in_front_, 0), "copies of blocks");
  for (const Travel& up : ups_) copy(up.device, up.host, up.bytes, cudaMemcpyHostToDevice, up_);
}

void Transfers::wait() {
  if (!downs_.empty()) device_->check(cudaStreamSynchronize(down_), "copies of blocks to host memory");
  if (!ups_.empty()) device_->check(cudaStreamSynchronize(up_), "copies of blocks from host memory");
}

std::byte* Transfers::block(const BlockTransfer& transfer) const {
  const auto kind = static_cast<size_t>(transfer.kind);
  return pool_[kind] + transfer.block * block_bytes_[kind];
}

size_t Transfers::bytes(const BlockTransfer& transfer) const { return static_cast<size_t>(block_bytes_[static_cast<size_t>(transfer.kind)]); }

// Whether a row of the plan may touch a block that comes up. The engine's plans never do: who waits for a block computes in the next step.
bool Transfers::any_read(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments) {
  const auto mark = [&](uint8_t coming) {
    bool any = false;
    for (const BlockTransfer& transfer : transfers)
      if (transfer.way == BlockTransfer::Way::kUp) coming_[static_cast<size_t>(transfer.kind)][static_cast<size_t>(transfer.block)] = coming, any = true;
    return any;
  };
  if (!mark(1)) return false;
  bool read = false;
  for (const BatchSegment& segment : segments)
    for (size_t kind = 0; kind < kBlockKinds; ++kind)
      for (int32_t i = 0; i <= (segment.position + segment.row_count - 1) / kBlockTokens; ++i)
        if (const BlockId block = segment.table[kind][i]; block != kNoBlock && coming_[kind][static_cast<size_t>(block)]) read = true;
  mark(0);
  return read;
}

void Transfers::copy(void* to, const void* from, size_t bytes, cudaMemcpyKind way, cudaStream_t stream) {
  if (device_->ok()) device_->check(cudaMemcpyAsync(to, from, bytes, way, stream), "a copy of a block");
}

}  // namespace kaiju::cuda
