// Lists the GPUs that CUDA shows, without making a context on any.
#include <dlfcn.h>

#include "cuda.hpp"
#include "device.hpp"

namespace kaiju::cuda {
namespace {

// The few calls of NVIDIA's management library (nvml.h) that tell how much memory is free. Null where it is missing.
class ManagementLibrary {
 public:
  ManagementLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) return;
    const auto init = reinterpret_cast<int (*)()>(dlsym(library_, "nvmlInit_v2"));
    ready_ = init && init() == 0;
  }
  ~ManagementLibrary() {
    if (!library_) return;
    if (ready_)
      if (const auto shutdown = reinterpret_cast<int (*)()>(dlsym(library_, "nvmlShutdown"))) shutdown();
    dlclose(library_);
  }
  ManagementLibrary(const ManagementLibrary&) = delete;

  // Bytes that are free on the GPU with this PCI bus id; 0: not known.
  uint64_t free_memory(const char* bus_id) const {
    if (!ready_) return 0;
    const auto find =
        reinterpret_cast<int (*)(const char*, void**)>(dlsym(library_, "nvmlDeviceGetHandleByPciBusId_v2"));
    struct Memory {
      unsigned long long total, free, used;
    };
    const auto ask = reinterpret_cast<int (*)(void*, Memory*)>(dlsym(library_, "nvmlDeviceGetMemoryInfo"));
    void* device = nullptr;
    Memory memory{};
    return find && ask && find(bus_id, &device) == 0 && ask(device, &memory) == 0 ? memory.free : 0;
  }

 private:
  void* library_;
  bool ready_ = false;
};

}  // namespace

std::vector<Gpu> gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  std::vector<Gpu> found;
  const ManagementLibrary library;
  for (int i = 0; i < count; ++i) {
    Gpu gpu;
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) {
      gpu.name = properties.name;
      gpu.memory_total = properties.totalGlobalMem;
    }
    char bus_id[32] = {};
    if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, i) == cudaSuccess) gpu.memory_free = library.free_memory(bus_id);
    gpu.fit = Device::fit(i).ok();
    found.push_back(std::move(gpu));
  }
  return found;
}

}  // namespace kaiju::cuda
