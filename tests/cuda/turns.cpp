// Groups of GPUs that share GPUs, on GPUs that are played: streams of launches, of which a kernel that waits for its
// peers fills its GPU until all of them are there. Needs no GPU and no CUDA.
#include "cuda/turns.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "catch.hpp"

namespace kaiju::cuda {
namespace {

// As cudaEvent_t: a wait is for what was recorded last when it was launched.
struct Event {
  int32_t recorded = 0, reached = 0;
};

class PlayedGpus {
 public:
  explicit PlayedGpus(int32_t count) : filled_by_(static_cast<size_t>(count), -1) {}

  // A stream for each GPU of a group. Returns its number; those of a group follow each other.
  int32_t add_stream(int32_t gpu) {
    streams_.push_back({gpu, {}});
    return static_cast<int32_t>(streams_.size()) - 1;
  }
  void wait(int32_t stream, Event& event) {
    const std::lock_guard lock(mutex_);
    if (event.recorded > 0) launch(stream, {&event, event.recorded, false, 0, 0});
  }
  void record(int32_t stream, Event& event) {
    const std::lock_guard lock(mutex_);
    launch(stream, {&event, ++event.recorded, true, 0, 0});
  }
  // With the streams from `first` on, `count` of them.
  void meet(int32_t stream, int32_t first, int32_t count) {
    const std::lock_guard lock(mutex_);
    launch(stream, {nullptr, 0, false, first, count});
  }

  // Runs all that was launched, in any order that streams allow. False: nothing can run any more.
  bool run(std::mt19937_64& random) {
    for (;;) {
      std::vector<int32_t> ready;
      bool is_done = true;
      for (int32_t s = 0; s < static_cast<int32_t>(streams_.size()); ++s) {
        if (!of(s).launched.empty()) is_done = false;
        if (can_go_on(s)) ready.push_back(s);
      }
      if (ready.empty()) return is_done;
      go_on(ready[random() % ready.size()]);
    }
  }

 private:
  struct Launch {
    Event* event;  // null: a meeting
    int32_t version;
    bool records;
    int32_t first, count;  // streams that meet
  };
  struct Stream {
    int32_t gpu;
    std::deque<Launch> launched;
  };
  Stream& of(int32_t stream) { return streams_[static_cast<size_t>(stream)]; }
  int32_t& filled_by(int32_t gpu) { return filled_by_[static_cast<size_t>(gpu)]; }
  void launch(int32_t stream, const Launch& launch) { of(stream).launched.push_back(launch); }

  bool can_go_on(int32_t stream) {
    const Stream& own = of(stream);
    if (own.launched.empty()) return false;
    const Launch& next = own.launched.front();
    if (next.event) return next.records || next.event->reached >= next.version;
    return filled_by(own.gpu) < 0;
  }
  void go_on(int32_t stream) {
    Stream& own = of(stream);
    const Launch next = own.launched.front();
    if (next.event) {
      if (next.records) next.event->reached = next.version;
      return own.launched.pop_front();
    }
    filled_by(own.gpu) = stream;
    for (int32_t s = next.first; s < next.first + next.count; ++s)
      if (filled_by(of(s).gpu) != s) return;
    for (int32_t s = next.first; s < next.first + next.count; ++s) {
      filled_by(of(s).gpu) = -1;
      of(s).launched.pop_front();
    }
  }

  std::mutex mutex_;
  std::vector<Stream> streams_;
  std::vector<int32_t> filled_by_;  // by GPU: the stream whose kernel waits there; -1: none
};

struct Group {
  Group(PlayedGpus& played_gpus, const std::shared_ptr<TurnBoard>& board, std::vector<int32_t> its_gpus)
      : played(played_gpus), gpus(std::move(its_gpus)), turns(board, gpus), events(gpus.size()) {
    for (const int32_t gpu : gpus) first = std::min(first, played.add_stream(gpu));
  }

  // As a WorkerGroup launches a step. `in_turn`: else as if there were no other group.
  void step(bool in_turn, int32_t layers) {
    Turns::Turn turn;
    if (in_turn) turn = turns.begin();
    const auto count = static_cast<int32_t>(gpus.size());
    for (int32_t s = first; s < first + count; ++s)
      for (const Mark mark : turn.before()) played.wait(s, *static_cast<Event*>(mark));
    for (int32_t layer = 0; layer < layers; ++layer)
      for (int32_t s = first; s < first + count; ++s) {
        played.meet(s, first, count);
        std::this_thread::yield();
      }
    std::vector<Mark> marks;
    for (int32_t rank = 0; rank < count; ++rank) {
      played.record(first + rank, events[static_cast<size_t>(rank)]);
      marks.push_back(&events[static_cast<size_t>(rank)]);
    }
    turn.end(marks);
  }

