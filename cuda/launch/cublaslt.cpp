// CublasLt: loads cuBLASLt, searches algorithms and runs matmuls. See cublaslt.hpp.
#include "cublaslt.hpp"

#if KAIJU_CUBLASLT

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../graph.hpp"
#include "../kernels/cublaslt_epilogue.hpp"
#include "../memory.hpp"
#include "choices.hpp"
#include "cublaslt_api.hpp"
#include "tiles.hpp"

namespace kaiju::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr size_t kSumBytes =
    size_t{208} << 20;  // of a piece of rows: its sums, and its activations where they are shifted
// Row counts that a choice is made at; it serves all below, down to the next.
constexpr int32_t kRowCounts[] = {16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096};
constexpr int32_t kLeastRows = 48;  // that it serves unsearched: below, our own kernel for few rows is faster
constexpr int kOffers = 12;         // algorithms that a search tries

// Of a matmul that is cut into pieces, how many rows are computed at once; 0 where cuBLASLt or the epilogue does not
// take the shape.
int32_t most_rows(int32_t out, int32_t in) {
  if (out % 16 != 0 || out <= 32 || in % 16 != 0) return 0;
  int32_t most = 0;
  for (const int32_t rows : kRowCounts)
    if (static_cast<size_t>(rows) * (sizeof(int32_t) * static_cast<size_t>(out) + static_cast<size_t>(in)) <= kSumBytes)
      most = rows;
  return most;
}
int32_t row_count(int32_t rows) { return *std::lower_bound(std::begin(kRowCounts), std::end(kRowCounts) - 1, rows); }

// Calls work(rows) for every number of rows that a choice is made at, and the last time with as many as there can be.
template <class Work>
void each_row_count(const MatmulArgs& args, Work&& work) {
  const int32_t most = most_rows(args.out, args.in);
  for (const int32_t rows : kRowCounts) {
    if (rows > most) return;
    work(std::min(rows, args.rows));
    if (rows >= args.rows) return;
  }
}

// Rows `first` to `first` + `rows` of a matmul.
CublasLtMatmul part(CublasLtMatmul matmul, int32_t first, int32_t rows) {
  MatmulArgs& args = matmul.args;
  const size_t item = matmul.kind == MatmulKind::kLinear ? sizeof(float)
                      : matmul.kind == MatmulKind::kUp   ? sizeof(uint8_t)
                                                         : sizeof(arith::bf16);
  args.a = static_cast<const int8_t*>(args.a) + int64_t{first} * args.in;
  args.result =
      static_cast<std::byte*>(args.result) + static_cast<size_t>(first) * static_cast<size_t>(args.out) * item;
  args.rows = rows;
  args.room = std::max(args.room - first, 0);
  return matmul;
}

class OpenCublasLt final : public CublasLt {
 public:
  OpenCublasLt(const CublasLtApi& api, std::shared_ptr<Device> device, bool always)
      : api_(api), device_(std::move(device)), least_rows_(always ? 0 : kLeastRows) {}
  ~OpenCublasLt() override {
    if (handle_) api_.destroy(handle_);
  }

