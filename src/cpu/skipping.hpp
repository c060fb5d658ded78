// TransposedWeights: copies of the matrices `down` by channels, and the channels of a product that are not zero.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/base/buffer.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/tensor/matrix.hpp"
#include "kernels.hpp"

namespace kaiju {
class ThreadPool;
}

namespace kaiju::cpu {

class TransposedWeights {
 public:
  // Copies the matrices [out, in] as [in, out]. Their outputs must be a multiple of kSkipOuts. kOutOfMemory names the
  // bytes.
  static Result<TransposedWeights> make(std::span<const Matrix> matrices, ThreadPool& pool);

  // The copy of a matrix; null if there is none.
  const int8_t* copy_of(const Matrix& matrix) const;
  // Says in `args` which channels of its bytes [rows, in] are not zero in every row. False, if they are so many that
  // reading them apart costs more than reading the matrix. The lists last until the next call.
  bool find_channels(SkipArgs& args);

 private:
  struct Copy {
    const int8_t* of = nullptr;
    int64_t at = 0;  // in bytes_
  };
  Buffer<int8_t> bytes_;
  std::vector<Copy> copies_;  // by `of`
  std::vector<int32_t> channels_;
  std::vector<uint8_t> packed_;
};

}  // namespace kaiju::cpu
