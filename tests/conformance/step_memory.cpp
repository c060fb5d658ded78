// An executor takes its memory at creation: no step of a shape it was sized for allocates, the first one included.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
// Who asked for how much, and from where. Threads that lived before the executor was made are not its own: once another
// case has used a GPU, CUDA's driver has one, "cuda-EvtHandlr", that takes 88 bytes now and then, also while backends
// on the processor run.
struct Allocation {
  long thread;
  size_t bytes;
  void* caller;
};
std::atomic<bool> counting{false};
std::atomic<size_t> allocations{0};
std::array<Allocation, 64> kept;
void count(size_t bytes, void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  if (const size_t at = allocations++; at < kept.size()) kept[at] = {syscall(SYS_gettid), bytes, caller};
}

std::vector<long> threads() {
  std::vector<long> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    found.push_back(std::stol(entry.path().filename().string()));
  return found;
}
std::string described(const Allocation& a) {
  std::string name;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(a.thread) + "/comm"), name);
  Dl_info info{};
  const bool known = dladdr(a.caller, &info) != 0 && info.dli_fname;
  return std::to_string(a.bytes) + " bytes by thread " + name + " from " + (known ? info.dli_fname : "?") +
         (known && info.dli_sname ? std::string(" ") + info.dli_sname : "");
}
}  // namespace

// The C library's own, seen on the way: operator new ends here too.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* malloc(size_t size) { return count(size, __builtin_return_address(0)), __libc_malloc(size); }
void* calloc(size_t number, size_t size) {
  return count(number * size, __builtin_return_address(0)), __libc_calloc(number, size);
}
void* realloc(void* memory, size_t size) {
  return count(size, __builtin_return_address(0)), __libc_realloc(memory, size);
}
}

namespace {

using namespace kaiju;

// One segment a slot, from position 0, every table filled.
StepPlan plan_of(const ExecutorInfo& info, const std::vector<int32_t>& rows) {
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
      for (int32_t i = 0; i < blocks; ++i)
        plan.table_edits.push_back({slot, static_cast<BlockKind>(kind), i, (slot * 3 + i) % info.block_count[kind]});
    Segment segment;
    segment.slot = slot;
    segment.first_token = static_cast<int32_t>(plan.tokens.size());
    segment.token_count = rows[static_cast<size_t>(slot)];
    segment.sample_count = 1;
    plan.segments.push_back(segment);
    for (int32_t i = 0; i < segment.token_count; ++i) plan.tokens.push_back((slot * 31 + i * 7) % info.vocab_size);
  }
  return plan;
}

}  // namespace

TEST_CASE("no step allocates, not even the first of the largest shape") {
  const int32_t arithmetic = GENERATE(1, 2);
  // A token of every slot has its own logits, of two bytes a value in version 2.
  const int32_t slot_count = GENERATE(4, 40, 100), step_tokens = slot_count == 4 ? 160 : slot_count;
  std::vector<std::vector<int32_t>> steps = {std::vector<int32_t>(static_cast<size_t>(slot_count), 1), {step_tokens}};
  if (slot_count == 4) steps.insert(steps.end(), {{40, 40, 40, 40}, {1, 157, 1, 1}});
  auto bundled =
      Checkpoint::open(std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors", Verify::kNone);
  REQUIRE(bundled.ok());
  const auto checkpoint =
      arithmetic == 1 ? *bundled : test::random_checkpoint(test::small_config_of(2, "step-memory"), 3);
  for (const std::string& backend : backend_names()) {
    if (backend == "reference" || backend == "cuda")
      continue;  // a GPU's driver keeps books of its own on the host's heap
    for (const int32_t thread_count : {1, 2}) {
      INFO(backend << " with " << thread_count << " threads, arithmetic " << arithmetic << ", slots " << slot_count);
      std::vector<long> others = threads();
      std::erase(others, static_cast<long>(syscall(SYS_gettid)));
      ExecutorOptions options;
      options.backend = backend;
      options.threads = thread_count;
      options.slot_count = slot_count;
      options.step_tokens = step_tokens;
      auto executor = make_executor(checkpoint, options);
      REQUIRE(executor.ok());
      StepResult result;
      result.sampled.reserve(static_cast<size_t>(slot_count));  // what a step returns is its caller's
      for (const std::vector<int32_t>& rows : steps) {
        const StepPlan plan = plan_of((*executor)->info(), rows);
        allocations = 0;
        counting = true;
        const Status ran = (*executor)->run(plan, result);
        counting = false;
        REQUIRE(ran.ok());
        CHECK(result.sampled.size() == rows.size());
        REQUIRE(allocations <= kept.size());
        for (size_t i = 0; i < allocations; ++i) {
          INFO(described(kept[i]));
          CHECK(std::find(others.begin(), others.end(), kept[i].thread) != others.end());
        }
      }
    }
  }
}

#endif
