#include "calls.hpp"

#include "several_of_one.hpp"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#include <cstring>

namespace kaiju::test {
namespace {

int64_t fails_at = 0;  // 0: never
std::string fails_in;  // where it is not empty, of the calls of this name, with an answer of the test's

void note_device(const char* call) {
  if (pretended > 0) ++made_elsewhere[call];
}
bool fails(const char* call, cudaError_t with) {
  note_device(call);
  if (before_calls) before_calls(call);
  ++made_of[call];
  ++made;
  if (fails_in.empty() ? made != fails_at : fails_in != call || made_of[call] != fails_at) return false;
  if (fails_in.empty()) failed_with = with;
  return true;
}

}  // namespace

void fail_at(int64_t nth) {
  made = 0;
  made_of.clear();
  fails_at = nth;
  fails_in.clear();
  failed_with = cudaSuccess;
}
void fail_at(int64_t nth, const char* call, cudaError_t with) {
  fail_at(nth);
  fails_in = call;
  failed_with = with;
}
void fail_no_more() { fails_at = 0; }

}  // namespace kaiju::test

using namespace kaiju::test;

#define WRAPPED(name, failure, parameters, arguments) \
  cudaError_t __real_##name parameters;               \
  cudaError_t __wrap_##name parameters { return fails(#name, failure) ? failed_with : __real_##name arguments; }
// What may not fail.
#define WATCHED(name, parameters, arguments) \
  cudaError_t __real_##name parameters;      \
  cudaError_t __wrap_##name parameters {     \
    note_device(#name);                      \
    return __real_##name arguments;          \
  }
extern "C" {
WRAPPED(cudaMalloc, cudaErrorMemoryAllocation, (void** p, size_t n), (p, n))
WRAPPED(cudaMallocHost, cudaErrorMemoryAllocation, (void** p, size_t n), (p, n))
WRAPPED(cudaMemset, cudaErrorLaunchFailure, (void* p, int v, size_t n), (p, v, n))
WRAPPED(cudaMemsetAsync, cudaErrorLaunchFailure, (void* p, int v, size_t n, cudaStream_t s), (p, v, n, s))
WRAPPED(cudaMemcpy, cudaErrorLaunchFailure, (void* to, const void* from, size_t n, cudaMemcpyKind k), (to, from, n, k))
WRAPPED(cudaMemcpyAsync, cudaErrorLaunchFailure,
        (void* to, const void* from, size_t n, cudaMemcpyKind k, cudaStream_t s), (to, from, n, k, s))
#if CUDART_VERSION >= 13000
WRAPPED(cudaMemcpyBatchAsync, cudaErrorLaunchFailure,
        (void* const* to, const void* const* from, const size_t* n, size_t count, cudaMemcpyAttributes* a, size_t* i,
         size_t as, cudaStream_t s),
        (to, from, n, count, a, i, as, s))
#endif
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** a) {
  if (fails("cudaLaunchKernelExC", cudaErrorLaunchFailure)) return failed_with;
  launched.insert(f);
  return launch_on_shown(c, f, a);
}
WRAPPED(cudaFuncSetAttribute, cudaErrorLaunchFailure, (const void* f, cudaFuncAttribute a, int v), (f, a, v))
WRAPPED(cudaStreamSynchronize, cudaErrorLaunchFailure, (cudaStream_t s), (s))
WRAPPED(cudaEventSynchronize, cudaErrorLaunchFailure, (cudaEvent_t e), (e))
WRAPPED(cudaDeviceSynchronize, cudaErrorLaunchFailure, (),
        ())  // would break off what another thread records: never asked for
WRAPPED(cudaStreamCreateWithFlags, cudaErrorLaunchFailure, (cudaStream_t * s, unsigned f), (s, f))
WRAPPED(cudaStreamWaitEvent, cudaErrorLaunchFailure, (cudaStream_t s, cudaEvent_t e, unsigned f), (s, e, f))
WRAPPED(cudaEventCreateWithFlags, cudaErrorLaunchFailure, (cudaEvent_t * e, unsigned f), (e, f))
WRAPPED(cudaEventRecord, cudaErrorLaunchFailure, (cudaEvent_t e, cudaStream_t s), (e, s))
WRAPPED(cudaGraphInstantiate, cudaErrorMemoryAllocation, (cudaGraphExec_t * e, cudaGraph_t g, unsigned long long f),
        (e, g, f))
WRAPPED(cudaGraphUpload, cudaErrorLaunchFailure, (cudaGraphExec_t e, cudaStream_t s), (e, s))
WRAPPED(cudaGraphLaunch, cudaErrorLaunchFailure, (cudaGraphExec_t e, cudaStream_t s), (e, s))
cudaError_t __wrap_cudaDeviceEnablePeerAccess(int other, unsigned f) {
  return fails("cudaDeviceEnablePeerAccess", cudaErrorMemoryAllocation) ? failed_with : enable_shown_peer(other, f);
}
WATCHED(cudaFree, (void* p), (p))
WATCHED(cudaFreeHost, (void* p), (p))
WATCHED(cudaStreamDestroy, (cudaStream_t s), (s))
WATCHED(cudaEventDestroy, (cudaEvent_t e), (e))
WATCHED(cudaGraphExecDestroy, (cudaGraphExec_t e), (e))
cudaError_t __wrap_cudaGetDevice(int* device) {
  return pretended < 0 ? get_shown_device(device) : (*device = pretended, cudaSuccess);
}
cudaError_t __wrap_cudaSetDevice(int device) {
  return pretended < 0 ? set_shown_device(device) : (pretended = device, cudaSuccess);
}

// cuBLASLt is looked up while the process runs: its matmuls fail by what is found.
void* __real_dlsym(void* library, const char* name);
void* __wrap_dlsym(void* library, const char* name) {
  void* const found = __real_dlsym(library, name);
#if __has_include(<cublasLt.h>)
  if (found && std::strcmp(name, "cublasLtMatmul") == 0) {
    static decltype(&cublasLtMatmul) multiply;
    multiply = reinterpret_cast<decltype(multiply)>(found);
    const decltype(multiply) may_fail = [](auto... arguments) {
      return fails("cublasLtMatmul", cudaErrorLaunchFailure) ? CUBLAS_STATUS_EXECUTION_FAILED : multiply(arguments...);
    };
    return reinterpret_cast<void*>(may_fail);
  }
#endif
  return found;
}
}
