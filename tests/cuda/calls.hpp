// CUDA's calls as they are made, by the linker's --wrap (faults.cmake): counted, and one of them made to fail where a
// test says so. Of one thread: what others call goes past the wrappers (__real_...).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

namespace kaiju::test {

inline int64_t made = 0;  // calls since fail_at()
inline std::map<std::string, int64_t> made_of;
inline std::set<const void*> launched;  // kernels
inline cudaError_t failed_with = cudaSuccess;
inline std::function<void(const std::string& call)> before_calls;  // where a test has something done in front of them
inline int pretended = -1;  // the current device, where a test pretends that there are several; -1: it does not
inline std::map<std::string, int64_t> made_elsewhere;

// Counts anew. The nth call from now on fails as such calls may; 0: none does.
void fail_at(int64_t nth);
// The nth call of this name, with this answer.
void fail_at(int64_t nth, const char* call, cudaError_t with);
// And goes on counting.
void fail_no_more();

}  // namespace kaiju::test

extern "C" {
cudaError_t __real_cudaMalloc(void** p, size_t n);
cudaError_t __real_cudaFree(void* p);
cudaError_t __real_cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t s);
cudaError_t __real_cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f);
cudaError_t __real_cudaStreamDestroy(cudaStream_t s);
cudaError_t __real_cudaDeviceSynchronize();
}
