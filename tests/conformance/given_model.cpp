// A model of the caller's: its replies have the same bits on every backend of this machine, whatever the threads, the
// size of steps, the requests beside them, and what of the prompt is cached and where. Not part of the suite, because
// models that people use are large:
//
//   KAIJU_TEST_MODEL=FILE test_conformance "[.given]"
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "catch.hpp"
#include "kaiju/arith/float32.hpp"
#include "kaiju/kaiju.hpp"

namespace {

using namespace kaiju;

constexpr int32_t kPromptTokens = 700, kReplyTokens = 12;
const Scope kScope{"", 0, "given"};  // with a salt, sessions find what others have cached
const std::vector<int32_t> kMore = {3, 1, 2};

// The tokens and log-probabilities of a reply.
using Bits = std::vector<uint32_t>;

class Host {
 public:
  Host(const Model& model, const RunOptions& options) {
    auto engine = model.create_engine(options);
    INFO(engine.status().message());
    REQUIRE(engine.ok());
    engine_ = std::move(engine).value();
  }
  Engine& operator*() const { return *engine_; }
  Engine* operator->() const { return engine_.get(); }

  SessionId session() const { return engine_->create_session().value(); }
  RequestId submit(SessionId session, std::span<const int32_t> prompt) const {
    RequestOptions request;
    request.max_tokens = kReplyTokens;
    request.logprobs = 3;
    request.scope = kScope;
    const auto id = engine_->submit(session, prompt, request);
    INFO(id.status().message());
    REQUIRE(id.ok());
    return id.value();
  }
  // Runs every request to its end.
  std::map<RequestId, Bits> run() {
    std::map<RequestId, Bits> replies;
    while (engine_->pending() > 0) {
      const Status status = engine_->step();
      INFO(status.message());
      REQUIRE(status.ok());
      for (Event event; engine_->poll(event);) {
        if (event.kind == EventKind::kDone) cached_ = event.counts.cached_tokens;
        if (event.kind != EventKind::kToken) continue;
        Bits& reply = replies[event.request];
        reply.push_back(static_cast<uint32_t>(event.token));
        for (const TokenLogprob& top : event.top) reply.push_back(arith::bits_of(top.logprob));
      }
    }
    return replies;
  }
  Bits ask(SessionId session, std::span<const int32_t> prompt) {
    const RequestId id = submit(session, prompt);
    return run()[id];
  }
  int64_t cached() const { return cached_; }  // tokens of the prompt of the request that ended last

