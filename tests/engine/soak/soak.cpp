// Soak: many people chat with a few characters for as many turns as asked, with cancels, deadlines, suspensions,
// swipes, edits, forks, chats that outgrow the context and a flaky executor, which runs beside the host where the seed
// is even. The ledger must be exact after every step; now and then everybody leaves, and then the memory in use must be
// what it was the time before. Prints what it saw; exit code 1 when something grew or differed.
//
//   soak [TURNS] [SEED]
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <new>
#include <random>

#include "kaiju/engine/conversation.hpp"
#include "tests/engine/scripted_executor.hpp"

namespace {

using Clock = std::chrono::steady_clock;

int64_t live_bytes = 0;  // in use through operator new; this program has one thread
}  // namespace

void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (!memory) throw std::bad_alloc();
  live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory) live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace {

using namespace kaiju;
using namespace kaiju::test;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "soak: %s\n", what.c_str());
  std::exit(1);
}
void must(const Status& status) {
  if (!status.ok()) fail(status.message());
}

ExecutorInfo facts_of_soak() {
  ExecutorInfo info;
  info.vocab_size = 97;
  info.context = 1024;
  info.window = 128;
  info.slot_count = 6;
  info.step_tokens = 256;
  info.block_count[0] = 160;
  info.block_count[1] = 120;
  return info;
}

class Soak {
 public:
  Soak(int64_t turns, uint64_t seed) : turns_(turns), random_(seed) {
    auto executor = std::make_unique<ScriptedExecutor>(facts_of_soak());
    executor_ = executor.get();
    executor_->beside_host = seed % 2 == 0;
    executor_->before_run = [this](const StepPlan&) {
      return below(50) == 0 ? Status(StatusCode::kBusy, "not now") : Status();
    };
    EngineOptions options;
    options.max_waiting = 24;
    options.max_events = 400;
    options.reserve_tokens = 24;
    options.clock = [this] { return time_; };
    engine_ = std::shared_ptr<Engine>(std::move(Engine::create(std::move(executor), nullptr, options)).value());
  }

  int run() {
    const auto begin = std::chrono::steady_clock::now();
    const int64_t rounds = 20;
    int64_t most[4] = {};  // bytes in use between people, in each quarter of the turns
    for (int64_t round = 0; round < rounds; ++round) {
      while (asked_ < turns_ * (round + 1) / rounds) one_thing();
      everybody_leaves();
      int64_t& quarter = most[round * 4 / rounds];
      quarter = std::max(quarter, live_bytes);
    }
    // What grows with the turns grows in the third quarter and in the last; a buffer that doubles once does not.
    const double growth =
        static_cast<double>(std::min(most[2] - most[1], most[3] - most[2])) / static_cast<double>(turns_ / 4);
    const Metrics metrics = engine_->metrics();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("turns %lld, steps %llu, tokens %llu, %.1f s\n", static_cast<long long>(asked_),
                static_cast<unsigned long long>(metrics.steps), static_cast<unsigned long long>(metrics.tokens_decoded),
                seconds);
    std::printf(
        "ended by: stop or length %lld, cancel %lld, deadline %lld; suspended %lld, resumed %lld, refused %lld, busy "
        "steps %lld\n",
        static_cast<long long>(ends_[1] + ends_[2]), static_cast<long long>(ends_[3]), static_cast<long long>(ends_[4]),
        static_cast<long long>(suspended_), static_cast<long long>(resumed_), static_cast<long long>(refused_),
        static_cast<long long>(busy_));
    std::printf(
        "prompt tokens from the cache %.1f%%, replies compared %lld\n",
        100.0 * static_cast<double>(metrics.tokens_from_cache) / static_cast<double>(metrics.cache.prompt_tokens),
        static_cast<long long>(compared_));
    std::printf("memory in use between people, by quarters of the turns: %lld, %lld, %lld, %lld bytes\n",
                static_cast<long long>(most[0]), static_cast<long long>(most[1]), static_cast<long long>(most[2]),
                static_cast<long long>(most[3]));
    return growth < 1 ? 0 : 1;  // what does not grow with the turns stays far below a byte a turn
  }

 private:
  struct Person {
    Conversation talk;
    uint64_t character;
    RequestId request = 0;        // the unfinished one
    bool greedy = false;          // so its reply depends on the history alone
    std::vector<int32_t> tokens;  // of the reply under way
  };

  uint64_t below(uint64_t n) { return random_() % n; }
  std::vector<int32_t> tokens(uint64_t seed, size_t count) {
    std::vector<int32_t> out;
    for (size_t i = 0; i < count; ++i) out.push_back(static_cast<int32_t>(mix(seed * 1000003 + i) % 90));
    return out;
  }

  void one_thing() {
    if (people_.size() < 12 && below(4) == 0) arrive();
    if (people_.empty()) return;
    const auto person = std::next(people_.begin(), static_cast<std::ptrdiff_t>(below(people_.size())));
    if (person->request != 0) {
      disturb(*person);
    } else if (below(60) == 0) {
      people_.erase(person);
    } else if (below(40) == 0) {
      fork(*person);
    } else {
      ask(*person);
    }
    if (below(3) != 0) step();
  }

