// See checkpoints.hpp.
#include "checkpoints.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <stdexcept>

#include "../tools/standard_streams.hpp"
#include "elsewhere.hpp"
#include "failure.hpp"

namespace kaiju::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(50);
constexpr int kLoaderNice = 10;

// Threads that this one starts would inherit it.
void lower_priority() { (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLoaderNice); }

Failure refused(const std::string& name, const Status& status) {
  const std::string why = fmt::format("the checkpoint {}: {}", name, status.message());
  switch (status.code()) {
    case StatusCode::kOutOfMemory:
      return {409, why, "checkpoint", "does_not_fit"};
    case StatusCode::kBusy:
      return {409, why, {}, "conflict", 1};
    case StatusCode::kDeviceLost:
    case StatusCode::kInternal:
      return {503, why};
    default:
      return {400, why, "checkpoint", "bad_checkpoint"};
  }
}

void add_counters(kaiju::Metrics& to, const kaiju::Metrics& from) {
  to.steps += from.steps;
  to.step_ns += from.step_ns;
  to.tokens_prefilled += from.tokens_prefilled;
  to.tokens_decoded += from.tokens_decoded;
  to.tokens_from_cache += from.tokens_from_cache;
  to.requests_done += from.requests_done;
  to.requests_failed += from.requests_failed;
  to.cache.prompt_tokens += from.cache.prompt_tokens;
  to.cache.miss_new += from.cache.miss_new;
  to.cache.miss_evicted += from.cache.miss_evicted;
  to.cache.miss_window += from.cache.miss_window;
}

void add_load(kaiju::Metrics& to, const kaiju::Metrics& from) {
  to.requests_waiting += from.requests_waiting;
  to.requests_running += from.requests_running;
  to.requests_suspended += from.requests_suspended;
  for (const BlockKind kind : kBothKinds) {
    to.blocks[kind].total += from.blocks[kind].total;
    to.blocks[kind].free += from.blocks[kind].free;
    to.blocks[kind].cached += from.blocks[kind].cached;
    to.blocks[kind].live += from.blocks[kind].live;
  }
}

}  // namespace

Checkpoints::Checkpoints(asio::io_context& io, std::string name, std::shared_ptr<const Model> model, Options options)
    : io_(io), options_(std::move(options)), timer_(io) {
  const Result<Engines> engines = make_engines(*model);
  if (!engines.ok()) throw std::runtime_error(engines.status().message());
  if (engines->front()->info().backend != "cuda") turns_ = std::make_shared<StepTurns>();
  for (const std::shared_ptr<Engine>& engine : *engines) rollouts_.push_back(Rollout::create(model, engine).value());
  current_ = std::make_shared<Served>(std::move(name), std::move(model), *engines, io_, turns_, options_.heads, loader_,
                                      options_.scales);
  asio::post(reader_, lower_priority);
}

// Throws std::runtime_error where the scales in use do not fit.
Result<Engines> Checkpoints::make_engines(const Model& model) const {
  Engines engines;
  for (const RunOptions& run : options_.runs) {
    auto engine = model.create_engine(run);
    if (!engine.ok()) return engine.status();
    Scales::use_current(options_.scales, model, **engine);
    engines.push_back(*engine);
  }
  return engines;
}

std::shared_ptr<Served> Checkpoints::place(const std::string& key, Began began) const {
  if (!candidate_ || !candidate_->replicas.status().ok()) return current_;
  if (!wanted_.move && began != Began::kNot) return began == Began::kBefore ? current_ : candidate_;
  return rollouts_[0]->engine_for(key).get() == &candidate_->engine() ? candidate_ : current_;
}

// Each replica's has its part of the prefixes, and all else alike.
Status Checkpoints::for_each_rollout(const std::function<Status(Rollout&)>& call) const {
  for (const std::shared_ptr<Rollout>& rollout : rollouts_) KAIJU_TRY(call(*rollout));
  return {};
}

int64_t Checkpoints::warm_left() const {
  int64_t sum = 0;
  for (const std::shared_ptr<Rollout>& rollout : rollouts_) sum += rollout->state().warm_left;
  return sum;
}

void Checkpoints::check_candidate(const std::string& name) const {
  if (candidate_ && candidate_->name == name) {
    if (changing_) throw Failure{409, "the checkpoint is being changed: try again", {}, "conflict", 1};
    return;
  }
  throw Failure{404,
                candidate_ ? fmt::format("the candidate is {}, and not {:?}", candidate_->name, name)
                           : fmt::format("there is no candidate; {} is served", current_->name),
                "checkpoint", "checkpoint_not_found"};
}

// --- a new candidate

// What replicas have on the host adds up; they share the pages of the file.
MemoryNeed Checkpoints::of_all(MemoryNeed one) const {
  const auto count = static_cast<int64_t>(options_.runs.size());
  one.host_tier *= count;
  if (one.device != 0) return one;
  one.kv *= count;
  one.workspace *= count;
  return one;
}

