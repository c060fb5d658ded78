// Executors beside a host that uses CUDA itself: other GPUs, errors of its own, graphs that it records, waits for the
// whole GPU. Wants a GPU, as faults.cpp.
#include <atomic>
#include <functional>
#include <thread>

#include "small_executor.hpp"

namespace kaiju::test {

TEST_CASE("a GPU is current while it is used, and the previous GPU is current again afterwards") {
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

TEST_CASE("an executor makes every call with its own GPU current, whichever GPU is current on the calling thread") {
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

TEST_CASE("a failure of the host's own CUDA calls is not taken for a failure of the executor") {
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

// While it lives, a thread of the host's uses the GPU: `work` again and again. It calls CUDA past the wrappers, whose
// counts are of one thread.
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

// A graph as a host records one, of a stream that waits for the legacy stream or of one that does not; `beside` is done
// while it is recorded.
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

TEST_CASE("engines can be created and step while the host captures graphs, and neither disturbs the other") {
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
        if (const cudaError_t error = record_as_a_host(stream, memory, [] { std::this_thread::yield(); });
            error != cudaSuccess)
          failed = error;
      });
      for (int32_t i = 0; i < 5; ++i) use();
      host.end();
      CHECK(failed == cudaSuccess);
    }
    __real_cudaFree(memory);
    __real_cudaStreamDestroy(stream);
  }
}

TEST_CASE(
    "an executor whose graph capture is invalidated by a wait for the whole GPU says that creation can be tried "
    "again") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  bool broken = false;
  before_calls = [&](const std::string& call) {  // on this thread: on another that wait may crash inside the driver,
                                                 // with any program that records
    if (call == "cudaLaunchKernelExC" && !broken)
      broken = __real_cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported;
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

}  // namespace kaiju::test
