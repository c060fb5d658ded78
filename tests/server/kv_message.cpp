// The bytes that routers read.
#include "examples/server/kv_message.hpp"

#include <cstdio>
#include <random>
#include <stdexcept>
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

constexpr uint64_t kFirst = 0xfedcba9876543210, kSecond = 0x0500000000000005, kThird = 0x012c000100000000;

// One of each kind, with tokens of every width. Blocks that follow one another become one event.
std::vector<CacheEvent> samples() {
  std::vector<int32_t> widths = {7, 127, 128, 255, 256, 65535, 65536};
  for (int32_t token = 1000; token < 1057; ++token) widths.push_back(token);
  const std::vector<int32_t> threes(kBlockTokens, 3);
  return {CacheEvent(),
          stored(kFirst, 0, widths),
          stored(kSecond, kFirst, threes),
          stored(kThird, kSecond, threes, CacheTier::kHost),
          removed(kFirst),
          removed(kThird),
          removed(kSecond, CacheTier::kFile)};
}

// What msgspec 0.23 writes for a KVEventBatch with vLLM's fields: events as maps, and with array_like.
const std::string kMapBytes =
    "93cb41d26580b4a000009581a474797065b0416c6c426c6f636b73436c656172656488a474797065ab426c6f636b53746f726564"
    "ac626c6f636b5f68617368657392cffedcba9876543210cf0500000000000005b1706172656e745f626c6f636b5f68617368c0a9"
    "746f6b656e5f696473dc0080077fcc80ccffcd0100cdffffce00010000cd03e8cd03e9cd03eacd03ebcd03eccd03edcd03eecd03"
    "efcd03f0cd03f1cd03f2cd03f3cd03f4cd03f5cd03f6cd03f7cd03f8cd03f9cd03facd03fbcd03fccd03fdcd03fecd03ffcd0400"
    "cd0401cd0402cd0403cd0404cd0405cd0406cd0407cd0408cd0409cd040acd040bcd040ccd040dcd040ecd040fcd0410cd0411cd"
    "0412cd0413cd0414cd0415cd0416cd0417cd0418cd0419cd041acd041bcd041ccd041dcd041ecd041fcd04200303030303030303"
    "03030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303"
    "03030303aa626c6f636b5f73697a6540a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c088a4747970"
    "65ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf012c000100000000b1706172656e745f626c6f636b5f6861"
    "7368cf0500000000000005a9746f6b656e5f696473dc004003030303030303030303030303030303030303030303030303030303"
    "030303030303030303030303030303030303030303030303030303030303030303030303aa626c6f636b5f73697a6540a76c6f72"
    "615f6964c0a66d656469756da3435055a96c6f72615f6e616d65c083a474797065ac426c6f636b52656d6f766564ac626c6f636b"
    "5f68617368657392cffedcba9876543210cf012c000100000000a66d656469756da347505583a474797065ac426c6f636b52656d"
    "6f766564ac626c6f636b5f68617368657391cf0500000000000005a66d656469756da44449534b00";
const std::string kArrayBytes =
    "93cb41d26580b4a000009591b0416c6c426c6f636b73436c656172656498ab426c6f636b53746f72656492cffedcba9876543210"
    "cf0500000000000005c0dc0080077fcc80ccffcd0100cdffffce00010000cd03e8cd03e9cd03eacd03ebcd03eccd03edcd03eecd"
    "03efcd03f0cd03f1cd03f2cd03f3cd03f4cd03f5cd03f6cd03f7cd03f8cd03f9cd03facd03fbcd03fccd03fdcd03fecd03ffcd04"
    "00cd0401cd0402cd0403cd0404cd0405cd0406cd0407cd0408cd0409cd040acd040bcd040ccd040dcd040ecd040fcd0410cd0411"
    "cd0412cd0413cd0414cd0415cd0416cd0417cd0418cd0419cd041acd041bcd041ccd041dcd041ecd041fcd042003030303030303"
    "03030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303"
    "030303030340c0a3475055c098ab426c6f636b53746f72656491cf012c000100000000cf0500000000000005dc00400303030303"
    "03030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303"
    "0303030303030340c0a3435055c093ac426c6f636b52656d6f76656492cffedcba9876543210cf012c000100000000a347505593"
    "ac426c6f636b52656d6f76656491cf0500000000000005a44449534b00";

// What llm-d's router reads of a batch, or refuses: the rules of its decoder in our words, and no more of MessagePack
// than we write. Read from github.com/llm-d/llm-d-kv-cache, v0.8.1 (commit 0030c3ba) and main of 12 June 2026
// (7be76e11): pkg/kvevents/engineadapter/vllm_adapter.go, common.go and their tests; and from
// github.com/vmihailenco/msgpack v5.4.1 (decode.go), which gives an integer the type that its bytes have. One event
// that is refused costs the whole batch.
class Llmd {
 public:
  struct Event {
    std::string tag;
    std::vector<uint64_t> hashes;
    uint64_t parent = 0;  // 0: none
    std::vector<uint64_t> tokens;
    std::string medium;
    bool operator==(const Event&) const = default;
  };
  struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  static std::vector<Event> events(const std::string& bytes) {
    Llmd reader(bytes);
    const Value batch = reader.value();
    need(reader.at_ == bytes.size() && batch.kind == Kind::kArray && batch.items.size() == 3, "a batch of three");
    need(batch.items[0].kind == Kind::kFloat || integer(batch.items[0]) > 0, "seconds");
    need(batch.items[1].kind == Kind::kArray, "events");
    need(batch.items[2].kind == Kind::kInteger, "a rank");
    std::vector<Event> read;
    for (const Value& item : batch.items[1].items) read.push_back(event(item));
    return read;
  }

