// Checkpoints: what the server computes with, changed while it serves: the current checkpoint, a candidate with a share
// of the chats beside it, and the way back. A checkpoint is a file of a folder (--checkpoints); "model" is the one of
// the command line.
//
// Threads: the I/O thread has all of this. Files are read on a thread of low priority, engines are made and freed and
// current.json is written on another (`loader`), and each checkpoint has a thread that steps it (driver.hpp), or one
// for each replica.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "heads.hpp"
#include "kaiju/rollout.hpp"
#include "metrics.hpp"
#include "replicas.hpp"
#include "scales.hpp"
#include "step_turns.hpp"

namespace kaiju::server {

using Engines = std::vector<std::shared_ptr<Engine>>;  // alike: one for each replica

// A checkpoint that is served. Handlers hold it while a request of theirs is with it.
struct Served {
  Served(std::string name, std::shared_ptr<const Model> model, const Engines& engines, asio::io_context& io,
         const std::shared_ptr<StepTurns>& turns, const std::string& heads_folder, asio::thread_pool& loader,
         const Scales::Options& scales_options)
      : name(std::move(name)),
        model(model),
        replicas(engines, io, turns),
        heads(replicas, model, heads_folder, loader),
        scales(io, replicas, model, scales_options) {}

  const std::string& digest() const { return model->checkpoint()->digest(); }
  // The first replica's: what the others are like.
  const Engine& engine() const { return replicas.first().engine(); }
  size_t context() const { return static_cast<size_t>(engine().info().context); }

  const std::string name;  // of its file, or "model"
  const std::shared_ptr<const Model> model;
  Replicas replicas;
  Heads heads;
  Scales scales;
  CheckpointCounts counts;
  bool leaving = false;  // takes no more requests
};

// Who serves a request: a checkpoint, and which of its replicas.
class Seat {
 public:
  Seat() = default;
  // The replica of a chat (Replicas::place).
  Seat(std::shared_ptr<Served> served, const std::string& character, const std::string& chat)
      : Seat(served, served->replicas.place(character, chat)) {}
  Seat(std::shared_ptr<Served> served, Driver& driver) : served_(std::move(served)), driver_(&driver) {}

  Served* operator->() const { return served_.get(); }
  Served& operator*() const { return *served_; }
  const std::shared_ptr<Served>& served() const { return served_; }
  Driver& driver() const { return *driver_; }

 private:
  std::shared_ptr<Served> served_;
  Driver* driver_ = nullptr;
};

// What a prefix that a candidate is to have in its cache is made of.
struct WarmPrefix {
  std::vector<int32_t> tokens;
  Scope scope;
};

// What POST /checkpoints asks for.
struct NewCandidate {
  std::string name;
  int32_t share = 0;  // once it is warm, in parts of kWholeShare
  bool move = false;  // chats that began before follow the share too
  bool promote = false;
  bool dry_run = false;  // only say what it would take
};

class Checkpoints {
 public:
  struct Options {
    std::string model, head;       // files of the one that is called "model"; the head may be empty
    std::string folder, heads;     // empty: there are no others
    int64_t most_mib = 0;          // of a candidate; 0: what is free
    std::vector<RunOptions> runs;  // one for each replica
    Scales::Options scales;
  };
  // Makes the engines of the checkpoint that is served first. Throws std::runtime_error.
  Checkpoints(asio::io_context& io, std::string name, std::shared_ptr<const Model> model, Options options);
  ~Checkpoints() { stop(); }
  Checkpoints(const Checkpoints&) = delete;

  const std::shared_ptr<Served>& current() const { return current_; }
  const std::shared_ptr<Served>& candidate() const { return candidate_; }  // null: there is none
  const std::string& previous() const { return previous_; }                // for the way back; empty: none
  // Which checkpoint serves the next reply of a chat. `key`: whose share decides where a new one goes. Others stay
  // where they began, unless the candidate's `move` is set.
  enum class Began { kNot, kBefore, kWithCandidate };
  std::shared_ptr<Served> place(const std::string& key, Began began) const;
  // Where the current checkpoint has the KV of a character.
  Seat home(const std::string& character) const { return {current_, current_->replicas.home(character)}; }
  // Stored chats that began with the candidate.
  void remember(const std::string& chat) { chats_of_candidate_.insert(chat); }
  bool remembers(const std::string& chat) const { return chats_of_candidate_.contains(chat); }

  // Before a candidate takes requests; what it throws refuses the candidate. When a checkpoint takes no more.
  std::function<void(Served&)> on_new, on_leave;
  // When a candidate becomes the current checkpoint; the one before still exists.
  std::function<void(Served&)> on_current;
  // Prefixes that a candidate shall have first.
  using Warm = std::function<asio::awaitable<std::vector<WarmPrefix>>()>;

  // The calls below throw Failure, and then all is as it was.
  asio::awaitable<MemoryNeed> begin(NewCandidate wanted, Warm warm);
  void set_share(const std::string& name, int32_t share);
  asio::awaitable<void> promote(std::string name);
  void roll_back(const std::string& name);

  std::vector<std::string> names() const { return names_in(options_.folder); }
  template <class Call>
  void for_each(const Call& call) {
    for (const auto& served : {current_, candidate_, draining_})
      if (served) call(*served);
  }
  // All that are served, the current one first.
  std::vector<const Served*> all() const;
  const char* state_of(const Served& served) const;  // "current", "warming", "candidate" or "draining"
  double share_of(const Served& served) const;       // of new chats, 0 to 1
  int64_t warm_left() const;
  // Of one replica.
  MemoryNeed need_of(const Served& served) const { return served.model->memory_need(options_.runs[0]).value(); }
  kaiju::Metrics engine_metrics() const;  // sums of all that were served; loads of those that are
  size_t unfinished() const;
  void cancel_all();
  void stop();  // ends the threads

 private:
  // Set while it lives.
  class Flag {
   public:
    explicit Flag(bool& flag) : flag_(flag) { flag_ = true; }
    ~Flag() { flag_ = false; }
    Flag(const Flag&) = delete;

   private:
    bool& flag_;
  };

  void check_wanted(const NewCandidate& wanted) const;
  void check_candidate(const std::string& name) const;
  MemoryNeed need_of(const std::string& name, const std::string& file) const;
  MemoryNeed of_all(MemoryNeed one) const;
  Result<Engines> make_engines(const Model& model) const;
  void adopt(NewCandidate wanted, std::shared_ptr<const Model> model, const Engines& engines,
             const std::vector<WarmPrefix>& prefixes);
  void warm_in_idle_steps();
  Status for_each_rollout(const std::function<Status(Rollout&)>& call) const;
  void leave(std::shared_ptr<Served> served);
  void look_soon();
  void look();
  bool take_drained();
  asio::awaitable<void> retire();

  asio::io_context& io_;
  const Options options_;
  std::shared_ptr<StepTurns> turns_;  // null: on a GPU, which runs steps beside each other
  asio::thread_pool reader_{1}, loader_{1};
  std::shared_ptr<Served> current_, candidate_, draining_;
  std::vector<std::shared_ptr<Rollout>> rollouts_;  // one for each replica, all in the same state
  std::string previous_;
  NewCandidate wanted_;    // of the candidate, until it is warm
  bool changing_ = false;  // a candidate is being made, or promoted
  std::atomic<bool> stopping_ = false;
  std::unordered_set<std::string> chats_of_candidate_;
  kaiju::Metrics retired_;  // sums of engines that are gone
  asio::steady_timer timer_;
};

}  // namespace kaiju::server
