// MemoryFile: a BlockFile without a file, with faults on demand.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "kaiju/cache/detail/block_file.hpp"

namespace kaiju::test {

class MemoryFile final : public BlockFile {
 public:
  Status write(int64_t offset, std::span<const std::byte> bytes, BlockName& digest) override {
    if (fails_write)
      if (Status status = fails_write(); !status.ok()) return status;
    pieces[offset].assign(bytes.begin(), bytes.end());
    digest = digest_of(bytes);
    return {};
  }
  // Spoils the bytes it says are spoilt.
  Status read(int64_t offset, std::span<std::byte> bytes, const BlockName& digest) override {
    ++reads;
    std::memset(bytes.data(), 0xEE, bytes.size());
    if (fails_read)
      if (Status status = fails_read(); !status.ok()) return status;
    const std::vector<std::byte>& piece = pieces[offset];
    if (piece.size() != bytes.size()) return {StatusCode::kIo, "it ends early"};
    std::memcpy(bytes.data(), piece.data(), piece.size());
    return digest_of(bytes) == digest ? Status() : bad_model("spoilt");
  }
  static BlockName digest_of(std::span<const std::byte> bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.low64, hash.high64};
  }

  std::map<int64_t, std::vector<std::byte>> pieces;
  std::function<Status()> fails_write, fails_read;
  int reads = 0;
};

}  // namespace kaiju::test