  PlayedGpus& played;
  std::vector<int32_t> gpus;
  Turns turns;
  std::vector<Event> events;  // by rank
  int32_t first = INT32_MAX;  // its first stream
};

// Whether all steps of random groups, launched by a thread for each group, end.
bool all_steps_end(std::mt19937_64& random, bool in_turn) {
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  const int32_t gpu_count = 2 + below(7), group_count = 2 + below(3), steps = 1 + below(4);
  PlayedGpus played(gpu_count);
  const auto board = std::make_shared<TurnBoard>();
  std::deque<Group> groups;
  for (int32_t g = 0; g < group_count; ++g) {
    std::vector<int32_t> gpus(static_cast<size_t>(gpu_count));
    for (int32_t i = 0; i < gpu_count; ++i) gpus[static_cast<size_t>(i)] = i;
    std::shuffle(gpus.begin(), gpus.end(), random);
    gpus.resize(static_cast<size_t>(2 + below(gpu_count - 1)));
    groups.emplace_back(played, board, gpus);
  }
  std::vector<std::thread> threads;
  for (Group& group : groups)
    threads.emplace_back([&] {
      for (int32_t step = 0; step < steps; ++step) group.step(in_turn, 3);
    });
  for (std::thread& thread : threads) thread.join();
  return played.run(random);
}

TEST_CASE("steps of groups that share GPUs all end, in whatever order the GPUs run what was launched") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int32_t round = 0; round < 300; ++round) REQUIRE(all_steps_end(random, true));
}

TEST_CASE("without turns, groups that share GPUs wait for each other for ever") {
  std::mt19937_64 random(7);
  int32_t hung = 0;
  for (int32_t round = 0; round < 300; ++round) hung += all_steps_end(random, false) ? 0 : 1;
  CHECK(hung > 0);
}

TEST_CASE("a group waits for the last turn of others on its GPUs, and not for its own or of a group that has left") {
  const auto board = std::make_shared<TurnBoard>();
  const std::vector<int32_t> low{1, 0}, high{1, 2}, apart{3, 4};
  Turns a(board, low), b(board, high), c(board, apart);
  int32_t events[6];
  const auto take = [&](Turns& turns, int32_t first) {
    Turns::Turn turn = turns.begin();
    const std::vector<Mark> before(turn.before().begin(), turn.before().end());
    const Mark marks[] = {&events[first], &events[first + 1]};
    turn.end(marks);
    return before;
  };
  CHECK(take(a, 0).empty());
  CHECK(take(a, 0).empty());
  CHECK(take(b, 2) == std::vector<Mark>{&events[0]});  // on GPU 1
  CHECK(take(a, 0) == std::vector<Mark>{&events[2]});
  {
    const Turns::Turn held = a.begin();
    CHECK(take(c, 4).empty());  // launches beside it
  }
  CHECK(take(b, 2) == std::vector<Mark>{&events[0]});
  a.begin().end({});  // it was not the last on GPU 1
  CHECK(take(a, 0) == std::vector<Mark>{&events[2]});
  a.begin().end({});
  CHECK(take(b, 2).empty());
  b.begin();  // launches nothing
  CHECK(take(a, 0) == std::vector<Mark>{&events[2]});
}

TEST_CASE("all groups of a process have one board, which ends with the last of them") {
  std::weak_ptr<TurnBoard> ended;
  {
    const auto board = TurnBoard::of_process();
    CHECK(board == TurnBoard::of_process());
    ended = board;
  }
  CHECK(ended.expired());
}

TEST_CASE(
    "a GPU that a thread wants quiet has none of the launches of another thread's group on one of its GPUs alone") {
  Turns turns(TurnBoard::of_process(), std::vector<int32_t>{1, 2});
  std::atomic<bool> on_one_alone{false}, ends{false};
  std::thread steps([&] {
    while (!ends) {
      Turns::Turn turn = turns.begin();
      on_one_alone = true;
      std::this_thread::yield();
      QuietGpu(2);  // waits for no turn but others'
      on_one_alone = false;
      turn.end({});
    }
  });
  int32_t beside_launches = 0;
  for (int32_t call = 0; call < 20'000; ++call) {
    const QuietGpu quiet(1 + call % 2);
    beside_launches += on_one_alone ? 1 : 0;
  }
  {
    const QuietGpu elsewhere(0);  // is not waited for
    const Turns::Turn turn = turns.begin();
  }
  ends = true;
  steps.join();
  CHECK(beside_launches == 0);
}

}  // namespace
}  // namespace kaiju::cuda
