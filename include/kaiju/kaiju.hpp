// The C++ interface of the compiled library: Model, Session and saved sessions. The classes of this header compose
// checkpoint, tokenizer, executor and engine, and add no behaviour of their own. The header core.hpp is the header-only
// alternative to this header.
//
//   auto model = kaiju::Model::load("model.safetensors");
//   if (!model.ok()) return fail(model.status());
//   auto engine = model.value()->create_engine();
//   if (!engine.ok()) return fail(engine.status());
//   auto session = kaiju::Session::create(engine.value());
//   if (!session.ok()) return fail(session.status());
//   session->generate(prompt, {}, [](std::string_view text) { ...; return true; });
#pragma once

#if __cplusplus < 202002L
#error "kaiju needs C++20: compile with -std=c++20 or newer"
#endif

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
#include "kaiju/format/head.hpp"
#include "kaiju/format/weight_update.hpp"
#include "kaiju/run/devices.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/run/memory_need.hpp"
#include "kaiju/text/chat.hpp"
#include "kaiju/text/message_gate.hpp"
#include "kaiju/text/tokenizer.hpp"
#include "kaiju/text/volatile_text.hpp"

namespace kaiju {

struct ModelOptions {
  Verify verify = Verify::kFull;
  Checkpoint::Progress progress;
  std::string scales;  // path of a file with other scales of keys and values (with_scales); empty: the model's own
  std::string head;    // path of a file with another classifier (with_head); empty: the model's own, if it has one
  int32_t verify_threads = 1;  // that share the verification, the calling one included; they end with the load
  bool interleave = false;     // Checkpoint::interleave: the weights lie on all memory nodes (NUMA) of the machine
};

struct RunOptions {
  ExecutorOptions executor;
  EngineOptions engine;
  // Path of the file for KV that is evicted from the cache. The file is created (open_block_file) if
  // engine.cache.file_bytes is set.
  std::string tier_file;
  // Most bytes that the engine may take on its device (MemoryNeed::on_device); kFreeMemory: what is free there, and on
  // the host; 0: no limit. create_engine then returns kOutOfMemory before it takes anything.
  int64_t memory_limit = 0;
};

// Config, weights and tokenizer of a model. A Model is immutable after the load. Any thread may use a Model, and any
// number of engines may share one.
class Model {
 public:
  static Result<std::shared_ptr<const Model>> load(const std::string& path, const ModelOptions& options = {});
  static Result<std::shared_ptr<const Model>> create(std::shared_ptr<const Checkpoint> checkpoint);

  const ModelConfig& config() const { return checkpoint_->config(); }
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }
  int64_t weight_bytes() const;
  int64_t parameter_count() const;  // int8 weights

  // The next two functions return the model's tokenizer and chat format. Each function returns kUnsupported if the
  // model has no tokenizer or no chat format.
  Result<std::shared_ptr<const Tokenizer>> tokenizer() const;
  Result<const ChatFormat*> chat() const;
  // Returns the tokens that end a reply by default, in engines of create_engine: the stop tokens of the chat format.
  // The list is empty if the model has no chat format.
  std::vector<int32_t> stop_tokens() const;

  // Creates a conversation of an engine of this model: Conversation::create with the closing and opening tokens of the
  // model's chat format, or without if it has none.
  Result<Conversation> create_conversation(const std::shared_ptr<Engine>& engine, std::span<const int32_t> head) const;

  // Returns the memory that create_engine would take. A model that was loaded with Verify::kNone will do.
  Result<MemoryNeed> memory_need(const RunOptions& options = {}) const;
  // Creates an engine that computes with this model. The engine keeps alive the parts of the model that it needs.
  Result<std::shared_ptr<Engine>> create_engine(const RunOptions& options = {}) const;

 private:
  Model() = default;
  static Result<std::shared_ptr<const Model>> compose(std::shared_ptr<const Checkpoint> checkpoint);

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatFormat> chat_;
  Status no_chat_;
};

// Creates the file for KV that is evicted from the cache, and reserves `bytes` bytes of disk space. Nothing may exist
// at `path`. Only the file's owner can access the file. The name of the tier file is removed at once, so the file
// disappears when the last process closes it, even if that process is killed. A kIo error names the path and the
// reason.
Result<std::shared_ptr<BlockFile>> open_block_file(const std::string& path, int64_t bytes);

// -- saved sessions --
inline constexpr size_t kLeastKeyBytes = 16, kMostKeyBytes = 1024;
// Makes a sealer (a function that seals saved sessions) from a key, with HMAC-SHA-256. Without the key, nobody can
// create a saved session that a restore with this sealer accepts. Returns kInvalidArgument if the key is shorter than
// kLeastKeyBytes or longer than kMostKeyBytes.
Result<Sealer> make_sealer(std::string_view key);

// Saves a session to a file by Engine::save_session. Only the file's owner can read the saved session. The save
// replaces the file as a whole: if saving fails, an old file at `path` stays as it was. If `path` is a symbolic link,
// the save writes the link's target and the link stays. A kIo error names the path and the reason.
Status save_session(Engine& engine, SessionId session, const std::string& path, const SaveOptions& options = {});
// Restores a session from a file by Engine::restore_session. Every error message about the file names the path.
// Session::restore returns the same as a Session, which owns it.
Result<SessionId> restore_session(Engine& engine, const std::string& path, const RestoreOptions& options = {});

// Owns one session of an engine and keeps the engine alive. A Session is movable and allows one thread at a time. The
// calls of a Session that was moved from return kInvalidArgument.
class Session {
 public:
  static Result<Session> create(const std::shared_ptr<Engine>& engine);
  static Result<Session> restore(const std::shared_ptr<Engine>& engine, const std::string& path,
                                 const RestoreOptions& options = {});
  static Result<Session> restore(const std::shared_ptr<Engine>& engine, const SessionSource& read,
                                 const RestoreOptions& options = {});  // from a source of the host's own
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  SessionId id() const { return id_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  Result<Session> fork(size_t length) const;
  Status truncate(size_t length);
  Result<std::vector<int32_t>> tokens() const;
  Status save(const std::string& path, const SaveOptions& options = {}) const;
  Result<int32_t> pin();
  Result<RequestId> submit(std::span<const int32_t> tokens, const RequestOptions& options);

  // Submits a request, steps the engine until the request is done, and returns the request's last event
  // (Engine::generate). The callback on_text receives whole UTF-8; if on_text returns false, the reply stops. The steps
  // also compute the engine's other requests, whose events stay in the engine until they are polled.
  Result<Event> generate(std::span<const int32_t> tokens, const RequestOptions& options,
                         const Function<bool(std::string_view text)>& on_text = {});

 private:
  friend class Rollout;  // kaiju/rollout.hpp
  Session(std::shared_ptr<Engine> engine, SessionId id) : engine_(std::move(engine)), id_(id) {}
  static Result<Session> adopt(const std::shared_ptr<Engine>& engine, Result<SessionId> id);
  Status check_not_moved() const;

  std::shared_ptr<Engine> engine_;
  SessionId id_ = 0;
};

// Saves a conversation to a file and restores it, by Conversation::save and Conversation::restore, with the rules of
// Session::save and Session::restore for files.
Status save_conversation(Conversation& conversation, const std::string& path, const SaveOptions& options = {});
Result<Conversation> restore_conversation(const std::shared_ptr<Engine>& engine, const std::string& path,
                                          const RestoreOptions& options = {});

}  // namespace kaiju
