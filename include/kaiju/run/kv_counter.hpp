// KvCounter: counts the keys and values of KV cache blocks in host memory, of any backend.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kaiju/backend/backend.hpp"
#include "kaiju/step/kv_counts.hpp"

namespace kaiju {

// Only the backend knows where a channel lies within a block. So the counter lets it write a block whose keys and
// values are the numbers of their channels, and reads from that which channel each byte belongs to. The order of tokens
// does not matter for counting.
class KvCounter {
 public:
  // Adds the keys and values of `block`, all of whose tokens are written.
  template <ModelBackend B>
  void count(B& backend, const KvSlot& kv, BlockId block, KvCounts::Slot& counts) {
    const ChannelMap& map = map_of(backend, kv);
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      const size_t first = static_cast<size_t>(head) * static_cast<size_t>(kv.head_dim) * KvCounts::kBins;
      map.keys.add(kv.keys(block, head), counts.keys.data() + first);
      map.values.add(kv.values(block, head), counts.values.data() + first);
    }
  }

 private:
  // What each byte of a head's keys, or values, in a block means.
  struct Bytes {
    std::vector<uint8_t> zeros;     // the byte of a zero
    std::vector<int16_t> channels;  // whose byte it is

    void add(const std::byte* block, uint32_t* counts) const {
      for (size_t i = 0; i < channels.size(); ++i)
        ++counts[channels[i] * KvCounts::kBins + KvCounts::bin_of(value(block, i))];
    }
    int32_t value(const std::byte* block, size_t i) const {
      return static_cast<int8_t>(static_cast<uint8_t>(block[i]) - zeros[i]);
    }
    void read_zeros(const std::byte* block, size_t count) {
      channels.resize(count);
      for (size_t i = 0; i < count; ++i) zeros.push_back(static_cast<uint8_t>(block[i]));
    }
    void read_digit(const std::byte* block, int32_t digit) {
      for (size_t i = 0; i < channels.size(); ++i)
        channels[i] = static_cast<int16_t>(channels[i] + digit * value(block, i));
    }
  };
  struct ChannelMap {
    int32_t head_dim = 0;
    Bytes keys, values;
  };
  static constexpr int32_t kDigit = 100;  // a byte holds less than a channel's number: two blocks have a digit each

  template <ModelBackend B>
  const ChannelMap& map_of(B& backend, const KvSlot& kv) {
    for (const ChannelMap& map : maps_)
      if (map.head_dim == kv.head_dim) return map;
    ChannelMap map{kv.head_dim, {}, {}};
    const auto width = static_cast<size_t>(kv.head_dim);
    std::vector<std::byte> block(static_cast<size_t>(KvSlot::head_bytes(kv.head_dim, false)));
    KvSlot own = kv;
    own.pool = block.data(), own.block_bytes = 0, own.slot_offset = 0, own.kv_heads = 1;
    std::vector<float> codes(width);
    write(backend, own, codes);
    map.keys.read_zeros(own.keys(0, 0), width * kBlockTokens);
    map.values.read_zeros(own.values(0, 0), width * kBlockTokens);
    for (const int32_t digit : {1, kDigit}) {
      for (int32_t channel = 0; channel < kv.head_dim; ++channel)
        codes[static_cast<size_t>(channel)] = static_cast<float>(channel / digit % kDigit);
      write(backend, own, codes);
      map.keys.read_digit(own.keys(0, 0), digit);
      map.values.read_digit(own.values(0, 0), digit);
    }
    return maps_.emplace_back(std::move(map));
  }

  // All tokens of block 0, the same keys and values for each.
  template <ModelBackend B>
  static void write(B& backend, const KvSlot& kv, const std::vector<float>& codes) {
    const std::vector<arith::CosSin> angles(codes.size() / 2, {1.0f, 0.0f});
    const std::vector<float> inverse(codes.size(), 1.0f);
    const BlockId block = 0;
    const int32_t first_segment = 0;
    for (int32_t token = 0; token < kBlockTokens; ++token) {
      const BatchSegment segment{0, 1, token, 0, {&block, &block}};
      const Batch batch{1, {}, {&token, 1}, {&segment, 1}, {&first_segment, 1}};
      backend.append(codes.data(), codes.data(), batch, angles.data(), inverse.data(), inverse.data(), kv);
    }
  }

  std::vector<ChannelMap> maps_;
};

}  // namespace kaiju
