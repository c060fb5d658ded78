// Model and Session: see kaiju.hpp.
#include "kaiju/kaiju.hpp"

#include <utility>

#include "kaiju/format/scales.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju {

Result<std::shared_ptr<const Model>> Model::load(const std::string& path, const ModelOptions& options) {
  auto checkpoint = Checkpoint::open(path, options.verify, options.progress, options.verify_threads);
  if (!checkpoint.ok()) return checkpoint.status();
  if (options.interleave) KAIJU_TRY((*checkpoint)->interleave());
  if (!options.head.empty()) checkpoint = with_head(std::move(checkpoint).value(), options.head, options.verify);
  if (checkpoint.ok() && !options.scales.empty())
    checkpoint = with_scales(std::move(checkpoint).value(), options.scales, options.verify);
  if (!checkpoint.ok()) return checkpoint.status();
  return create(std::move(checkpoint).value());
}

Result<std::shared_ptr<const Model>> Model::create(std::shared_ptr<const Checkpoint> checkpoint) {
  using Answer = Result<std::shared_ptr<const Model>>;
  return guarded<Answer>([&] { return compose(std::move(checkpoint)); });
}

Result<std::shared_ptr<const Model>> Model::compose(std::shared_ptr<const Checkpoint> checkpoint) {
  if (!checkpoint) return invalid_argument("no checkpoint");
  std::shared_ptr<Model> model(new Model);
  if (const TensorInfo* bytes = checkpoint->find("tokenizer")) {
    auto tokenizer = Tokenizer::load(bytes->bytes, checkpoint->config().vocab_size);
    if (!tokenizer.ok()) return tokenizer.status();
    model->tokenizer_ = std::move(tokenizer).value();
  }
  auto chat = ChatFormat::create(checkpoint->config(), model->tokenizer_);
  if (chat.ok()) {
    model->chat_ = std::move(chat).value();
  } else if (chat.status().code() == StatusCode::kUnsupported) {
    model->no_chat_ = chat.status();
  } else {
    return chat.status();
  }
  model->checkpoint_ = std::move(checkpoint);
  return std::shared_ptr<const Model>(std::move(model));
}

int64_t Model::weight_bytes() const {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : checkpoint_->tensors())
    if (tensor.name != "tokenizer") bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const TensorInfo& tensor : checkpoint_->tensors())
    if (tensor.dtype == DType::kI8) count += static_cast<int64_t>(tensor.bytes.size());
  return count;
}

Result<std::shared_ptr<const Tokenizer>> Model::tokenizer() const {
  if (!tokenizer_)
    return Status(StatusCode::kUnsupported, "the model has no tokenizer; give it tokens instead of text");
  return tokenizer_;
}

Result<const ChatFormat*> Model::chat() const {
  if (!chat_) return no_chat_;
  return &*chat_;
}

std::vector<int32_t> Model::stop_tokens() const { return chat_ ? chat_->stop_tokens() : std::vector<int32_t>(); }

Result<Conversation> Model::create_conversation(const std::shared_ptr<Engine>& engine,
                                                std::span<const int32_t> head) const {
  return guarded<Result<Conversation>>([&] {
    std::span<const int32_t> close, opening;
    if (chat_) close = chat_->close(), opening = chat_->opening(head);
    return Conversation::create(engine, head, close, opening);
  });
}

Result<MemoryNeed> Model::memory_need(const RunOptions& options) const {
  ExecutorOptions sizes = options.executor;
  sizes.share_memory = true;
  Result<MemoryNeed> need = kaiju::memory_need(*checkpoint_, sizes);
  if (need.ok()) need->host_tier = options.engine.cache.host_bytes;
  return need;
}

