// Options and inputs that the CPU and GPU forms of kaiju-bench ops share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/tools/standard_streams.hpp"
#include "kaiju/arith/float32.hpp"
#include "kaiju/base/detail/core_count.hpp"

namespace kaiju::bench {

struct OpsOptions {
  std::string isa = "auto", only, products_file;
  int32_t threads = core_count();
  int64_t buffer_mib = 512;
  double seconds = 0.15;
  bool json = false;
  std::vector<int32_t> rows;  // empty: those of interest on the machine
};

// Which operations are wanted: those with `part` in their names. Remembers what there was to choose from.
class Wanted {
 public:
  explicit Wanted(std::string part) : part_(std::move(part)) {}

  bool operator()(const std::string& operation) {
    if (std::find(operations_.begin(), operations_.end(), operation) == operations_.end())
      operations_.push_back(operation);
    const bool wanted = operation.find(part_) != std::string::npos;
    any_ = any_ || wanted;
    return wanted;
  }
  // 2, and a word about it, where there was nothing of the kind; else 0.
  int exit_code() const {
    if (!any_)
      tools::print(stderr, "kaiju-bench: --only {}: there are \"{}\"\n", part_, fmt::join(operations_, "\", \""));
    return any_ ? 0 : 2;
  }

 private:
  std::string part_;
  bool any_ = false;
  std::vector<std::string> operations_;
};

// An operation that does not give the reference's bits.
struct Wrong {
  std::string what;
};

template <class T>
std::vector<T> random_values(size_t count, uint32_t seed, T (*shape)(uint32_t)) {
  std::vector<T> out(count);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (T& x : out) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    x = shape(static_cast<uint32_t>(state >> 32));
  }
  return out;
}
inline int8_t signed_byte(uint32_t bits) { return static_cast<int8_t>(static_cast<int32_t>(bits % 255) - 127); }
// Half of a trained feed-forward's bytes are zero or more; speed here does not depend on them.
inline uint8_t unsigned_byte(uint32_t bits) { return static_cast<uint8_t>(bits & 1 ? bits >> 24 : 0); }
inline float unit_float(uint32_t bits) { return static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31f; }
inline arith::bf16 unit_bf16(uint32_t bits) { return arith::to_bf16(unit_float(bits)); }

#if KAIJU_CUDA
int run_ops_on_gpu(const OpsOptions& options);  // bench/ops_cuda.cpp
#endif

}  // namespace kaiju::bench
