// kaiju-bench-gate: gate and up of a feed-forward in version 2 of the arithmetic, alone on a GPU: as a matmul of plain
// sums and a kernel that gates them, and by every tile that gates (cuda/kernels/gated_matmul.hpp). Launches follow one
// another as in a step, captured in a graph, on weights that are larger than the L2 cache. Before it times, it compares
// the bytes and scales of all forms.
//
//   cmake --preset cuda && cmake --build build/cuda --target kaiju-bench-gate
//   build/cuda/bin/kaiju-bench-gate [--rows 1,16,64] [--seconds 0.02]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.hpp"
#include "cuda/device.hpp"
#include "cuda/graph.hpp"
#include "cuda/kernels/gated_matmul.hpp"
#include "cuda/launch/gate_tiles.hpp"
#include "cuda/memory.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/program.hpp"

namespace kaiju::bench {
namespace {

using cuda::DeviceBuffer;
using cuda::Tile;

void check(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess)
    throw Failed{internal_error(fmt::format("{}: the GPU answers \"{}\"", what, cudaGetErrorString(error)))};
}

struct Shape {
  const char* name;
  int32_t width, in;  // d_ff, d_model
  Gate gate;
};
constexpr Shape kShapes[] = {{"Llama 3.1 8B", 14336, 4096, Gate::kSilu}, {"Gemma 3 12B", 15360, 3840, Gate::kGelu}};

struct Options {
  std::vector<int32_t> rows{1, 16, 64, 512, 2048, 8192};
  double seconds = 0.02;
};

class GateBench {
 public:
  explicit GateBench(const Options& options) : options_(options), device_(value_of(cuda::Device::open())) {
    std::mt19937 engine(1);
    std::vector<int8_t> random(size_t{64} << 20);
    for (int8_t& byte : random) byte = static_cast<int8_t>(static_cast<int32_t>(engine() % 255) - 127);
    const auto fill = [&](DeviceBuffer<int8_t>& to, size_t bytes, const char* what) {
      to = value_of(DeviceBuffer<int8_t>::make(bytes, what));
      for (size_t done = 0; done < bytes; done += random.size())
        check(
            cudaMemcpy(to.data() + done, random.data(), std::min(random.size(), bytes - done), cudaMemcpyHostToDevice),
            what);
    };
    const auto floats = [&](DeviceBuffer<float>& to, size_t count, float centre, const char* what) {
      std::vector<float> values(count);
      for (float& value : values) value = centre * (0.5f + static_cast<float>(engine() % 1000) * 1e-3f);
      to = value_of(DeviceBuffer<float>::make(count, what));
      check(cudaMemcpy(to.data(), values.data(), count * sizeof(float), cudaMemcpyHostToDevice), what);
    };
    const auto most = static_cast<size_t>(*std::max_element(options_.rows.begin(), options_.rows.end()));
    room_ = (static_cast<int32_t>(most) + 255) / 256 * 256;
    fill(weights_, kWeightBytes, "weights");
    fill(activations_, static_cast<size_t>(room_) * 4096, "activations");
    floats(scale_, 2 * kMostWidth, 2e-5f, "scales");  // gates of both signs, up to about ten
    floats(row_scale_, most, 1.0f, "scales");
    sums_ = value_of(DeviceBuffer<float>::make(most * 2 * kMostWidth, "sums"));
    bytes_ = value_of(DeviceBuffer<int8_t>::make(most * kMostWidth, "bytes"));
    byte_scale_ = value_of(DeviceBuffer<float>::make(most, "scales"));
    check(cudaEventCreate(&before_), "an event");
    check(cudaEventCreate(&after_), "an event");
  }
  ~GateBench() { cudaEventDestroy(before_), cudaEventDestroy(after_); }

  void run() {
    for (const Shape& shape : kShapes)
      for (const int32_t rows : options_.rows) line(shape, rows);
  }

 private:
  static constexpr size_t kWeightBytes = size_t{1} << 30, kMostWidth = 15360;

  // Microseconds of one of the launches that work(i) makes.
  double time(std::string_view what, int32_t rows, const std::function<cudaError_t(int32_t)>& work) {
    const int32_t count = rows > 1024 ? 4 : rows > 256 ? 12 : 48;
    cudaError_t error = cudaSuccess;
    cuda::Graph graph;
    check(cuda::Graph::record(device_->stream(), graph,
                              [&] {
                                for (int32_t i = 0; i < count && error == cudaSuccess; ++i) error = work(i);
                              }),
          what);
    check(error, what);
    double best = HUGE_VAL, all_ms = 0;
    for (int32_t runs = 0; runs < 5 || all_ms < 1e3 * options_.seconds; ++runs) {
      check(cudaEventRecord(before_, device_->stream()), "an event");
      check(graph.launch(device_->stream()), what);
      check(cudaEventRecord(after_, device_->stream()), "an event");
      check(cudaStreamSynchronize(device_->stream()), what);
      float ms = 0;
      check(cudaEventElapsedTime(&ms, before_, after_), "an event");
      all_ms += ms;
      best = std::min(best, 1e3 * ms / count);
    }
    return best;
  }

