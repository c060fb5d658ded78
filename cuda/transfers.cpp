// Transfers: copies KV blocks between GPU and host. See transfers.hpp.
#include "transfers.hpp"

#include <algorithm>
#include <utility>

#include "kernels/blocks.hpp"

namespace kaiju::cuda {

Transfers::Transfers(std::shared_ptr<Device> device, const KvPool& pool)
    : device_(std::move(device)), blocks_(pool.blocks()), pieces_(pool.pieces()) {
  for (int32_t kind = 0; kind < kBlockKinds; ++kind) coming_[kind].assign(static_cast<size_t>(blocks_.count[kind]), 0);
}

// Whether this GPU has anything of such blocks that the host gets from it.
bool Transfers::sends(BlockKind kind) const {
  return std::any_of(pieces_[kind].begin(), pieces_[kind].end(), [](const BlockPiece& piece) { return piece.is_sent; });
}

Status Transfers::travel_beside_steps() {
  if (beside_) return {};
  Beside made;
  cudaError_t error = Stream::make(made.down);
  if (error == cudaSuccess) error = Stream::make(made.up);
  if (error == cudaSuccess) error = Event::make(made.before_rows);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // running out of memory is not sticky
    return {StatusCode::kOutOfMemory,
            "the CUDA driver needs more of the GPU's memory than is free for streams that copy blocks"};
  }
  if (!device_->check(error, "creating streams for copies of blocks")) return device_->status();
  const auto [least, most] = std::minmax(blocks_.bytes[0], blocks_.bytes[1]);
  const size_t room = kBufferBlocks * static_cast<size_t>(most);
  const size_t most_blocks = room / static_cast<size_t>(least > 0 ? least : most);
  const size_t most_copies = most_blocks * std::max(pieces_[0].size(), pieces_[1].size());
  made.downs.reserve(most_copies), made.ups.reserve(most_copies);
  KAIJU_TRY(take(made.buffered, most_blocks * sizeof(CopiedBlock), "the list of blocks to copy to host memory"));
  KAIJU_TRY(take(made.buffer, room, "blocks to copy to host memory"));
  beside_ = std::move(made);
  return {};
}

void Transfers::send_down(std::span<const BlockTransfer> transfers) {
  if (beside_) beside_->downs.clear();
  auto* const list = beside_ ? reinterpret_cast<CopiedBlock*>(beside_->buffered.data()) : nullptr;
  int32_t count = 0;
  size_t used = 0;
  for (const BlockTransfer& transfer : transfers) {
    if (transfer.way != BlockTransfer::Way::kDown || !sends(transfer.kind)) continue;
    const size_t size = bytes(transfer);
    const bool in_line = !beside_ || used + size > beside_->buffer.size() || !is_pinned(transfer.host);
    std::byte* const from = in_line ? block(transfer) : beside_->buffer.data() + used;
    for (const BlockPiece& piece : pieces_[transfer.kind]) {
      if (!piece.is_sent) continue;
      const auto piece_bytes = static_cast<size_t>(piece.bytes);
      if (in_line)
        copy_in_line(transfer.host + piece.in_host, from + piece.here, piece_bytes, cudaMemcpyDeviceToHost);
      else
        beside_->downs.add(transfer.host + piece.in_host, from + piece.here, piece_bytes);
    }
    if (in_line) continue;
    list[count++] = {from, block(transfer), static_cast<int64_t>(size)};
    used += size;
  }
  if (count > 0)
    device_->attempt("copying blocks to the buffer", [&] {
      return copy_blocks(device_->stream(), list, count, std::max(blocks_.bytes[0], blocks_.bytes[1]));
    });
}

void Transfers::bring_up(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments) {
  if (beside_) beside_->ups.clear();
  const bool in_line = !beside_ || any_read(transfers, segments);
  for (const BlockTransfer& transfer : transfers) {
    if (transfer.way != BlockTransfer::Way::kUp) continue;
    const bool travels = !in_line && is_pinned(transfer.host);
    for (const BlockPiece& piece : pieces_[transfer.kind]) {
      std::byte *const to = block(transfer) + piece.here, *const from = transfer.host + piece.in_host;
      if (travels)
        beside_->ups.add(to, from, static_cast<size_t>(piece.bytes));
      else
        copy_in_line(to, from, static_cast<size_t>(piece.bytes), cudaMemcpyHostToDevice);
    }
  }
  if (beside_ && (!beside_->downs.empty() || !beside_->ups.empty()))
    device_->attempt("an event before a step's rows",
                     [&] { return cudaEventRecord(beside_->before_rows.get(), device_->stream()); });
}

void Transfers::start_beside() {
  if (!beside_) return;
  send(beside_->downs, cudaMemcpyDeviceToHost, beside_->down.get());
  send(beside_->ups, cudaMemcpyHostToDevice, beside_->up.get());
}

void Transfers::wait() {
  if (!beside_) return;
  if (!beside_->downs.empty())
    device_->check(cudaStreamSynchronize(beside_->down.get()), "copies of blocks to host memory");
  if (!beside_->ups.empty())
    device_->check(cudaStreamSynchronize(beside_->up.get()), "copies of blocks from host memory");
}

// Whether the copy engine may take it in a batch: the host may give memory of any kind.
bool Transfers::is_pinned(const void* host) {
  cudaPointerAttributes attributes{};
  device_->check(cudaPointerGetAttributes(&attributes, host), "a copy of a block");
  return attributes.type == cudaMemoryTypeHost;
}

// Whether a row of the plan may read a block that comes up. The engine's plans never do: a request whose block comes up
// computes in the next step.
bool Transfers::any_read(std::span<const BlockTransfer> transfers, std::span<const BatchSegment> segments) {
  const auto mark = [&](uint8_t coming) {
    bool any = false;
    for (const BlockTransfer& transfer : transfers)
      if (transfer.way == BlockTransfer::Way::kUp)
        coming_[transfer.kind][static_cast<size_t>(transfer.block)] = coming, any = true;
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

void Transfers::copy_in_line(void* to, const void* from, size_t bytes, cudaMemcpyKind way) {
  device_->attempt("a copy of a block", [&] { return cudaMemcpyAsync(to, from, bytes, way, device_->stream()); });
}

// One call for all: a call for each block takes the host longer than the link takes for the block.
void Transfers::send(const CopyBatch& batch, [[maybe_unused]] cudaMemcpyKind way, cudaStream_t stream) {
  if (batch.empty()) return;
  device_->attempt("copies of blocks", [&] { return cudaStreamWaitEvent(stream, beside_->before_rows.get(), 0); });
#if CUDART_VERSION >= 13000
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  device_->attempt("copies of blocks", [&] {
    return cudaMemcpyBatchAsync(batch.to.data(), batch.from.data(), batch.bytes.data(), batch.to.size(), &attributes,
                                &first, 1, stream);
  });
#else
  for (size_t i = 0; i < batch.to.size(); ++i)
    device_->attempt("a copy of a block",
                     [&] { return cudaMemcpyAsync(batch.to[i], batch.from[i], batch.bytes[i], way, stream); });
#endif
}

}  // namespace kaiju::cuda
