// Rollout: see rollout.hpp.
#include "kaiju/rollout.hpp"

#include <xxhash.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kaiju {
namespace {

std::string tokenizer_digest(const Model& model) {
  const TensorInfo* const tokenizer = model.checkpoint()->find("tokenizer");
  return tokenizer ? tokenizer->digest : "";
}

// What a chat of each kind of message looks like as tokens; empty without a chat format.
std::vector<int32_t> chat_probe(const Model& model) {
  std::vector<int32_t> tokens;
  const std::vector<ChatMessage> messages = {
      {ChatRole::kCard, "A\nB", {}}, {ChatRole::kUser, "C", {}}, {ChatRole::kCharacter, "D", {}}};
  ChatParts parts;
  parts.reply = true;
  if (const auto chat = model.chat(); chat.ok() && !(*chat)->format(messages, parts, tokens).ok()) tokens.clear();
  return tokens;
}

Status check_same_tokens(const Model& current, const Model& candidate) {
  const int32_t vocab = current.config().vocab_size, other = candidate.config().vocab_size;
  if (vocab != other)
    return {StatusCode::kUnsupported, "the candidate's vocabulary has " + std::to_string(other) +
                                          " tokens, and the current model's " + std::to_string(vocab) +
                                          ": serve it by an engine of its own, with the texts encoded anew"};
  if (tokenizer_digest(current) == tokenizer_digest(candidate) && chat_probe(current) == chat_probe(candidate))
    return {};
  return {StatusCode::kUnsupported,
          "the candidate has another tokenizer or chat format than the current model: serve it by an engine of its "
          "own, with the texts encoded anew"};
}

bool is_drained(const Engine& engine) { return engine.pending() == 0 && engine.metrics().sessions == 0; }

}  // namespace

class Rollout::Impl {
 public:
  // One model and its engine.
  struct Side {
    std::shared_ptr<const Model> model;
    std::shared_ptr<Engine> engine;
  };

  struct Prefix {
    std::vector<int32_t> tokens;
    Scope scope;
    size_t done = 0;                 // tokens
    std::optional<Session> session;  // that computes it, between two calls

    int64_t left() const { return static_cast<int64_t>(tokens.size() - done); }
  };

  Impl(Side current, const RolloutOptions& options) : options_(options), current_(std::move(current)) {}

  static Status check_side(const Side& side);
  Status begin(Side candidate);
  Status add_prefix(std::span<const int32_t> tokens, const Scope& scope);
  Result<int64_t> warm(int32_t most_tokens);
  Status set_share(int32_t share);
  Status promote();
  Status rollback();
  std::shared_ptr<Engine> take_drained();
  std::shared_ptr<Engine> engine_for(std::string_view key) const;
  std::shared_ptr<Engine> next_engine(const std::shared_ptr<Engine>& engine, std::string_view key) const;
  RolloutState state() const;

 private:
  static Status warm_part(const std::shared_ptr<Engine>& engine, Prefix& prefix, size_t most_tokens);
  // The calls below need the mutex.
  Status check_candidate() const;
  Status check_warm() const;
  const Side& side_of(std::string_view key) const;
  int64_t warm_left() const;
  void drain(Side side, bool rolled_back);

  mutable std::mutex mutex_;
  const RolloutOptions options_;
  Side current_, candidate_, draining_;  // of the last two, at most one
  bool rolled_back_ = false;             // the engine that drains was a candidate
  uint64_t seed_ = 0;                    // of the digest of keys
  int32_t share_ = 0;
  std::deque<Prefix> prefixes_;  // the candidate's that are not whole yet
  bool warming_ = false;         // a thread computes a part of the first one, which it has taken out
  int64_t warming_left_ = 0;     // tokens of that one
};

Status Rollout::Impl::check_side(const Side& side) {
  if (!side.model) return invalid_argument("no model");
  if (!side.engine) return invalid_argument("no engine");
  return {};
}

Status Rollout::Impl::check_candidate() const {
  if (candidate_.engine) return {};
  return {StatusCode::kNotFound, "there is no candidate: begin with one"};
}

Status Rollout::Impl::check_warm() const {
  KAIJU_TRY(check_candidate());
  if (prefixes_.empty() && !warming_) return {};
  return {StatusCode::kBusy,
          "the candidate has " + std::to_string(warm_left()) + " tokens of prefixes left to compute: warm them first"};
}

