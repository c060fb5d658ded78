#include "transfers.hpp"

#include <algorithm>

#include "kernels/blocks.hpp"

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
  cudaError_t error = cudaSuccess;
  const auto make = [&](auto& there, const auto& call) {
    if (!there && error == cudaSuccess) error = call(&there);
  };
  for (cudaStream_t* stream : {&down_, &up_})
    make(*stream, [](cudaStream_t* made) { return cudaStreamCreateWithFlags(made, cudaStreamNonBlocking); });
  make(in_front_, [](cudaEvent_t* made) { return cudaEventCreateWithFlags(made, cudaEventDisableTiming); });
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // running out of memory is not sticky
    return {StatusCode::kOutOfMemory,
            "the CUDA driver wants more of the GPU's memory than is free for streams that copy blocks"};
  }
  if (!device_->check(error, "taking streams for copies of blocks")) return device_->status();
  const auto [least, most] = std::minmax(block_bytes_[0], block_bytes_[1]);
  const size_t room = kAside * static_cast<size_t>(most);
  const size_t blocks = room / static_cast<size_t>(least > 0 ? least : most);
  downs_.reserve(blocks), ups_.reserve(blocks);
  KAIJU_TRY(take(setting_aside_, blocks * sizeof(CopiedBlock), "the list of blocks on their way to host memory"));
  return take(aside_, room, "blocks on their way to host memory");
}

void Transfers::send_down(std::span<const BlockTransfer> transfers) {
  downs_.clear();
  auto* const aside = reinterpret_cast<CopiedBlock*>(setting_aside_.data());
  int32_t count = 0;
  size_t used = 0;
  for (const BlockTransfer& transfer : transfers) {
    if (transfer.way != BlockTransfer::Way::kDown) continue;
    const size_t size = bytes(transfer);
    if (used + size > aside_.size() || !is_pinned(transfer.host)) {
      copy(transfer.host, block(transfer), size, cudaMemcpyDeviceToHost, device_->stream());
      continue;
    }
    aside[count++] = {aside_.data() + used, block(transfer), static_cast<int64_t>(size)};
    downs_.add(transfer.host, aside_.data() + used, size);
    used += size;
  }
  if (count > 0 && device_->ok())
    device_->check(copy_blocks(device_->stream(), aside, count, std::max(block_bytes_[0], block_bytes_[1])),
                   "setting blocks aside");
}

void Transfers::bring_up(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments) {
  ups_.clear();
  const bool in_line = !up_ || any_read(transfers, segments);
  for (const BlockTransfer& transfer : transfers) {
    if (transfer.way != BlockTransfer::Way::kUp) continue;
    if (in_line || !is_pinned(transfer.host))
      copy(block(transfer), transfer.host, bytes(transfer), cudaMemcpyHostToDevice, device_->stream());
    else
      ups_.add(block(transfer), transfer.host, bytes(transfer));
  }
  if (device_->ok() && (!downs_.empty() || !ups_.empty()))
    device_->check(cudaEventRecord(in_front_, device_->stream()), "an event in front of a step");
}

void Transfers::go_beside() {
  send(downs_, cudaMemcpyDeviceToHost, down_);
  send(ups_, cudaMemcpyHostToDevice, up_);
}

void Transfers::wait() {
  if (!downs_.empty()) device_->check(cudaStreamSynchronize(down_), "copies of blocks to host memory");
  if (!ups_.empty()) device_->check(cudaStreamSynchronize(up_), "copies of blocks from host memory");
}

bool Transfers::is_pinned(const void* host) {
  cudaPointerAttributes attributes{};
  device_->check(cudaPointerGetAttributes(&attributes, host), "a copy of a block");
  return attributes.type == cudaMemoryTypeHost;
}

std::byte* Transfers::block(const BlockTransfer& transfer) const {
  const auto kind = static_cast<size_t>(transfer.kind);
  return pool_[kind] + transfer.block * block_bytes_[kind];
}

size_t Transfers::bytes(const BlockTransfer& transfer) const {
  return static_cast<size_t>(block_bytes_[static_cast<size_t>(transfer.kind)]);
}

// Whether a row of the plan may touch a block that comes up. The engine's plans never do: who waits for a block
// computes in the next step.
bool Transfers::any_read(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments) {
  const auto mark = [&](uint8_t coming) {
    bool any = false;
    for (const BlockTransfer& transfer : transfers)
      if (transfer.way == BlockTransfer::Way::kUp)
        coming_[static_cast<size_t>(transfer.kind)][static_cast<size_t>(transfer.block)] = coming, any = true;
    return any;
  };
  if (!mark(1)) return false;
  bool read = false;
  for (const BatchSegment& segment : segments)
    for (size_t kind = 0; kind < kBlockKinds; ++kind)
      for (int32_t i = 0; i <= (segment.position + segment.row_count - 1) / kBlockTokens; ++i)
        if (const BlockId block = segment.table[kind][i];
            block != kNoBlock && coming_[kind][static_cast<size_t>(block)])
          read = true;
  mark(0);
  return read;
}

void Transfers::copy(void* to, const void* from, size_t bytes, cudaMemcpyKind way, cudaStream_t stream) {
  if (device_->ok()) device_->check(cudaMemcpyAsync(to, from, bytes, way, stream), "a copy of a block");
}

// One call for all: each of its own takes the host longer than a block takes the link.
void Transfers::send(const Travels& travels, [[maybe_unused]] cudaMemcpyKind way, cudaStream_t stream) {
  if (travels.empty() || !device_->ok() ||
      !device_->check(cudaStreamWaitEvent(stream, in_front_, 0), "copies of blocks"))
    return;
#if CUDART_VERSION >= 13000
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  device_->check(cudaMemcpyBatchAsync(travels.to.data(), travels.from.data(), travels.bytes.data(), travels.to.size(),
                                      &attributes, &first, 1, stream),
                 "copies of blocks");
#else
  for (size_t i = 0; i < travels.to.size(); ++i) copy(travels.to[i], travels.from[i], travels.bytes[i], way, stream);
#endif
}

}  // namespace kaiju::cuda
