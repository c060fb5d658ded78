// Faults of a GPU, by the linker's --wrap: one CUDA call after the other fails, in the making of an executor and in its steps. It is told for what it is, it stands from
// then on, nothing more is asked of the GPU, and a new executor, or engine, in the same process computes as before. And what a step asks of CUDA when nothing fails. Wants a
// GPU; without one it passes (KAIJU_REQUIRE_BACKENDS=cuda: it fails).
#include <cuda_runtime_api.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "catch.hpp"
#include "cuda/device.hpp"
#include "cuda/kernels.hpp"
#include "../conformance/random_checkpoint.hpp"
#include "kaiju/kaiju.hpp"

namespace {

int64_t made = 0, fails_at = 0;  // 0: never
std::string fails_in;            // where it is not empty, of the calls of this name, with an answer of the test's
std::map<std::string, int64_t> made_of;
std::set<const void*> launched;  // kernels
cudaError_t failed_with = cudaSuccess;
std::function<void(const std::string& call)> before_calls;  // where a test has something done in front of them
int pretended = -1;  // the current device, where a test pretends that there are several; -1: it does not
std::map<std::string, int64_t> made_elsewhere;

void note_device(const char* call) {
  if (pretended > 0) ++made_elsewhere[call];
}
bool fails(const char* call, cudaError_t with) {
  note_device(call);
  if (before_calls) before_calls(call);
  ++made_of[call];
  ++made;
  if (fails_in.empty() ? made != fails_at : fails_in != call || made_of[call] != fails_at) return false;
  if (fails_in.empty()) failed_with = with;
  return true;
}
void fail_at(int64_t nth) {
  made = 0;
  made_of.clear();
  fails_at = nth;
  fails_in.clear();
  failed_with = cudaSuccess;
}
void fail_at(int64_t nth, const char* call, cudaError_t with) {
  fail_at(nth);
  fails_in = call;
  failed_with = with;
}

}  // namespace

#define WRAPPED(name, failure, parameters, arguments)       \
  cudaError_t __real_##name parameters;                     \
  cudaError_t __wrap_##name parameters {                    \
    return fails(#name, failure) ? failed_with : __real_##name arguments; \
  }
// What may not fail.
#define WATCHED(name, parameters, arguments) \
  cudaError_t __real_##name parameters;      \
  cudaError_t __wrap_##name parameters {     \
    note_device(#name);                      \
    return __real_##name arguments;          \
  }