Status Rollout::Impl::begin(Side candidate) {
  KAIJU_TRY(check_side(candidate));
  const std::lock_guard lock(mutex_);
  if (candidate_.engine) return {StatusCode::kBusy, "there is a candidate already: promote it or roll it back first"};
  if (draining_.engine)
    return {StatusCode::kBusy, "the engine of the last change still drains: end its sessions, and take it"};
  if (candidate.engine == current_.engine) return invalid_argument("the candidate is the current engine");
  KAIJU_TRY(check_same_tokens(*current_.model, *candidate.model));
  const std::string& digest = candidate.model->checkpoint()->digest();
  seed_ = XXH3_64bits(digest.data(), digest.size());
  share_ = 0;
  candidate_ = std::move(candidate);
  return {};
}

Status Rollout::Impl::add_prefix(std::span<const int32_t> tokens, const Scope& scope) {
  if (scope.character.empty() && scope.salt.empty())
    return invalid_argument(
        "no session could use the prefix: its scope must name a character or a salt, as that of the requests does");
  Prefix prefix{{tokens.begin(), tokens.end()}, scope, 0, {}};
  if (!scope.character.empty() && scope.shared_tokens == 0)
    prefix.scope.shared_tokens = static_cast<int32_t>(tokens.size());
  const std::lock_guard lock(mutex_);
  KAIJU_TRY(check_candidate());
  const auto context = static_cast<size_t>(candidate_.engine->info().context);
  if (tokens.size() >= context)
    return invalid_argument("the prefix has " + std::to_string(tokens.size()) + " tokens; the candidate's context is " +
                            std::to_string(context));
  if (!tokens.empty()) prefixes_.push_back(std::move(prefix));
  return {};
}

// The next part of a prefix. Parts before the last compute KV of the region that the whole prefix shares.
Status Rollout::Impl::warm_part(const std::shared_ptr<Engine>& engine, Prefix& prefix, size_t most_tokens) {
  if (!prefix.session) {
    Result<Session> session = Session::create(engine);
    if (!session.ok()) return session.status();
    prefix.session.emplace(std::move(session).value());
  }
  const size_t count = std::min(most_tokens, prefix.tokens.size() - prefix.done);
  RequestOptions options;
  options.max_tokens = 0;
  options.scope = prefix.scope;
  options.scope.shared_tokens = std::min(options.scope.shared_tokens, static_cast<int32_t>(prefix.done + count));
  const Result<Event> done = prefix.session->generate({prefix.tokens.data() + prefix.done, count}, options);
  if (done.ok()) prefix.done += count;
  return done.status();
}

Result<int64_t> Rollout::Impl::warm(int32_t most_tokens) {
  if (most_tokens < 1) return invalid_argument("most_tokens must be 1 or more");
  Prefix prefix;
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard lock(mutex_);
    KAIJU_TRY(check_candidate());
    if (warming_) return Status(StatusCode::kBusy, "another thread warms the candidate");
    if (prefixes_.empty()) return 0;
    engine = candidate_.engine;
    prefix = std::move(prefixes_.front());
    prefixes_.pop_front();
    warming_ = true;
    warming_left_ = prefix.left();
  }
  const Status status = guarded<Status>([&] { return warm_part(engine, prefix, static_cast<size_t>(most_tokens)); });
  const bool again = status.ok() ? prefix.left() > 0 : status.code() == StatusCode::kBusy;
  const std::lock_guard lock(mutex_);
  warming_ = false;
  warming_left_ = 0;
  if (candidate_.engine != engine) return Status(StatusCode::kNotFound, "the candidate was rolled back meanwhile");
  if (again) prefixes_.push_front(std::move(prefix));
  KAIJU_TRY(status);
  return warm_left();
}

Status Rollout::Impl::set_share(int32_t share) {
  if (share < 0 || share > kWholeShare)
    return invalid_argument("the share is " + std::to_string(share) + "; it must be from 0 to " +
                            std::to_string(kWholeShare));
  const std::lock_guard lock(mutex_);
  KAIJU_TRY(check_warm());
  share_ = share;
  return {};
}

void Rollout::Impl::drain(Side side, bool rolled_back) {
  draining_ = std::move(side);
  rolled_back_ = rolled_back;
  share_ = 0;
  prefixes_.clear();
}

Status Rollout::Impl::promote() {
  const std::lock_guard lock(mutex_);
  KAIJU_TRY(check_warm());
  drain(std::exchange(current_, std::exchange(candidate_, {})), false);
  return {};
}

Status Rollout::Impl::rollback() {
  const std::lock_guard lock(mutex_);
  KAIJU_TRY(check_candidate());
  drain(std::exchange(candidate_, {}), true);
  return {};
}

std::shared_ptr<Engine> Rollout::Impl::take_drained() {
  const std::lock_guard lock(mutex_);
  if (!draining_.engine || warming_ || !is_drained(*draining_.engine)) return nullptr;
  return std::exchange(draining_, {}).engine;
}

