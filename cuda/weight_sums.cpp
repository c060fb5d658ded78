// See weight_sums.hpp.
#include "weight_sums.hpp"

#include <algorithm>
#include <string>

#include "kernels/weight_sums.hpp"

namespace kaiju::cuda {
namespace {

constexpr size_t kPieceBytes = size_t{16} << 20;

}  // namespace

Result<WeightSums> WeightSums::make(std::shared_ptr<Device> device, const DeviceBuffer<std::byte>& weights) {
  WeightSums made(std::move(device), weights.data(), weights.bytes() / 16 * 16);
  const size_t pieces = (made.bytes_ + kPieceBytes - 1) / kPieceBytes;
  KAIJU_TRY(take(made.sums_, pieces, "the sums of the weights"));
  made.expected_.resize(pieces);
  KAIJU_TRY(made.renew());
  return made;
}

Status WeightSums::renew() {
  Result<std::vector<uint64_t>> found = sums(0, expected_.size());
  if (!found.ok()) return found.status();
  expected_ = std::move(*found);
  next_ = 0;
  return {};
}

size_t WeightSums::piece_bytes(size_t piece) const { return std::min(kPieceBytes, bytes_ - piece * kPieceBytes); }

Result<std::vector<uint64_t>> WeightSums::sums(size_t first, size_t count) {
  std::vector<uint64_t> sums(count);
  const cudaStream_t stream = device_->stream();
  uint64_t* const there = sums_.data() + first;
  constexpr const char* kWhat = "a look at the weights";
  device_->attempt(kWhat, [&] { return cudaMemsetAsync(there, 0, count * sizeof(uint64_t), stream); });
  for (size_t i = 0; i < count; ++i) {
    const std::byte* const piece = weights_ + (first + i) * kPieceBytes;
    const uint64_t place = (first + i) * (kPieceBytes / sizeof(uint32_t));
    device_->attempt(kWhat, [&] { return add_word_sum(stream, piece, piece_bytes(first + i), place, there + i); });
  }
  device_->attempt(kWhat, [&] {
    return cudaMemcpyAsync(sums.data(), there, count * sizeof(uint64_t), cudaMemcpyDeviceToHost, stream);
  });
  device_->attempt(kWhat, [&] { return cudaStreamSynchronize(stream); });
  if (!device_->status().ok()) return device_->status();
  return sums;
}

Result<Scrubbed> WeightSums::look(size_t most_bytes) {
  const size_t pieces = expected_.size();
  const size_t count = std::min(std::max<size_t>(1, most_bytes / kPieceBytes), pieces - next_);
  Result<std::vector<uint64_t>> found = sums(next_, count);
  if (!found.ok()) return found.status();
  const size_t first = next_;
  Scrubbed looked;
  for (size_t i = 0; i < count; ++i) looked.bytes += piece_bytes(first + i);
  next_ = (first + count) % pieces;
  looked.whole = next_ == 0;
  for (size_t i = 0; i < count; ++i)
    if ((*found)[i] != expected_[first + i])
      return bad_model("the weights on the GPU are damaged: bytes from " + std::to_string((first + i) * kPieceBytes) +
                       " on have changed since they were copied: end the process, and test this GPU");
  return looked;
}

}  // namespace kaiju::cuda