extern "C" {
WRAPPED(cudaMalloc, cudaErrorMemoryAllocation, (void** p, size_t n), (p, n))
WRAPPED(cudaMallocHost, cudaErrorMemoryAllocation, (void** p, size_t n), (p, n))
WRAPPED(cudaMemset, cudaErrorLaunchFailure, (void* p, int v, size_t n), (p, v, n))
WRAPPED(cudaMemsetAsync, cudaErrorLaunchFailure, (void* p, int v, size_t n, cudaStream_t s), (p, v, n, s))
WRAPPED(cudaMemcpy, cudaErrorLaunchFailure, (void* to, const void* from, size_t n, cudaMemcpyKind k), (to, from, n, k))
WRAPPED(cudaMemcpyAsync, cudaErrorLaunchFailure, (void* to, const void* from, size_t n, cudaMemcpyKind k, cudaStream_t s), (to, from, n, k, s))
#if CUDART_VERSION >= 13000
WRAPPED(cudaMemcpyBatchAsync, cudaErrorLaunchFailure,
        (void* const* to, const void* const* from, const size_t* n, size_t count, cudaMemcpyAttributes* a, size_t* i, size_t as, cudaStream_t s), (to, from, n, count, a, i, as, s))
#endif
WRAPPED(cudaLaunchKernelExC, cudaErrorLaunchFailure, (const cudaLaunchConfig_t* c, const void* f, void** a), (c, (launched.insert(f), f), a))
WRAPPED(cudaFuncSetAttribute, cudaErrorLaunchFailure, (const void* f, cudaFuncAttribute a, int v), (f, a, v))
WRAPPED(cudaStreamSynchronize, cudaErrorLaunchFailure, (cudaStream_t s), (s))
WRAPPED(cudaEventSynchronize, cudaErrorLaunchFailure, (cudaEvent_t e), (e))
WRAPPED(cudaDeviceSynchronize, cudaErrorLaunchFailure, (), ())  // would break off what another thread records: never asked for
WRAPPED(cudaStreamCreateWithFlags, cudaErrorLaunchFailure, (cudaStream_t * s, unsigned f), (s, f))
WRAPPED(cudaStreamWaitEvent, cudaErrorLaunchFailure, (cudaStream_t s, cudaEvent_t e, unsigned f), (s, e, f))
WRAPPED(cudaEventCreateWithFlags, cudaErrorLaunchFailure, (cudaEvent_t * e, unsigned f), (e, f))
WRAPPED(cudaEventRecord, cudaErrorLaunchFailure, (cudaEvent_t e, cudaStream_t s), (e, s))
WRAPPED(cudaGraphInstantiate, cudaErrorMemoryAllocation, (cudaGraphExec_t * e, cudaGraph_t g, unsigned long long f), (e, g, f))
WRAPPED(cudaGraphUpload, cudaErrorLaunchFailure, (cudaGraphExec_t e, cudaStream_t s), (e, s))
WRAPPED(cudaGraphLaunch, cudaErrorLaunchFailure, (cudaGraphExec_t e, cudaStream_t s), (e, s))
WATCHED(cudaFree, (void* p), (p))
WATCHED(cudaFreeHost, (void* p), (p))
WATCHED(cudaStreamDestroy, (cudaStream_t s), (s))
WATCHED(cudaEventDestroy, (cudaEvent_t e), (e))
WATCHED(cudaGraphExecDestroy, (cudaGraphExec_t e), (e))
cudaError_t __real_cudaGetDevice(int* device);
cudaError_t __wrap_cudaGetDevice(int* device) { return pretended < 0 ? __real_cudaGetDevice(device) : (*device = pretended, cudaSuccess); }
cudaError_t __real_cudaSetDevice(int device);
cudaError_t __wrap_cudaSetDevice(int device) { return pretended < 0 ? __real_cudaSetDevice(device) : (pretended = device, cudaSuccess); }

// cuBLASLt is looked up while the process runs: its products fail by what is found.
void* __real_dlsym(void* library, const char* name);
void* __wrap_dlsym(void* library, const char* name) {
  void* const found = __real_dlsym(library, name);
#if __has_include(<cublasLt.h>)
  if (found && std::strcmp(name, "cublasLtMatmul") == 0) {
    static decltype(&cublasLtMatmul) multiply;
    multiply = reinterpret_cast<decltype(multiply)>(found);
    const decltype(multiply) may_fail = [](auto... arguments) { return fails("cublasLtMatmul", cudaErrorLaunchFailure) ? CUBLAS_STATUS_EXECUTION_FAILED : multiply(arguments...); };
    return reinterpret_cast<void*>(may_fail);
  }
#endif
  return found;
}
}