  // Half of all people talk to the first character, a quarter to the second ...
  void arrive() {
    uint64_t character = 0;
    while (character < 7 && below(2) == 0) ++character;
    auto talk = Conversation::create(engine_, tokens(character, 100 + 37 * character), std::vector<int32_t>{96});
    must(talk.status());
    people_.push_back({std::move(talk).value(), character, 0, false, {}});
  }
  void fork(Person& person) {
    if (people_.size() >= 14) return;
    auto talk = person.talk.fork(below(person.talk.turn_count() + 1));
    if (talk.status().code() == StatusCode::kBusy) return;
    must(talk.status());
    people_.push_back({std::move(talk).value(), person.character, 0, false, {}});
  }

  void ask(Person& person) {
    must(person.talk.settle());
    RequestOptions options;
    options.max_tokens = static_cast<int32_t>(below(5) == 0 ? 120 : 1 + below(24));
    person.greedy = below(2);
    options.sampling.temperature = person.greedy ? 0 : 1;
    options.stop_tokens = std::vector<int32_t>{96, 95};
    options.priority = static_cast<int32_t>(below(3));
    options.scope.character = "character " + std::to_string(person.character);
    options.scope.salt = below(2) ? "" : "one salt";
    options.user_data = &person;
    if (below(8) == 0) options.deadline = time_ + Clock::duration(below(30));
    const uint64_t what = below(10);
    Conversation& talk = person.talk;
    const bool talked = talk.turn_count() > 0 && !talk.turn(talk.turn_count() - 1, TurnPart::kInput).value().empty();
    if (what == 0 && talked) must(talk.undo());
    if (what == 1 && talked)
      must(talk.edit(below(talk.turn_count()), below(2) ? TurnPart::kReply : TurnPart::kInput,
                     tokens(below(1000), 1 + below(20))));
    const bool swipe =
        (what == 2 || (talk.turn_count() > 0 && talk.reply_count() == 0)) && talk.turn_count() > 0 && talked;
    const auto request = swipe ? talk.swipe(options) : talk.say(tokens(below(100000), 1 + below(40)), options);
    if (request.status().code() == StatusCode::kBusy) {
      ++refused_;
      return step();
    }
    must(request.status());
    ++asked_;
    person.request = request.value();
    person.tokens.clear();
  }

  void disturb(Person& person) {
    switch (below(12)) {
      case 0:
        return must(engine_->cancel(person.request));
      case 1:
        return must(engine_->suspend(person.request));
      case 2:
      case 3:
        return must(engine_->resume(person.request));
      default:
        return step();
    }
  }

  void step() {
    time_ += Clock::duration(1);
    const Status status = engine_->step();
    if (!status.ok()) {
      if (status.code() != StatusCode::kBusy) fail(status.message());
      ++busy_;
    }
    if (!executor_->faults.empty()) fail(executor_->faults.front());
    must(engine_->check_ledger());  // also while a step waits to be run again
    if (below(3) == 0) return;      // a host that polls late
    for (Event event; engine_->poll(event);) hear(event);
  }
  void hear(const Event& event) {
    suspended_ += event.kind == EventKind::kSuspended;
    resumed_ += event.kind == EventKind::kResumed;
    Person* person = nullptr;
    for (Person& each : people_)
      if (each.request == event.request) person = &each;
    if (event.kind == EventKind::kFailed) fail(event.status.message());
    if (event.kind == EventKind::kDone) ++ends_[static_cast<size_t>(event.reason)];
    if (!person) return;  // left meanwhile
    if (event.kind == EventKind::kToken) person->tokens.push_back(event.token);
    if (event.kind != EventKind::kDone) return;
    if (person->greedy && below(10) == 0) compare(*person);
    person->request = 0;
  }
  // The reply against one-at-a-time decoding of the history before it.
  void compare(Person& person) {
    must(person.talk.settle());
    auto whole = engine_->session_tokens(person.talk.session());
    must(whole.status());
    const size_t prompt = whole->size() - person.tokens.size();
    const std::vector<int32_t> history(whole->begin(), whole->begin() + static_cast<std::ptrdiff_t>(prompt));
    if (person.tokens !=
        ScriptReference::generate(facts_of_soak(), {}, history, static_cast<int32_t>(person.tokens.size())))
      fail("a reply differs from one-at-a-time decoding");
    ++compared_;
  }

  void everybody_leaves() {
    people_.clear();
    while (engine_->pending() > 0) step_and_hear();
    while (!step_and_hear()) {
    }
    must(engine_->check_ledger());
    const Metrics metrics = engine_->metrics();
    if (metrics.sessions + metrics.requests_waiting + metrics.requests_running + metrics.requests_suspended != 0)
      fail("somebody is still there");
    for (const BlockMetrics& blocks : metrics.blocks)
      if (blocks.live != 0) fail("blocks are still in use");
  }
  // False: the executor asked to try again.
  bool step_and_hear() {
    time_ += Clock::duration(1);
    const Status status = engine_->step();
    if (!status.ok() && status.code() != StatusCode::kBusy) fail(status.message());
    for (Event event; engine_->poll(event);) hear(event);
    return status.ok();
  }

  int64_t turns_;
  std::mt19937_64 random_;
  Clock::time_point time_{Clock::duration(1)};
  ScriptedExecutor* executor_ = nullptr;
  std::shared_ptr<Engine> engine_;
  std::list<Person> people_;
  int64_t asked_ = 0, suspended_ = 0, resumed_ = 0, refused_ = 0, busy_ = 0, compared_ = 0;
  int64_t ends_[5] = {};
};

}  // namespace

int main(int argc, char** argv) {
  const int64_t turns = argc > 1 ? std::atoll(argv[1]) : 100000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return Soak(turns, seed).run();
}
