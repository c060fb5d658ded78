// What the cache finds is what would have been computed: the same tokens, log-probabilities and scores, bit for bit, of
// a random small model on the CPU and, where there is one, on the GPU, with characters, salts, forks, cuts, evictions
// and many at once, against each prompt alone on an engine that has seen nothing, on the CPU.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "catch.hpp"
#include "kaiju/arith/float32.hpp"
#include "kaiju/format/random_model.hpp"
#include "kaiju/kaiju.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"

namespace {

using namespace kaiju;

struct Drawn {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprobs, scores;  // their bits
  bool operator==(const Drawn&) const = default;
};

void drain(Engine& engine, std::map<RequestId, Drawn>& drawn, uint64_t* cached = nullptr) {
  while (engine.pending() > 0) {
    const Status status = engine.step();
    INFO(status.message());
    REQUIRE(status.ok());
    for (Event event; engine.poll(event);) {
      if (event.kind == EventKind::kDone && cached) *cached += static_cast<uint64_t>(event.counts.cached_tokens);
      if (event.kind != EventKind::kToken) continue;
      drawn[event.request].tokens.push_back(event.token);
      drawn[event.request].logprobs.push_back(arith::bits_of(event.logprob));
      for (const TokenLogprob& top : event.top) drawn[event.request].logprobs.push_back(arith::bits_of(top.logprob));
      for (const float score : event.scores) drawn[event.request].scores.push_back(arith::bits_of(score));
    }
  }
}

// The best backend that computes on the processor.
std::string cpu_backend() {
  for (const std::string& name : backend_names())
    if (name != "cuda") return name;
  return "reference";
}

// What `look` sees of the engine in the end.
void ask_500_prompts(const std::string& backend, int32_t arithmetic,
                     const std::function<void(RunOptions&, const std::string&)>& change,
                     const std::function<void(const Metrics&)>& look) {
  INFO("on " << backend << ", arithmetic " << arithmetic);
  const unsigned seed = std::getenv("KAIJU_TEST_SEED")
                            ? static_cast<unsigned>(std::atol(std::getenv("KAIJU_TEST_SEED")))
                            : std::random_device{}();
  INFO("KAIJU_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  ModelConfig config;
  config.name = "cached";
  config.vocab_size = 160;
  config.d_model = 64;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 64;
  config.d_ff = 64;
  config.context = 1024;
  config.layers = {{LayerKind::kWindow, 128, 0, 0}, {LayerKind::kGlobal, 0, 1, 1}, {LayerKind::kWindow, 128, 2, 0}};
  config.labels = {"violence", "self-harm", "spam"};
  config.derive_counts();
  if (arithmetic == 2) config.shape = test::small_scaled_shape();
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("kaiju-cached-{}.safetensors", seed)).string();
  REQUIRE(write_random_checkpoint(path, config, 5).ok());
  auto model = Model::load(path);
  std::filesystem::remove(path);
  REQUIRE(model.ok());
  const auto plain_options = [] {
    RunOptions options;
    options.executor.backend = cpu_backend();
    options.executor.threads = 1;
    options.executor.step_tokens = 192;
    options.executor.slot_count = 8;
    options.executor.cache_bytes = 1;
    return options;
  };

  RunOptions options = plain_options();  // the least memory: evictions are many
  options.executor.backend = backend;
  options.engine.check_ledger = true;
  change(options, path + ".tier");
  auto cached_engine = (*model)->create_engine(options);
  INFO(cached_engine.status().message());
  REQUIRE(cached_engine.ok());
  Engine& engine = **cached_engine;
  auto plain_engine = (*model)->create_engine(plain_options());
  REQUIRE(plain_engine.ok());
  Engine& plain = **plain_engine;

  std::vector<std::vector<int32_t>> cards(3);
  for (auto& card : cards)
    for (size_t i = 0, n = 100 + below(200); i < n; ++i) card.push_back(static_cast<int32_t>(below(160)));
  std::vector<std::vector<int32_t>> histories;  // past prompts with their replies, to be gone on from
  uint64_t cached = 0;
  size_t prompts = 0;
  const int32_t edges[] = {63,  64,  65,  127, 128, 129,
                           191, 192, 193, 255, 256, 257};  // blocks, and the window, one block more and less
  while (prompts < 500) {
    std::map<RequestId, Drawn> drawn;
    std::map<RequestId, std::vector<int32_t>> asked;
    RequestOptions request;
    for (size_t i = 0, n = 1 + below(6); i < n; ++i, ++prompts) {
      std::vector<int32_t> prompt;
      const size_t character = below(cards.size());
      if (histories.empty() || below(3) == 0)
        prompt = cards[character];
      else
        prompt = histories[below(histories.size())];
      if (below(3) == 0) prompt.resize(std::min<size_t>(prompt.size(), static_cast<size_t>(edges[below(12)])));
      if (below(4) == 0) prompt[below(prompt.size())] ^= 1;
      for (size_t extra = below(40); extra > 0; --extra) prompt.push_back(static_cast<int32_t>(below(160)));
      if (prompt.size() > 600) prompt.resize(600);
      const auto& card = cards[character];
      request.max_tokens = 1 + static_cast<int32_t>(below(12));
      request.logprobs = 3;
      request.scores = true;
      request.scope.character = std::to_string(character);
      request.scope.salt = std::to_string(below(2));
      request.scope.shared_tokens = static_cast<int32_t>(
          std::mismatch(card.begin(), card.end(), prompt.begin(), prompt.end()).first - card.begin());
      const SessionId session = engine.create_session().value();
      const auto id = engine.submit(session, prompt, request);
      INFO(id.status().message());
      REQUIRE(id.ok());
      asked[id.value()] = prompt;
      if (below(8) == 0) REQUIRE(engine.step().ok());
    }
    drain(engine, drawn, &cached);
    for (const auto& [id, prompt] : asked) {
      const SessionId alone = plain.create_session().value();
      RequestOptions again;
      again.max_tokens = static_cast<int32_t>(drawn[id].tokens.size());
      again.logprobs = 3;
      again.scores = true;
      const RequestId reference = plain.submit(alone, prompt, again).value();
      std::map<RequestId, Drawn> expected;
      uint64_t found = 0;
      drain(plain, expected, &found);
      REQUIRE(found == 0);
      REQUIRE(plain.destroy_session(alone).ok());
      REQUIRE(plain.step().ok());
      CHECK(expected[reference] == drawn[id]);
      CHECK(drawn[id].scores.size() == 3 * drawn[id].tokens.size());
      histories.push_back(prompt);
      histories.back().insert(histories.back().end(), drawn[id].tokens.begin(), drawn[id].tokens.end());
    }
    while (histories.size() > 20)
      histories.erase(histories.begin() + static_cast<std::ptrdiff_t>(below(histories.size())));
  }
  CHECK(cached > 20000);  // it did find much
  CHECK(engine.metrics().cache.blocks_evicted[0] > 0);
  look(engine.metrics());
}

// The GPU, where there is one, and the processor.
std::vector<std::string> both_backends() {
  std::vector<std::string> names = backend_names();
  names.erase(std::remove_if(names.begin(), names.end(),
                             [](const std::string& name) { return name != "cuda" && name != cpu_backend(); }),
              names.end());
  return names;
}

}  // namespace

