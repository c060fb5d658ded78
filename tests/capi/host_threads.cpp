// Engines that compute on threads of the host, and options of where their memory lies.
#include <atomic>
#include <thread>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

std::atomic<int> pieces, parts_run;

void run_on_threads(void*, int32_t parts, kaiju_part_fn part, void* work) {
  ++pieces;
  std::vector<std::thread> threads;
  for (int32_t i = 1; i < parts; ++i) threads.emplace_back([=] { part(work, i); });
  part(work, 0);
  for (std::thread& thread : threads) thread.join();
  parts_run += parts;
}

int threads_of_process() {
  int count = 0;
  if (std::FILE* file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file))
      if (std::sscanf(line, "Threads: %d", &count) == 1) break;
    std::fclose(file);
  }
  return count;
}

std::vector<int32_t> reply(const Host& made) {
  auto& host = const_cast<Host&>(made);
  std::vector<int32_t> prompt(200);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(1 + i * 7 % 60);
  host.submit(prompt);
  return host.drain();
}

}  // namespace

TEST_CASE("an engine that computes on threads of the host starts none and replies the same") {
  const std::vector<int32_t> expected = reply(Host());
  pieces = parts_run = 0;
  const int before = threads_of_process();
  const Host host(chat_model_file(), "auto", [](kaiju_options* options) {
    kaiju_options_set_int(options, KAIJU_ENGINE_THREADS, 3, nullptr);
    kaiju_options_set_host_threads(options, run_on_threads, nullptr);
  });
  CHECK(threads_of_process() == before);
  CHECK(reply(host) == expected);
  CHECK(pieces > 0);
  CHECK(parts_run >= 2 * pieces);
  CHECK(parts_run <= 3 * pieces);
}

TEST_CASE("the host's threads are options of engines, which copies keep and a clear takes out") {
  CHECK(kaiju_options_set_host_threads(nullptr, run_on_threads, nullptr) == KAIJU_INVALID_ARGUMENT);
  const Bag bag;
  REQUIRE(kaiju_options_set_host_threads(bag.handle, run_on_threads, nullptr) == KAIJU_OK);
  kaiju_model* model = nullptr;
  const auto load = [&](const Bag& with) {
    return ask([&](kaiju_error** e) {
      return kaiju_model_load(nullptr, chat_model_file().c_str(), with.handle, nullptr, nullptr, &model, e);
    });
  };
  CHECK(load(bag).says("the host's threads"));
  kaiju_options* made = nullptr;
  REQUIRE(kaiju_options_copy(bag.handle, &made) == KAIJU_OK);
  const Bag copy(made);
  REQUIRE(kaiju_options_clear(bag.handle, 0) == KAIJU_OK);
  CHECK(load(copy).says("the host's threads"));
  REQUIRE(load(bag).status == KAIJU_OK);
  kaiju_model_destroy(model);
}

TEST_CASE("replies are the same wherever the memory lies") {
  const std::vector<int32_t> expected = reply(Host());
  const Bag bag;
  REQUIRE(bag.set(KAIJU_MODEL_INTERLEAVE, int64_t{1}).status == KAIJU_OK);
  kaiju_model* model = nullptr;
  const Answer loaded = ask([&](kaiju_error** e) {
    return kaiju_model_load(nullptr, chat_model_file().c_str(), bag.handle, nullptr, nullptr, &model, e);
  });
  kaiju_model_destroy(model);
  // Of several nodes, a container may forbid the call.
  if (loaded.status == KAIJU_UNSUPPORTED) return;
  REQUIRE(loaded.status == KAIJU_OK);
  const Host host(chat_model_file(), "auto", [](kaiju_options* options) {
    kaiju_options_set_int(options, KAIJU_ENGINE_INTERLEAVE, 1, nullptr);
    kaiju_options_set_int(options, KAIJU_ENGINE_LARGE_PAGES, 1, nullptr);
  });
  CHECK(reply(host) == expected);
}
