// Executors across fork().
#include "catch.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "tests/child.hpp"
#include "world.hpp"

using namespace kaiju;

TEST_CASE("a child of fork() cannot use its parent's executor, and may destroy it") {
  const auto checkpoint = test::random_checkpoint(test::small_config("fork", true), 5);
  std::vector<std::string> backends = test::isas();
  backends.push_back("reference");
  for (const std::string& backend : backends) {
    INFO(backend);
    ExecutorOptions options;
    options.backend = backend;
    options.threads = 3;
    options.slot_count = 1;
    auto executor = make_executor(checkpoint, options);
    REQUIRE(executor.status().message() == "");
    const auto memory = executor.value()->host_memory(4096, "a test");
    REQUIRE(memory.ok());
    CHECK(test::in_child([&] {
            test::Promises must;
            StepPlan plan;
            StepResult result;
            const auto refused = [](const Status& status) {
              return status.code() == StatusCode::kInvalidArgument &&
                     status.message().find("forked") != std::string::npos;
            };
            must(refused(executor.value()->run(plan, result)));
            must(refused(executor.value()->start(plan)));
            must(refused(executor.value()->finish(plan, result)));
            must(refused(executor.value()->host_memory(4096, "a test").status()));
            executor.value().reset();
            return must.broken;
          }) == 0);
    StepPlan plan;
    StepResult result;
    CHECK(executor.value()->run(plan, result).message() == "");
  }
}