TEST_CASE("a saved session has no KV of sequences that used its blocks before") {
  const int32_t arithmetic = GENERATE(1, 2);
  ModelConfig config = test::small_config_of(arithmetic, "tenants");
  config.n_kv_heads = 2;
  config.context = 1024;
  auto model = Model::create(test::random_checkpoint(config, 5));
  REQUIRE(model.ok());
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    const auto saved_behind = [&](int32_t tenants) {
      RunOptions options;
      options.executor.backend = backend;
      options.executor.threads = 1;
      options.executor.slot_count = 8;
      options.executor.cache_bytes = 1;
      auto engine = (*model)->create_engine(options);
      INFO(engine.status().message());
      REQUIRE(engine.ok());
      std::map<RequestId, Drawn> drawn;
      const auto session_of = [&](const std::string& salt, int32_t seed, int32_t count) {
        std::vector<int32_t> prompt;
        for (int32_t i = 0; i < count; ++i) prompt.push_back((i * 7 + seed * 31) % 160);
        RequestOptions request;
        request.max_tokens = 5;
        request.scope.salt = salt;
        const SessionId session = (*engine)->create_session().value();
        REQUIRE((*engine)->submit(session, prompt, request).ok());
        drain(**engine, drawn);
        return session;
      };
      for (int32_t i = 0; i < tenants; ++i)
        REQUIRE((*engine)->destroy_session(session_of("somebody else", i + 1, 1000)).ok());
      std::vector<std::byte> bytes;
      const Status status =
          (*engine)->save_session(session_of("me", 0, 200), {}, [&](std::span<const std::byte> piece) {
            bytes.insert(bytes.end(), piece.begin(), piece.end());
            return Status();
          });
      INFO(status.message());
      REQUIRE(status.ok());
      return bytes;
    };
    const std::vector<std::byte> alone = saved_behind(0);
    CHECK(alone.size() > 10000);
    CHECK((saved_behind(arithmetic == 1 ? 20 : 3) == alone));
  }
}

