// Choices: which cuBLASLt algorithm computes matmuls of a given shape and number of rows, and the file that stores
// these choices. Host data only, compiled with and without CUDA.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kaiju/base/status.hpp"

namespace kaiju::cuda {

struct MatmulSize {
  int32_t out = 0, in = 0, rows = 0;
  auto operator<=>(const MatmulSize&) const = default;
};

using Algorithm =
    std::array<uint64_t, 8>;  // a cublasLtMatmulAlgo_t, which means something to the cuBLASLt that made it alone

struct Choices {
  std::string machine;                                // GPU and version of cuBLASLt that they were searched on
  std::map<MatmulSize, std::optional<Algorithm>> of;  // none: a kernel of our own
};

// One line that says what the file is, one of the machine, one of each choice: outputs, summed index, rows, and "own"
// or the algorithm.
std::string text_of(const Choices& choices);
// kInvalidArgument where that is not what `text` is.
Result<Choices> choices_of(std::string_view text);

// kNotFound where there is no such file, kInvalidArgument where it is another one; the message names it.
Result<Choices> read_choices(const std::string& path);
// As a whole or not at all.
Status write_choices(const std::string& path, const Choices& choices);

}  // namespace kaiju::cuda
