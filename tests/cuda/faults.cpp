// Faults of a GPU: one CUDA call after the other fails, in the making of an executor and in its steps. It is told for
// what it is, it stands from then on, nothing more is asked of the GPU, and a new executor, or engine, in the same
// process computes as before. Wants a GPU; without one it passes (KAIJU_REQUIRE_BACKENDS=cuda: it fails).
#include <functional>
#include <map>

#include "cuda/cuda.hpp"
#include "cuda/kernels.hpp"
#include "small_executor.hpp"

namespace kaiju::test {

namespace {

// While an executor on these devices is created, about `most` of its calls fail, one after the other. No devices: the
// first GPU.
void fail_creation(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int32_t>& devices,
                   int64_t most) {
  make(checkpoint, devices);  // what a process does once is done
  fail_at(0);
  REQUIRE(make(checkpoint, devices).status.ok());
  const int64_t calls = made, stride = std::max<int64_t>(1, calls / most);
  int64_t told = 0;
  for (int64_t nth = 1; nth <= calls; nth += stride) {
    INFO("call " << nth << " of " << calls);
    fail_at(nth);
    const Status status = make(checkpoint, devices).status;
    fail_no_more();
    REQUIRE(failed_with != cudaSuccess);
    if (!status.ok()) check_told(status), ++told;  // else an answer that nobody needs
  }
  CHECK(told * 10 > (calls / stride) * 9);
  CHECK(make(checkpoint, devices).status.ok());
}

}  // namespace

TEST_CASE("a CUDA call that fails while an executor is created is reported with its cause") {
  if (!has_gpu()) return;
  fail_creation(small_model(), {}, 120);
}

TEST_CASE("a CUDA call that fails while an executor on two GPUs is created is reported with its cause") {
  if (!has_gpu() || cuda::gpus().size() < 2) return;
  const auto checkpoint = small_model(128);
  fail_creation(checkpoint, {1, 2}, 120);
  const auto answer_of = [&](int64_t nth, cudaError_t error) {
    fail_at(nth, "cudaDeviceEnablePeerAccess", error);
    const Status status = make(checkpoint, {1, 2}).status;
    CHECK(made_of["cudaDeviceEnablePeerAccess"] == nth);
    fail_no_more();
    INFO(status.message());
    return status;
  };
  for (const int64_t nth : {1, 2}) {
    check_told(answer_of(nth, cudaErrorMemoryAllocation));
    CHECK(answer_of(nth, cudaErrorPeerAccessUnsupported).code() == StatusCode::kUnsupported);
    CHECK(answer_of(nth, cudaErrorLaunchFailure).code() == StatusCode::kDeviceLost);
  }
}

// In two steps on these devices one call after the other fails, about `most` of them. No
// devices: the first GPU. Returns the tokens of whole steps.
std::vector<int32_t> fail_steps(const std::shared_ptr<const Checkpoint>& checkpoint,
                                const std::vector<int32_t>& devices, int64_t most) {
  std::vector<int32_t> expected;
  Made whole = make(checkpoint, devices);
  INFO(whole.status.message());
  REQUIRE(whole.status.ok());
  fail_at(0);
  REQUIRE(two_steps(whole, expected).ok());
  const int64_t calls = made;
  for (int64_t nth = 1; nth <= calls; nth += 1 + calls / most) {
    INFO("call " << nth << " of " << calls);
    Made lost = make(checkpoint, devices);
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
  Made next = make(checkpoint, devices);
  REQUIRE(next.status.ok());
  REQUIRE(two_steps(next, tokens).ok());
  CHECK(tokens == expected);
  return expected;
}

TEST_CASE(
    "a CUDA call that fails in a step is reported, stays the executor's error, and does not affect the next executor") {
  if (!has_gpu()) return;
  fail_steps(small_model(), {}, INT64_MAX);
}

TEST_CASE(
    "a CUDA call that fails in a step that two GPUs share is reported, and neither waits for the other for ever") {
  if (!has_gpu() || cuda::gpus().size() < 2) return;
  const auto checkpoint = small_model(128);
  Made one = make(checkpoint);
  std::vector<int32_t> alone;
  REQUIRE(two_steps(one, alone).ok());
  CHECK(fail_steps(checkpoint, {1, 2}, 100) == alone);
}

TEST_CASE("a CUDA call that fails while weights are replaced leaves them as they were, or is final") {
  if (!has_gpu()) return;
  const auto before = small_model(128), after = test::random_checkpoint(before->config(), 4);
  const auto tokens_of = [](Made& made_now) {
    std::vector<int32_t> tokens;
    REQUIRE(two_steps(made_now, tokens).ok());
    return tokens;
  };
  for (const std::vector<int32_t>& devices : {std::vector<int32_t>(), std::vector<int32_t>{1, 2}}) {
    if (devices.size() > cuda::gpus().size()) continue;
    Made old = make(before, devices), changed = make(before, devices);
    REQUIRE((old.status.ok() && changed.status.ok()));
    fail_at(0);
    REQUIRE(changed.executor->set_weights(after).ok());
    const int64_t calls = made;
    const std::vector<int32_t> old_tokens = tokens_of(old), new_tokens = tokens_of(changed);
    CHECK(old_tokens != new_tokens);
    for (int64_t nth = 1; nth <= calls; nth += 1 + calls / 60) {
      INFO("call " << nth << " of " << calls << ", " << devices.size() << " devices");
      Made one = make(before, devices);
      REQUIRE(one.status.ok());
      fail_at(nth);
      const Status status = one.executor->set_weights(after);
      fail_at(0);
      INFO(status.message());
      if (status.code() == StatusCode::kDeviceLost || status.code() == StatusCode::kInternal) continue;
      CHECK(tokens_of(one) == (status.ok() ? new_tokens : old_tokens));
    }
  }
}

TEST_CASE("a lack of memory for copies of blocks is reported with its cause, and the executor continues") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  std::vector<int32_t> expected;
  Made whole = make(checkpoint);
  REQUIRE(whole.status.ok());
  REQUIRE(two_steps(whole, expected).ok());
  auto executor = make_executor(checkpoint, two_slots());
  REQUIRE(executor.ok());
  const auto host_memory = [&] { return (*executor)->host_memory(1 << 20, "a test's host memory"); };
  for (const auto& [call, nth] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"cudaStreamCreateWithFlags", 1},
                                                              {"cudaStreamCreateWithFlags", 2},
                                                              {"cudaEventCreateWithFlags", 1},
                                                              {"cudaMallocHost", 1},
                                                              {"cudaMalloc", 1},
                                                              {"cudaMallocHost", 2}}) {
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

TEST_CASE("an executor that needs more memory than the GPU has reports how much, and for what") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  ExecutorOptions options = two_slots();
  options.cache_bytes = int64_t{1} << 40;
  const Status refused = make_executor(checkpoint, options).status();
  INFO(refused.message());
  CHECK(refused.code() == StatusCode::kOutOfMemory);
  const std::string told = "the KV cache needs ";
  REQUIRE(refused.message().find(told) == 0);
  CHECK(std::stoll(refused.message().substr(told.size())) >= options.cache_bytes);
  CHECK(refused.message().find(" are free") != std::string::npos);
  std::vector<int32_t> tokens;
  Made next = make(checkpoint);
  REQUIRE(next.status.ok());
  CHECK(two_steps(next, tokens).ok());
}