 private:
  std::shared_ptr<Engine> engine_;
  int64_t cached_ = 0;
};

class GivenModel {
 public:
  GivenModel() {
    auto model = Model::load(std::getenv("KAIJU_TEST_MODEL"));
    INFO(model.status().message());
    REQUIRE(model.ok());
    model_ = std::move(model).value();
    std::mt19937 random(1);
    const auto add = [&](std::vector<int32_t>& prompt, int32_t count) {
      for (int32_t i = 0; i < count; ++i)
        prompt.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(model_->config().vocab_size)));
    };
    for (auto& prompt : prompts_) add(prompt, kPromptTokens);
    add(long_prompt_, model_->config().context - kReplyTokens);
  }

  // Replies to the first prompt, and to what is said after it.
  struct Expected {
    Bits reply, next;
  };
  Expected cold(const std::string& backend, int32_t threads, int32_t step_tokens) {
    Host host(*model_, options(backend, threads, step_tokens));
    const SessionId session = host.session();
    Expected found;
    found.reply = host.ask(session, prompts_[0]);
    found.next = host.ask(session, kMore);
    return found;
  }

  void beside_others(const std::string& backend, const Expected& expected) {
    Host host(*model_, options(backend, 2, 256));
    std::vector<RequestId> ids;
    for (const auto& prompt : prompts_) ids.push_back(host.submit(host.session(), prompt));
    CHECK(host.run()[ids[0]] == expected.reply);
  }

  // A prompt that is found in the cache; forks; a session that is cut; one that is saved and restored elsewhere.
  void reused(const std::string& backend, const Expected& expected) {
    Host host(*model_, options(backend, 2, 256)), other(*model_, options(backend, 1, 256));
    const SessionId session = host.session();
    CHECK(host.ask(session, prompts_[0]) == expected.reply);
    CHECK(host.ask(host.session(), prompts_[0]) == expected.reply);
    CHECK(host.cached() >= kPromptTokens - 1 - kBlockTokens);
    std::vector<std::byte> saved;
    const auto write = [&](std::span<const std::byte> piece) {
      saved.insert(saved.end(), piece.begin(), piece.end());
      return Status();
    };
    REQUIRE(host->save_session(session, {}, write).ok());
    const size_t length = host->session_tokens(session).value().size();
    const SessionId fork = host->fork_session(session, length).value();
    CHECK(host.ask(session, kMore) == expected.next);
    CHECK(host.ask(fork, kMore) == expected.next);
    REQUIRE(host->truncate_session(session, length).ok());
    CHECK(host.ask(session, kMore) == expected.next);
    size_t at = 0;
    const auto restored = other->restore_session({{}, kScope}, [&](std::span<std::byte> bytes) -> Result<size_t> {
      const size_t count = std::min(bytes.size(), saved.size() - at);
      std::copy_n(saved.begin() + static_cast<std::ptrdiff_t>(at), count, bytes.begin());
      at += count;
      return count;
    });
    REQUIRE(restored.ok());
    CHECK(other.ask(restored.value(), kMore) == expected.next);
    CHECK(other.cached() >= kPromptTokens);
  }

  // KV that was evicted to host memory and to a file, and comes back.
  void from_tiers(const std::string& backend, const Expected& expected) {
    const std::filesystem::path file = std::filesystem::temp_directory_path() / "kaiju-given-model.tier";
    RunOptions tiers = options(backend, 2, 256);
    tiers.executor.slot_count = 8;
    tiers.executor.cache_bytes = 1;  // the least: for one request of the whole context, which the long prompt is
    tiers.engine.cache.host_bytes = 32 << 20;  // holds the prompt
    tiers.engine.cache.file_bytes = int64_t{1} << 30;
    tiers.tier_file = file.string();
    {
      Host host(*model_, tiers);
      std::vector<int32_t> history;
      const auto ask = [&](std::span<const int32_t> prompt) {
        const SessionId session = host.session();
        const Bits reply = host.ask(session, prompt);
        history = host->session_tokens(session).value();
        REQUIRE(host->destroy_session(session).ok());
        return reply;
      };
      CHECK(ask(prompts_[0]) == expected.reply);
      std::vector<int32_t> whole = history;
      whole.insert(whole.end(), kMore.begin(), kMore.end());
      ask(long_prompt_);
      CHECK(ask(whole) == expected.next);
      const Metrics metrics = host->metrics();
      // Window blocks are lost when one prompt evicts all; "random prompts ... through host memory" finds them there.
      if (!has_windows()) CHECK(metrics.cache.hit_host + metrics.cache.hit_file > 0);
    }
    std::filesystem::remove(file);
  }

 private:
  static RunOptions options(const std::string& backend, int32_t threads, int32_t step_tokens) {
    RunOptions options;
    options.executor.backend = backend;
    options.executor.threads = threads;
    options.executor.step_tokens = step_tokens;
    return options;
  }

  bool has_windows() const {
    const auto& layers = model_->config().layers;
    return std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.window > 0; });
  }

  std::shared_ptr<const Model> model_;
  std::vector<int32_t> prompts_[6], long_prompt_;
};

}  // namespace

TEST_CASE("a given model gives the same replies on every backend, cold, cached, forked, restored and from tiers",
          "[.given]") {
  INFO("KAIJU_TEST_MODEL=FILE names the checkpoint");
  REQUIRE(std::getenv("KAIJU_TEST_MODEL"));
  GivenModel model;
  std::vector<std::string> backends = backend_names();
  if (const char* named = std::getenv("KAIJU_TEST_ISAS"))
    std::erase_if(backends, [&](const std::string& name) { return !std::strstr(named, name.c_str()); });
  std::erase(backends, "reference");  // it would take hours, and the portable loops many minutes for the long prompt
  const GivenModel::Expected expected = model.cold(backends.front(), 1, 1024);
  for (const std::string& backend : backends) {
    INFO(backend);
    for (const int32_t threads : {1, 2})
      for (const int32_t step_tokens : {48, 1024}) {
        INFO(threads << " threads, steps of " << step_tokens);
        const GivenModel::Expected found = model.cold(backend, threads, step_tokens);
        CHECK(found.reply == expected.reply);
        CHECK(found.next == expected.next);
      }
    model.beside_others(backend, expected);
    model.reused(backend, expected);
    if (backend != "portable") model.from_tiers(backend, expected);
    std::printf("%s: equal\n", backend.c_str());
    std::fflush(stdout);
  }
}
