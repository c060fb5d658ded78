// GateParts: what a gate's file contains, checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kaiju {

struct GateParts {
  std::vector<std::string> labels;
  std::vector<int8_t> weights;        // [buckets, labels]; the number of buckets is a power of two
  std::vector<float> scales, biases;  // [labels]

  size_t buckets() const { return weights.size() / labels.size(); }
};

}  // namespace kaiju