 private:
  // kLong: an integer of 8 bytes.
  enum class Kind { kNil, kFloat, kInteger, kLong, kText, kArray };
  struct Value {
    Kind kind;
    uint64_t number = 0;
    std::string text = {};
    std::vector<Value> items = {};
  };

  explicit Llmd(const std::string& bytes) : bytes_(bytes) {}

  static void need(bool holds, const char* what) {
    if (!holds) throw Refused(what);
  }

  uint64_t number(int count) {
    uint64_t number = 0;
    for (; count > 0; --count) number = number << 8 | static_cast<unsigned char>(bytes_.at(at_++));
    return number;
  }
  Value text(uint64_t size) {
    at_ += size;
    return {Kind::kText, 0, bytes_.substr(at_ - size, size)};
  }
  Value array(uint64_t count) {
    Value array{Kind::kArray};
    while (array.items.size() < count) array.items.push_back(value());
    return array;
  }
  Value value() {
    const uint64_t code = number(1);
    if (code < 0x80) return {Kind::kInteger, code};
    if ((code & 0xf0) == 0x90) return array(code & 0x0f);
    if ((code & 0xe0) == 0xa0) return text(code & 0x1f);
    if (code == 0xc0) return {Kind::kNil};
    if (code == 0xcb) return {Kind::kFloat, number(8)};
    if (code >= 0xcc && code <= 0xce) return {Kind::kInteger, number(1 << (code - 0xcc))};
    if (code == 0xcf) return {Kind::kLong, number(8)};
    if (code == 0xdc) return array(number(2));
    if (code == 0xdd) return array(number(4));
    throw Refused("a value that is not read as a part of an event");  // a map, for one
  }

  static uint64_t hash(const Value& value) {
    need(value.kind == Kind::kLong, "a hash of 8 bytes");
    return value.number;
  }
  static std::vector<uint64_t> hashes(const Value& value) {
    need(value.kind == Kind::kArray, "an array of hashes");
    std::vector<uint64_t> read;
    for (const Value& item : value.items) read.push_back(hash(item));
    return read;
  }
  static uint64_t integer(const Value& value) {
    need(value.kind == Kind::kInteger || value.kind == Kind::kLong, "an integer");
    return value.number;
  }
  // Fields at the end may be missing, or nil. There may be more than are known.
  static std::string optional_text(const std::vector<Value>& fields, size_t at) {
    if (at >= fields.size() || fields[at].kind == Kind::kNil) return "";
    need(fields[at].kind == Kind::kText, "a text");
    return fields[at].text;
  }
  static Event event(const Value& value) {
    const std::vector<Value>& fields = value.items;
    need(value.kind == Kind::kArray && !fields.empty() && fields[0].kind == Kind::kText,
         "an array that begins with a tag");
    Event read{fields[0].text, {}, 0, {}, {}};
    if (read.tag == "AllBlocksCleared") return read;
    if (read.tag == "BlockRemoved") {
      need(fields.size() >= 2, "hashes");
      read.hashes = hashes(fields[1]);
      read.medium = optional_text(fields, 2);
      return read;
    }
    need(read.tag == "BlockStored" && fields.size() >= 5, "five fields of a stored block");
    read.hashes = hashes(fields[1]);
    if (fields[2].kind != Kind::kNil) read.parent = hash(fields[2]);
    need(fields[3].kind == Kind::kArray, "an array of tokens");
    for (const Value& token : fields[3].items) read.tokens.push_back(integer(token));
    integer(fields[4]);  // the size of a block; v0.8.1 takes anything
    if (fields.size() > 5 && fields[5].kind != Kind::kNil) integer(fields[5]);  // lora_id
    read.medium = optional_text(fields, 6);
    optional_text(fields, 7);  // lora_name
    return read;
  }

  const std::string& bytes_;
  size_t at_ = 0;
};

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// A batch of one event, given in hexadecimal.
std::string batch_of(const std::string& event) { return bytes_of("93cb41d26580b4a0000091" + event + "00"); }

const std::string kRemovedTag = "ac426c6f636b52656d6f766564";
const std::string kStoredTag = "ab426c6f636b53746f726564";

std::vector<uint64_t> widened(const std::vector<int32_t>& tokens) { return {tokens.begin(), tokens.end()}; }

}  // namespace

TEST_CASE("a batch has the bytes that vLLM's structs have") {
  CHECK(hex(kv_batch(KvFormat::kMap, 1234567890.5, samples())) == kMapBytes);
  CHECK(hex(kv_batch(KvFormat::kArray, 1234567890.5, samples())) == kArrayBytes);
}

