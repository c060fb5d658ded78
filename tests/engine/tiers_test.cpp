// Tiers: blocks evicted from the device come back from host memory or a file, unchanged and to the same requests alone;
// whatever fails is a miss.
#include "tests/engine/harness.hpp"
#include "tests/engine/memory_file.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

constexpr int64_t kBlockBytes = kBlockTokens * ScriptedExecutor::kWordBytes;

// A device for one conversation of 500 tokens and little more.
ExecutorInfo tight_facts() {
  ExecutorInfo info = small_facts();
  info.block_count[0] = 10;
  info.block_count[1] = 11;
  return info;
}

struct HasFile {
  std::shared_ptr<MemoryFile> file = std::make_shared<MemoryFile>();
};

struct Tiered : HasFile, Harness {
  // Blocks that fit host memory and file.
  explicit Tiered(int64_t host, int64_t in_file = 0) : Harness(tight_facts(), with(host, in_file, file)) {}

  static EngineOptions with(int64_t host, int64_t in_file, const std::shared_ptr<MemoryFile>& file) {
    EngineOptions options;
    options.cache.host_bytes = host * kBlockBytes;
    options.cache.file_bytes = in_file * kBlockBytes;
    if (in_file > 0) options.cache.file = file;
    options.cache.event_capacity = 10000;
    return options;
  }
  // Everything else leaves the device.
  void crowd(int times = 1) {
    for (int i = 0; i < times; ++i) {
      others_.push_back(session());
      run(others_.back(), tokens_from(1000 + others_.size(), 620), asking(2));
    }
  }
  void disperse() {
    for (const SessionId other : others_) CHECK(engine->destroy_session(other).ok());
    step();
  }
  int32_t cached(const std::vector<int32_t>& prompt, const RequestOptions& options) {
    const Reply& reply = run(session(), prompt, options);
    CHECK(reply.tokens == reference(prompt, options.max_tokens));
    return reply.counts.cached_tokens;
  }

 private:
  std::vector<SessionId> others_;
};

}  // namespace

TEST_CASE("a prompt evicted from the device is found in host memory") {
  Tiered h(100);
  const auto prompt = tokens_from(1, 500);
  CHECK(h.cached(prompt, in_scope("", 0, "a")) == 0);
  h.crowd();
  CHECK(h.cached(prompt, in_scope("", 0, "a")) == 499);
  const Metrics metrics = h.engine->metrics();
  CHECK(metrics.cache.hit_host == 499);
  CHECK(metrics.cache.hit_file == 0);
  CHECK(metrics.host.blocks_out >= 8);
  CHECK(metrics.host.bytes_out == metrics.host.blocks_out * kBlockBytes);
  CHECK(metrics.cache.miss_evicted == 0);
}

TEST_CASE("a prompt evicted from host memory is found in the file") {
  Tiered h(24, 200);
  const auto prompt = tokens_from(1, 500);
  CHECK(h.cached(prompt, in_scope("", 0, "a")) == 0);
  h.crowd(4);
  CHECK(h.engine->metrics().file.blocks_in > 8);
  CHECK(h.cached(prompt, in_scope("", 0, "a")) == 499);
  CHECK(h.engine->metrics().cache.hit_file == 499);
  CHECK(h.file->reads >= 8);
}

TEST_CASE("a conversation goes on from its half-full last block in host memory and in the file") {
  for (const int64_t in_file : {0, 200}) {
    Tiered h(in_file > 0 ? 24 : 100, in_file);
    const SessionId session = h.session();
    const auto prompt = tokens_from(1, 300);
    const auto history = prompt + h.run(session, prompt, in_scope("", 0, "a", 50)).tokens;
    h.crowd(4);
    const Reply& reply = h.run(session, tokens_from(2, 20), in_scope("", 0, "a", 10));
    CHECK(reply.counts.cached_tokens == 349);  // all but the token drawn last
    CHECK(reply.tokens == h.reference(history + tokens_from(2, 20), 10));
  }
}