MemoryNeed Checkpoints::need_of(const std::string& name, const std::string& file) const {
  auto model =
      Model::load(file, {.verify = Verify::kNone, .progress = {}, .scales = {}, .head = {}, .verify_threads = 1});
  if (!model.ok()) throw refused(name, model.status());
  for (const RunOptions& run : options_.runs) {
    const Result<MemoryNeed> need = (*model)->memory_need(run);
    if (!need.ok()) throw refused(name, need.status());
    const Status fits = check_memory(of_all(*need), options_.most_mib > 0 ? options_.most_mib << 20 : kFreeMemory);
    if (!fits.ok()) throw refused(name, fits);
  }
  return (*model)->memory_need(options_.runs[0]).value();
}

void Checkpoints::check_wanted(const NewCandidate& wanted) const {
  check_name(options_.folder, wanted.name, "checkpoint");
  if (wanted.name == current_->name)
    throw Failure{409, fmt::format("{} is served already", wanted.name), "checkpoint", "conflict"};
  if (changing_) throw Failure{409, "a checkpoint is being loaded or promoted: wait for it", {}, "conflict", 1};
  if (candidate_)
    throw Failure{
        409, fmt::format("{} is the candidate: promote it or roll it back first", candidate_->name), {}, "conflict"};
  if (draining_)
    throw Failure{
        409, fmt::format("replies of {} are still being written: try again", draining_->name), {}, "conflict", 1};
}

asio::awaitable<MemoryNeed> Checkpoints::begin(NewCandidate wanted, Warm warm) {
  check_wanted(wanted);
  const std::string file = wanted.name == kModel ? options_.model : file_in(options_.folder, wanted.name);
  MemoryNeed need;
  std::shared_ptr<const Model> model;
  Engines engines;
  const std::function<void()> read = [&] {
    need = need_of(wanted.name, file);
    if (wanted.dry_run) return;
    ModelOptions options;
    if (wanted.name == kModel) options.head = options_.head;
    options.progress = [this](double) { return stopping_ ? 1 : 0; };
    auto loaded = Model::load(file, options);
    if (!loaded.ok()) throw refused(wanted.name, loaded.status());
    model = *loaded;
  };
  const std::function<void()> make = [&] {
    try {
      auto made = make_engines(*model);
      if (!made.ok()) throw refused(wanted.name, made.status());
      engines = std::move(*made);
    } catch (const std::runtime_error& wrong) {
      throw Failure{409, wrong.what(), "checkpoint", "conflict"};
    }
  };
  const Flag changing(changing_);
  co_await elsewhere(reader_, read);
  if (wanted.dry_run) co_return need;
  if (model->config().labels != current_->model->config().labels)
    throw Failure{400, "its classifier has other labels than the current checkpoint: limits would not hold",
                  "checkpoint", "bad_checkpoint"};
  co_await elsewhere(loader_, make);
  const std::vector<WarmPrefix> prefixes = co_await warm();
  adopt(std::move(wanted), std::move(model), engines, prefixes);
  co_return need;
}

void Checkpoints::adopt(NewCandidate wanted, std::shared_ptr<const Model> model, const Engines& engines,
                        const std::vector<WarmPrefix>& prefixes) {
  auto served =
      std::make_shared<Served>(wanted.name, model, engines, io_, turns_, options_.heads, loader_, options_.scales);
  on_new(*served);
  for (size_t i = 0; i < engines.size(); ++i)
    if (const Status begun = rollouts_[i]->begin(model, engines[i]); !begun.ok()) throw refused(wanted.name, begun);
  Replicas& replicas = served->replicas;
  for (const WarmPrefix& prefix : prefixes) {
    const size_t home = replicas.index_of(replicas.home(prefix.scope.character));
    (void)rollouts_[home]->add_prefix(prefix.tokens, prefix.scope);
  }
  candidate_ = std::move(served);
  wanted_ = std::move(wanted);
  chats_of_candidate_.clear();
  warm_in_idle_steps();
  look_soon();
}

// On the candidate's threads: a part of the prefixes at once while the current checkpoint has nothing to do, else now
// and then.
void Checkpoints::warm_in_idle_steps() {
  const int32_t part = std::max(candidate_->engine().info().step_tokens / 4, 32);
  for (size_t i = 0; i < rollouts_.size(); ++i)
    candidate_->replicas[i].beside_steps(
        [rollout = rollouts_[i], part, done = false, next = Clock::time_point()](Engine&) mutable {
          const Clock::time_point begin = Clock::now();
          if (done || begin < next) return false;
          const Result<int64_t> left = rollout->warm(part);
          done = left.ok() ? *left == 0 : left.status().code() == StatusCode::kNotFound;
          const bool busy = rollout->state().current->pending() > 0;
          next = Clock::now() + (busy ? kBesideFactor : 0) * (Clock::now() - begin);
          return !done && !busy;
        });
}

// --- its share, and its end

void Checkpoints::set_share(const std::string& name, int32_t share) {
  check_candidate(name);
  const bool is_warm = warm_left() == 0;
  wanted_.share = is_warm ? 0 : share;  // for when it is warm
  if (!is_warm) return;
  const Status set = for_each_rollout([&](Rollout& rollout) { return rollout.set_share(share); });
  if (!set.ok()) throw refused(name, set);
}

