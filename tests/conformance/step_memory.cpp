// An executor takes its memory at creation: no step of a shape it was sized for allocates, the first one included.
#include "catch.hpp"

#include <atomic>
#include <cstddef>

#include "kaiju/run/executors.hpp"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
void count() {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
}
}  // namespace

// The C library's own, seen on the way: operator new ends here too.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* malloc(size_t size) { return count(), __libc_malloc(size); }
void* calloc(size_t number, size_t size) { return count(), __libc_calloc(number, size); }
void* realloc(void* memory, size_t size) { return count(), __libc_realloc(memory, size); }
}

namespace {

using namespace kaiju;

constexpr int32_t kSlots = 4, kRows = 160;

// One segment a slot, from position 0, every table filled.
StepPlan plan_of(const Facts& facts, const std::vector<int32_t>& rows) {
  StepPlan plan;
  for (int32_t slot = 0; slot < static_cast<int32_t>(rows.size()); ++slot) {
    SlotStart start;
    start.slot = slot;
    start.sampling.temperature = 0.8f;
    start.sampling.top_p = 0.9f;
    start.sampling.repetition_penalty = 1.1f;
    plan.starts.push_back(start);
    const int32_t blocks = (rows[static_cast<size_t>(slot)] + kBlockTokens - 1) / kBlockTokens;
    for (int32_t kind = 0; kind < kBlockKinds; ++kind)
      for (int32_t i = 0; i < blocks; ++i) plan.table_edits.push_back({slot, static_cast<BlockKind>(kind), i, (slot * 3 + i) % facts.block_count[kind]});
    Segment segment;
    segment.slot = slot;
    segment.first_token = static_cast<int32_t>(plan.tokens.size());
    segment.token_count = rows[static_cast<size_t>(slot)];
    segment.sample = true;
    plan.segments.push_back(segment);
    for (int32_t i = 0; i < segment.token_count; ++i) plan.tokens.push_back((slot * 31 + i * 7) % facts.vocab_size);
  }
  return plan;
}

}  // namespace

TEST_CASE("no step allocates, not even the first of the largest shape") {
  auto checkpoint = Checkpoint::open(std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors", Verify::kNone);
  REQUIRE(checkpoint.ok());
  for (const std::string& backend : backend_names()) {
    if (backend == "reference" || backend == "cuda") continue;  // a GPU's driver keeps books of its own on the host's heap
    for (const int32_t threads : {1, 2}) {
      INFO(backend << " with " << threads << " threads");
      ExecutorOptions options;
      options.backend = backend;
      options.threads = threads;
      options.slot_count = kSlots;
      options.step_tokens = kRows;
      auto executor = make_executor(*checkpoint, options);
      REQUIRE(executor.ok());
      StepResult result;
      result.sampled.reserve(kSlots);  // what a step returns is its caller's
      for (const std::vector<int32_t>& rows : {std::vector<int32_t>{kRows}, {1, 1, 1, 1}, {40, 40, 40, 40}, {1, 157, 1, 1}}) {
        const StepPlan plan = plan_of((*executor)->facts(), rows);
        allocations = 0;
        counting = true;
        const Status ran = (*executor)->run(plan, result);
        counting = false;
        REQUIRE(ran.ok());
        CHECK(result.sampled.size() == rows.size());
        CHECK(allocations == 0);
      }
    }
  }
}

#endif
