// Rollout: changes the checkpoint that a host serves while it serves. A second engine, the candidate, gets a growing
// share of the new sessions beside the current engine; then it becomes the current one, or goes.
//
//   auto rollout = Rollout::create(model, engine);
//   ...
//   RunOptions run;
//   run.memory_limit = kFreeMemory;                        // refused, with figures, where it does not fit
//   auto candidate = new_model->create_engine(run);        // slow: not on the thread that steps
//   rollout->begin(new_model, *candidate);
//   rollout->add_prefix(card, scope);                      // of each character
//   while (*rollout->warm(64) > 0) {...}                   // a few tokens at a time, where there is time for it
//   rollout->set_share(100);                               // 1% of the keys, then 10%, 50%, 100%
//   rollout->promote();                                    // or rollback()
//   if (auto old = rollout->take_drained()) old.reset();   // after the old engine's last session
//
// Keys: the host gives each session a key, such as a user's or a chat's name. A digest of key and candidate says from
// which share on the key is the candidate's, so a growing share moves keys one way, a smaller one moves them back, and
// the machines of a fleet agree. A session stays on the engine where it began, for its KV is there, unless
// RolloutOptions::move says otherwise or its engine was rolled back: then it moves, with its tokens, at its next turn.
//
// Threads: any thread may make any call; warm computes on the calling thread, and the other calls return at once. The
// host steps both engines. Nothing is written: what is current after a restart is the host's to remember.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kaiju/kaiju.hpp"

namespace kaiju {

inline constexpr int32_t kWholeShare = 10'000;  // shares are parts of ten thousand

struct RolloutOptions {
  // Sessions move at their next turn to the engine that their key has. Else only those of a candidate that was rolled
  // back do.
  bool move = false;
};

enum class RolloutPhase : int32_t {
  kSteady = 0,     // one engine
  kCandidate = 1,  // a candidate beside the current engine
  kDraining = 2,   // an engine that takes no new sessions beside the current one
};

struct RolloutState {
  RolloutPhase phase = RolloutPhase::kSteady;
  int32_t share = 0;      // of the candidate, 0 to kWholeShare
  int64_t warm_left = 0;  // tokens of prefixes that the candidate has not computed
  std::shared_ptr<Engine> current;
  std::shared_ptr<Engine> other;  // the candidate, or the engine that drains; null: there is none
};

class Rollout {
 public:
  // Returns kInvalidArgument if the model or the engine is null.
  static Result<std::unique_ptr<Rollout>> create(std::shared_ptr<const Model> model, std::shared_ptr<Engine> engine,
                                                 const RolloutOptions& options = {});
  ~Rollout();
  Rollout(const Rollout&) = delete;

  // Makes an engine the candidate, with a share of 0. Returns kBusy while there is a candidate, or an engine that
  // drains. Returns kUnsupported if the model's tokenizer, vocabulary or chat format is another: its tokens mean
  // something else, and sessions could not move.
  Status begin(std::shared_ptr<const Model> model, std::shared_ptr<Engine> engine);
  // Adds a prefix, such as a character's card, that the candidate shall have in its cache before it gets a share.
  // Returns kInvalidArgument if no session could share it: `scope` must name a character or a salt, as that of the
  // requests does. If the scope has no shared_tokens, the whole prefix is the shared region. Returns kNotFound without
  // a candidate.
  Status add_prefix(std::span<const int32_t> tokens, const Scope& scope);
  // Computes the next `most_tokens` tokens of the prefixes, or fewer, by Engine::generate on the calling thread, and
  // returns how many are left. One thread at a time: kBusy. Returns kNotFound without a candidate, and the errors of
  // generate; a prefix that failed is left out.
  Result<int64_t> warm(int32_t most_tokens);
  // Returns kBusy while prefixes are left to warm, and kNotFound without a candidate.
  Status set_share(int32_t share);
  // The candidate becomes the current engine for all new sessions, and the one before drains. Returns kBusy and
  // kNotFound as set_share does.
  Status promote();
  // The way back, at once and in any state of warming: the current engine has all new sessions, and those of the
  // candidate move at their next turn. Returns kNotFound without a candidate.
  Status rollback();
  // Returns the engine that drains when it has no session and no request any more, and lets go of it; else null. The
  // memory is freed when the host lets go too.
  std::shared_ptr<Engine> take_drained();

  std::shared_ptr<Engine> engine_for(std::string_view key) const;
  // Creates a session on the engine of the key.
  Result<Session> create_session(std::string_view key) const;
  // Call it before each turn of a session. Moves the session to another engine where the rules above say so, and
  // returns whether it did: it then has another id, the same tokens, and no KV yet. Returns kBusy if the session has an
  // unfinished request, and kInvalidArgument if its tokens do not fit the other engine's context; it is then as before.
  Result<bool> next_turn(Session& session, std::string_view key) const;
  // The same for a session that the host keeps as engine and id.
  Result<bool> next_turn(std::shared_ptr<Engine>& engine, SessionId& session, std::string_view key) const;

  RolloutState state() const;

 private:
  class Impl;
  explicit Rollout(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace kaiju
