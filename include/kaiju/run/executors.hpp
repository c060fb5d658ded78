// make_executor: creates an executor for a checkpoint on a chosen backend, with a number of threads and sizes of
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

class Executor;

struct ExecutorOptions {
  std::string backend = "auto";  // one of backend_names(), or "auto": the fastest that this machine has
  int32_t threads = 0;           // threads that compute a step, the calling thread included; 0: one per core, at most 8
  int32_t slot_count = 8;        // most sequences that are live at once
  int32_t step_tokens = 256;     // most tokens in one step
  // Bytes of KV cache, besides the window blocks of live sequences; 0: slot_count full contexts. At least one full
  // context is allocated, whatever smaller number is given.
  int64_t cache_bytes = 0;
  // Both kinds of block share one memory (ExecutorInfo::slab_blocks). Code that writes plans must then respect slabs,
  // as the engine does.
  bool share_memory = false;
  // On a GPU: decode steps run as CUDA graphs, which are captured at creation. false: kernels are launched one by one.
  // The bits are the same.
  bool graphs = true;
  // On a GPU where cuBLASLt computes the matmuls: path of a file with the fastest algorithms. They are measured at
  // creation if the file does not have them. "": not measured.
  std::string products_file;
};

// The backends of this build that this machine can run, the best first.
std::vector<std::string> backend_names();

// Creates an executor, which keeps the checkpoint alive. kInvalidArgument for an unknown backend and impossible sizes;
// kUnsupported if the machine lacks the instructions or fails the arithmetic self-check; kOutOfMemory with the number
// of bytes; kIo if the checkpoint's file has changed since it was opened. In a child of fork() the executor answers
// kInvalidArgument to every step, and destroying it releases no memory; the child can create its own.
Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Checkpoint> checkpoint,
                                                const ExecutorOptions& options);

}  // namespace kaiju