TEST_CASE("in every tier a salt finds its own blocks and never those of another salt") {
  const auto prompt = tokens_from(1, 450);
  for (const int32_t shared : {0, 64, 100, 192}) {
    const std::vector<std::pair<RequestOptions, int32_t>> asked = {
        {in_scope("wren", shared, "secreT"), shared},
        {in_scope("wren", shared, ""), shared},
        {in_scope("robin", shared, "secret"), shared == 0 ? 449 : 0},
        {in_scope("robin", 0, "secreT"), 0},
        {in_scope("wren", shared, "secret"), 449},
    };
    for (const int64_t in_file : {0, 200})
      for (const auto& [options, expected] : asked) {
        INFO("shared " << shared << ", file " << in_file << ", salt " << options.scope.salt);
        Tiered h(in_file > 0 ? 24 : 100, in_file);
        h.run(h.session(), prompt, in_scope("wren", shared, "secret"));
        h.crowd(4);
        REQUIRE(h.engine->cache().node_count() <= 10);
        const Metrics before = h.engine->metrics();
        CHECK(h.cached(prompt, options) == expected);
        const CacheStats now = h.engine->metrics().cache;
        CHECK(now.hit_host - before.cache.hit_host == static_cast<uint64_t>(in_file > 0 ? 0 : expected));
        CHECK(now.hit_file - before.cache.hit_file == static_cast<uint64_t>(in_file > 0 ? expected : 0));
      }
  }
}

TEST_CASE("destroyed sessions and a retired character leave nothing in any tier") {
  Tiered h(24, 200);
  const SessionId session = h.session();
  h.run(session, tokens_from(1, 500), asking(5));  // its own
  h.crowd(2);
  CHECK(h.engine->metrics().host.blocks_held[0] + h.engine->metrics().file.blocks_held[0] >= 8);
  CHECK(h.engine->destroy_session(session).ok());
  h.disperse();
  CHECK(h.engine->cache().tiers()->stored_count() == 0);
  CHECK(h.engine->metrics().host.blocks_held[0] + h.engine->metrics().file.blocks_held[0] == 0);
  CHECK(h.engine->metrics().host.blocks_held[1] + h.engine->metrics().file.blocks_held[1] == 0);
}

TEST_CASE("only the window blocks of resume points are copied to lower tiers") {
  Tiered h(200);
  h.run(h.session(), tokens_from(1, 500), in_scope("", 0, "a"));
  h.crowd(2);
  CHECK(h.engine->metrics().host.blocks_held[0] >= 8);
  CHECK(h.engine->metrics().host.blocks_held[1] <=
        12);  // of each of three conversations: the window of 128 and one block before, where its turn ended
  CHECK(h.engine->metrics().host.blocks_held[1] >= 2);
}

TEST_CASE("a copy that fails, up or down, is a miss, and the blocks before it are used") {
  for (const auto way : {BlockTransfer::Way::kDown, BlockTransfer::Way::kUp})
    for (int which = 0; which < 12; ++which) {
      INFO("way " << static_cast<int>(way) << ", transfer " << which);
      Tiered h(100);
      const auto prompt = tokens_from(1, 500);
      h.cached(prompt, in_scope("", 0, "a"));
      int seen = 0;
      h.executor->fails_transfer = [&](const BlockTransfer& transfer) {
        return transfer.way == way && seen++ == which;
      };
      h.crowd();
      const int32_t cached = h.cached(prompt, in_scope("", 0, "a"));
      CHECK(cached <= 499);
      CHECK(h.engine->metrics().host.blocks_lost == (seen > which ? 1 : 0));
    }
}

TEST_CASE("a damaged block of the file is a miss, and the file stays in use") {
  Tiered h(24, 200);
  const auto prompt = tokens_from(1, 500);
  h.cached(prompt, in_scope("", 0, "a"));
  h.crowd(4);
  for (auto& [offset, bytes] : h.file->pieces) bytes[100] ^= std::byte{1};
  CHECK(h.cached(prompt, in_scope("", 0, "a")) < 499);
  CHECK(h.engine->metrics().file.blocks_lost > 0);
  CHECK(h.engine->metrics().file_status.ok());
  h.crowd(4);
  CHECK(h.cached(prompt, in_scope("", 0, "a")) == 499);
}

