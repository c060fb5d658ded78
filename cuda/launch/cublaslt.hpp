// CublasLt: products by NVIDIA's cuBLASLt, for chips that have no tiles of their own here. It multiplies into int32
// sums, in a fixed scratch, the rows piece by piece where they are many; kernels/cublaslt_epilogue.cu turns the sums
// into results: the bits of every other kernel.
//
// The library is looked for when a process first wants it (libcublasLt.so of the major version that this was compiled
// with): without it, everything is as in a build without it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "../device.hpp"

namespace kaiju::cuda {

struct CublasLtGemm {
  GemmKind kind = GemmKind::kLinear;
  GemmArgs args{};
  const int32_t* row_sum = nullptr;  // [out] of the weights; for kAddDown alone
};

class CublasLt {
 public:
  // Takes all memory. Null where there is no such library, or the build does without (KAIJU_CUBLASLT).
  static Result<std::unique_ptr<CublasLt>> open(std::shared_ptr<Device> device);
  virtual ~CublasLt() = default;

  // For every shape among `products`, up to as many rows as theirs: chooses what serves it, and runs that once, since
  // kernels are loaded when they first run. Without a file what cuBLASLt itself holds for the best; else what the file
  // says, where it is of this GPU and this cuBLASLt, and what it does not say is searched by running everything that
  // cuBLASLt offers, and our own kernel, and kept there. Writes to the products' results.
  virtual Status choose(std::span<const CublasLtGemm> gemms, const std::string& file) = 0;

  // Whether a product had better be made by multiply().
  virtual bool serves(int32_t rows, int32_t out, int32_t in) = 0;
  // Failures are the device's.
  virtual void multiply(const CublasLtGemm& gemm) = 0;
};

}  // namespace kaiju::cuda
