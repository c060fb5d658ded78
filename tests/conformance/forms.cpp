// Every form that a matmul has on a GPU gives the reference's bits, also those that no shape of the other tests is
// large enough to choose.
#include "world.hpp"
#if KAIJU_CUDA
#include "cuda/kernels/exchange.hpp"
#include "cuda/launch/tiles.hpp"
#include "cuda/memory.hpp"

namespace kaiju::test {
namespace {

using cuda::DeviceBuffer;
using cuda::MatmulKind;
using cuda::Path;
using cuda::Tile;

template <class T>
DeviceBuffer<T> there(const std::vector<T>& items, size_t count) {
  auto made = DeviceBuffer<T>::make(count, "a test");
  REQUIRE(made.ok());
  REQUIRE(cudaMemset(made->data(), 0xA5, made->bytes()) == cudaSuccess);  // behind the items, where there is room
  REQUIRE(cudaMemcpy(made->data(), items.data(), items.size() * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  return std::move(made).value();
}

template <class T>
std::vector<uint8_t> bytes_of(const std::vector<T>& items) {
  const auto* first = reinterpret_cast<const uint8_t*>(items.data());
  return {first, first + items.size() * sizeof(T)};
}

// One matrix, and what the reference makes of it.
struct Case {
  static constexpr int32_t kRows = 2 * 256 + 5, kRoom = 3 * 256;  // two of the largest tiles and a bit; whole tiles

  Case(MatmulKind kind_, uint64_t seed, int32_t out, int32_t in)
      : kind(kind_),
        random(seed),
        w(random, out, in),
        a(random.bytes(size_t{kRows} * in)),
        x(random.stream(size_t{kRows} * out, 1.0f)) {
    scale = random.scales(out, kind == MatmulKind::kUp ? 1e-4f : 1e-5f);
    ReferenceBackend reference;
    std::vector<float> floats(size_t{kRows} * out);
    std::vector<uint8_t> squares(floats.size());
    std::vector<arith::bf16> sums = x;
    switch (kind) {
      case MatmulKind::kLinear:
        reference.linear(w.view(), a.data(), kRows, scale.data(), floats.data()), expected = bytes_of(floats);
        break;
      case MatmulKind::kUp:
        reference.up(w.view(), a.data(), kRows, scale.data(), squares.data()), expected = bytes_of(squares);
        break;
      case MatmulKind::kAddLinear:
        reference.add_linear(w.view(), a.data(), kRows, scale.data(), sums.data()), expected = bytes_of(sums);
        break;
      case MatmulKind::kAddDown:
        reference.add_down(w.view(), reinterpret_cast<const uint8_t*>(a.data()), kRows, scale.data(), sums.data()),
            expected = bytes_of(sums);
        break;
      default:
        for (int32_t row = 0; row < kRows; ++row)
          for (int32_t n = 0; n < out; ++n) this->sums.push_back(sum_of(row, n));
    }
  }

  void check(cuda::Device& device, const Tile& tile, int32_t rows, bool with_room) {
    INFO("matmul " << static_cast<int>(kind) << ", " << w.out << " x " << w.in << ", rows " << rows << ", path "
                   << static_cast<int>(tile.path) << ", tile " << tile.rows << "x" << tile.outs << "/" << tile.split
                   << "/" << tile.share << ", room " << with_room);
    const size_t bytes = expected.size() / kRows * static_cast<size_t>(rows);
    const bool adds = kind == MatmulKind::kAddLinear || kind == MatmulKind::kAddDown;
    const std::vector<int8_t> some(a.begin(), a.begin() + int64_t{rows} * w.in);
    const auto a_there = there(some, with_room ? size_t{kRoom} * w.in : some.size());
    const auto w_there = there(w.weight, w.weight.size());
    const auto scale_there = there(scale, scale.size());
    const auto result = there(adds ? bytes_of(x) : std::vector<uint8_t>(), expected.size());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    const cuda::MatmulArgs args{
        w_there.data(), w.out, w.in, a_there.data(), rows, scale_there.data(), result.data(), with_room ? kRoom : 0};
    REQUIRE(cuda::matmul_with_tile(device.stream(), device.chip(), tile, kind, args) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(device.stream()) == cudaSuccess);
    std::vector<uint8_t> got(expected.size());
    REQUIRE(cudaMemcpy(got.data(), result.data(), got.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(std::equal(got.begin(), got.begin() + static_cast<int64_t>(bytes), expected.begin()));
    const std::vector<uint8_t> behind = adds ? bytes_of(x) : std::vector<uint8_t>(got.size(), 0xA5);
    CHECK(std::equal(got.begin() + static_cast<int64_t>(bytes), got.end(),
                     behind.begin() + static_cast<int64_t>(bytes)));  // nothing behind the rows is written
  }

  int32_t sum_of(int32_t row, int32_t n) const {
    int32_t sum = 0;
    for (int32_t k = 0; k < w.in; ++k) {
      const int8_t byte = a[static_cast<size_t>(row) * w.in + k];
      sum += w.weight[static_cast<size_t>(n) * w.in + k] *
             (kind == MatmulKind::kSumsDown ? static_cast<int32_t>(static_cast<uint8_t>(byte)) : int32_t{byte});
    }
    return sum;
  }

  MatmulKind kind;
  Random random;
  OwnedMatrix w;
  std::vector<int8_t> a;
  std::vector<arith::bf16> x;
  std::vector<float> scale;
  std::vector<uint8_t> expected;
  std::vector<int32_t> sums;  // of kSums and kSumsDown
};

// Null where the backends under test are others.
std::shared_ptr<cuda::Device> gpu() {
  const std::vector<std::string> names = isas();
  if (std::find(names.begin(), names.end(), "cuda") == names.end()) return nullptr;
  auto opened = cuda::Device::open();
  INFO(opened.status().message());
  REQUIRE(opened.ok());
  return *opened;
}

}  // namespace

TEST_CASE("every form of a matmul on a GPU gives the reference's bits and writes nothing else") {
  const auto opened = gpu();
  if (!opened) return;
  cuda::Device& device = *opened;
  for (const auto& [out, in] :
       {std::pair{224, 576}, {320, 1024}, {11552, 64}, {7072, 512}})  // the last two: several units of work a block
    for (const MatmulKind kind : {MatmulKind::kLinear, MatmulKind::kUp, MatmulKind::kAddLinear, MatmulKind::kAddDown}) {
      Case c(kind, seed_of_run() + 5000, out, in);
      for (const int32_t rows : {1, 7, 64}) c.check(device, {Path::kSkinny}, rows, false);
      for (const int32_t rows : {1, 65, 300}) c.check(device, {Path::kTiled}, rows, false);
      if (!cuda::sm90_matmul_fits(device.chip(), out, in)) continue;
      for (const Tile& tile : cuda::kSm90Tiles) {
        if (tile.split > cuda::pieces(in, cuda::kStepBytes)) {  // a block would have nothing to add up
          CHECK(cuda::matmul_with_tile(device.stream(), device.chip(), tile, kind,
                                       {nullptr, out, in, nullptr, 1, nullptr, nullptr, 0}) ==
                cudaErrorInvalidConfiguration);
          continue;
        }
        for (const int32_t rows : {tile.rows - 3, tile.rows, 2 * tile.rows + 5})
          if (tile.share == 1 || rows > tile.rows) c.check(device, tile, rows, rows != tile.rows);
        if (tile.rows == 64)  // whose rings have more stages then
          for (const int32_t rows : {5, 16, 30}) c.check(device, tile, rows, true);
      }
    }
}

// The owners are memory of one GPU here.
TEST_CASE("every form of a matmul sends its sums to the GPUs that want them, and writes nothing else") {
  const auto opened = gpu();
  if (!opened) return;
  cuda::Device& device = *opened;
  constexpr int32_t kOut = 224, kIn = 576, kGpus = 3;
  for (const MatmulKind kind : {MatmulKind::kSums, MatmulKind::kSumsDown}) {
    const Case c(kind, seed_of_run() + 5100, kOut, kIn);
    const auto w = there(c.w.weight, c.w.weight.size()), a = there(c.a, size_t{Case::kRoom} * kIn);
    const auto scale = there(std::vector<float>(kOut), kOut);
    std::vector<DeviceBuffer<int32_t>> sums;
    for (int32_t p = 0; p < kGpus; ++p) sums.push_back(there(std::vector<int32_t>(), size_t{Case::kRows} * kOut));
    const auto check = [&](const Tile& tile, int32_t rows, bool spread) {
      CAPTURE(static_cast<int>(kind), static_cast<int>(tile.path), tile.rows, tile.outs, tile.split, tile.share, rows,
              spread);
      cuda::MatmulArgs args{w.data(), kOut, kIn, a.data(), rows, scale.data(), nullptr, Case::kRoom};
      args.sums.count = kGpus, args.sums.spread = spread;
      for (int32_t p = 0; p < kGpus; ++p) {
        args.sums.to[p] = sums[static_cast<size_t>(p)].data();
        REQUIRE(cudaMemset(args.sums.to[p], 0xA5, sums[0].bytes()) == cudaSuccess);
      }
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
      REQUIRE(cuda::matmul_with_tile(device.stream(), device.chip(), tile, kind, args) == cudaSuccess);
      REQUIRE(cudaStreamSynchronize(device.stream()) == cudaSuccess);
      for (int32_t p = 0; p < kGpus; ++p) {
        std::vector<int32_t> expected, got(size_t{Case::kRows} * kOut);
        for (int32_t row = 0; row < rows; ++row)
          if (!spread || row / cuda::kOwnedRun % kGpus == p)
            expected.insert(expected.end(), c.sums.begin() + int64_t{row} * kOut,
                            c.sums.begin() + int64_t{row + 1} * kOut);
        if (spread) CHECK(static_cast<int32_t>(expected.size()) == cuda::owned_rows(rows, kGpus, p) * kOut);
        expected.resize(got.size(), static_cast<int32_t>(0xA5A5A5A5));
        REQUIRE(cudaMemcpy(got.data(), args.sums.to[p], sums[0].bytes(), cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(got == expected);
      }
    };
    for (const bool spread : {false, true}) {
      for (const int32_t rows : {1, 7, 64}) check({Path::kSkinny}, rows, spread);
      for (const int32_t rows : {1, 65, 300}) check({Path::kTiled}, rows, spread);
      if (!cuda::sm90_matmul_fits(device.chip(), kOut, kIn)) continue;
      for (const Tile& tile : cuda::kSm90Tiles)
        for (const int32_t rows : {tile.rows - 3, 2 * tile.rows + 5})
          if (tile.share == 1 || rows > tile.rows) check(tile, rows, spread);
    }
  }
}

// An arrival that is still on its way to a block that has left is a fault of the whole launch: seen once in some
// hundred launches of this shape, of which the next kernel begins while half of the chip is free.
TEST_CASE("thread blocks of a cluster stay until no other block accesses their shared memory") {
  const auto opened = gpu();
  if (!opened) return;
  cuda::Device& device = *opened;
  constexpr int32_t kOut = 7168, kIn = 7168, kRows = 512, kLaunches = 1000;
  if (!cuda::sm90_matmul_fits(device.chip(), kOut, kIn)) return;
  const auto a = there(std::vector<int8_t>(size_t{kRows} * kIn, 1), size_t{kRows} * kIn),
             w = there(std::vector<int8_t>(size_t{kOut} * kIn, 1), size_t{kOut} * kIn);
  const auto scale = there(std::vector<float>(kOut, 1e-5f), kOut);
  const auto result = there(std::vector<float>(size_t{kRows} * kOut), size_t{kRows} * kOut);
  for (const Tile& tile : cuda::kSm90Tiles) {
    if (tile.split * tile.share == 1) continue;
    for (const MatmulKind kind : {MatmulKind::kLinear, MatmulKind::kUp, MatmulKind::kAddLinear, MatmulKind::kAddDown})
      for (const int32_t rows : {tile.rows * tile.share, 2 * tile.rows * tile.share}) {
        CAPTURE(tile.rows, tile.outs, tile.split, tile.share, static_cast<int>(kind), rows);
        const cuda::MatmulArgs args{w.data(), kOut, kIn, a.data(), rows, scale.data(), result.data(), kRows};
        for (int32_t i = 0; i < kLaunches; ++i)
          if (cuda::matmul_with_tile(device.stream(), device.chip(), tile, kind, args) != cudaSuccess)
            FAIL("launch " << i);
        REQUIRE(cudaStreamSynchronize(device.stream()) == cudaSuccess);
      }
  }
}

}  // namespace kaiju::test
#endif
