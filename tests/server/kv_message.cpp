// The bytes that routers read.
#include "examples/server/kv_message.hpp"

#include <cstdio>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kaiju/step/executor_info.hpp"

using namespace kaiju;
using namespace kaiju::server;

namespace {

CacheEvent stored(uint64_t name, uint64_t parent, std::vector<int32_t> tokens, CacheTier tier = CacheTier::kDevice) {
  CacheEvent event{CacheEventKind::kStored, tier, {name, 1}, {parent, parent ? 1u : 0u}, 0, false, std::move(tokens)};
  event.token_count = static_cast<int32_t>(event.tokens.size());
  return event;
}
CacheEvent removed(uint64_t name, CacheTier tier = CacheTier::kDevice) {
  return {CacheEventKind::kRemoved, tier, {name, 1}, {}, kBlockTokens, false, {}};
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

// One of each kind, with numbers of every width. Blocks that follow one another become one event.
std::vector<CacheEvent> samples() {
  std::vector<int32_t> widths = {7, 127, 128, 255, 256, 65535, 65536};
  for (int32_t token = 1000; token < 1057; ++token) widths.push_back(token);
  const std::vector<int32_t> threes(kBlockTokens, 3);
  return {CacheEvent(),
          stored(0xfedcba9876543210, 0, widths),
          stored(5, 0xfedcba9876543210, threes),
          stored(300, 5, threes, CacheTier::kHost),
          removed(0xfedcba9876543210),
          removed(300),
          removed(5, CacheTier::kFile)};
}

// What msgspec 0.23 writes for a KVEventBatch with vLLM's fields: events as maps, and with array_like.
const std::string kMapBytes =
    "93cb41d26580b4a000009581a474797065b0416c6c426c6f636b73436c656172656488a474797065ab426c6f636b53746f726564"
    "ac626c6f636b5f68617368657392cffedcba987654321005b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964"
    "73dc0080077fcc80ccffcd0100cdffffce00010000cd03e8cd03e9cd03eacd03ebcd03eccd03edcd03eecd03efcd03f0cd03f1cd"
    "03f2cd03f3cd03f4cd03f5cd03f6cd03f7cd03f8cd03f9cd03facd03fbcd03fccd03fdcd03fecd03ffcd0400cd0401cd0402cd04"
    "03cd0404cd0405cd0406cd0407cd0408cd0409cd040acd040bcd040ccd040dcd040ecd040fcd0410cd0411cd0412cd0413cd0414"
    "cd0415cd0416cd0417cd0418cd0419cd041acd041bcd041ccd041dcd041ecd041fcd042003030303030303030303030303030303"
    "030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303aa626c6f"
    "636b5f73697a6540a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c088a474797065ab426c6f636b53"
    "746f726564ac626c6f636b5f68617368657391cd012cb1706172656e745f626c6f636b5f6861736805a9746f6b656e5f696473dc"
    "00400303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303"
    "0303030303030303030303030303aa626c6f636b5f73697a6540a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f"
    "6e616d65c083a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657392cffedcba9876543210cd012ca66d"
    "656469756da347505583a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739105a66d656469756da444"
    "49534b00";
const std::string kArrayBytes =
    "93cb41d26580b4a000009591b0416c6c426c6f636b73436c656172656498ab426c6f636b53746f72656492cffedcba9876543210"
    "05c0dc0080077fcc80ccffcd0100cdffffce00010000cd03e8cd03e9cd03eacd03ebcd03eccd03edcd03eecd03efcd03f0cd03f1"
    "cd03f2cd03f3cd03f4cd03f5cd03f6cd03f7cd03f8cd03f9cd03facd03fbcd03fccd03fdcd03fecd03ffcd0400cd0401cd0402cd"
    "0403cd0404cd0405cd0406cd0407cd0408cd0409cd040acd040bcd040ccd040dcd040ecd040fcd0410cd0411cd0412cd0413cd04"
    "14cd0415cd0416cd0417cd0418cd0419cd041acd041bcd041ccd041dcd041ecd041fcd0420030303030303030303030303030303"
    "0303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030340c0a3"
    "475055c098ab426c6f636b53746f72656491cd012c05dc0040030303030303030303030303030303030303030303030303030303"
    "0303030303030303030303030303030303030303030303030303030303030303030303030340c0a3435055c093ac426c6f636b52"
    "656d6f76656492cffedcba9876543210cd012ca347505593ac426c6f636b52656d6f7665649105a44449534b00";

}  // namespace

TEST_CASE("a batch has the bytes that vLLM's structs have") {
  CHECK(hex(kv_batch(KvFormat::kMap, 1234567890.5, samples())) == kMapBytes);
  CHECK(hex(kv_batch(KvFormat::kArray, 1234567890.5, samples())) == kArrayBytes);
}
