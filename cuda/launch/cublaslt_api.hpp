// The cuBLASLt functions that kaiju calls. They are looked up at run time, so a program also starts if cuBLASLt is not
// installed.
#pragma once

#include <cublasLt.h>
#include <dlfcn.h>

#include <string>
#include <type_traits>

namespace kaiju::cuda {

struct CublasLtApi {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmulDescInit_internal) init_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) offer;
  decltype(&cublasLtMatmulAlgoCheck) fits;
  decltype(&cublasLtMatmul) multiply;

  // Null where it is not installed, or lacks something.
  static const CublasLtApi* get() {
    static const CublasLtApi api;
    return api.whole_ ? &api : nullptr;
  }

 private:
  CublasLtApi() {
    const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* const library =
        dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // for good: CUDA's libraries do not like to be unloaded
    const auto find = [&](auto& function, const char* symbol) {
      function =
          library ? reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol)) : nullptr;
      return function != nullptr;
    };
    whole_ =
        find(create, "cublasLtCreate") && find(destroy, "cublasLtDestroy") && find(version, "cublasLtGetVersion") &&
        find(status_string, "cublasLtGetStatusString") && find(init_operation, "cublasLtMatmulDescInit_internal") &&
        find(set_operation, "cublasLtMatmulDescSetAttribute") &&
        find(init_layout, "cublasLtMatrixLayoutInit_internal") &&
        find(init_preference, "cublasLtMatmulPreferenceInit_internal") &&
        find(set_preference, "cublasLtMatmulPreferenceSetAttribute") && find(offer, "cublasLtMatmulAlgoGetHeuristic") &&
        find(fits, "cublasLtMatmulAlgoCheck") && find(multiply, "cublasLtMatmul");
  }

  bool whole_ = false;
};

}  // namespace kaiju::cuda