namespace {

using namespace kaiju;

// KAIJU_TEST_CAPABILITY, as in tests/conformance/world.hpp.
const bool older_chip = [] {
  const char* capability = std::getenv("KAIJU_TEST_CAPABILITY");
  if (capability) cuda::Device::limit_capability(std::atoi(capability));
  return capability != nullptr;
}();

bool has_gpu() {
  const std::vector<std::string> names = backend_names();
  if (names.front() == "cuda") return true;
  const char* required = std::getenv("KAIJU_REQUIRE_BACKENDS");
  CHECK_FALSE((required && std::string(required).find("cuda") != std::string::npos));
  return false;
}

std::shared_ptr<const Checkpoint> small_model() {
  ModelConfig config;
  config.name = "faults";
  config.vocab_size = 96;
  config.d_model = 64;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 64;
  config.d_ff = 64;
  config.context = 512;
  config.layers = {{LayerKind::kSliding, 150, 0, 0}, {LayerKind::kGlobal, 0, 1, 1}};
  config.derive_counts();
  return test::random_checkpoint(config, 3);
}

// An executor with what travels beside its steps.
struct Made {
  Status status;
  std::unique_ptr<Executor> executor;
  HostMemory host;
};
Made make(const std::shared_ptr<const Checkpoint>& checkpoint) {
  ExecutorOptions options;
  options.backend = "cuda";
  options.slot_count = 2;
  options.step_tokens = 128;
  Made made;
  auto executor = make_executor(checkpoint, options);
  if (!executor.ok()) return made.status = executor.status(), std::move(made);
  made.executor = std::move(executor).value();
  auto host = made.executor->host_memory(1 << 20, "a test's host memory");
  if (!host.ok()) return made.status = host.status(), std::move(made);
  made.host = std::move(host).value();
  return made;
}

// A sequence's next token, which draws the one behind it.
void add_row(StepPlan& plan, int32_t slot, int32_t position, int32_t token) {
  Segment segment;
  segment.slot = slot;
  segment.position = position;
  segment.first_token = static_cast<int32_t>(plan.tokens.size());
  segment.token_count = 1;
  segment.sample = true;
  plan.segments.push_back(segment);
  plan.tokens.push_back(token);
}

// A prefill with everything drawing can ask for, and a decode step with a block going down and one coming up beside it.
Status two_steps(Made& made, std::vector<int32_t>& tokens) {
  StepPlan plan;
  StepResult result;
  SlotStart start;
  start.sampling.temperature = 0.8f;
  start.sampling.repetition_penalty = 1.1f;
  start.sampling.logit_bias = {{5, 1.0f}};
  start.history = {1, 2, 3};
  plan.starts.push_back(start);
  for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow})
    for (int32_t i = 0; i < 2; ++i) plan.table_edits.push_back({0, kind, i, i});
  Segment segment;
  segment.token_count = 100;
  segment.sample = true;
  segment.top_logprobs = 2;
  plan.segments.push_back(segment);
  for (int32_t i = 0; i < 100; ++i) plan.tokens.push_back(i % 96);
  KAIJU_TRY(made.executor->run(plan, result));
  tokens.push_back(result.sampled.at(0).token);

  plan.clear();
  plan.transfers.push_back({BlockTransfer::Way::kDown, BlockKind::kGlobal, 2, made.host.get()});
  plan.transfers.push_back({BlockTransfer::Way::kUp, BlockKind::kGlobal, 3, made.host.get() + (512 << 10)});
  plan.copies.push_back({BlockKind::kGlobal, 2, 4, 64});
  add_row(plan, 0, 100, result.sampled[0].token);
  KAIJU_TRY(made.executor->run(plan, result));
  tokens.push_back(result.sampled.at(0).token);
  return {};
}

// What may be told of a failure that was met.
void check_told(const Status& status) {
  INFO(status.message());
  if (failed_with == cudaErrorMemoryAllocation) {
    CHECK(status.code() == StatusCode::kOutOfMemory);
    CHECK(status.message().find("wants") != std::string::npos);
  } else {
    CHECK(status.code() == StatusCode::kDeviceLost);
  }
}

}  // namespace

TEST_CASE("a CUDA call that fails while an executor is made is told for what it is") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  make(checkpoint);  // what a process does once is done
  fail_at(0);
  REQUIRE(make(checkpoint).status.ok());
  const int64_t calls = made, stride = std::max<int64_t>(1, calls / 120);
  int64_t told = 0;
  for (int64_t nth = 1; nth <= calls; nth += stride) {
    INFO("call " << nth << " of " << calls);
    fail_at(nth);
    const Status status = make(checkpoint).status;
    fails_at = 0;
    REQUIRE(failed_with != cudaSuccess);
    if (!status.ok()) check_told(status), ++told;  // else an answer that nobody needs
  }
  CHECK(told * 10 > (calls / stride) * 9);
  CHECK(make(checkpoint).status.ok());
}

