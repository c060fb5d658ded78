// Which replica gets a request.
#include "examples/server/replicas.hpp"

#include <array>
#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "catch.hpp"
#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::server;

namespace {

struct Nobody : Sink {
  void on_event(const Event&, std::chrono::steady_clock::time_point) override {}
};

// Three replicas. Their events are never brought to the I/O thread, so that every request stays unfinished.
struct Three {
  std::vector<std::shared_ptr<Engine>> engines;
  std::array<std::atomic<bool>, 3> lost = {};
  boost::asio::io_context io;
  std::unique_ptr<Replicas> replicas;

  Three() {
    for (std::atomic<bool>& gone : lost) {
      auto executor = std::make_unique<test::ScriptedExecutor>(test::small_facts());
      executor->before_run = [&gone](const StepPlan&) {
        return gone ? Status(StatusCode::kDeviceLost, "gone") : Status();
      };
      auto engine = Engine::create(std::move(executor), std::make_shared<test::ScriptedPieces>(97), {});
      REQUIRE(engine.ok());
      engines.push_back(std::move(engine).value());
    }
    replicas = std::make_unique<Replicas>(engines, io, nullptr);
  }

  void ask(Driver& driver) {
    const std::vector<int32_t> prompt = {5, 6, 7};
    RequestOptions options;
    options.max_tokens = 1;
    REQUIRE(driver.submit(prompt, options, std::make_shared<Nobody>()).ok());
  }
  void lose(size_t replica) {
    lost[replica] = true;
    ask((*replicas)[replica]);
    while (engines[replica]->status().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

std::string name_of(int number) { return "name " + std::to_string(number); }

}  // namespace

TEST_CASE("a name has one replica, and names are spread over all") {
  Three three;
  std::map<Driver*, int> names;
  for (int i = 0; i < 300; ++i) {
    Driver& home = three.replicas->home(name_of(i));
    CHECK(&home == &three.replicas->home(name_of(i)));
    ++names[&home];
  }
  REQUIRE(names.size() == 3);
  for (const auto& [driver, count] : names) CHECK(count > 60);
}

TEST_CASE("chats of a character share its replica until that has more to do than the others") {
  Three three;
  Driver& home = three.replicas->home("pip");
  Driver& first = three.replicas->place("pip", "chat 0");
  CHECK(&first == &home);
  std::map<Driver*, int> chats;
  for (int i = 1; i <= 60; ++i) {
    Driver& driver = three.replicas->place("pip", "chat " + std::to_string(i));
    three.ask(driver);
    ++chats[&driver];
  }
  CHECK(three.replicas->unfinished() == 60);
  REQUIRE(chats.size() == 3);
  CHECK(chats[&home] > 20);
  CHECK(chats[&home] <= 20 + 5 + 4 + 1);                    // a quarter above the mean, and a few
  CHECK(&three.replicas->place("pip", "chat 0") == &home);  // where its KV is
  CHECK(&three.replicas->place("pip", "chat 0") == &home);  // again
  CHECK(&three.replicas->place("", "chat 0") == &home);     // by the chat's name alone
  CHECK(three.replicas->index_of(first) == three.replicas->index_of(home));
}

TEST_CASE("a replica whose engine has stopped gets nothing, and the others go on") {
  Three three;
  Driver& home = three.replicas->home("pip");
  const size_t gone = three.replicas->index_of(home);
  CHECK(&three.replicas->place("pip", "chat") == &home);
  CHECK(three.replicas->working() == 3);
  three.lose(gone);
  CHECK(three.replicas->working() == 2);
  CHECK(three.replicas->status().code() == StatusCode::kDeviceLost);
  for (int i = 0; i < 100; ++i) CHECK(&three.replicas->home(name_of(i)) != &home);
  CHECK(&three.replicas->place("pip", "chat") != &home);
  CHECK(&three.replicas->place("pip", "chat") == &three.replicas->place("pip", "chat"));
  for (size_t i = 0; i < 3; ++i)
    if (i != gone) three.lose(i);
  CHECK(three.replicas->working() == 0);
  CHECK(&three.replicas->place("pip", "chat") == &three.replicas->first());  // which refuses what it gets
}