asio::awaitable<void> Checkpoints::promote(std::string name) {
  check_candidate(name);
  if (warm_left() > 0) {
    wanted_.promote = true;
    co_return;
  }
  const std::function<void()> write = [&] { write_current(options_.folder, name); };
  const Flag changing(changing_);
  co_await elsewhere(loader_, write);
  const Status promoted = for_each_rollout([](Rollout& rollout) { return rollout.promote(); });
  if (!promoted.ok()) throw refused(name, promoted);
  previous_ = current_->name;
  on_current(*candidate_);
  leave(std::exchange(current_, std::exchange(candidate_, nullptr)));
}

void Checkpoints::roll_back(const std::string& name) {
  check_candidate(name);
  const Status back = for_each_rollout([](Rollout& rollout) { return rollout.rollback(); });
  if (!back.ok()) throw refused(name, back);
  leave(std::exchange(candidate_, nullptr));
}

void Checkpoints::leave(std::shared_ptr<Served> served) {
  served->leaving = true;
  chats_of_candidate_.clear();
  wanted_ = {};
  draining_ = std::move(served);
  on_leave(*draining_);
  look_soon();
}

void Checkpoints::look_soon() {
  timer_.expires_after(kLook);
  timer_.async_wait([this](auto error) {
    if (!error) look();
  });
}

// While there is a candidate, or one that drains.
void Checkpoints::look() {
  if (candidate_ && !candidate_->replicas.status().ok()) {
    tools::print(stderr, "kaiju-server: the candidate {} has stopped and is rolled back: {}\n", candidate_->name,
                 candidate_->replicas.status().message());
    if (!changing_) roll_back(candidate_->name);
  }
  if (candidate_ && warm_left() == 0) {
    if (const int32_t share = std::exchange(wanted_.share, 0); share > 0)
      (void)for_each_rollout([&](Rollout& rollout) { return rollout.set_share(share); });
    if (std::exchange(wanted_.promote, false))
      asio::co_spawn(io_, promote(candidate_->name), [](const std::exception_ptr& failed) {
        try {
          if (failed) std::rethrow_exception(failed);
        } catch (const Failure& failure) {
          tools::print(stderr, "kaiju-server: the candidate is not promoted: {}\n", failure.message);
        }
      });
  }
  // Handlers hold it a moment longer than the engine has their requests.
  if (draining_ && draining_.use_count() == 1 && draining_->replicas.unfinished() == 0 && take_drained())
    return asio::co_spawn(io_, retire(), asio::detached);
  if (candidate_ || draining_) look_soon();
}

// Whether no replica of it has a session any more.
bool Checkpoints::take_drained() {
  return std::all_of(rollouts_.begin(), rollouts_.end(), [](const std::shared_ptr<Rollout>& rollout) {
    return rollout->state().phase != RolloutPhase::kDraining || rollout->take_drained();
  });
}

// What its threads have posted to this one comes before the end of the first call; freeing takes long, and is not done
// here.
asio::awaitable<void> Checkpoints::retire() {
  std::shared_ptr<Served> gone = draining_;
  const std::function<void()> stop = [&] {
    for (Driver& driver : gone->replicas) driver.stop();
  };
  co_await elsewhere(loader_, stop);
  for (const Driver& driver : gone->replicas) add_counters(retired_, driver.engine().metrics());
  draining_.reset();
  const std::function<void()> free = [&] { gone.reset(); };
  co_await elsewhere(loader_, free);
}

// --- what there is

kaiju::Metrics Checkpoints::engine_metrics() const {
  kaiju::Metrics sums = retired_;
  for (const Served* const served : all())
    for (const Driver& driver : served->replicas) {
      const kaiju::Metrics now = driver.engine().metrics();
      add_counters(sums, now);
      add_load(sums, now);
    }
  return sums;
}

std::vector<const Served*> Checkpoints::all() const {
  std::vector<const Served*> all = {current_.get()};
  for (const auto& other : {candidate_, draining_})
    if (other) all.push_back(other.get());
  return all;
}

double Checkpoints::share_of(const Served& served) const {
  const double share = static_cast<double>(rollouts_[0]->state().share) / kWholeShare;
  if (&served == candidate_.get()) return share;
  return &served == current_.get() ? 1 - share : 0;
}

const char* Checkpoints::state_of(const Served& served) const {
  if (&served == current_.get()) return "current";
  if (&served == draining_.get()) return "draining";
  return warm_left() > 0 || wanted_.share > 0 || wanted_.promote ? "warming" : "candidate";
}

size_t Checkpoints::unfinished() const {
  size_t sum = 0;
  for (const Served* const served : all()) sum += served->replicas.unfinished();
  return sum;
}

void Checkpoints::cancel_all() {
  for_each([](Served& served) {
    for (Driver& driver : served.replicas) driver.cancel_all();
  });
}

void Checkpoints::stop() {
  stopping_ = true;
  reader_.join();
  loader_.join();
  for_each([](Served& served) {
    for (Driver& driver : served.replicas) driver.stop();
  });
}

}  // namespace kaiju::server
