// kaiju-bench-matmul: matmuls alone on a GPU. It times every kernel and tile of the library at the shapes of the
// presets, and cuBLASLt with its fastest algorithms. Launches follow one another as in a step, captured in a graph, on
// weights that are larger than the L2 cache.
//
//   cmake --preset cuda && cmake --build build/cuda --target kaiju-bench-matmul
//   build/cuda/bin/kaiju-bench-matmul [--rows 1,16,64] [--presets small] [--forms 128x96/2] [--theirs 0]
//
// cuBLASLt stores int32 sums, which the library's kernels never store; its epilogue (scale, ReLU^2 to a byte, residual)
// would be another kernel. If cuBLASLt offers an int8 output, that is timed too. cuBLASLt gets signed activations where
// those of `down` are unsigned. Before timing, its int32 sums are compared with the library's floats of them, and all
// forms of the library with the simplest one.
#include <cublasLt.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.hpp"
#include "cuda/device.hpp"
#include "cuda/graph.hpp"
#include "cuda/launch/tiles.hpp"
#include "cuda/memory.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/program.hpp"

namespace kaiju::bench {
namespace {

using cuda::DeviceBuffer;
using cuda::Path;
using cuda::Tile;

void check(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess)
    throw Failed{internal_error(fmt::format("{}: the GPU answers \"{}\"", what, cudaGetErrorString(error)))};
}
void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Failed{internal_error(fmt::format("{}: cuBLASLt answers {}", what, static_cast<int>(status)))};
}
void check(const Status& status) {
  if (!status.ok()) throw Failed{status};
}

constexpr double kBytesPerSecond = 4.40e12, kInt8PerSecond = 1.5e15;  // practical ceilings of an H200

struct Shape {
  const char* preset;
  const char* name;
  int32_t out, in;
  cuda::MatmulKind kind;
};
constexpr Shape kShapes[] = {
    {"small", "o", 5120, 5120, cuda::MatmulKind::kAddLinear},
    {"small", "q, k, v", 5376, 5120, cuda::MatmulKind::kLinear},
    {"small", "up", 20480, 5120, cuda::MatmulKind::kUp},
    {"small", "down", 5120, 20480, cuda::MatmulKind::kAddDown},
    {"small", "logits", 65536, 5120, cuda::MatmulKind::kLinear},
    {"medium", "o", 7168, 7168, cuda::MatmulKind::kAddLinear},
    {"medium", "q, k, v", 7424, 7168, cuda::MatmulKind::kLinear},
    {"medium", "up", 29696, 7168, cuda::MatmulKind::kUp},
    {"medium", "down", 7168, 29696, cuda::MatmulKind::kAddDown},
    {"medium", "logits", 65536, 7168, cuda::MatmulKind::kLinear},
    {"large", "o", 12288, 12288, cuda::MatmulKind::kAddLinear},
    {"large", "q, k, v", 12544, 12288, cuda::MatmulKind::kLinear},
    {"large", "up", 51200, 12288, cuda::MatmulKind::kUp},
    {"large", "down", 12288, 51200, cuda::MatmulKind::kAddDown},
    {"large", "logits", 65536, 12288, cuda::MatmulKind::kLinear},
};

// The kernel that serves every shape says what the others' bits must be.
constexpr Tile kReference{Path::kTiled};

std::vector<Tile> forms() {
  std::vector<Tile> all{{Path::kSkinny}};
  all.insert(all.end(), std::begin(cuda::kSm90Tiles), std::end(cuda::kSm90Tiles));
  return all;
}
std::string name_of(const Tile& tile) {
  if (tile.path == Path::kSkinny) return "skinny";
  return fmt::format("{}x{}/{}{}", tile.rows, tile.outs, tile.split,
                     tile.share > 1 ? fmt::format("/{}", tile.share) : "");
}

struct Options {
  std::vector<int32_t> rows{1, 16, 32, 64, 128, 256, 1024, 8192};
  std::vector<std::string> presets{"small", "medium", "large"}, forms;  // no forms: all of them
  double seconds = 0.02;
  bool theirs = true;  // cuBLASLt too
};

