// Makes executors: which backend, how many threads, how much memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

class Executor;

struct ExecutorOptions {
  std::string backend = "auto";  // one of backend_names(), or "auto": the fastest this machine has
  int32_t threads = 0;           // threads a step computes with, the caller's included; 0: one per core, at most 8
  int32_t slot_count = 8;        // sequences that may be live at once
  int32_t step_tokens = 256;     // most tokens one step processes
  int64_t cache_bytes = 0;  // memory for KV beside the windows of live sequences; more keeps more of what is known; 0:
                            // slot_count whole contexts
  bool share_memory = false;  // one memory for both kinds of block (ExecutorInfo::slab_blocks): who writes the plans
                              // must mind the slabs, as the engine does
  bool graphs =
      true;  // on a GPU: decode steps start as a whole, recorded at creation; false: launch by launch. The same bits
  std::string products_file;  // on a GPU whose products are cuBLASLt's: its fastest algorithms are searched at
                              // creation, once, and kept here; "": not searched
};

// Backends built into this library that this machine can run, best first.
std::vector<std::string> backend_names();

// kInvalidArgument for unknown names and impossible sizes, kUnsupported when the machine lacks the instructions or
// fails the arithmetic self-check, kOutOfMemory with the bytes wanted, kIo when the checkpoint's file has changed since
// it was opened. The executor keeps the checkpoint alive. In a child of fork() it answers kInvalidArgument to every
// step, and destroying it gives nothing back: a child makes its own.
Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Checkpoint> checkpoint,
                                                const ExecutorOptions& options);

}  // namespace kaiju