TEST_CASE("a CUDA call that fails in a step is told, latched, and no matter to the next executor") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  std::vector<int32_t> expected;
  Made whole = make(checkpoint);
  REQUIRE(whole.status.ok());
  fail_at(0);
  REQUIRE(two_steps(whole, expected).ok());
  const int64_t calls = made;
  for (int64_t nth = 1; nth <= calls; ++nth) {
    INFO("call " << nth << " of " << calls);
    Made lost = make(checkpoint);
    INFO(lost.status.message());
    REQUIRE(lost.status.ok());
    std::vector<int32_t> tokens;
    fail_at(nth);
    const Status status = two_steps(lost, tokens);
    REQUIRE(failed_with != cudaSuccess);
    CHECK(status.code() == StatusCode::kDeviceLost);
    fail_at(0);
    const Status again = two_steps(lost, tokens);
    CHECK(again.code() == StatusCode::kDeviceLost);
    CHECK(again.message() == status.message());
    CHECK(made == 0);  // nothing was asked of the GPU
  }
  std::vector<int32_t> tokens;
  Made next = make(checkpoint);
  REQUIRE(next.status.ok());
  REQUIRE(two_steps(next, tokens).ok());
  CHECK(tokens == expected);
}

TEST_CASE("a GPU is current while it is used, and the one before it is again then") {
  pretended = 1;
  {
    const cuda::CurrentDevice current(0);
    CHECK(pretended == 0);
    const cuda::CurrentDevice same(0);
    CHECK(pretended == 0);
  }
  CHECK(pretended == 1);
  pretended = -1;
}

TEST_CASE("an executor makes every call with its GPU current, whichever is the calling thread's") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  made_elsewhere.clear();
  pretended = 1;
  std::vector<int32_t> tokens;
  {
    Made made_now = make(checkpoint);
    CHECK(pretended == 1);
    CHECK(made_now.status.ok());
    if (made_now.status.ok()) CHECK(two_steps(made_now, tokens).ok());
    CHECK(pretended == 1);
    made_now.executor.reset();
    CHECK(pretended == 1);
  }
  CHECK(pretended == 1);
  pretended = -1;
  CHECK(tokens.size() == 2);
  CHECK(made_elsewhere == std::map<std::string, int64_t>{});
}

TEST_CASE("a step that only decodes is a copy, a launch and a wait, and no step takes memory") {
  if (!has_gpu()) return;
  Made made_now = make(small_model());
  REQUIRE(made_now.status.ok());
  StepPlan plan;
  StepResult result;
  for (int32_t slot = 0; slot < 2; ++slot) {
    SlotStart start;
    start.slot = slot;
    start.sampling.temperature = 0.8f;
    start.sampling.top_p = 0.9f;
    plan.starts.push_back(start);
    for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow}) plan.table_edits.push_back({slot, kind, 0, slot});
    Segment segment;
    segment.slot = slot;
    segment.first_token = slot * 20;
    segment.token_count = 20;
    segment.sample = true;
    plan.segments.push_back(segment);
  }
  for (int32_t i = 0; i < 40; ++i) plan.tokens.push_back(i);
  fail_at(0);
  REQUIRE(made_now.executor->run(plan, result).ok());
  CHECK(made_of["cudaEventSynchronize"] == 1);
  for (const char* call : {"cudaMalloc", "cudaMallocHost", "cudaMemcpy", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaGraphInstantiate"}) {
    INFO(call);
    CHECK(made_of[call] == 0);
  }
  for (int32_t position = 20; position < 23; ++position) {
    plan.clear();
    for (int32_t slot = 0; slot < 2; ++slot) add_row(plan, slot, position, result.sampled.at(static_cast<size_t>(slot)).token);
    fail_at(0);
    REQUIRE(made_now.executor->run(plan, result).ok());
    CHECK(made_of == std::map<std::string, int64_t>{{"cudaMemcpyAsync", 1}, {"cudaGraphLaunch", 1}, {"cudaEventRecord", 1}, {"cudaEventSynchronize", 1}});
  }
}

