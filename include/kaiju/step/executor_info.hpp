// ExecutorInfo: what the engine must know about a model and its executor to plan steps. ExecutorInfo is plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kaiju/step/kinds.hpp"

namespace kaiju {

inline constexpr int32_t kBlockTokens = 64;  // tokens per cache block, anchored at multiples of 64

using BlockId = int32_t;  // number of a block within its kind's pool
inline constexpr BlockId kNoBlock = -1;

struct ExecutorInfo {
  std::string backend;  // name of the backend (backend_names()); empty: an executor of the host's own
  int32_t device = 0;   // index in devices()
  int32_t threads = 1;  // host threads that compute a step, the calling thread included
  int32_t vocab_size = 0;
  int32_t context = 0;              // most positions of one sequence
  int32_t window = 0;               // the widest sliding window; 0: no layer has one
  bool has_global = true;           // whether global blocks are needed at all
  int32_t slot_count = 0;           // sequences that may be live in the executor at once
  int32_t step_tokens = 0;          // most tokens one plan may carry
  int32_t most_samples = 1;         // rows of one segment that may be sampled from (Segment::sample_count)
  int32_t label_count = 0;          // of the model's classifier; 0: it has none
  std::vector<std::string> labels;  // their names; empty: the executor does not know them
  PerKind<int32_t> block_count;     // block numbers of each kind: 0 to this
  PerKind<int64_t> block_bytes;     // bytes of one block
  // Global and window blocks may share one memory, which is divided into slabs of equal size. When blocks of one kind
  // are needed, a slab is given to that kind: slab s then holds the blocks [s n, (s + 1) n) of the kind, where n =
  // slab_blocks[kind]. If slab_blocks is 0, each kind has its own memory of block_count blocks.
  PerKind<int32_t> slab_blocks;

  bool shares_memory() const { return slab_blocks[0] > 0 && slab_blocks[1] > 0; }
  // Returns the number of bytes of all KV memory.
  int64_t cache_bytes() const {
    const int64_t global = block_bytes[0] * block_count[0], window = block_bytes[1] * block_count[1];
    return shares_memory() ? global : global + window;  // each spans all slabs
  }
  // Name of the layout of bytes within a block. A block that was copied out of one executor may be copied into any
  // executor of the same checkpoint with the same kv_layout. If kv_layout is empty, this executor does no transfers.
  std::string kv_layout;
};

}  // namespace kaiju
