// make_executor: creates an executor for a checkpoint. ExecutorOptions choose the backend, the number of threads and
// the sizes of memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/base/host_threads.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

class Executor;

struct ExecutorOptions {
  std::string backend = "auto";  // one of backend_names(), or "auto": the fastest that this machine has
  // Indices in devices() to compute on. Empty: the backend's first. Several GPUs share the model: each has a part of
  // every matrix and of the KV heads, or all the same KV head, so that a step takes less time. The results have the
  // same bits. Their number must divide the model's heads and feed-forward columns, and the KV heads or be divided by
  // them, and they must reach each other's memory; kUnsupported says what would fit.
  std::vector<int32_t> devices;
  // Threads that compute a step, the calling thread included; 0: one for each physical core that the system lets this
  // process use. On a GPU, those that draw from rows with chains of samplers; they are started by the first step with
  // several such rows.
  int32_t threads = 0;
  // Threads of the host's that compute in their place, at most `threads` at a time: then none is started. The thread
  // that creates the executor or runs a step calls host_threads.run, some hundred times a step. The results have the
  // same bits.
  HostThreads host_threads;
  // On a CPU: the KV cache lies interleaved over the memory nodes (NUMA) of the machine, not on those of the threads
  // that first write its pages. Does nothing on a machine with one node; kUnsupported if the system refuses.
  bool interleave = false;
  // On a CPU: asks the system for pages of 2 MiB for the KV cache. One byte of KV may then make 2 MiB resident.
  bool large_pages = false;
  // On a CPU: decode steps of four tokens or fewer read only those weights of the matrix `down` that are multiplied by
  // something else than zero, of which a squared ReLU leaves few. Takes a copy of these matrices, d_ff * d_model bytes
  // for each layer. The results have the same bits. kUnsupported for other feed-forward layers.
  bool skip_zeros = false;
  // Most sequences that are live at once. 0: 64, or fewer, but at least 8, if the window blocks of so many would take
  // more than 1 GiB.
  int32_t slot_count = 0;
  int32_t step_tokens = 0;  // most tokens in one step; 0: 256 on a CPU, 2,048 on a GPU
  // The size of the KV cache in bytes, without the window blocks that live sequences need. If cache_bytes is 0, the
  // cache has room for slot_count full contexts, or for 8 if slot_count is 0. If cache_bytes is less than one full
  // context needs, the cache has room for one full context.
  int64_t cache_bytes = 0;
  // If share_memory is true, both kinds of cache block share one memory (ExecutorInfo::slab_blocks). Code that writes
  // step plans must then use each slab (a run of neighbouring blocks) for one kind of block at a time, as the engine
  // does.
  bool share_memory = false;
  // If `graphs` is true, a GPU runs decode steps as CUDA graphs, which are captured when the executor is created. If
  // `graphs` is false, the kernels are launched one by one. The results have the same bits with and without CUDA
  // graphs.
  bool graphs = true;
  // Path of a file with the fastest cuBLASLt algorithms, for GPUs where cuBLASLt computes the matmuls. If the file does
  // not have the algorithms for this model and GPU, they are measured when the executor is created. If the path is
  // empty, no algorithms are measured.
  std::string products_file;
  // Who computes the matmuls on a GPU. "auto": kernels of kaiju's own on compute capability 9.0, on other chips
  // cuBLASLt where it is faster. "own": kaiju's kernels alone. "cublaslt": cuBLASLt on every chip, for all products of
  // more than one row whose shape it takes; kUnsupported if it is not installed, the backend is not "cuda", or several
  // GPUs share the model, where kaiju's kernels compute on every chip. The results have the same bits.
  std::string products = "auto";
};

// Returns the names of the backends that this build has and this machine can run, the fastest first.
std::vector<std::string> backend_names();

// Creates an executor, which keeps the checkpoint alive. Returns kInvalidArgument if the backend is unknown or the
// sizes are impossible. Returns kUnsupported if the machine lacks the backend's instructions or fails the arithmetic
// self-check. Returns kOutOfMemory if memory is not available; the message states the number of bytes. Returns kIo if
// the checkpoint's file has changed since it was opened. In a child process made by fork(), an executor of the parent
// returns kInvalidArgument for every step, and its destructor releases no memory. Such a child process can create its
// own executor.
Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Checkpoint> checkpoint,
                                                const ExecutorOptions& options);

}  // namespace kaiju