// Their biases together are longer than the memory for a step's lists: it is used again, but not before it was read.
TEST_CASE("steps that are started behind one another never wait for the stream, and draw what steps on their own draw") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  const auto plan_at = [&](int32_t position, int32_t token) {
    StepPlan plan;
    for (int32_t slot = 0; slot < 2; ++slot) {
      if (position == 0) {
        SlotStart start;
        start.slot = slot;
        start.sampling.temperature = 0.9f;
        for (int32_t t = 0; t < 96; ++t) start.sampling.logit_bias.push_back({t, static_cast<float>((t * 37 + slot * 11) % 19) - 9.0f});
        plan.starts.push_back(start);
      }
      if (position % kBlockTokens == 0)
        for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow}) plan.table_edits.push_back({slot, kind, position / kBlockTokens, slot * 8 + position / kBlockTokens});
      add_row(plan, slot, position, token);
    }
    return plan;
  };
  constexpr int32_t kSteps = 512;
  const auto draw = [&](bool overlapped) {
    Made made_now = make(checkpoint);
    REQUIRE(made_now.status.ok());
    std::vector<int32_t> tokens;
    StepResult result;
    StepPlan plan = plan_at(0, 1);
    const auto take = [&] {
      for (const SampledToken& sampled : result.sampled) tokens.push_back(sampled.token);
    };
    fail_at(0);
    if (overlapped) REQUIRE(made_now.executor->start(plan).ok());
    for (int32_t position = 1; position < kSteps; ++position) {
      StepPlan next = plan_at(position, kDrawnToken);
      if (!overlapped) {
        REQUIRE(made_now.executor->run(plan, result).ok());
      } else {
        REQUIRE(made_now.executor->start(next).ok());
        REQUIRE(made_now.executor->finish(plan, result).ok());
      }
      take();
      plan = std::move(next);
    }
    REQUIRE((overlapped ? made_now.executor->finish(plan, result) : made_now.executor->run(plan, result)).ok());
    take();
    CHECK(made_of["cudaStreamSynchronize"] == 0);
    return tokens;
  };
  const std::vector<int32_t> overlapped = draw(true);
  CHECK(overlapped.size() == 2 * kSteps);
  CHECK(overlapped == draw(false));
}

// The driver loads a kernel, and takes memory for it, when it is first launched or recorded.
TEST_CASE("no step launches a kernel that was not loaded when the executor was made") {
  if (!has_gpu()) return;
  ModelConfig config;
  config.name = "loads";
  config.vocab_size = 2048;
  config.d_model = 1024;
  config.n_heads = GENERATE(4, 8, 48);
  config.n_kv_heads = 1;
  config.head_dim = 128;
  config.d_ff = 4096;
  config.context = 2048;
  config.labels = {"one", "two", "three"};
  config.layers = {{LayerKind::kSliding, 512, 0, 0}};
  std::vector<BlockKind> kinds{BlockKind::kWindow};
  const bool only_windows = GENERATE(false, true);
  if (!only_windows) config.layers.push_back({LayerKind::kGlobal, 0, 1, 1}), kinds.push_back(BlockKind::kGlobal);
  config.derive_counts();
  const auto checkpoint = test::random_checkpoint(config, 3);
  ExecutorOptions options;
  options.backend = "cuda";
  options.slot_count = 170;  // more windows than go by pairs of blocks (cuda/kernels/attention_window.cuh)
  options.step_tokens = 1200;
  options.graphs = GENERATE(false, true);
  launched.clear();
  fail_at(0);
  auto executor = make_executor(checkpoint, options);
  REQUIRE(executor.ok());
  const std::set<const void*> loaded = launched;
  CHECK(loaded.size() > 20);

  StepPlan plan;
  StepResult result;
  const auto step_launches_what_is_loaded = [&] {
    launched.clear();
    REQUIRE((*executor)->run(plan, result).ok());
    for (const void* kernel : launched) CHECK(loaded.contains(kernel));
  };
  for (const int32_t rows : {1, 2, 7, 33, 64, 65, 96, 97, 129, 200, 257, 300, 385, 500, 600, 685, 800, 900, 1025, 1200}) {
    CAPTURE(config.n_heads, only_windows, options.graphs, rows);
    plan.clear();
    plan.starts.emplace_back();
    for (const BlockKind kind : kinds)
      for (int32_t i = 0; i * kBlockTokens < rows; ++i) plan.table_edits.push_back({0, kind, i, i});
    Segment segment;
    segment.token_count = rows;
    segment.sample = true;
    segment.all_logits = rows < 300;
    plan.segments.push_back(segment);
    for (int32_t i = 0; i < rows; ++i) plan.tokens.push_back(i);
    step_launches_what_is_loaded();
  }
  for (const int32_t count : {1, 2, 5, 16, 33, 80, 84, 100, 160, 170}) {
    CAPTURE(config.n_heads, only_windows, options.graphs, count);
    for (const bool first : {true, false}) {  // a token each, all at position 0, then at 1
      plan.clear();
      for (int32_t slot = 0; slot < count; ++slot) {
        if (first) {
          plan.starts.emplace_back();
          plan.starts.back().slot = slot;
          for (const BlockKind kind : kinds) plan.table_edits.push_back({slot, kind, 0, slot});
        }
        add_row(plan, slot, first ? 0 : 1, slot);
      }
      step_launches_what_is_loaded();
    }
  }
}