class MatmulBench {
 public:
  explicit MatmulBench(const Options& options) : options_(options), device_(value_of(cuda::Device::open())) {
    check(cublasLtCreate(&lt_), "cublasLtCreate");
    pool_ = value_of(DeviceBuffer<int8_t>::make(kPoolBytes, "weights"));
    std::vector<int8_t> random(size_t{64} << 20);
    std::mt19937 engine(1);
    for (int8_t& byte : random) byte = static_cast<int8_t>(static_cast<int32_t>(engine() % 255) - 127);
    for (size_t done = 0; done < kPoolBytes; done += random.size())
      check(cudaMemcpy(pool_.data() + done, random.data(), std::min(random.size(), kPoolBytes - done),
                       cudaMemcpyHostToDevice),
            "weights");
    workspace_ = value_of(DeviceBuffer<std::byte>::make(kWorkspace, "workspace"));
    scale_ = value_of(DeviceBuffer<float>::make(65536, "scales"));
    const std::vector<float> ones(65536, 1.0f);
    check(cudaMemcpy(scale_.data(), ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice), "scales");
    std::vector<float> factors(65536);  // that leave the bytes of `up` between their clamps
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = 5e-4f * (1.0f + 0.01f * static_cast<float>(i % 50));
    factors_ = value_of(DeviceBuffer<float>::make(factors.size(), "scales"));
    check(cudaMemcpy(factors_.data(), factors.data(), factors.size() * sizeof(float), cudaMemcpyHostToDevice),
          "scales");
    activations_ = value_of(DeviceBuffer<int8_t>::make(kMostActivations, "activations"));
    for (size_t done = 0; done < kMostActivations; done += random.size())
      check(cudaMemcpy(activations_.data() + done, random.data(), std::min(random.size(), kMostActivations - done),
                       cudaMemcpyHostToDevice),
            "activations");
    result_ = value_of(DeviceBuffer<int32_t>::make(kMostResults, "results"));
    check(cudaEventCreate(&before_), "an event");
    check(cudaEventCreate(&after_), "an event");
  }
  ~MatmulBench() {
    cudaEventDestroy(before_), cudaEventDestroy(after_);
    cublasLtDestroy(lt_);
  }

  void run() {
    for (const Shape& shape : kShapes)
      for (const int32_t rows : options_.rows) {
        if (std::find(options_.presets.begin(), options_.presets.end(), shape.preset) == options_.presets.end())
          continue;
        if (size_t(rows) * static_cast<size_t>(shape.out) > kMostResults ||
            size_t(rows) * static_cast<size_t>(shape.in) > kMostActivations)
          continue;
        line(shape, rows);
      }
  }

 private:
  static constexpr size_t kPoolBytes = size_t{2} << 30, kWorkspace = size_t{64} << 20,
                          kMostActivations = size_t{420} << 20, kMostResults = size_t{420} << 20;

  static int32_t launches(int32_t rows) { return rows > 1024 ? 4 : rows > 256 ? 12 : 48; }