TEST_CASE("a file that fails is used no more, the metrics say why, and the engine goes on") {
  for (const bool reading : {false, true}) {
    Tiered h(24, 200);
    const auto prompt = tokens_from(1, 500);
    const auto fails = [] { return Status(StatusCode::kIo, "the disk is full of eels"); };
    if (!reading) h.file->fails_write = fails;
    h.cached(prompt, in_scope("", 0, "a"));
    h.crowd(4);
    if (reading) h.file->fails_read = fails;
    h.cached(prompt, in_scope("", 0, "a"));
    const Metrics metrics = h.engine->metrics();
    CHECK(metrics.file_status.message() == "the disk is full of eels");
    CHECK(metrics.file.blocks_held[0] == 0);
    CHECK(metrics.cache.hit_file == 0);
    CHECK(h.engine->status().ok());
    const int reads = h.file->reads;
    h.crowd(2);
    h.cached(prompt, in_scope("", 0, "a"));
    CHECK(h.file->reads == reads);
  }
}

TEST_CASE("a request that ends while its blocks are promoted holds nothing in any tier") {
  for (const int what : {0, 1, 2}) {
    Tiered h(100);
    const auto prompt = tokens_from(1, 500);
    h.cached(prompt, in_scope("", 0, "a"));
    h.crowd();
    bool busy = true;
    h.executor->before_run = [&](const StepPlan& plan) {
      return busy && !plan.transfers.empty() ? Status(StatusCode::kBusy, "not now") : Status();
    };
    const SessionId session = h.session();
    const RequestId request = h.submit(session, prompt, in_scope("", 0, "a"));
    CHECK(h.engine->step().code() == StatusCode::kBusy);  // the copies up are planned
    if (what == 0) CHECK(h.engine->cancel(request).ok());
    if (what == 1) CHECK(h.engine->suspend(request).ok());
    if (what == 2) CHECK(h.engine->destroy_session(session).ok());
    CHECK(h.engine->step().code() == StatusCode::kBusy);
    busy = false;
    h.step();
    for (const BlockKind kind : kBothKinds) CHECK(h.count(kind, BlockState::kCached) == h.used(kind));
    if (what == 1) CHECK(h.engine->resume(request).ok());
    h.drain();
    if (what == 1) CHECK(h.replies[request].tokens == h.reference(prompt, 5));
    CHECK(h.cached(prompt, in_scope("", 0, "a")) == 499);
  }
}

TEST_CASE("events say in which tier a shared block is") {
  Tiered h(24, 200);
  const auto prompt = tokens_from(1, 500);
  h.run(h.session(), prompt, in_scope("wren", 448, "a"));
  h.crowd(4);
  h.run(h.session(), prompt, in_scope("wren", 448, "a"));
  std::map<uint64_t, int> where;  // by name: how many tiers have it
  int stored[3] = {0, 0, 0};
  std::vector<CacheEvent> events;
  REQUIRE(h.engine->poll_cache(events, SIZE_MAX).ok());
  for (const CacheEvent& event : events) {
    REQUIRE(event.kind != CacheEventKind::kCleared);
    const bool came = event.kind == CacheEventKind::kStored;
    where[event.name.low] += came ? 1 : -1;
    stored[static_cast<int>(event.tier)] += came;
    CHECK(where[event.name.low] >= -1);
    CHECK(where[event.name.low] <= 2);
  }
  CHECK(where.size() == 7);
  CHECK(stored[0] == 14);
  CHECK(stored[1] >= 7);
  CHECK(stored[2] >= 7);
  for (const auto& [name, tiers] : where) CHECK(tiers == 1);
}