TEST_CASE("what failed among the host's own CUDA calls is not taken for a fault of the executor's") {
  if (!has_gpu()) return;
  Made made_now = make(small_model());
  REQUIRE(made_now.status.ok());
  REQUIRE(cudaSetDevice(1 << 20) == cudaErrorInvalidDevice);  // and nobody asks cudaGetLastError
  std::vector<int32_t> tokens;
  CHECK(two_steps(made_now, tokens).ok());
  REQUIRE(cudaSetDevice(1 << 20) == cudaErrorInvalidDevice);
  const Status next = make(small_model()).status;
  INFO(next.message());
  CHECK(next.ok());
  CHECK(made_of["cudaDeviceSynchronize"] == 0);
}

namespace {

// While it lives, a thread of the host's uses the GPU: `work` again and again. It calls CUDA past the wrappers, whose counts are of one thread.
class Host {
 public:
  template <class Work>
  explicit Host(Work work)
      : thread_([this, work]() mutable {
          while (!over_) {
            work();
            ++rounds_;
          }
        }) {
    while (rounds_ == 0) std::this_thread::yield();
  }
  ~Host() { end(); }
  void end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<int64_t> rounds_ = 0;
  std::thread thread_;
};

// A graph as a host records one, of a stream that waits for the legacy stream or of one that does not; `beside` is done while it is recorded.
cudaError_t record_as_a_host(cudaStream_t stream, void* memory, const std::function<void()>& beside) {
  cudaGraph_t recorded = nullptr;
  cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  for (int32_t i = 0; i < 50 && error == cudaSuccess; ++i) error = __real_cudaMemsetAsync(memory, i, 256, stream);
  beside();
  const cudaError_t ended = cudaStreamEndCapture(stream, &recorded);
  if (recorded) cudaGraphDestroy(recorded);
  return error == cudaSuccess ? ended : error;
}

}  // namespace