TEST_CASE("steps with more keys than attention can count are refused, with the number of sequences that fit") {
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

namespace {

// Gives the replies to two prompts, until a step fails; `before` is called in front of each.
Status replies_of(Engine& engine, const std::function<void(int32_t step)>& before,
                  std::map<RequestId, std::vector<int32_t>>& replies) {
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

TEST_CASE("an engine whose GPU failed answers every call with the error, and a new engine replies as before") {
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
    CHECK(status.message().find("create a new engine") != std::string::npos);
    CHECK(lost->status().message() == status.message());
    CHECK(lost->step().message() == status.message());
    CHECK(lost->create_session().status().message() == status.message());
    CHECK(made == 0);  // nothing was asked of the GPU
    replies.clear();
    REQUIRE(replies_of(*engine_of(), [](int32_t) {}, replies).ok());  // beside the lost one
    CHECK(replies == expected);
  }
}

TEST_CASE("after a kernel has read an invalid address, this engine and the next one say what to do", "[.process]") {
  // CUDA serves the process no more from then on, so this has one of its own (faults.cmake).
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  Made lost = make(checkpoint);
  REQUIRE(lost.status.ok());
  auto device = cuda::Device::open();
  REQUIRE(device.ok());
  REQUIRE(cuda::write_tables((*device)->stream(), reinterpret_cast<const cuda::TableWrite*>(64), 1, nullptr) ==
          cudaSuccess);
  CHECK(cudaStreamSynchronize((*device)->stream()) == cudaErrorIllegalAddress);
  std::vector<int32_t> tokens;
  const Status status = two_steps(lost, tokens);
  INFO(status.message());
  CHECK(status.code() == StatusCode::kDeviceLost);
  const Status next = make(checkpoint).status;
  INFO(next.message());
  CHECK(next.code() == StatusCode::kDeviceLost);
  CHECK(next.message().find("start a new process") != std::string::npos);
}

}  // namespace kaiju::test
