// Code that the files of kaiju-bench-attention share (attention*.cu): batches on the host and on the GPU, memory for
// attention, the count of failures, and how the program continues after a case that faults.
#pragma once

#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels.hpp"

namespace kaiju::cuda::bench {

// The case under way, and where to go on after one that faulted.
inline std::string case_name;
inline const char* form_name = nullptr;
inline int next_case = 0, end_case = 1000, failures = 0;
[[noreturn]] inline void fault() {
  std::printf("FAULT %s\n", case_name.c_str());
  std::fflush(stdout);
  if (form_name)
    execl("/proc/self/exe", "attention", "check", form_name, std::to_string(next_case).c_str(),
          std::to_string(end_case).c_str(), std::to_string(failures + 1).c_str(), nullptr);
  std::exit(2);
}

#define CHECKED(call)                                                                          \
  do {                                                                                         \
    const cudaError_t error_ = (call);                                                         \
    if (error_ != cudaSuccess) {                                                               \
      std::printf("\n%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      fault();                                                                                 \
    }                                                                                          \
  } while (0)

inline bool on_gpu = true;

template <class T>
struct There {
  T* data = nullptr;
  size_t count = 0;
  explicit There(size_t n) : count(n) {
    if (!on_gpu) return;
    CHECKED(cudaMalloc(&data, std::max<size_t>(n * sizeof(T), 16)));
    CHECKED(cudaMemset(data, 0xA5, n * sizeof(T)));
  }
  explicit There(const std::vector<T>& from) : There(from.size()) {
    if (on_gpu) CHECKED(cudaMemcpy(data, from.data(), count * sizeof(T), cudaMemcpyHostToDevice));
  }
  There(const There&) = delete;
  ~There() {
    if (on_gpu) cudaFree(data);
  }
  std::vector<T> back() const {
    std::vector<T> to(count);
    CHECKED(cudaMemcpy(to.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }
};

struct Scratch {
  AttentionScratch view;
  Scratch(int32_t units, int32_t head_dim) {
    cudaDeviceProp properties{};
    CHECKED(cudaGetDeviceProperties(&properties, 0));
    view.hopper = properties.major == 9;
    view.multiprocessors = properties.multiProcessorCount;
    view.units = units;
    view.head_dim = head_dim;
    CHECKED(cudaMalloc(&view.parts,
                       std::max<size_t>(1, static_cast<size_t>(units)) * kAttentionTileRows * sizeof(AttentionPart)));
    CHECKED(cudaMalloc(
        &view.sums, std::max<size_t>(1, static_cast<size_t>(units)) * kAttentionTileRows * head_dim * sizeof(float)));
    CHECKED(cudaMemset(view.sums, 0xFF, static_cast<size_t>(units) * kAttentionTileRows * head_dim * sizeof(float)));
    CHECKED(cudaMalloc(&view.counters, static_cast<size_t>(units + 1) * sizeof(int32_t)));
    CHECKED(cudaMemset(view.counters, 0, static_cast<size_t>(units + 1) * sizeof(int32_t)));
    CHECKED(cudaMalloc(&view.plans, static_cast<size_t>(kBlockKinds * 2 * view.multiprocessors * kAttentionPlanBytes)));
  }
  ~Scratch() { cudaFree(view.parts), cudaFree(view.sums), cudaFree(view.counters), cudaFree(view.plans); }
};

// Rows of sequences: {position of the first, count}.
using Rows = std::vector<std::pair<int32_t, int32_t>>;

// A batch on the host and on the GPU.
struct Rowed {
  std::vector<int32_t> positions, row_segment;
  std::vector<BatchSegment> segments;
  std::vector<std::vector<BlockId>> tables;
  std::vector<There<BlockId>*> tables_there;
  There<int32_t>*positions_there = nullptr, *row_segment_there = nullptr;
  There<BatchSegment>* segments_there = nullptr;

  Rowed(const Rows& rows, const std::vector<std::vector<BlockId>>& all_tables, BlockKind kind) : tables(all_tables) {
    std::vector<BatchSegment> there;
    for (size_t s = 0; s < rows.size(); ++s) {
      BatchSegment segment{
          static_cast<int32_t>(positions.size()), rows[s].second, rows[s].first, 0, {nullptr, nullptr}};
      for (int32_t r = 0; r < segment.row_count; ++r)
        positions.push_back(segment.position + r), row_segment.push_back(static_cast<int32_t>(s));
      tables_there.push_back(new There<BlockId>(tables[s]));
      segment.table[static_cast<int32_t>(kind)] = tables_there.back()->data;
      there.push_back(segment);
      segment.table[static_cast<int32_t>(kind)] = tables[s].data();
      segments.push_back(segment);
    }
    positions_there = new There<int32_t>(positions), row_segment_there = new There<int32_t>(row_segment),
    segments_there = new There<BatchSegment>(there);
  }
  ~Rowed() {
    for (auto* t : tables_there) delete t;
    delete positions_there, delete row_segment_there, delete segments_there;
  }
  size_t count() const { return positions.size(); }
  Batch host() const { return {static_cast<int32_t>(count()), positions, positions, segments, row_segment}; }
  Batch there() const {
    return {static_cast<int32_t>(count()),
            {positions_there->data, count()},
            {positions_there->data, count()},
            {segments_there->data, segments.size()},
            {row_segment_there->data, count()}};
  }
};

inline std::vector<std::vector<BlockId>> scattered_tables(const Rows& rows, std::mt19937_64& random, int32_t& blocks) {
  blocks = 3;
  for (const auto& [position, count] : rows) blocks += (position + count) / kBlockTokens + 1;
  std::vector<BlockId> free(static_cast<size_t>(blocks));
  for (int32_t i = 0; i < blocks; ++i) free[static_cast<size_t>(i)] = i;
  std::shuffle(free.begin(), free.end(), random);
  std::vector<std::vector<BlockId>> tables;
  for (const auto& [position, count] : rows) {
    auto& table = tables.emplace_back();
    for (int32_t i = 0; i <= (position + count) / kBlockTokens; ++i) table.push_back(free.back()), free.pop_back();
  }
  return tables;
}

inline Chip this_chip() {
  cudaDeviceProp properties{};
  CHECKED(cudaGetDeviceProperties(&properties, 0));
  return {.capability = 10 * properties.major + properties.minor, .multiprocessors = properties.multiProcessorCount};
}

// attention_check.cu
void check_wgmma();
void checks(const char* name, int from, int to);
// attention_scaled.cu
void scaled_checks(int from, int to);
void scaled_times(const char* wanted);

}  // namespace kaiju::cuda::bench