const Rollout::Impl::Side& Rollout::Impl::side_of(std::string_view key) const {
  if (!candidate_.engine) return current_;
  const uint64_t digest = XXH3_64bits_withSeed(key.data(), key.size(), seed_);
  return digest % kWholeShare < static_cast<uint64_t>(share_) ? candidate_ : current_;
}

std::shared_ptr<Engine> Rollout::Impl::engine_for(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  return side_of(key).engine;
}

// The engine on which a session of an engine is to have its next turn.
std::shared_ptr<Engine> Rollout::Impl::next_engine(const std::shared_ptr<Engine>& engine, std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const bool drains = engine == draining_.engine;
  const bool stays = engine == current_.engine || engine == candidate_.engine || (drains && !rolled_back_);
  return stays && !options_.move ? engine : side_of(key).engine;
}

int64_t Rollout::Impl::warm_left() const {
  int64_t left = warming_left_;
  for (const Prefix& prefix : prefixes_) left += prefix.left();
  return left;
}

RolloutState Rollout::Impl::state() const {
  const std::lock_guard lock(mutex_);
  RolloutState state;
  state.phase = candidate_.engine  ? RolloutPhase::kCandidate
                : draining_.engine ? RolloutPhase::kDraining
                                   : RolloutPhase::kSteady;
  state.share = share_;
  state.warm_left = warm_left();
  state.current = current_.engine;
  state.other = candidate_.engine ? candidate_.engine : draining_.engine;
  return state;
}

Rollout::Rollout(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Rollout::~Rollout() = default;

Result<std::unique_ptr<Rollout>> Rollout::create(std::shared_ptr<const Model> model, std::shared_ptr<Engine> engine,
                                                 const RolloutOptions& options) {
  using Answer = Result<std::unique_ptr<Rollout>>;
  return guarded<Answer>([&]() -> Answer {
    Impl::Side current{std::move(model), std::move(engine)};
    KAIJU_TRY(Impl::check_side(current));
    return std::unique_ptr<Rollout>(new Rollout(std::make_unique<Impl>(std::move(current), options)));
  });
}

Status Rollout::begin(std::shared_ptr<const Model> model, std::shared_ptr<Engine> engine) {
  return guarded<Status>([&] { return impl_->begin({std::move(model), std::move(engine)}); });
}

Status Rollout::add_prefix(std::span<const int32_t> tokens, const Scope& scope) {
  return guarded<Status>([&] { return impl_->add_prefix(tokens, scope); });
}

Result<int64_t> Rollout::warm(int32_t most_tokens) {
  return guarded<Result<int64_t>>([&] { return impl_->warm(most_tokens); });
}

Status Rollout::set_share(int32_t share) {
  return guarded<Status>([&] { return impl_->set_share(share); });
}
Status Rollout::promote() {
  return guarded<Status>([&] { return impl_->promote(); });
}
Status Rollout::rollback() {
  return guarded<Status>([&] { return impl_->rollback(); });
}
std::shared_ptr<Engine> Rollout::take_drained() { return impl_->take_drained(); }
std::shared_ptr<Engine> Rollout::engine_for(std::string_view key) const { return impl_->engine_for(key); }
RolloutState Rollout::state() const { return impl_->state(); }

Result<Session> Rollout::create_session(std::string_view key) const { return Session::create(engine_for(key)); }

Result<bool> Rollout::next_turn(Session& session, std::string_view key) const {
  return next_turn(session.engine_, session.id_, key);
}

Result<bool> Rollout::next_turn(std::shared_ptr<Engine>& engine, SessionId& session, std::string_view key) const {
  return guarded<Result<bool>>([&]() -> Result<bool> {
    if (!engine) return invalid_argument("no engine, or a session that was moved to another object");
    const std::shared_ptr<Engine> target = impl_->next_engine(engine, key);
    if (target == engine) return false;
    const Result<RequestId> unfinished = engine->unfinished_request(session);
    if (!unfinished.ok()) return unfinished.status();
    if (*unfinished != 0)
      return Status(StatusCode::kBusy, "the session has an unfinished request: move it after its last event");
    const Result<std::vector<int32_t>> tokens = engine->session_tokens(session);
    if (!tokens.ok()) return tokens.status();
    const Result<SessionId> moved = target->create_session();
    if (!moved.ok()) return moved.status();
    if (Status status = target->set_session_tokens(*moved, *tokens); !status.ok()) {
      (void)target->destroy_session(*moved);
      return status;
    }
    (void)engine->destroy_session(session);
    engine = target;
    session = *moved;
    return true;
  });
}

}  // namespace kaiju