  Status take_memory() {
    KAIJU_TRY(take(workspace_, kWorkspaceBytes, "the workspace of cuBLASLt"));
    KAIJU_TRY(take(sums_, kSumBytes, "the sums of cuBLASLt"));
    constexpr cublasOperation_t kTransposed = CUBLAS_OP_T;
    constexpr size_t kBytes = kWorkspaceBytes;
    constexpr uint32_t kAlignment = 16;
    if (const cublasStatus_t status = api_.create(&handle_); status != CUBLAS_STATUS_SUCCESS)
      return {status == CUBLAS_STATUS_ALLOC_FAILED ? StatusCode::kOutOfMemory : StatusCode::kUnsupported,
              fmt::format("cuBLASLt {} does not start on this GPU: it answers {}", api_.version(),
                          api_.status_string(status))};
    check(api_.init_operation(&operation_, sizeof operation_, CUBLAS_COMPUTE_32I, CUDA_R_32I));
    check(api_.set_operation(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, &kTransposed, sizeof kTransposed));
    check(api_.init_preference(&preference_, sizeof preference_));
    check(api_.set_preference(&preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kBytes, sizeof kBytes));
    for (const auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES})
      check(api_.set_preference(&preference_, operand, &kAlignment, sizeof kAlignment));
    return device_->status();
  }

  Status choose(std::span<const CublasLtMatmul> matmuls, const std::string& file) override {
    Choices kept{machine(), {}};
    if (!file.empty()) {
      Result<Choices> read = read_choices(file);
      if (read.ok() && read->machine == kept.machine)
        kept = std::move(read).value();
      else if (!read.ok() && read.status().code() != StatusCode::kNotFound)
        return read.status();
    }
    std::map<std::pair<int32_t, int32_t>, std::vector<CublasLtMatmul>> shapes;
    for (const CublasLtMatmul& matmul : matmuls) {  // of a shape those with the most rows
      std::vector<CublasLtMatmul>& alike = shapes[{matmul.args.out, matmul.args.in}];
      if (!alike.empty() && alike[0].args.rows < matmul.args.rows) alike.clear();
      if (alike.empty() || alike[0].args.rows == matmul.args.rows) alike.push_back(matmul);
    }
    bool searched = false;
    for (const auto& [shape, alike] : shapes) {
      if (file.empty()) break;
      each_row_count(alike.front().args, [&](int32_t rows) {
        const MatmulSize size{shape.first, shape.second, row_count(rows)};
        const auto known = kept.of.find(size);
        const bool serves = known != kept.of.end() && (!known->second || fits(*known->second, size));
        if (!serves) kept.of[size] = search(alike, rows), searched = true;
        choices_[size] = kept.of[size];
      });
    }
    std::set<std::tuple<MatmulKind, int32_t, int32_t>> ran;
    for (const CublasLtMatmul& matmul : matmuls)
      if (ran.emplace(matmul.kind, matmul.args.out, matmul.args.in).second)
        each_row_count(matmul.args, [&](int32_t rows) { multiply(part(matmul, 0, rows)); });
    device_->check(cudaStreamSynchronize(device_->stream()), "a matmul by cuBLASLt");
    KAIJU_TRY(device_->status());
    return searched ? write_choices(file, kept) : Status();
  }

  bool serves(int32_t rows, int32_t out, int32_t in) override {
    const int32_t most = most_rows(out, in);
    return rows > 1 && most > 0 && choice(out, in, std::min(rows, most)).has_value();
  }

  void multiply(const CublasLtMatmul& matmul) override {
    const auto& [out, in, rows] = std::tie(matmul.args.out, matmul.args.in, matmul.args.rows);
    const int32_t most = most_rows(out, in), even = pieces(rows, pieces(rows, most)),
                  size = std::min(pieces(even, 64) * 64, most);
    for (int32_t first = 0; first < rows && device_->ok(); first += size) {
      const CublasLtMatmul piece = part(matmul, first, std::min(size, rows - first));
      const std::optional<Algorithm>& algorithm = choice(out, in, piece.args.rows);
      const cublasStatus_t status = algorithm ? run(*algorithm, piece) : CUBLAS_STATUS_NOT_SUPPORTED;
      if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
          status == CUBLAS_STATUS_INVALID_VALUE)  // the latter where a file's words are not an algorithm's
        multiply_ourselves(piece);
      else
        check(status);
    }
  }

 private:
  struct Layouts {
    cublasLtMatrixLayoutOpaque_t weights, activations, sums;
  };

  bool check(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? device_->ok() : device_->fail("cuBLASLt", api_.status_string(status));
  }

  std::string machine() const {
    const Chip& chip = device_->chip();
    return fmt::format("{}, {} multiprocessors as of {}.{}, cuBLASLt {}", device_->name(), chip.multiprocessors,
                       chip.capability / 10, chip.capability % 10, api_.version());
  }

  // The weights are the transposed left operand, the activations the right one: to cuBLASLt, whose matrices lie column
  // by column, the sums are [out, rows].
  bool lay_out(const MatmulSize& size, Layouts& layouts) {
    const auto out = static_cast<uint64_t>(size.out), in = static_cast<uint64_t>(size.in),
               rows = static_cast<uint64_t>(size.rows);
    return check(api_.init_layout(&layouts.weights, sizeof layouts.weights, CUDA_R_8I, in, out, size.in)) &&
           check(api_.init_layout(&layouts.activations, sizeof layouts.activations, CUDA_R_8I, in, rows, size.in)) &&
           check(api_.init_layout(&layouts.sums, sizeof layouts.sums, CUDA_R_32I, out, rows, size.out));
  }

  // What cuBLASLt has for the size, best first by its own reckoning.
  std::vector<Algorithm> offers(const MatmulSize& size, int most) {
    Layouts l;
    if (!lay_out(size, l)) return {};
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int count = 0;
    const cublasStatus_t status = api_.offer(handle_, &operation_, &l.weights, &l.activations, &l.sums, &l.sums,
                                             &preference_, most, results.data(), &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && !check(status)) return {};
    std::vector<Algorithm> found;
    for (int i = 0; i < count; ++i)
      if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
        found.push_back(std::bit_cast<Algorithm>(results[static_cast<size_t>(i)].algo));
    return found;
  }

  bool fits(const Algorithm& algorithm, const MatmulSize& size) {
    Layouts l;
    cublasLtMatmulHeuristicResult_t result{};
    const cublasLtMatmulAlgo_t algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
    return lay_out(size, l) &&
           api_.fits(handle_, &operation_, &l.weights, &l.activations, &l.sums, &l.sums, &algo, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= kWorkspaceBytes;
  }

  // What serves so many rows, at most most_rows(); unsearched what cuBLASLt offers first.
  const std::optional<Algorithm>& choice(int32_t out, int32_t in, int32_t rows) {
    const MatmulSize size{out, in, row_count(rows)};
    const auto [at, fresh] = choices_.try_emplace(size);
    if (fresh && size.rows >= least_rows_)
      if (const std::vector<Algorithm> offered = offers(size, 1); !offered.empty()) at->second = offered[0];
    return at->second;
  }

  // Of at most most_rows() rows. What it answers is cuBLASLt's, which has launched nothing then.
  cublasStatus_t run(const Algorithm& algorithm, const CublasLtMatmul& matmul) {
    const MatmulArgs& args = matmul.args;
    Layouts l;
    if (!lay_out({args.out, args.in, args.rows}, l)) return CUBLAS_STATUS_SUCCESS;
    const void* a = args.a;
    if (matmul.kind == MatmulKind::kAddDown) {
      auto* shifted = reinterpret_cast<int8_t*>(sums_.data()) +
                      sizeof(int32_t) * static_cast<size_t>(args.out) * static_cast<size_t>(args.rows);
      device_->check(shift_to_signed(device_->stream(), device_->chip(), static_cast<const uint8_t*>(args.a),
                                     int64_t{args.rows} * args.in, shifted),
                     "shifting bytes");
      a = shifted;
    }
    auto* sums = reinterpret_cast<int32_t*>(sums_.data());
    const int32_t one = 1, none = 0;
    const cublasLtMatmulAlgo_t algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
    const cublasStatus_t status =
        api_.multiply(handle_, &operation_, &one, args.weight, &l.weights, a, &l.activations, &none, sums, &l.sums,
                      sums, &l.sums, &algo, workspace_.data(), kWorkspaceBytes, device_->stream());
    if (status == CUBLAS_STATUS_SUCCESS)
      device_->check(apply_epilogue(device_->stream(), device_->chip(), matmul.kind, args, sums, matmul.row_sum),
                     "the epilogue of a matmul");
    return status;
  }

  void multiply_ourselves(const CublasLtMatmul& matmul) {
    const MatmulArgs& args = matmul.args;
    device_->check(cuda::matmul(device_->stream(), device_->chip(), matmul.kind, args), "a matmul");
  }

  // The fastest for the first `rows` rows of matmuls of one shape; they take turns, so that their weights come from
  // memory as in a step.
  std::optional<Algorithm> search(const std::vector<CublasLtMatmul>& alike, int32_t rows) {
    const auto milliseconds = [&](const auto& work) {
      bool taken = true;
      const float time = milliseconds_of([&] {
        for (size_t i = 0; i < kLaunches && taken; ++i) taken = work(part(alike[i % alike.size()], 0, rows));
      });
      return taken ? time : HUGE_VALF;
    };
    std::optional<Algorithm> best;
    float least = HUGE_VALF;
    if (least_rows_ > 0)
      least = milliseconds([&](const CublasLtMatmul& matmul) {
        multiply_ourselves(matmul);
        return true;
      });
    for (const Algorithm& algorithm : offers({alike[0].args.out, alike[0].args.in, rows}, kOffers)) {
      const float time =
          milliseconds([&](const CublasLtMatmul& matmul) { return run(algorithm, matmul) == CUBLAS_STATUS_SUCCESS; });
      if (time < least) best = algorithm, least = time;
    }
    return best;
  }
  static constexpr size_t kLaunches = 8, kRuns = 3;

  struct Event {
    Event() { cudaEventCreate(&event); }
    ~Event() { cudaEventDestroy(event); }
    cudaEvent_t event = nullptr;
  };

  // The least of some runs, by the GPU's clock; HUGE_VALF where the work cannot be recorded.
  float milliseconds_of(const std::function<void()>& work) {
    Graph graph;
    if (Graph::record(device_->stream(), graph, work) != cudaSuccess) {
      cudaGetLastError();
      return HUGE_VALF;
    }
    const Event before, after;
    float least = HUGE_VALF;
    for (size_t run = 0; run < kRuns && device_->ok(); ++run) {
      float time = HUGE_VALF;
      device_->check(cudaEventRecord(before.event, device_->stream()), "an event");
      device_->check(graph.launch(device_->stream()), "searched matmuls");
      device_->check(cudaEventRecord(after.event, device_->stream()), "an event");
      device_->check(cudaStreamSynchronize(device_->stream()), "searched matmuls");
      device_->check(cudaEventElapsedTime(&time, before.event, after.event), "an event");
      least = std::min(least, time);
    }
    return least;
  }

  const CublasLtApi& api_;
  std::shared_ptr<Device> device_;
  int32_t least_rows_;  // that it serves unsearched; 0: it always serves, and a search does not try our own kernel
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatmulPreferenceOpaque_t preference_{};
  DeviceBuffer<std::byte> workspace_, sums_;
  std::map<MatmulSize, std::optional<Algorithm>> choices_;
};

}  // namespace

Result<std::unique_ptr<CublasLt>> CublasLt::open(std::shared_ptr<Device> device, bool always) {
  const CublasLtApi* const api = CublasLtApi::get();
  if (!api) return std::unique_ptr<CublasLt>();
  auto opened = std::make_unique<OpenCublasLt>(*api, std::move(device), always);
  KAIJU_TRY(opened->take_memory());
  return std::unique_ptr<CublasLt>(std::move(opened));
}

}  // namespace kaiju::cuda

#else

namespace kaiju::cuda {

Result<std::unique_ptr<CublasLt>> CublasLt::open(std::shared_ptr<Device>, bool) { return std::unique_ptr<CublasLt>(); }

}  // namespace kaiju::cuda

#endif