TEST_CASE("a restored, a forked and a truncated session give the bits of one that went on, and compute nothing again") {
  const int32_t arithmetic = GENERATE(1, 2);
  ModelConfig config = test::small_config_of(arithmetic, "restored");
  config.context = 1024;
  auto model = Model::create(test::random_checkpoint(config, 6));
  REQUIRE(model.ok());
  const auto engine_on = [&](const std::string& backend) {
    RunOptions options;
    options.executor.backend = backend;
    options.executor.threads = 1;
    options.engine.check_ledger = true;
    auto engine = (*model)->create_engine(options);
    INFO(engine.status().message());
    REQUIRE(engine.ok());
    return std::move(engine).value();
  };
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 700; ++i) prompt.push_back((i * i * 3 + i * 7 + 1) % config.vocab_size);
  const std::vector<int32_t> more = {1, 2, 3};
  for (const std::string& backend : backend_names()) {
    INFO(backend << ", arithmetic " << arithmetic);
    const auto ask = [&](Engine& engine, SessionId session, std::span<const int32_t> tokens, uint64_t* cached) {
      RequestOptions request;
      request.max_tokens = 8;
      request.logprobs = 3;
      const auto id = engine.submit(session, tokens, request);
      INFO(id.status().message());
      REQUIRE(id.ok());
      std::map<RequestId, Drawn> drawn;
      drain(engine, drawn, cached);
      return drawn[id.value()];
    };
    const auto engine = engine_on(backend), other = engine_on(backend);
    const SessionId session = engine->create_session().value();
    ask(*engine, session, prompt, nullptr);
    std::vector<std::byte> saved;
    REQUIRE(engine
                ->save_session(session, {},
                               [&](std::span<const std::byte> piece) {
                                 saved.insert(saved.end(), piece.begin(), piece.end());
                                 return Status();
                               })
                .ok());
    const size_t length = engine->session_tokens(session).value().size();
    const SessionId fork = engine->fork_session(session, length).value();
    uint64_t of_session = 0, of_fork = 0, of_cut = 0, of_restored = 0;
    const Drawn expected = ask(*engine, session, more, &of_session);
    CHECK(ask(*engine, fork, more, &of_fork) == expected);
    REQUIRE(engine->truncate_session(session, length).ok());
    CHECK(ask(*engine, session, more, &of_cut) == expected);

    size_t at = 0;
    const auto restored = other->restore_session({}, [&](std::span<std::byte> bytes) -> Result<size_t> {
      const size_t count = std::min(bytes.size(), saved.size() - at);
      std::copy_n(saved.begin() + static_cast<std::ptrdiff_t>(at), count, bytes.begin());
      at += count;
      return count;
    });
    INFO(restored.status().message());
    REQUIRE(restored.ok());
    CHECK(ask(*other, restored.value(), more, &of_restored) == expected);
    for (const uint64_t cached : {of_session, of_fork, of_cut, of_restored}) CHECK(cached >= 700);
  }
}

TEST_CASE("500 random prompts give the bits of an empty cache, whatever the cache holds") {
  const int32_t arithmetic = GENERATE(1, 2);
  for (const std::string& backend : both_backends())
    ask_500_prompts(backend, arithmetic, [](RunOptions&, const std::string&) {}, [](const Metrics&) {});
}

TEST_CASE("random prompts give the bits of an empty cache while KV moves through host memory and a file") {
  const int32_t arithmetic = GENERATE(1, 2);
  const auto change = [](RunOptions& options, const std::string& tier_file) {
    options.engine.cache.host_bytes = 1 << 20;
    options.engine.cache.file_bytes = 8 << 20;
    options.tier_file = tier_file;
  };
  const auto look = [](const Metrics& metrics) {
    INFO(metrics.host.blocks_in << " down, " << metrics.host.blocks_out << " up, " << metrics.file.blocks_in
                                << " into the file, " << metrics.file.blocks_out << " out of it, "
                                << metrics.cache.hit_host << " and " << metrics.cache.hit_file << " tokens hit");
    CHECK(metrics.cache.hit_host > 1000);
    CHECK(metrics.cache.hit_file > 1000);
    CHECK(metrics.host.blocks_lost + metrics.file.blocks_lost == 0);
    CHECK(metrics.host.bytes <= 1 << 20);
    CHECK(metrics.file_status.ok());
  };
  for (const std::string& backend : both_backends()) ask_500_prompts(backend, arithmetic, change, look);
}
