// BlockFile: the interface of the file for evicted KV. open_block_file in kaiju.hpp opens one; hosts and tests may
// implement their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kaiju/base/status.hpp"
#include "kaiju/cache/block_name.hpp"

namespace kaiju {

// Bytes at offsets below what the tier was given. One thread at a time: the one that steps, which waits for each call.
class BlockFile {
 public:
  virtual ~BlockFile() = default;
  // Writes all of it and returns its digest, which the engine keeps.
  virtual Status write(int64_t offset, std::span<const std::byte> bytes, BlockName& digest) = 0;
  // Reads all of it. kBadModel: they are not the bytes of this digest, and are lost; every other error ends the use of
  // the file.
  virtual Status read(int64_t offset, std::span<std::byte> bytes, const BlockName& digest) = 0;
};

}  // namespace kaiju
