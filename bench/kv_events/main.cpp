// kaiju-kv-events: what it costs to tell a router of the cache, from the cache's queue to the socket.
//
// A process tells another one of as many events a minute as asked for, half of them stored blocks with 64 tokens and
// half removed ones, as after steps of 5 ms, and prints which share of a core this took. That other process reads all.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "examples/server/kv_events.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/program.hpp"
#include "kaiju/step/executor_info.hpp"

namespace {

using namespace kaiju;
using Clock = std::chrono::steady_clock;

constexpr auto kStep = std::chrono::milliseconds(5);

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// Reads until it is killed.
[[noreturn]] void subscribe(const std::string& endpoint) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::sub);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::subscribe, "");
  socket.connect(endpoint);
  for (zmq::message_t message;;) (void)socket.recv(message);
}

// A cache in which each block is removed when the one a thousand later comes.
class Traffic {
 public:
  explicit Traffic(CacheEvents& events) : events_(events) {}

  void push() {
    if (count_ % 2 == 0) {
      int32_t tokens[kBlockTokens];
      for (int32_t& token : tokens) token = static_cast<int32_t>(random_() % 128000);
      events_.push_stored(name(count_), name(count_ - 2), tokens, CacheTier::kDevice, false);
    } else if (count_ > kHeld) {
      events_.push_removed(name(count_ - 1 - kHeld), {}, kBlockTokens, CacheTier::kDevice, false);
    }
    ++count_;
  }

 private:
  static constexpr uint64_t kHeld = 2000;
  static BlockName name(uint64_t number) { return {number * 0x9e3779b97f4a7c15, number}; }

  CacheEvents& events_;
  uint64_t count_ = 0;
  std::mt19937_64 random_{1};
};

int run(int argc, char** argv) {
  int32_t seconds = 30, per_minute = 1000000;
  std::string endpoint = "tcp://127.0.0.1:15557", format = "map";
  CLI::App app("What it costs to tell a router of the cache.", "kaiju-kv-events");
  app.add_option("--seconds", seconds, "how long")->check(tools::whole_number(1, 3600))->capture_default_str();
  app.add_option("--per-minute", per_minute, "events")->check(tools::whole_number(1, 1 << 30))->capture_default_str();
  app.add_option("--endpoint", endpoint, "of ZeroMQ")->capture_default_str();
  app.add_option("--format", format, "map or array")->capture_default_str();
  if (const auto code = tools::parse(app, argc, argv)) return *code;
  const pid_t reader = fork();
  if (reader == 0) subscribe(endpoint);

  CacheEvents queue({server::KvEvents::kMostWaiting, false, true});
  Traffic traffic(queue);
  const auto poll = [&](std::vector<CacheEvent>& events) {
    for (CacheEvent event; queue.poll(event);) events.push_back(std::move(event));
  };
  server::KvEventOptions told;
  told.endpoint = endpoint;
  told.format = format == "array" ? server::KvFormat::kArray : server::KvFormat::kMap;
  server::KvEvents events(told, {.poll = poll, .cached = [](auto&) {}, .wake = [] {}});
  std::this_thread::sleep_for(std::chrono::seconds(2));  // the reader connects
  const double before = cpu_seconds();
  const Clock::time_point begin = Clock::now();
  int64_t pushed = 0;
  for (Clock::time_point now = begin; now < begin + std::chrono::seconds(seconds); now = Clock::now()) {
    const int64_t due = static_cast<int64_t>(std::chrono::duration<double>(now - begin).count() * per_minute / 60);
    for (; pushed < due; ++pushed) traffic.push();
    events.take();
    std::this_thread::sleep_for(kStep);
  }
  const double cpu = cpu_seconds() - before, wall = std::chrono::duration<double>(Clock::now() - begin).count();
  const server::KvEventCounts counts = events.counts();
  kill(reader, SIGKILL);
  waitpid(reader, nullptr, 0);
  tools::print("{} events in {} messages, {:.0f} a minute: {:.2f}% of a core, {:.2f} us an event\n", counts.events,
               counts.batches, 60 * static_cast<double>(counts.events) / wall, 100 * cpu / wall,
               1e6 * cpu / static_cast<double>(counts.events));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-kv-events", run, argc, argv); }
