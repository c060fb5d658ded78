// Rows among GPUs that share a model: which of them adds up a row's sums, and when rows are spread over them. Includes
// nothing of CUDA.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

inline constexpr int32_t kMostGpus = 8;
inline constexpr int32_t kOwnedRun = 8;  // neighbouring rows that one GPU owns, then the next

// Rows that GPU `rank` owns of so many.
constexpr int32_t owned_rows(int32_t rows, int32_t count, int32_t rank) {
  const int32_t round = kOwnedRun * count, rest = rows % round - kOwnedRun * rank;
  return rows / round * kOwnedRun + (rest < 0 ? 0 : rest < kOwnedRun ? rest : kOwnedRun);
}
// Rows are spread over GPUs where sending the sums of all rows to all takes longer than meeting once more. Bytes that a
// GPU sends for each value: its sum to all others; or to the owner of the row, and the owner what becomes of it to all:
// `result` bytes, 1 in version 1 of the arithmetic and 4 in version 2.
inline constexpr int64_t kMeetingBytes = 1'000'000;  // what NVLink moves in the time of a meeting
constexpr int64_t saved_by_spreading(int32_t count, int32_t result) {
  return int64_t{4} * (count - 1) - int64_t{4 + result} * (count - 1) / count;
}
constexpr bool spreads(int32_t rows, int32_t out, int32_t count, int32_t result) {
  return int64_t{rows} * out * saved_by_spreading(count, result) > kMeetingBytes;
}
// Rows that a GPU sends to another at most, of steps of up to `rows` rows.
constexpr int32_t most_sent_rows(int32_t rows, int32_t out, int32_t count, int32_t result) {
  if (!spreads(rows, out, count, result)) return rows;
  const int64_t not_spread = kMeetingBytes / (out * saved_by_spreading(count, result)),
                owned = owned_rows(rows, count, 0);
  return static_cast<int32_t>(not_spread < owned ? owned : not_spread);
}

}  // namespace kaiju::cuda
