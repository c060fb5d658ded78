// Sums over memory on a GPU: they find every bit that has flipped. Wants a GPU; without one it passes.
#include <cuda_runtime_api.h>

#include <random>

#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "cuda/weight_sums.hpp"
#include "small_executor.hpp"

namespace kaiju::test {
namespace {

// Whether one pass finds damage.
bool finds_damage(cuda::WeightSums& sums, size_t part) {
  for (;;) {
    Result<Scrubbed> looked = sums.look(part);
    if (looked.status().code() == StatusCode::kBadModel) return true;
    REQUIRE(looked.ok());
    if (looked->whole) return false;
  }
}

void flip(std::byte* at, std::byte bit) {
  std::byte byte{};
  REQUIRE(cudaMemcpy(&byte, at, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  byte ^= bit;
  REQUIRE(cudaMemcpy(at, &byte, 1, cudaMemcpyHostToDevice) == cudaSuccess);
}

}  // namespace

TEST_CASE("sums over memory of a GPU find every flipped bit, the first and the last too") {
  if (!has_gpu()) return;
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Result<std::shared_ptr<cuda::Device>> device = cuda::Device::open();
  REQUIRE(device.ok());
  const cuda::CurrentDevice current((*device)->index());
  cuda::DeviceBuffer<std::byte> memory;
  REQUIRE(cuda::take(memory, (size_t{40} << 20) + 4096, "a test").ok());
  std::vector<uint32_t> words(memory.bytes() / sizeof(uint32_t));
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  REQUIRE(cudaMemcpy(memory.data(), words.data(), memory.bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
  Result<cuda::WeightSums> sums = cuda::WeightSums::make(*device, memory);
  REQUIRE(sums.ok());
  CHECK_FALSE(finds_damage(*sums, size_t{1} << 30));
  for (int i = 0; i < 100; ++i) {
    const size_t at = i == 0 ? 0 : i == 1 ? memory.bytes() - 1 : random() % memory.bytes();
    const auto bit = static_cast<std::byte>(1U << random() % 8);
    flip(memory.data() + at, bit);
    CHECK(finds_damage(*sums, 1));
    flip(memory.data() + at, bit);
    while (!sums->look(1)->whole) {
    }
    CHECK_FALSE(finds_damage(*sums, size_t{1} << 26));
  }
}

}  // namespace kaiju::test