// The decoder itself, built from the sources named above, read kArrayBytes with these values, in both versions.
TEST_CASE("llm-d's decoder reads an event of each kind") {
  const std::vector<CacheEvent> told = samples();
  std::vector<int32_t> tokens = told[1].tokens;
  tokens.insert(tokens.end(), told[2].tokens.begin(), told[2].tokens.end());
  const std::vector<Llmd::Event> read = {{"AllBlocksCleared", {}, 0, {}, ""},
                                         {"BlockStored", {kFirst, kSecond}, 0, widened(tokens), "GPU"},
                                         {"BlockStored", {kThird}, kSecond, widened(told[3].tokens), "CPU"},
                                         {"BlockRemoved", {kFirst, kThird}, 0, {}, "GPU"},
                                         {"BlockRemoved", {kSecond}, 0, {}, "DISK"}};
  CHECK(Llmd::events(bytes_of(kArrayBytes)) == read);
}

TEST_CASE("a hash has 8 bytes, however small it is") {
  const std::string hashes = "94cf0000000000000005cf000000000000012ccf0000000000011170cf00000000ffffffff";
  const std::string bytes = batch_of("93" + kRemovedTag + hashes + "a3475055");
  const std::vector<CacheEvent> told = {removed(5), removed(300), removed(70000), removed(0xffffffff)};
  CHECK(hex(kv_batch(KvFormat::kArray, 1234567890.5, told)) == hex(bytes));
  CHECK(Llmd::events(bytes) == std::vector<Llmd::Event>{{"BlockRemoved", {5, 300, 70000, 0xffffffff}, 0, {}, "GPU"}});
  const std::vector<CacheEvent> child = {stored(6, 5, std::vector<int32_t>(kBlockTokens, 3))};
  CHECK(Llmd::events(kv_batch(KvFormat::kArray, 1, child))[0].parent == 5);
}

TEST_CASE("what llm-d's decoder refuses is known here") {
  CHECK_THROWS_AS(Llmd::events(bytes_of(kMapBytes)), Llmd::Refused);
  const std::string seven = "cf0000000000000007";
  for (const char* short_hash : {"07", "cc80", "cd0100", "ce00010000"})
    CHECK_THROWS_AS(Llmd::events(batch_of("93" + kRemovedTag + "91" + short_hash + "a3475055")), Llmd::Refused);
  CHECK_THROWS_AS(Llmd::events(batch_of("91" + kRemovedTag)), Llmd::Refused);
  CHECK_THROWS_AS(Llmd::events(batch_of("92" + kRemovedTag + seven)), Llmd::Refused);
  CHECK_THROWS_AS(Llmd::events(batch_of("93" + kRemovedTag + "91" + seven + "01")), Llmd::Refused);
  CHECK_THROWS_AS(Llmd::events(batch_of("94" + kStoredTag + "91" + seven + "c09103")), Llmd::Refused);
  CHECK_THROWS_AS(Llmd::events(batch_of("9101")), Llmd::Refused);
  CHECK_THROWS_AS(Llmd::events(batch_of("90")), Llmd::Refused);
  CHECK_THROWS_AS(Llmd::events(batch_of("91a3466f6f")), Llmd::Refused);  // a tag that it does not know
  // Shorter and longer ones are read: the medium is missing, and there is one field more than we write.
  const std::vector<Llmd::Event> read = {{"BlockRemoved", {7}, 0, {}, ""}};
  CHECK(Llmd::events(batch_of("92" + kRemovedTag + "91" + seven)) == read);
  CHECK(Llmd::events(batch_of("94" + kRemovedTag + "91" + seven + "c001")) == read);
}

TEST_CASE("llm-d's decoder reads whatever is told") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 dice(seed);
  const auto name = [&] { return (dice() >> dice() % 64) | 1; };
  for (int round = 0; round < 200; ++round) {
    std::vector<CacheEvent> told;
    std::vector<uint64_t> hashes, tokens;
    for (uint64_t left = dice() % 40 + 1; left > 0; --left) {
      const auto tier = static_cast<CacheTier>(dice() % 3);
      std::vector<int32_t> own(kBlockTokens);
      for (int32_t& token : own) token = static_cast<int32_t>((dice() & 0x7fffffff) >> dice() % 31);
      const bool follows = !told.empty() && dice() % 2;
      told.push_back(dice() % 3 ? stored(name(), follows ? told.back().name.low : name() - dice() % 2, own, tier)
                                : removed(name(), tier));
      hashes.push_back(told.back().name.low);
      tokens.insert(tokens.end(), told.back().tokens.begin(), told.back().tokens.end());
    }
    std::vector<uint64_t> hashes_read, tokens_read;
    for (const Llmd::Event& event : Llmd::events(kv_batch(KvFormat::kArray, 1.5, told))) {
      hashes_read.insert(hashes_read.end(), event.hashes.begin(), event.hashes.end());
      tokens_read.insert(tokens_read.end(), event.tokens.begin(), event.tokens.end());
    }
    REQUIRE(hashes_read == hashes);
    REQUIRE(tokens_read == tokens);
  }
}