TEST_CASE("the prefixes of several requests are promoted in one step, and the requests start in order") {
  ExecutorInfo info = small_facts();
  info.block_count[0] = 24;
  info.block_count[1] = 24;
  EngineOptions options;
  options.cache.host_bytes = 200 * kBlockBytes;
  Harness h(info, options);
  std::vector<std::vector<int32_t>> prompts;
  for (uint64_t i = 0; i < 3; ++i) prompts.push_back(tokens_from(10 + i, 300));
  for (const auto& prompt : prompts) h.run(h.session(), prompt, in_scope("", 0, "a"));
  h.run(h.session(), tokens_from(5, 1300), in_scope("", 0, "b"));
  const uint64_t steps = h.engine->metrics().steps, before = h.engine->metrics().host.blocks_out;
  std::vector<RequestId> requests;
  for (const auto& prompt : prompts) requests.push_back(h.submit(h.session(), prompt, in_scope("", 0, "a", 2)));
  h.step();
  CHECK(h.engine->metrics().host.blocks_out - before >= 12);
  h.drain();
  for (size_t i = 0; i < 3; ++i) CHECK(h.replies[requests[i]].counts.cached_tokens == 299);
  CHECK(h.engine->metrics().steps - steps <= 4);
}

TEST_CASE("host memory never exceeds host_bytes, and impossible sizes are refused") {
  const auto refused = [](int64_t host, int64_t in_file, bool file, const char* layout = "scripted") {
    ExecutorInfo info = tight_facts();
    info.kv_layout = layout;
    EngineOptions options;
    options.cache.host_bytes = host;
    options.cache.file_bytes = in_file;
    if (file) options.cache.file = std::make_shared<MemoryFile>();
    auto engine = Engine::create(std::make_unique<ScriptedExecutor>(info), nullptr, options);
    if (engine.ok()) CHECK((*engine)->metrics().host.bytes <= host);
    return engine.status().code();
  };
  CHECK(refused(0, 0, false) == StatusCode::kOk);
  CHECK(refused(10 * kBlockBytes + 7, 0, false) == StatusCode::kOk);
  CHECK(refused(10 * kBlockBytes, kBlockBytes, true) == StatusCode::kOk);
  CHECK(refused(-1, 0, false) == StatusCode::kInvalidArgument);
  CHECK(refused(kBlockBytes - 1, 0, false) == StatusCode::kInvalidArgument);
  CHECK(refused(0, kBlockBytes, true) == StatusCode::kInvalidArgument);
  CHECK(refused(10 * kBlockBytes, kBlockBytes, false) == StatusCode::kInvalidArgument);
  CHECK(refused(10 * kBlockBytes, 0, true) == StatusCode::kInvalidArgument);
  CHECK(refused(10 * kBlockBytes, kBlockBytes - 1, true) == StatusCode::kInvalidArgument);
  CHECK(refused(10 * kBlockBytes, 0, false, "") == StatusCode::kUnsupported);
  CHECK(refused(int64_t{1} << 62, 0, false) == StatusCode::kOutOfMemory);
}

TEST_CASE("sessions are saved and restored while blocks move") {
  Tiered h(100);
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 400);
  const auto history = prompt + h.run(session, prompt, in_scope("", 0, "a", 5)).tokens;
  std::vector<std::byte> saved;
  CHECK(h.engine
            ->save_session(session, {},
                           [&](std::span<const std::byte> bytes) {
                             return saved.insert(saved.end(), bytes.begin(), bytes.end()), Status();
                           })
            .ok());
  h.crowd();
  size_t at = 0;
  auto restored = h.engine->restore_session({}, [&](std::span<std::byte> bytes) -> Result<size_t> {
    const size_t count = std::min(bytes.size(), saved.size() - at);
    std::copy_n(saved.begin() + static_cast<std::ptrdiff_t>(at), count, bytes.begin());
    at += count;
    return count;
  });
  REQUIRE(restored.ok());
  CHECK(h.run(*restored, tokens_from(2, 10), asking(5)).tokens == h.reference(history + tokens_from(2, 10), 5));
  h.crowd();
  CHECK(h.cached(prompt, in_scope("", 0, "a")) == 399);
}
