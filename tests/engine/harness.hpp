// Harness: an engine on a scripted executor, driven step by step, with every reply collected and every block checked.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kaiju/cache/prefix_tree.hpp"
#include "kaiju/engine/detail/scheduler.hpp"
#include "kaiju/engine/engine.hpp"
#include "kaiju/sample/params.hpp"
#include "kaiju/step/executor.hpp"
#include "kaiju/text/detail/pieces.hpp"
#include "tests/engine/scripted_executor.hpp"

namespace kaiju {
using Clock = std::chrono::steady_clock;
}

namespace kaiju::test {

// Token t is spelt by letters; a few tokens are pieces of code points or control symbols.
class ScriptedPieces final : public Pieces {
 public:
  explicit ScriptedPieces(int32_t vocab) {
    for (int32_t token = 0; token < vocab; ++token) {
      std::string text;
      if (token == 1)
        text = "\xF0\x9F";  // U+1F600 in two halves
      else if (token == 2)
        text = "\x98\x80";
      else if (token == 3)
        text = "";  // control symbol
      else if (token % 5 == 0)
        text = std::string(1, static_cast<char>('a' + token % 26)) + "b";
      else
        text = std::string(1, static_cast<char>('a' + token % 26));
      pieces_.push_back(text);
    }
  }
  std::string_view piece(int32_t token) const override {
    return token >= 0 && token < static_cast<int32_t>(pieces_.size())
               ? std::string_view(pieces_[static_cast<size_t>(token)])
               : std::string_view();
  }

 private:
  std::vector<std::string> pieces_;
};

inline ExecutorInfo small_facts() {
  ExecutorInfo info;
  info.vocab_size = 97;
  info.context = 2048;
  info.window = 128;
  info.has_global = true;
  info.slot_count = 4;
  info.step_tokens = 96;
  info.most_samples = info.step_tokens;
  info.block_count[0] = 128;
  info.block_count[1] = 64;
  info.block_bytes[0] = info.block_bytes[1] = kBlockTokens * ScriptedExecutor::kWordBytes;
  info.kv_layout = "scripted";
  return info;
}

inline std::vector<int32_t> tokens_from(uint64_t seed, size_t count, int32_t vocab = 97) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(mix(seed * 1000003 + i) % static_cast<uint64_t>(vocab)));
  return tokens;
}

struct Reply {
  std::vector<int32_t> tokens;
  std::string text;
  bool done = false, failed = false;
  DoneReason reason = DoneReason::kNone;
  int32_t stop = -1;
  Status status;
  int suspended = 0, resumed = 0;
  RequestCounts counts;
  ReuseReport reuse;
  RequestTiming timing;
  std::vector<size_t> top_counts;
  std::vector<std::vector<float>> scores;
};

struct Harness {
  explicit Harness(const ExecutorInfo& f = small_facts(), EngineOptions options = {}) : info(f) {
    options.check_ledger = true;
    auto owned = std::make_unique<ScriptedExecutor>(info);
    executor = owned.get();
    auto made = Engine::create(std::move(owned), std::make_shared<ScriptedPieces>(info.vocab_size), options);
    REQUIRE(made.status().message() == "");
    engine = std::move(made).value();
    // What others know must not be written.
    executor->is_known = [tree = &engine->cache()](BlockKind kind, BlockId block) {
      const NodeId node = tree->node_of(kind, block);
      return node != kNoNode && tree->at(node).claim == kReady;
    };
  }

  SessionId session() { return engine->create_session().value(); }
  RequestId submit(SessionId session, const std::vector<int32_t>& tokens, const RequestOptions& options = {}) {
    auto request = engine->submit(session, tokens, options);
    REQUIRE(request.status().message() == "");
    return request.value();
  }
  void collect() {
    for (Event event; engine->poll(event);) {
      Reply& reply = replies[event.request];
      REQUIRE_FALSE((reply.done || reply.failed));
      reply.text += event.text;
      reply.counts = event.counts;
      reply.reuse = event.reuse;
      reply.timing = event.timing;
      if (event.kind == EventKind::kToken) {
        reply.tokens.push_back(event.token);
        reply.top_counts.push_back(event.top.size());
        reply.scores.push_back(event.scores);
      }
      reply.suspended += event.kind == EventKind::kSuspended;
      reply.resumed += event.kind == EventKind::kResumed;
      if (event.kind == EventKind::kDone) reply.done = true, reply.reason = event.reason, reply.stop = event.stop;
      if (event.kind == EventKind::kPrefetched) reply.done = true;
      if (event.kind == EventKind::kFailed) reply.failed = true, reply.status = event.status;
    }
  }
  void step() {
    const Status status = engine->step();
    INFO(status.message());
    REQUIRE(status.ok());
    check();
    poison_free();
    collect();
  }
  // What is free now must not be read, but for copies into lower tiers that are due.
  void poison_free() {
    const BlockPool& pool = engine->cache().pool();
    const Tiers* tiers = engine->cache().tiers();
    for (const BlockKind kind : kBothKinds)
      for (BlockId block = 0; block < pool.total(kind); ++block)
        if (pool.state(kind, block) == BlockState::kFree && !(tiers && tiers->awaited(kind, block)))
          executor->poison(kind, block);
  }
  void check() {
    for (const std::string& fault : executor->faults) INFO(fault);
    if (!executor->faults.empty()) FAIL(executor->faults.front());
  }
  void drain(int most_steps = 100000) {
    while (engine->pending() > 0 && most_steps-- > 0) step();
    REQUIRE(engine->pending() == 0);
  }
  Reply& run(SessionId session, const std::vector<int32_t>& tokens, const RequestOptions& options = {}) {
    const RequestId request = submit(session, tokens, options);
    drain();
    return replies[request];
  }
  std::vector<int32_t> reference(const std::vector<int32_t>& prompt, int32_t count,
                                 const RequestOptions& options = {}) const {
    return ScriptReference::generate(info, check_sampling(options.sampling, info.vocab_size).value(), prompt, count,
                                     options.stop_tokens.value_or(std::vector<int32_t>()));
  }
  int32_t used(BlockKind kind) const { return engine->cache().pool().used_count(kind); }
  int32_t count(BlockKind kind, BlockState state) const { return engine->cache().pool().count(kind, state); }

  ExecutorInfo info;
  ScriptedExecutor* executor = nullptr;  // owned by the engine
  std::unique_ptr<Engine> engine;
  std::map<RequestId, Reply> replies;
};

inline std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline RequestOptions asking(int32_t max_tokens) {
  RequestOptions options;
  options.max_tokens = max_tokens;
  return options;
}

inline RequestOptions in_scope(const std::string& character, int32_t shared_tokens, const std::string& salt,
                               int32_t max_tokens = 5) {
  RequestOptions options = asking(max_tokens);
  options.scope = {character, shared_tokens, salt};
  return options;
}

}  // namespace kaiju::test
