// TransposedWeights, and the product `down` that reads them: see skipping.hpp.
#include "skipping.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>

#include "kaiju/backend/cpu.hpp"
#include "kaiju/base/detail/thread_pool.hpp"

namespace kaiju {
namespace cpu {
namespace {

constexpr int32_t kTile = 64;                    // of the transposition, a line of the cache each way
constexpr int64_t kSkipBytesPerPart = 48 << 10;  // a part for another thread
constexpr int32_t kSkipWorth = 4;  // a product skips if it reads at most one channel in so many (docs/log/cpu.md)

void transpose(const Matrix& matrix, int32_t first, int32_t end, int8_t* to) {
  for (int32_t n = 0; n < matrix.out; n += kTile)
    for (int32_t k = first; k < end; ++k)
      for (int32_t i = n; i < std::min(n + kTile, matrix.out); ++i)
        to[int64_t{k} * matrix.out + i] = matrix.weight[int64_t{i} * matrix.in + k];
}

}  // namespace

Result<TransposedWeights> TransposedWeights::make(std::span<const Matrix> matrices, ThreadPool& pool) {
  TransposedWeights made;
  int64_t bytes = 0;
  int32_t widest = 0;
  for (const Matrix& matrix : matrices) {
    made.copies_.push_back({matrix.weight, bytes});
    bytes += int64_t{matrix.out} * matrix.in;
    widest = std::max(widest, matrix.in);
  }
  Result<Buffer<int8_t>> taken = Buffer<int8_t>::make(static_cast<size_t>(bytes), "the copies that skip zeros");
  if (!taken.ok()) return taken.status();
  made.bytes_ = std::move(taken).value();
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Matrix& matrix = matrices[i];
    int8_t* const to = made.bytes_.data() + made.copies_[i].at;
    pool.parallel_for((matrix.in + kTile - 1) / kTile, [&](int32_t part, int32_t) {
      transpose(matrix, part * kTile, std::min((part + 1) * kTile, matrix.in), to);
    });
  }
  std::sort(made.copies_.begin(), made.copies_.end(),
            [](const Copy& a, const Copy& b) { return std::less<>()(a.of, b.of); });
  made.channels_.resize(static_cast<size_t>(widest + kSkipGroup));
  made.packed_.resize(static_cast<size_t>(widest + kSkipGroup) * kMostSkipRows);
  return made;
}

const int8_t* TransposedWeights::copy_of(const Matrix& matrix) const {
  const auto at =
      std::lower_bound(copies_.begin(), copies_.end(), matrix.weight,
                       [](const Copy& copy, const int8_t* weight) { return std::less<>()(copy.of, weight); });
  if (at == copies_.end() || at->of != matrix.weight) return nullptr;
  return const_cast<Buffer<int8_t>&>(bytes_).data() + at->at;
}

bool TransposedWeights::find_channels(SkipArgs& args) {
  const auto* const bytes = static_cast<const uint8_t*>(args.bytes);
  const int32_t most = args.in / kSkipWorth;
  int32_t count = 0;
  for (int32_t k = 0; k < args.in; k += 8) {  // in is a multiple of 64
    uint64_t any = 0;
    for (int32_t row = 0; row < args.rows; ++row) {
      uint64_t eight;
      std::memcpy(&eight, bytes + int64_t{row} * args.in + k, sizeof eight);
      any |= eight;
    }
    for (int32_t i = 0; any != 0; ++i, any >>= 8)  // of a little-endian machine
      if ((any & 0xFF) != 0) channels_[static_cast<size_t>(count++)] = k + i;
    if (count > most) return false;
  }
  const int32_t found = count;
  while (count % kSkipGroup != 0 || count == 0) channels_[static_cast<size_t>(count++)] = 0;
  args.packed_rows = args.rows == 3 ? 4 : args.rows;
  uint8_t* to = packed_.data();
  for (int32_t at = 0; at < count; at += kSkipGroup)
    for (int32_t row = 0; row < args.packed_rows; ++row)
      for (int32_t j = at; j < at + kSkipGroup; ++j)
        *to++ = j < found && row < args.rows ? bytes[int64_t{row} * args.in + channels_[static_cast<size_t>(j)]]
                                             : uint8_t{0};
  args.channels = channels_.data();
  args.count = count;
  args.packed = packed_.data();
  return true;
}

}  // namespace cpu

Status CpuBackend::skip_zeros_of(std::span<const Matrix> downs) {
  if (!kernels_.multiply_skipping)
    return Status(StatusCode::kUnsupported,
                  std::string("backend ") + kernels_.isa + " does not skip zeros: leave it out");
  for (const Matrix& down : downs)
    if (down.out % cpu::kSkipOuts != 0)
      return Status(StatusCode::kUnsupported, "zeros are skipped in widths that are multiples of " +
                                                  std::to_string(cpu::kSkipOuts) + ", not " + std::to_string(down.out));
  Result<cpu::TransposedWeights> made = cpu::TransposedWeights::make(downs, pool_);
  if (!made.ok()) return made.status();
  transposed_ = std::make_unique<cpu::TransposedWeights>(std::move(made).value());
  return {};
}

bool CpuBackend::add_down_skipping(const cpu::MatmulArgs& product) {
  if (!transposed_ || product.rows > cpu::kMostSkipRows) return false;
  cpu::SkipArgs args;
  static_cast<cpu::MatmulArgs&>(args) = product;
  args.weight = transposed_->copy_of({product.weight, product.row_sum, product.out, product.in});
  if (!args.weight || !transposed_->find_channels(args)) return false;
  const int32_t units = args.out / cpu::kSkipOuts;
  const auto parts = static_cast<int32_t>(std::clamp<int64_t>(int64_t{args.count} * args.out / cpu::kSkipBytesPerPart,
                                                              1, std::min(units, 2 * pool_.threads())));
  pool_.parallel_for(parts, [&](int32_t part, int32_t) {
    kernels_.multiply_skipping(args, units * part / parts * cpu::kSkipOuts,
                               units * (part + 1) / parts * cpu::kSkipOuts);
  });
  return true;
}

}  // namespace kaiju