TEST_CASE("while a host records graphs of its own engines are made and step, and nobody notices the other") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  Made before = make(checkpoint);
  REQUIRE(before.status.ok());
  const auto use = [&] {
    std::vector<int32_t> tokens;
    CHECK(two_steps(before, tokens).message() == "");
    if (older_chip) return;  // cuBLASLt breaks off what is recorded when it is opened
    Made made_now = make(checkpoint);
    CHECK(made_now.status.message() == "");
    if (made_now.status.ok()) CHECK(two_steps(made_now, tokens).message() == "");
  };
  for (const unsigned kind : {cudaStreamDefault, cudaStreamNonBlocking}) {
    CAPTURE(kind);
    cudaStream_t stream = nullptr;
    void* memory = nullptr;
    REQUIRE(__real_cudaStreamCreateWithFlags(&stream, kind) == cudaSuccess);
    REQUIRE(__real_cudaMalloc(&memory, 256) == cudaSuccess);
    SECTION("on the same thread") { CHECK(record_as_a_host(stream, memory, use) == cudaSuccess); }
    SECTION("on another") {
      std::atomic<cudaError_t> failed = cudaSuccess;
      Host host([&] {
        if (const cudaError_t error = record_as_a_host(stream, memory, [] { std::this_thread::yield(); }); error != cudaSuccess) failed = error;
      });
      for (int32_t i = 0; i < 5; ++i) use();
      host.end();
      CHECK(failed == cudaSuccess);
    }
    __real_cudaFree(memory);
    __real_cudaStreamDestroy(stream);
  }
}

TEST_CASE("an executor whose recording a host breaks off by waiting for the whole GPU says that one may try again") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  bool broken = false;
  before_calls = [&](const std::string& call) {  // on this thread: on another that wait may crash inside the driver, with any program that records
    if (call == "cudaLaunchKernelExC" && !broken) broken = __real_cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported;
  };
  const Status status = make(checkpoint).status;
  before_calls = {};
  INFO(status.message());
  CHECK(broken);
  CHECK(status.code() == StatusCode::kBusy);
  CHECK(status.message().find("try again") != std::string::npos);

  Made made_now = make(checkpoint);
  REQUIRE(made_now.status.ok());
  Host host([] { __real_cudaDeviceSynchronize(); });
  std::vector<int32_t> tokens;
  CHECK(two_steps(made_now, tokens).message() == "");
}

TEST_CASE("want of memory for copies of blocks is told for what it is, and the executor goes on") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  std::vector<int32_t> expected;
  Made whole = make(checkpoint);
  REQUIRE(whole.status.ok());
  REQUIRE(two_steps(whole, expected).ok());
  ExecutorOptions options;
  options.backend = "cuda";
  options.slot_count = 2;
  options.step_tokens = 128;
  auto executor = make_executor(checkpoint, options);
  REQUIRE(executor.ok());
  const auto host_memory = [&] { return (*executor)->host_memory(1 << 20, "a test's host memory"); };
  for (const auto& [call, nth] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"cudaStreamCreateWithFlags", 1}, {"cudaStreamCreateWithFlags", 2}, {"cudaEventCreateWithFlags", 1}, {"cudaMallocHost", 1}, {"cudaMalloc", 1}, {"cudaMallocHost", 2}}) {
    INFO(call << " " << nth);
    fail_at(nth, call, cudaErrorMemoryAllocation);
    check_told(host_memory().status());
  }
  fail_at(0);
  auto host = host_memory();
  REQUIRE(host.ok());
  Made made_now{{}, std::move(executor).value(), std::move(host).value()};
  std::vector<int32_t> tokens;
  CHECK(two_steps(made_now, tokens).message() == "");
  CHECK(tokens == expected);
}

TEST_CASE("steps of more keys than attention can count are refused, with how many sequences can be had") {
  if (!has_gpu()) return;
  ModelConfig config = small_model()->config();
  config.context = 1 << 20;
  ExecutorOptions options;
  options.backend = "cuda";
  options.slot_count = options.step_tokens = 65536;
  options.cache_bytes = 1 << 28;
  const Status refused = make_executor(test::random_checkpoint(config, 3), options).status();
  INFO(refused.message());
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message().find("at most 32768 sequences") != std::string::npos);
}

TEST_CASE("an executor that wants more than the GPU has says how much, and for what") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  ExecutorOptions options;
  options.backend = "cuda";
  options.slot_count = 2;
  options.step_tokens = 128;
  options.cache_bytes = int64_t{1} << 40;
  const Status refused = make_executor(checkpoint, options).status();
  INFO(refused.message());
  CHECK(refused.code() == StatusCode::kOutOfMemory);
  const std::string told = "the KV cache wants ";
  REQUIRE(refused.message().find(told) == 0);
  CHECK(std::stoll(refused.message().substr(told.size())) >= options.cache_bytes);
  CHECK(refused.message().find(" are free") != std::string::npos);
  std::vector<int32_t> tokens;
  Made next = make(checkpoint);
  REQUIRE(next.status.ok());
  CHECK(two_steps(next, tokens).ok());
}