Result<std::shared_ptr<Engine>> Model::create_engine(const RunOptions& options) const {
  using Answer = Result<std::shared_ptr<Engine>>;
  return guarded<Answer>([&]() -> Answer {
    ExecutorOptions sizes = options.executor;
    sizes.share_memory = true;
    if (options.memory_limit != 0) {
      const Result<MemoryNeed> need = memory_need(options);
      if (!need.ok()) return need.status();
      KAIJU_TRY(check_memory(*need, options.memory_limit));
    }
    auto executor = make_executor(checkpoint_, sizes);
    if (!executor.ok()) return executor.status();
    EngineOptions settings = options.engine;
    if (settings.stop_tokens.empty()) settings.stop_tokens = stop_tokens();
    settings.cache.identity =
        checkpoint_->digest() + " arithmetic " + std::to_string(checkpoint_->config().arithmetic());
    settings.cache.epoch = checkpoint_->scale_epoch();
    if (!options.tier_file.empty() && settings.cache.file_bytes == 0)
      return invalid_argument("tier_file is set but file_bytes is 0: set file_bytes to the size of the file");
    if (!options.tier_file.empty()) {
      auto file = open_block_file(options.tier_file, settings.cache.file_bytes);
      if (!file.ok()) return file.status();
      settings.cache.file = std::move(file).value();
    }
    auto engine = Engine::create(std::move(executor).value(), tokenizer_, settings);
    if (!engine.ok()) return engine.status();
    return std::shared_ptr<Engine>(std::move(engine).value());
  });
}

Result<Session> Session::adopt(const std::shared_ptr<Engine>& engine, Result<SessionId> id) {
  if (!id.ok()) return id.status();
  return Session(engine, id.value());
}

Result<Session> Session::create(const std::shared_ptr<Engine>& engine) {
  if (!engine) return invalid_argument("no engine");
  return adopt(engine, engine->create_session());
}

Result<Session> Session::restore(const std::shared_ptr<Engine>& engine, const std::string& path,
                                 const RestoreOptions& options) {
  if (!engine) return invalid_argument("no engine");
  return adopt(engine, restore_session(*engine, path, options));
}

Result<Session> Session::restore(const std::shared_ptr<Engine>& engine, const SessionSource& read,
                                 const RestoreOptions& options) {
  if (!engine) return invalid_argument("no engine");
  return adopt(engine, engine->restore_session(options, read));
}

Session::Session(Session&& other) noexcept : engine_(std::move(other.engine_)), id_(std::exchange(other.id_, 0)) {}

Session& Session::operator=(Session&& other) noexcept {
  std::swap(engine_, other.engine_);
  std::swap(id_, other.id_);
  return *this;
}

Session::~Session() {
  if (engine_ && id_) (void)engine_->destroy_session(id_);  // fails only when it is gone already
}

Status Session::check_not_moved() const {
  if (!engine_) return invalid_argument("the session was moved to another object");
  return {};
}

Result<Session> Session::fork(size_t length) const {
  KAIJU_TRY(check_not_moved());
  return adopt(engine_, engine_->fork_session(id_, length));
}

Status Session::truncate(size_t length) {
  KAIJU_TRY(check_not_moved());
  return engine_->truncate_session(id_, length);
}

Result<std::vector<int32_t>> Session::tokens() const {
  KAIJU_TRY(check_not_moved());
  return engine_->session_tokens(id_);
}

Status Session::save(const std::string& path, const SaveOptions& options) const {
  KAIJU_TRY(check_not_moved());
  return save_session(*engine_, id_, path, options);
}

Result<int32_t> Session::pin() {
  KAIJU_TRY(check_not_moved());
  return engine_->pin_session(id_);
}

Result<RequestId> Session::submit(std::span<const int32_t> tokens, const RequestOptions& options) {
  KAIJU_TRY(check_not_moved());
  return engine_->submit(id_, tokens, options);
}

Result<Event> Session::generate(std::span<const int32_t> tokens, const RequestOptions& options,
                                const Function<bool(std::string_view text)>& on_text) {
  KAIJU_TRY(check_not_moved());
  Event done;
  KAIJU_TRY(engine_->generate(id_, tokens, options, on_text, done));
  return done;
}

}  // namespace kaiju