  cuda::MatmulArgs matmul_args(const Shape& shape, int32_t rows, int32_t i) const {
    const size_t bytes = size_t{2} * static_cast<size_t>(shape.width) * static_cast<size_t>(shape.in);
    return {weights_.data() + static_cast<size_t>(i) % (kWeightBytes / bytes) * bytes,
            2 * shape.width,
            shape.in,
            activations_.data(),
            rows,
            scale_.data(),
            sums_.data(),
            room_};
  }
  GateRows gate_args(const Shape& shape, int32_t rows) const {
    GateRows args;
    args.gate = shape.gate;
    args.rows = rows;
    args.gates.sums = sums_.data(), args.ups.sums = sums_.data() + shape.width;
    for (Outputs* y : {&args.gates, &args.ups})
      y->scale = row_scale_.data(), y->width = shape.width, y->stride = 2 * shape.width;
    args.to.hadamard = 64;
    args.to.bf16 = true;
    args.to.bytes = bytes_.data();
    args.to.scale = byte_scale_.data();
    return args;
  }

  cudaError_t plain(const Shape& shape, int32_t rows, int32_t i) const {
    return cuda::matmul(device_->stream(), device_->chip(), cuda::MatmulKind::kLinear, matmul_args(shape, rows, i));
  }
  cudaError_t gate(const Shape& shape, int32_t rows) const {
    return cuda::gate_rows(device_->stream(), device_->chip(), gate_args(shape, rows));
  }
  cudaError_t gated(const Tile& tile, const Shape& shape, int32_t rows, int32_t i) const {
    return cuda::gated_matmul(device_->stream(), device_->chip(), tile, matmul_args(shape, rows, i),
                              gate_args(shape, rows));
  }
  cudaError_t quantise(const Tile& tile, const Shape& shape, int32_t rows) const {
    return cuda::quantise_gated(device_->stream(), device_->chip(), tile, gate_args(shape, rows));
  }

  // The bytes of all rows, and after them their scales.
  std::vector<int8_t> result_of(const Shape& shape, int32_t rows, const std::function<cudaError_t()>& work) {
    const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(shape.width),
                 scales = static_cast<size_t>(rows) * sizeof(float);
    check(cudaMemsetAsync(bytes_.data(), 0, bytes, device_->stream()), "memory");
    check(work(), "a feed-forward");
    check(cudaStreamSynchronize(device_->stream()), "a feed-forward");
    std::vector<int8_t> result(bytes + scales);
    check(cudaMemcpy(result.data(), bytes_.data(), bytes, cudaMemcpyDeviceToHost), "a result");
    check(cudaMemcpy(result.data() + bytes, byte_scale_.data(), scales, cudaMemcpyDeviceToHost), "a result");
    return result;
  }

  void line(const Shape& shape, int32_t rows) {
    const auto both = [](cudaError_t first, const std::function<cudaError_t()>& second) {
      return first == cudaSuccess ? second() : first;
    };
    const auto plain_form = [&](int32_t i) { return both(plain(shape, rows, i), [&] { return gate(shape, rows); }); };
    const std::vector<int8_t> expected = result_of(shape, rows, [&] { return plain_form(0); });
    const double alone = time("a matmul", rows, [&](int32_t i) { return plain(shape, rows, i); }),
                 rows_alone = time("gates", rows, [&](int32_t) { return gate(shape, rows); }),
                 together = time("a matmul and gates", rows, plain_form);
    tools::print("{}, {} rows: {:.1f} us by sums (matmul alone {:.1f}, gate alone {:.1f})\n", shape.name, rows,
                 together, alone, rows_alone);
    const auto chosen = cuda::choose_gate_tile(device_->chip(), rows, {2 * shape.width, shape.in});
    for (const Tile& tile : cuda::kSm90Tiles) {
      if (!cuda::gates(tile) || (tile.rows == 64 ? rows > 64 : rows <= 64) || (tile.share > 1 && rows <= tile.rows))
        continue;
      const auto form = [&](int32_t i) {
        return both(gated(tile, shape, rows, i), [&] { return quantise(tile, shape, rows); });
      };
      const std::string name = fmt::format("{}x{}/{}", tile.rows, tile.outs, tile.share);
      if (result_of(shape, rows, [&] { return form(0); }) != expected)
        throw Failed{internal_error(fmt::format("{}, {} rows: {} gives other bits", shape.name, rows, name))};
      const double in_matmul = time(name, rows, [&](int32_t i) { return gated(tile, shape, rows, i); }),
                   as_bytes = time("bytes", rows, [&](int32_t) { return quantise(tile, shape, rows); }),
                   all = time(name, rows, form);
      tools::print("    {:.1f} us by {}{} (matmul alone {:.1f}, bytes alone {:.1f}): {:+.1f}%\n", all, name,
                   chosen && *chosen == tile ? ", chosen" : "", in_matmul, as_bytes, 100 * (all / together - 1));
    }
    std::fflush(stdout);
  }

  const Options& options_;
  std::shared_ptr<cuda::Device> device_;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
  int32_t room_ = 0;
  DeviceBuffer<int8_t> weights_, activations_, bytes_;
  DeviceBuffer<float> scale_, row_scale_, sums_, byte_scale_;
};

}  // namespace
}  // namespace kaiju::bench

static int run(int argc, char** argv) {
  using namespace kaiju;
  using namespace kaiju::bench;
  Options options;
  CLI::App app("Gate and up of a feed-forward on a GPU, alone: by sums, and by each tile that gates",
               "kaiju-bench-gate");
  app.add_option("--rows", options.rows, "numbers of rows")
      ->delimiter(',')
      ->check(tools::whole_number(1, 16384))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "how long each is timed")
      ->check(tools::number_from(0.001, 60))
      ->capture_default_str();
  if (const auto stop = tools::parse(app, argc, argv)) return *stop;
  GateBench(options).run();
  return 0;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-bench-gate", run, argc, argv); }