  // Microseconds of one of the launches that work(i) makes, or 0 where it cannot be launched.
  double time(std::string_view what, int32_t rows, double seconds, const std::function<bool(int32_t)>& work) {
    const int32_t count = launches(rows);
    bool all = true;
    cuda::Graph graph;
    if (cuda::Graph::record(device_->stream(), graph,
                            [&] {
                              for (int32_t i = 0; i < count && all; ++i) all = work(i);
                            }) != cudaSuccess ||
        !all) {
      cudaGetLastError();
      return 0;
    }
    // By the GPU's clock: what the host takes to launch is no part of it.
    double best = HUGE_VAL, all_ms = 0;
    for (int32_t runs = 0; runs < 5 || all_ms < 1e3 * seconds; ++runs) {
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

  const int8_t* weights(const Shape& shape, int32_t i) const {
    const size_t bytes = size_t(shape.out) * static_cast<size_t>(shape.in);
    return pool_.data() + static_cast<size_t>(i) % (kPoolBytes / bytes) * bytes;
  }
  cuda::MatmulArgs args(const Shape& shape, int32_t rows, int32_t i) {
    return {weights(shape, i),
            shape.out,
            shape.in,
            activations_.data(),
            rows,
            scale_.data(),
            result_.data(),
            static_cast<int32_t>(kMostActivations / static_cast<size_t>(shape.in))};
  }

  std::vector<std::byte> result_of(std::string_view what, const Tile& tile, const Shape& shape, int32_t rows) {
    const size_t item = shape.kind == cuda::MatmulKind::kLinear ? sizeof(float)
                        : shape.kind == cuda::MatmulKind::kUp   ? 1
                                                                : sizeof(arith::bf16);
    std::vector<std::byte> result(static_cast<size_t>(rows) * static_cast<size_t>(shape.out) * item);
    check(cudaMemsetAsync(result_.data(), 0, result.size(), device_->stream()), what);
    cuda::MatmulArgs scaled = args(shape, rows, 0);
    scaled.scale = factors_.data();
    check(cuda::matmul_with_tile(device_->stream(), device_->chip(), tile, shape.kind, scaled), what);
    check(cudaMemcpyAsync(result.data(), result_.data(), result.size(), cudaMemcpyDeviceToHost, device_->stream()),
          what);
    check(cudaStreamSynchronize(device_->stream()), what);
    return result;
  }

  void line(const Shape& shape, int32_t rows) {
    const double bytes = static_cast<double>(shape.out) * shape.in,
                 floor = 1e6 * std::max(bytes / kBytesPerSecond, 2.0 * rows * bytes / kInt8PerSecond);
    const Tile chosen = cuda::choose_tile(device_->chip(), rows, {shape.out, shape.in});
    std::string all, best;
    double mine = 0, fastest = 0;
    const std::vector<std::byte> expected = result_of("the kernel for every shape", kReference, shape, rows);
    for (const Tile& tile : forms()) {
      const std::string name = name_of(tile);
      if (!options_.forms.empty() &&
          std::find(options_.forms.begin(), options_.forms.end(), name) == options_.forms.end())
        continue;
      if (tile.path == Path::kSkinny
              ? rows > cuda::kSkinnyRows
              : rows == 1 || (tile.rows == 64 ? rows > 128 : rows <= tile.rows / 2) ||
                    (tile.split > 1 && rows > 2 * tile.rows) || tile.split > cuda::pieces(shape.in, cuda::kStepBytes) ||
                    (tile.share > 1 && rows <= tile.rows))
        continue;
      const std::string what = fmt::format("{}, {} by {} at {} rows", shape.preset, shape.name, name, rows);
      if (result_of(what, tile, shape, rows) != expected)
        throw Failed{internal_error(fmt::format("{} gives other bits", what))};
      const double us = time(what, rows, options_.seconds, [&](int32_t i) {
        return cuda::matmul_with_tile(device_->stream(), device_->chip(), tile, shape.kind, args(shape, rows, i)) ==
               cudaSuccess;
      });
      if (us == 0) continue;
      all += fmt::format("  {} {:.1f}", name, us);
      if (fastest == 0 || us < fastest) fastest = us, best = name;
      if (tile == chosen) mine = us;
    }
    tools::print("{:15} {:5} rows  floor {:8.1f} us  chosen {:8.1f} ({:3.0f}%)  fastest own {:8.1f} ({:3.0f}%) {:11}",
                 fmt::format("{}, {}", shape.preset, shape.name), rows, floor, mine, mine > 0 ? 100 * floor / mine : 0,
                 fastest, fastest > 0 ? 100 * floor / fastest : 0, best);
    std::fflush(stdout);
    if (!options_.theirs) {
      tools::print("\n    all:{}\n", all);
      return;
    }
    const Found sums = search(shape, rows, CUDA_R_32I), bytes_out = search(shape, rows, CUDA_R_8I);
    tools::print("  cuBLASLt int32 {:8.1f} ({:3.0f}%, first {:8.1f}, {} offered){}", sums.us,
                 sums.us > 0 ? 100 * floor / sums.us : 0, sums.first_us, sums.offered, sums.wrong ? " WRONG" : "");
    if (bytes_out.us > 0)
      tools::print("  int8 {:8.1f} ({:3.0f}%, {} offered, tile {})", bytes_out.us, 100 * floor / bytes_out.us,
                   bytes_out.offered, bytes_out.tile);
    tools::print("\n    all:{}\n", all);
    std::fflush(stdout);
  }

  struct Found {
    double us = 0, first_us = 0;
    int offered = 0;
    uint32_t tile = 0;  // of the fastest, a cublasLtMatmulTile_t
    bool wrong = false;
  };
  // The weights as the transposed left operand, the activations as the right one: the result is [rows, out].
  Found search(const Shape& shape, int32_t rows, cudaDataType_t into) {
    Found found;
    const bool bytes = into == CUDA_R_8I;
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32I, bytes ? CUDA_R_32F : CUDA_R_32I), "a description");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
          "a description");
    check(cublasLtMatrixLayoutCreate(&a, CUDA_R_8I, static_cast<uint64_t>(shape.in), static_cast<uint64_t>(shape.out),
                                     shape.in),
          "a layout");
    check(cublasLtMatrixLayoutCreate(&b, CUDA_R_8I, static_cast<uint64_t>(shape.in), static_cast<uint64_t>(rows),
                                     shape.in),
          "a layout");
    check(
        cublasLtMatrixLayoutCreate(&d, into, static_cast<uint64_t>(shape.out), static_cast<uint64_t>(rows), shape.out),
        "a layout");
    check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    const size_t workspace = kWorkspace;
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace),
          "a preference");
    cublasLtMatmulHeuristicResult_t results[32];
    int count = 0;
    if (cublasLtMatmulAlgoGetHeuristic(lt_, operation, a, b, d, d, preference, static_cast<int>(std::size(results)),
                                       results, &count) != CUBLAS_STATUS_SUCCESS)
      count = 0;
    found.offered = count;
    const int32_t one = 1, zero = 0;
    const float one_float = 1e-4f, zero_float = 0;
    const void *alpha = bytes ? static_cast<const void*>(&one_float) : &one,
               *beta = bytes ? static_cast<const void*>(&zero_float) : &zero;
    const auto run = [&](int which, int32_t i) {
      return cublasLtMatmul(lt_, operation, alpha, weights(shape, i), a, activations_.data(), b, beta, result_.data(),
                            d, result_.data(), d, &results[which].algo, workspace_.data(), kWorkspace,
                            device_->stream()) == CUBLAS_STATUS_SUCCESS;
    };
    int best = -1;
    if (rows >= 1024) count = std::min(count, 10);  // they take long
    for (int which = 0; which < count; ++which) {
      if (results[which].state != CUBLAS_STATUS_SUCCESS) continue;
      const double us = time("cuBLASLt", rows, 0.1 * options_.seconds, [&](int32_t i) { return run(which, i); });
      if (us > 0 && (found.us == 0 || us < found.us)) found.us = us, best = which;
      if (which == 0) found.first_us = us;
    }
    if (best >= 0) {
      found.us = time("cuBLASLt", rows, options_.seconds, [&](int32_t i) { return run(best, i); });
      cublasLtMatmulAlgoConfigGetAttribute(&results[best].algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &found.tile,
                                           sizeof found.tile, nullptr);
    }
    if (best >= 0 && !bytes && rows <= 64) {  // the same sums
      std::vector<int32_t> theirs(static_cast<size_t>(rows) * static_cast<size_t>(shape.out));
      std::vector<float> ours(theirs.size());
      run(best, 0);
      check(cudaStreamSynchronize(device_->stream()), "a matmul");
      check(cudaMemcpy(theirs.data(), result_.data(), theirs.size() * sizeof(int32_t), cudaMemcpyDeviceToHost),
            "a result");
      check(cuda::matmul(device_->stream(), device_->chip(), cuda::MatmulKind::kLinear, args(shape, rows, 0)),
            "a matmul");
      check(cudaStreamSynchronize(device_->stream()), "a matmul");
      check(cudaMemcpy(ours.data(), result_.data(), ours.size() * sizeof(float), cudaMemcpyDeviceToHost), "a result");
      for (size_t i = 0; i < ours.size(); ++i) found.wrong |= static_cast<float>(theirs[i]) != ours[i];
    }
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(a), cublasLtMatrixLayoutDestroy(b), cublasLtMatrixLayoutDestroy(d);
    cublasLtMatmulDescDestroy(operation);
    return found;
  }

  const Options& options_;
  std::shared_ptr<cuda::Device> device_;
  cublasLtHandle_t lt_ = nullptr;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
  DeviceBuffer<int8_t> pool_, activations_;
  DeviceBuffer<std::byte> workspace_;
  DeviceBuffer<float> scale_, factors_;
  DeviceBuffer<int32_t> result_;
};

}  // namespace
}  // namespace kaiju::bench

static int run(int argc, char** argv) {
  using namespace kaiju;
  using namespace kaiju::bench;
  Options options;
  std::vector<std::string> names;
  for (const cuda::Tile& tile : forms()) names.push_back(name_of(tile));
  CLI::App app(
      "Matmuls on a GPU, alone: every tile of the library's own at the shapes of the presets, cuBLASLt beside it",
      "kaiju-bench-matmul");
  app.add_option("--rows", options.rows, "numbers of rows")
      ->delimiter(',')
      ->check(tools::whole_number(1, 65536))
      ->capture_default_str();
  app.add_option("--presets", options.presets, "whose shapes")
      ->delimiter(',')
      ->check(CLI::IsMember(options.presets))
      ->capture_default_str();
  app.add_option("--forms", options.forms, "only these of the library's own, as they are printed: skinny,128x96/2")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--theirs", options.theirs, "cuBLASLt too; 0 leaves it out")->capture_default_str();
  app.add_option("--seconds", options.seconds, "how long each is timed")
      ->check(tools::number_from(0.001, 60))
      ->capture_default_str();
  if (const auto stop = tools::parse(app, argc, argv)) return *stop;
  MatmulBench(options).run();
  return 0;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-bench-matmul", run, argc, argv); }
