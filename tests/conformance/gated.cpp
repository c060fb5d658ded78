// Gate and up of a feed-forward as one matmul that gates: every tile gives the bytes and scales of the reference's
// matmul and gate, and writes nothing else; so do the shapes that no such tile serves.
#include "world.hpp"
#if KAIJU_CUDA
#include "cuda/backend.hpp"
#include "cuda/kernels/gated_matmul.hpp"
#include "cuda/launch/gate_tiles.hpp"
#include "cuda/memory.hpp"
#include "reciprocals.hpp"

namespace kaiju::test {
namespace {

using cuda::DeviceBuffer;
using cuda::Tile;

constexpr int32_t kRows = 2 * 256 + 5, kRoom = 3 * 256;  // two of the largest tiles and a bit; whole tiles

// Memory of `count` items, of which the first are these; the others are 0xA5.
template <class T>
DeviceBuffer<T> there(const std::vector<T>& items, size_t count) {
  auto made = DeviceBuffer<T>::make(std::max<size_t>(count, 4), "a test");
  REQUIRE(made.ok());
  REQUIRE(cudaMemset(made->data(), 0xA5, made->bytes()) == cudaSuccess);
  REQUIRE(cudaMemcpy(made->data(), items.data(), items.size() * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  return std::move(made).value();
}
template <class T>
DeviceBuffer<T> there(const std::vector<T>& items) {
  return there(items, items.size());
}
template <class T>
std::vector<T> here(const DeviceBuffer<T>& items, size_t count) {
  std::vector<T> out(count);
  REQUIRE(cudaMemcpy(out.data(), items.data(), count * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
  return out;
}
template <class T>
bool is_untouched(const std::vector<T>& items, size_t first, size_t end) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(items.data());
  return std::all_of(bytes + first * sizeof(T), bytes + end * sizeof(T), [](uint8_t byte) { return byte == 0xA5; });
}

// Null where the backends under test are others.
std::shared_ptr<cuda::Device> gpu() {
  const std::vector<std::string> names = isas();
  if (std::find(names.begin(), names.end(), "cuda") == names.end()) return nullptr;
  auto opened = cuda::Device::open();
  INFO(opened.status().message());
  REQUIRE(opened.ok());
  return *opened;
}

// One pair of matrices with random choices of a structure, and what the reference makes of it.
class Case {
 public:
  Case(uint64_t seed, int32_t width, int32_t in, bool f32_rows = false)
      : random_(seed), width_(width), w_(random_, 2 * width, in), a_(random_.bytes(size_t{kRows} * in)) {
    const auto outs = static_cast<size_t>(w_.out);
    scale_ = random_.scales(outs, random_.pick({1e-5f, 1e-5f, 1e-3f, 1e-20f}));
    row_scale_ = random_.scales(kRows, random_.pick({1.0f, 0.02f, 1e3f}));
    for (int i = 0; i < 20; ++i) row_scale_[static_cast<size_t>(random_.below(kRows))] = 0.0f;  // rows of zeros
    args_.gate = random_.pick({Gate::kSilu, Gate::kGelu});
    args_.to.bf16 = !f32_rows;
    args_.to.hadamard = width % 64 == 0 ? random_.pick({1, 16, 32, 64, 64, 64}) : random_.pick({1, 16, 32});
    if (f32_rows || random_.chance(20)) args_.to.inverse = random_.pick({30.0f, 1e-3f});
    if (random_.chance(40)) bias_ = random_.normals(outs, 1.0f);
    for (Outputs* y : {&args_.gates, &args_.ups}) {
      y->width = width;
      if (random_.chance(25)) y->step = random_.pick({0.05f, 1e-3f}), y->inverse = arith::divide(1.0f, y->step);
    }
    find_expected();
  }

  // By these tiles.
  void check(cuda::Device& device, const Tile& tile, int32_t rows, bool with_room) {
    INFO(text(rows) << ", tile " << tile.rows << "x" << tile.outs << "/" << tile.split << "/" << tile.share << ", room "
                    << with_room);
    Memory memory(*this, rows, with_room, false);
    const GateRows args = memory.args(*this, rows);
    const cuda::MatmulArgs matmul{
        memory.w.data(), w_.out, w_.in, memory.a.data(), rows, memory.scale.data(), nullptr, with_room ? kRoom : 0};
    REQUIRE(cuda::gated_matmul(device.stream(), device.chip(), tile, matmul, args) == cudaSuccess);
    REQUIRE(cuda::quantise_gated(device.stream(), device.chip(), tile, args) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(device.stream()) == cudaSuccess);
    check_results(memory, rows);
    const auto values = static_cast<size_t>(rows) * static_cast<size_t>(width_),
               most = static_cast<size_t>(rows) * static_cast<size_t>(cuda::gated_tiles(tile, width_));
    const std::vector<float> sums = here(memory.sums, 2 * size_t{kRows} * static_cast<size_t>(width_));
    CHECK(is_untouched(sums, (values + 1) / 2, values));  // bf16 lies before, magnitudes behind
    CHECK(is_untouched(sums, values + most, sums.size()));
  }

  // By what the backend chooses, in the memory of a step: the bytes replace what the matmul reads.
  void check(cuda::CudaBackend& backend, int32_t rows) {
    INFO(text(rows) << ", by the backend");
    Memory memory(*this, rows, true, true);
    Linear packed{w_.view()};
    packed.weight = memory.w.data(), packed.row_sum = nullptr, packed.scale = memory.scale.data();
    backend.have_room(kRoom);
    backend.linear_gate_rows(packed, memory.a.data(), memory.args(*this, rows));
    REQUIRE(cudaStreamSynchronize(backend.device().stream()) == cudaSuccess);
    REQUIRE(backend.device().ok());
    check_results(memory, rows);
  }

 private:
  struct Memory {
    DeviceBuffer<int8_t> w, a, bytes;
    DeviceBuffer<float> scale, row_scale, gate_bias, up_bias, sums, out_scale;
    bool in_place;

    Memory(const Case& c, int32_t rows, bool with_room, bool is_in_place)
        : w(there(c.w_.weight)),
          a(there(std::vector<int8_t>(c.a_.begin(), c.a_.begin() + int64_t{rows} * c.w_.in),
                  is_in_place ? size_t{kRoom} * static_cast<size_t>(std::max(c.w_.in, c.width_))
                              : static_cast<size_t>(with_room ? kRoom : rows) * static_cast<size_t>(c.w_.in))),
          bytes(there(std::vector<int8_t>(), size_t{kRows} * static_cast<size_t>(c.width_))),
          scale(there(c.scale_)),
          row_scale(there(c.row_scale_)),
          gate_bias(there(c.biases(0))),
          up_bias(there(c.biases(1))),
          sums(there(std::vector<float>(), 2 * size_t{kRows} * static_cast<size_t>(c.width_))),
          out_scale(there(std::vector<float>(), kRows)),
          in_place(is_in_place) {
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    }
    GateRows args(const Case& c, int32_t rows) {
      GateRows args = c.args_;
      args.rows = rows;
      args.gates.sums = sums.data(), args.ups.sums = sums.data() + c.width_;
      args.gates.stride = args.ups.stride = 2 * c.width_;
      args.gates.scale = args.ups.scale = row_scale.data();
      if (!c.bias_.empty()) args.gates.bias = gate_bias.data(), args.ups.bias = up_bias.data();
      args.to.bytes = in_place ? a.data() : bytes.data();
      args.to.scale = in_place ? row_scale.data() : out_scale.data();
      return args;
    }
  };

  std::string text(int32_t rows) const {
    return std::to_string(w_.out) + " x " + std::to_string(w_.in) + ", rows " + std::to_string(rows) + ", gate " +
           std::to_string(static_cast<int32_t>(args_.gate)) + ", hadamard " + std::to_string(args_.to.hadamard) +
           ", bias " + std::to_string(!bias_.empty()) + ", step " + std::to_string(args_.to.inverse);
  }
  std::vector<float> biases(int32_t matrix) const {
    if (bias_.empty()) return {};
    return {bias_.begin() + matrix * width_, bias_.begin() + (matrix + 1) * width_};
  }
  void find_expected() {
    const size_t count = size_t{kRows} * static_cast<size_t>(width_);
    std::vector<float> sums(2 * count), gates, ups;
    ReferenceBackend reference;
    reference.linear(w_.view(), a_.data(), kRows, scale_.data(), sums.data());
    for (int32_t row = 0; row < kRows; ++row) {
      const auto first = sums.begin() + int64_t{row} * w_.out;
      gates.insert(gates.end(), first, first + width_);
      ups.insert(ups.end(), first + width_, first + w_.out);
    }
    const std::vector<float> gate_bias = biases(0), up_bias = biases(1);
    bytes_.resize(count), out_scale_.resize(kRows);
    GateRows args = args_;
    args.rows = kRows;
    args.gates.sums = gates.data(), args.ups.sums = ups.data();
    args.gates.scale = args.ups.scale = row_scale_.data();
    if (!bias_.empty()) args.gates.bias = gate_bias.data(), args.ups.bias = up_bias.data();
    args.to.bytes = bytes_.data(), args.to.scale = out_scale_.data();
    reference.gate_rows(args);
  }
  void check_results(const Memory& memory, int32_t rows) const {
    const auto count = static_cast<int64_t>(rows) * width_;
    const std::vector<int8_t> bytes = here(memory.in_place ? memory.a : memory.bytes, bytes_.size());
    const std::vector<float> scale = here(memory.in_place ? memory.row_scale : memory.out_scale, kRows);
    CHECK(std::equal(bytes.begin(), bytes.begin() + count, bytes_.begin()));
    CHECK(std::equal(scale.begin(), scale.begin() + rows, out_scale_.begin(),
                     [](float a, float b) { return arith::bits_of(a) == arith::bits_of(b); }));
    if (memory.in_place) return;
    CHECK(is_untouched(bytes, static_cast<size_t>(count), bytes.size()));
    CHECK(is_untouched(scale, static_cast<size_t>(rows), scale.size()));
  }

  Random random_;
  int32_t width_;
  OwnedMatrix w_;
  std::vector<int8_t> a_, bytes_;  // bytes_, out_scale_: of the reference
  std::vector<float> scale_, row_scale_, bias_, out_scale_;
  GateRows args_;
};

}  // namespace

TEST_CASE("every tile that gates gives the reference's bytes and scales and writes nothing else") {
  const auto opened = gpu();
  if (!opened) return;
  cuda::Device& device = *opened;
  for (const auto& [width, in] : {std::pair{192, 576}, {64, 64}, {320, 1024}, {3136, 64}, {3136, 832}})
    for (int32_t variant = 0; variant < (width > 1000 ? 1 : cases_of_run(6)); ++variant) {
      if (!cuda::sm90_matmul_fits(device.chip(), 2 * width, in)) continue;
      Case c(seed_of_run() + 5200 + static_cast<uint64_t>(variant + width), width, in);
      for (const Tile& tile : cuda::kSm90Tiles) {
        if (!cuda::gates(tile)) continue;
        for (const int32_t rows : {tile.rows - 3, tile.rows, 2 * tile.rows + 5})
          if (tile.share == 1 || rows > tile.rows) c.check(device, tile, rows, rows != tile.rows);
        if (tile.rows == 64)  // whose rings have more stages then
          for (const int32_t rows : {1, 5, 16, 30}) c.check(device, tile, rows, rows != 5);
      }
    }
}

TEST_CASE("gate and up have the reference's bytes and scales whether their matmul gates or not") {
  const auto opened = gpu();
  if (!opened) return;
  cuda::CudaBackend backend(opened);
  struct Shape {
    int32_t width, in;
    bool f32_rows;
  };
  // The last three are served by the kernels without a gate: rows that are not rounded to bf16, and blocks of 32 that
  // no tile has whole.
  for (const Shape& shape :
       {Shape{192, 576, false}, {1088, 512, false}, {320, 1024, true}, {96, 128, false}, {160, 64, false}})
    for (int32_t variant = 0; variant < cases_of_run(4); ++variant) {
      Case c(seed_of_run() + 5300 + static_cast<uint64_t>(variant + shape.width), shape.width, shape.in,
             shape.f32_rows);
      for (const int32_t rows : {1, 2, 17, 64, 65, 130, 300, kRows}) c.check(backend, rows);
    }
}

// Of launches whose blocks share the weights of both matrices: see forms.cpp.
TEST_CASE("a tile that gates gives the same bytes in every launch, also where blocks of a cluster share weights") {
  const auto opened = gpu();
  if (!opened) return;
  cuda::Device& device = *opened;
  constexpr int32_t kWidth = 3584, kIn = 2048, kManyRows = 512, kLaunches = 300;
  if (!cuda::sm90_matmul_fits(device.chip(), 2 * kWidth, kIn)) return;
  Random random(seed_of_run() + 5400);
  const size_t count = size_t{kManyRows} * kWidth;
  const auto w = there(random.bytes(size_t{2} * kWidth * kIn)), a = there(random.bytes(size_t{kManyRows} * kIn)),
             bytes = there(std::vector<int8_t>(), count);
  const auto scale = there(random.scales(size_t{2} * kWidth, 1e-5f)), row_scale = there(random.scales(kManyRows, 1.0f)),
             out_scale = there(std::vector<float>(), kManyRows), sums = there(std::vector<float>(), 2 * count);
  GateRows args;
  args.rows = kManyRows;
  args.gates.sums = sums.data(), args.ups.sums = sums.data() + kWidth;
  for (Outputs* y : {&args.gates, &args.ups}) y->scale = row_scale.data(), y->width = kWidth, y->stride = 2 * kWidth;
  args.to.hadamard = 64, args.to.bf16 = true, args.to.bytes = bytes.data(), args.to.scale = out_scale.data();
  std::vector<int8_t> first;
  for (const Tile& tile : cuda::kSm90Tiles) {
    if (!cuda::gates(tile) || tile.rows == 64) continue;
    CAPTURE(tile.rows, tile.outs, tile.share);
    const cuda::MatmulArgs matmul{w.data(), 2 * kWidth, kIn, a.data(), kManyRows, scale.data(), nullptr, kManyRows};
    for (int32_t i = 0; i < cases_of_run(kLaunches); ++i) {
      if (cuda::gated_matmul(device.stream(), device.chip(), tile, matmul, args) != cudaSuccess ||
          cuda::quantise_gated(device.stream(), device.chip(), tile, args) != cudaSuccess)
        FAIL("launch " << i);
      if (i % 50 != 0) continue;
      REQUIRE(cudaStreamSynchronize(device.stream()) == cudaSuccess);
      const std::vector<int8_t> found = here(bytes, count);
      if (first.empty()) first = found;
      REQUIRE(found == first);
    }
    REQUIRE(cudaStreamSynchronize(device.stream()) == cudaSuccess);
  }
}

TEST_CASE("reciprocals without a branch are rounded once, on the GPU") {
  if (!gpu()) return;
  CHECK(wrong_reciprocals() == 0);
}

}  // namespace kaiju::test
#endif
