// LayerConstants: computes the factors from a layer's scales to its constants (arithmetic.md, section 3), in double
// precision, from the clips in the checkpoint.
#pragma once

#include <string>

#include "kaiju/format/checkpoint.hpp"
#include "kaiju/format/detail/layer_tensors.hpp"

namespace kaiju {

// Of a checkpoint whose tensors are those that its config asks for.
class LayerConstants {
 public:
  LayerConstants(const Checkpoint& file, int32_t layer) : file_(file), layer_(layer) {}

  // Of a site that has one clip.
  double clip(Site site) const { return static_cast<double>(file_.view<float>(clip_name(site))[0]); }
  std::string clip_name(Site site) const {
    return tensor_name(file_.config(), layer_, row_of(site).of, row_of(site).clip);
  }

  // A constant is scale times virtual scalar, times what a step of the input's bytes stands for, times the steps of the
  // result's bytes in one (1 where the result is a float), in this order.
  struct Factors {
    double input, result;
  };
  Factors factors(const MatmulRow& row) const {
    return {step(row.input), row.operation == Operation::kUp ? 255.0 / clip(Site::kFfnMid) : 1.0};
  }

 private:
  double step(Site site) const {
    const double most = clip(site);
    const bool squares = site == Site::kFfnMid && file_.config().shape.ffn == Ffn::kSquaredRelu;
    return squares ? (most * most) / 255.0
                   : most / 127.0;  // the bytes in the middle are then squares of what is clipped
  }

  const Checkpoint& file_;
  int32_t layer_;
};

}  // namespace kaiju