namespace {

// Gives the replies to two prompts, until a step fails; `before` is called in front of each.
Status replies_of(Engine& engine, const std::function<void(int32_t step)>& before, std::map<RequestId, std::vector<int32_t>>& replies) {
  RequestOptions request;
  request.max_tokens = 12;
  request.sampling.temperature = 0.7f;
  for (int32_t prompt = 0; prompt < 2; ++prompt) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 150; ++i) tokens.push_back((i * 7 + prompt) % 96);
    const Result<SessionId> session = engine.create_session();
    if (!session.ok()) return session.status();
    const Result<RequestId> id = engine.submit(session.value(), tokens, request);
    if (!id.ok()) return id.status();
  }
  for (int32_t step = 0; engine.pending() > 0; ++step) {
    before(step);
    KAIJU_TRY(engine.step());
    for (Event event; engine.poll(event);)
      if (event.kind == EventKind::kToken) replies[event.request].push_back(event.token);
  }
  return {};
}

}  // namespace

TEST_CASE("an engine whose GPU failed says so to every call, and one made anew replies as before") {
  if (!has_gpu()) return;
  auto model = Model::create(small_model());
  REQUIRE(model.ok());
  RunOptions options;
  options.executor.backend = "cuda";
  options.executor.slot_count = 2;
  options.executor.step_tokens = 64;
  const auto engine_of = [&] {
    auto engine = (*model)->create_engine(options);
    INFO(engine.status().message());
    REQUIRE(engine.ok());
    return engine.value();
  };
  std::map<RequestId, std::vector<int32_t>> expected;
  fail_at(0);
  REQUIRE(replies_of(*engine_of(), [](int32_t) {}, expected).ok());
  REQUIRE(expected.size() == 2);
  for (const int32_t failing : {0, 2, 8}) {  // a first prompt, prompts, replies
    INFO("step " << failing);
    const auto lost = engine_of();
    std::map<RequestId, std::vector<int32_t>> replies;
    const Status status = replies_of(*lost, [&](int32_t step) { fail_at(step == failing ? 1 : 0); }, replies);
    fail_at(0);
    INFO(status.message());
    CHECK(status.code() == StatusCode::kDeviceLost);
    CHECK(status.message().find("make a new engine") != std::string::npos);
    CHECK(lost->status().message() == status.message());
    CHECK(lost->step().message() == status.message());
    CHECK(lost->create_session().status().message() == status.message());
    CHECK(made == 0);  // nothing was asked of the GPU
    replies.clear();
    REQUIRE(replies_of(*engine_of(), [](int32_t) {}, replies).ok());  // beside the lost one
    CHECK(replies == expected);
  }
}

TEST_CASE("after a kernel that reads where nothing is, engine and next engine say what has to be done", "[.process]") {
  // CUDA serves the process no more from then on, so this has one of its own (faults.cmake).
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  Made lost = make(checkpoint);
  REQUIRE(lost.status.ok());
  auto device = cuda::Device::open();
  REQUIRE(device.ok());
  REQUIRE(cuda::write_tables((*device)->stream(), reinterpret_cast<const cuda::TableWrite*>(64), 1, nullptr) == cudaSuccess);
  CHECK(cudaStreamSynchronize((*device)->stream()) == cudaErrorIllegalAddress);
  std::vector<int32_t> tokens;
  const Status status = two_steps(lost, tokens);
  INFO(status.message());
  CHECK(status.code() == StatusCode::kDeviceLost);
  const Status next = make(checkpoint).status;
  INFO(next.message());
  CHECK(next.code() == StatusCode::kDeviceLost);
  CHECK(next.message().find("start the process anew") != std::string::npos);
}
