// Door one: a thin compiled facade. Composes checkpoint, tokenizer, executor and engine; adds nothing of its own.
//
//   auto model = kaiju::Model::load("model.safetensors");
//   auto engine = model.value()->create_engine();
//   auto session = kaiju::Session::create(engine.value());
//   session->generate(prompt, options, [](std::string_view text) { ...; return true; });
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/engine/conversation.hpp"
#include "kaiju/engine/engine.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/text/chat.hpp"
#include "kaiju/text/tokenizer.hpp"

namespace kaiju {

struct ModelOptions {
  Verify verify = Verify::kFull;
  Checkpoint::Progress progress;
};

struct RunOptions {
  ExecutorOptions executor;
  EngineOptions engine;
  std::string tier_file;  // with engine.cache.file_bytes: where the file tier's file is made (open_block_file)
};

// Config, weights and tokenizer: immutable after load, safe from any thread, shared by any number of engines.
class Model {
 public:
  static Result<std::shared_ptr<const Model>> load(const std::string& path, const ModelOptions& options = {});
  static Result<std::shared_ptr<const Model>> create(std::shared_ptr<const Checkpoint> checkpoint);

  const ModelConfig& config() const { return checkpoint_->config(); }
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }
  int64_t weight_bytes() const;
  int64_t parameter_count() const;  // int8 weights

  // kUnsupported for a model without one.
  Result<std::shared_ptr<const Tokenizer>> tokenizer() const;
  Result<const ChatFormat*> chat() const;
  // Where a reply ends unless the caller says otherwise: the symbols of the chat format, none for a model without.
  std::vector<int32_t> stop_tokens() const;

  // The engine keeps what it needs of the model alive.
  Result<std::shared_ptr<Engine>> create_engine(const RunOptions& options = {}) const;

 private:
  Model() = default;
  static Result<std::shared_ptr<const Model>> compose(std::shared_ptr<const Checkpoint> checkpoint);

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatFormat> chat_;
  Status no_chat_;
};

// The file tier's file, of that many bytes. Made where nothing is yet, for its owner only, and nameless at once: it
// goes with its last user, even when the process is killed. kIo names path and reason.
Result<std::shared_ptr<BlockFile>> open_block_file(const std::string& path, int64_t bytes);

// -- saved sessions --
inline constexpr size_t kLeastKeyBytes = 16, kMostKeyBytes = 1024;
// Seals with HMAC-SHA-256: who has not the key can make no session that is restored with it. kInvalidArgument for keys
// of other lengths.
Result<Sealer> make_sealer(std::string_view key);
// Engine::save_session into a file that only its owner can read, and that is there whole or not at all, an old one as
// it was; what a symbolic link leads to is written, and the link stays. kIo names path and reason.
Status save_session(Engine& engine, SessionId session, const std::string& path, const SaveOptions& options = {});
// Engine::restore_session from a file; every refusal names the path.
Result<SessionId> restore_session(Engine& engine, const std::string& path, const RestoreOptions& options = {});

// Owns one session of an engine and keeps the engine alive. Movable; one thread at a time.
class Session {
 public:
  static Result<Session> create(const std::shared_ptr<Engine>& engine);
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  SessionId id() const { return id_; }
  Result<Session> fork(size_t length) const { return adopt(engine_, engine_->fork_session(id_, length)); }
  Status truncate(size_t length) { return engine_->truncate_session(id_, length); }
  Result<std::vector<int32_t>> tokens() const { return engine_->session_tokens(id_); }
  Result<RequestId> submit(std::span<const int32_t> tokens, const RequestOptions& options) {
    return engine_->submit(id_, tokens, options);
  }

  // Engine::generate: drives the engine until this request is done and returns its last event. on_text gets whole
  // UTF-8; false stops the reply. Other requests are computed beside it, and their events stay for poll.
  Result<Event> generate(std::span<const int32_t> tokens, const RequestOptions& options,
                         const Function<bool(std::string_view text)>& on_text = {});

 private:
  Session(std::shared_ptr<Engine> engine, SessionId id) : engine_(std::move(engine)), id_(id) {}
  static Result<Session> adopt(const std::shared_ptr<Engine>& engine, Result<SessionId> id);

  std::shared_ptr<Engine> engine_;
  SessionId id_ = 0;
};

}  // namespace kaiju
