#include "kv_message.hpp"

#include <msgpack.hpp>
#include <string_view>

namespace kaiju::server {

namespace {

// The words by which vLLM names where a block is.
std::string_view medium_of(CacheTier tier) {
  return tier == CacheTier::kDevice ? "GPU" : tier == CacheTier::kHost ? "CPU" : "DISK";
}

bool continues(const CacheEvent& before, const CacheEvent& event) {
  if (event.kind != before.kind || event.tier != before.tier) return false;
  return event.kind == CacheEventKind::kRemoved ||
         (event.kind == CacheEventKind::kStored && event.parent == before.name);
}

// The first events that become one.
size_t run_of(std::span<const CacheEvent> events) {
  size_t count = 1;
  while (count < events.size() && continues(events[count - 1], events[count])) ++count;
  return count;
}

// Writes one struct of vLLM: as a map, each value after its name; as an array, the values alone.
class Struct {
 public:
  Struct(KvFormat format, msgpack::packer<msgpack::sbuffer>& out, size_t fields) : format_(format), out_(out) {
    const auto count = static_cast<uint32_t>(fields);
    format_ == KvFormat::kMap ? out_.pack_map(count) : out_.pack_array(count);
  }
  msgpack::packer<msgpack::sbuffer>& field(std::string_view name) {
    if (format_ == KvFormat::kMap) out_.pack(name);
    return out_;
  }

 private:
  KvFormat format_;
  msgpack::packer<msgpack::sbuffer>& out_;
};

class Writer {
 public:
  Writer(KvFormat format, size_t events) : format_(format), buffer_(256 + kEventBytes * events) {}

  void batch(double seconds, std::span<const CacheEvent> events) {
    uint32_t runs = 0;
    for (size_t at = 0; at < events.size(); at += run_of(events.subspan(at))) ++runs;
    out_.pack_array(3);
    out_.pack(seconds);
    out_.pack_array(runs);
    while (!events.empty()) {
      const size_t count = run_of(events);
      one(events.first(count));
      events = events.subspan(count);
    }
    out_.pack(0);  // data_parallel_rank
  }
  std::string take() const { return {buffer_.data(), buffer_.size()}; }

 private:
  void one(std::span<const CacheEvent> run) {
    if (run[0].kind == CacheEventKind::kStored)
      stored(run);
    else if (run[0].kind == CacheEventKind::kRemoved)
      removed(run);
    else
      Struct(format_, out_, 1).field("type").pack(std::string_view("AllBlocksCleared"));
  }
  void stored(std::span<const CacheEvent> run) {
    Struct event(format_, out_, 8);
    event.field("type").pack(std::string_view("BlockStored"));
    hashes(event, run);
    if (run[0].parent == BlockName())
      event.field("parent_block_hash").pack_nil();
    else
      hash(event.field("parent_block_hash"), run[0].parent);
    size_t tokens = 0;
    for (const CacheEvent& block : run) tokens += block.tokens.size();
    event.field("token_ids").pack_array(static_cast<uint32_t>(tokens));
    for (const CacheEvent& block : run)
      for (const int32_t token : block.tokens) out_.pack(token);
    event.field("block_size").pack(run[0].token_count);
    event.field("lora_id").pack_nil();
    event.field("medium").pack(medium_of(run[0].tier));
    event.field("lora_name").pack_nil();
  }
  void removed(std::span<const CacheEvent> run) {
    Struct event(format_, out_, 3);
    event.field("type").pack(std::string_view("BlockRemoved"));
    hashes(event, run);
    event.field("medium").pack(medium_of(run[0].tier));
  }
  void hashes(Struct& event, std::span<const CacheEvent> run) {
    event.field("block_hashes").pack_array(static_cast<uint32_t>(run.size()));
    for (const CacheEvent& block : run) hash(out_, block.name);
  }
  // Always 8 bytes: llm-d reads no shorter integer as a hash, and then drops the whole message.
  static void hash(msgpack::packer<msgpack::sbuffer>& out, const BlockName& name) { out.pack_fix_uint64(name.low); }

  static constexpr size_t kEventBytes = 256;  // about as many as one takes

  KvFormat format_;
  msgpack::sbuffer buffer_;
  msgpack::packer<msgpack::sbuffer> out_{buffer_};
};

}  // namespace

std::string kv_batch(KvFormat format, double seconds, std::span<const CacheEvent> events) {
  Writer writer(format, events.size());
  writer.batch(seconds, events);
  return writer.take();
}

}  // namespace kaiju::server
