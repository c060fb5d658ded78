// CublasLt: matmuls by NVIDIA's cuBLASLt, for chips that kaiju has no wgmma kernels for. It computes int32 sums in a
// buffer of fixed size, many rows in pieces. kernels/cublaslt_epilogue.cu turns the sums into results, with the same
// bits as every other kernel.
//
// The library (libcublasLt.so of the major version at compile time) is loaded when a process first needs it. If it is
// missing, kaiju behaves like a build without it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "../device.hpp"

namespace kaiju::cuda {

struct CublasLtMatmul {
  MatmulKind kind = MatmulKind::kLinear;
  MatmulArgs args{};
  const int32_t* row_sum = nullptr;  // [out] of the weights; for kAddDown alone
};

class CublasLt {
 public:
  // Takes all memory. Null where there is no such library, or the build does without (KAIJU_CUBLASLT). `always`: it
  // serves every matmul of more than one row that it can, not those alone where it is the faster way.
  static Result<std::unique_ptr<CublasLt>> open(std::shared_ptr<Device> device, bool always = false);
  virtual ~CublasLt() = default;

  // Chooses what serves every shape among `matmuls`, up to as many rows as theirs, and runs each choice once, since
  // kernels are loaded when they first run. Without a file, a choice is what cuBLASLt itself considers best. With one,
  // it is what the file says, if the file is of this GPU and this cuBLASLt; what the file lacks is searched, by running
  // everything that cuBLASLt offers and our own kernel, and added to it. Writes to the results of `matmuls`.
  virtual Status choose(std::span<const CublasLtMatmul> matmuls, const std::string& file) = 0;

  // Whether multiply() is the way for a matmul of this shape.
  virtual bool serves(int32_t rows, int32_t out, int32_t in) = 0;
  // Failures are kept by the device.
  virtual void multiply(const CublasLtMatmul& matmul) = 0;
};

}  // namespace kaiju::cuda
