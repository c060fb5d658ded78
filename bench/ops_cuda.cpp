// kaiju-bench ops --backend cuda: times the GPU's operations at the shapes of `small` and `large`, and names the kernel
// that was chosen. Weights rotate through more memory than the L2 cache has. Launches follow one another as in a step,
// captured in a graph. Every result is first compared with the CPU's.
#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "bench.hpp"
#include "cuda/graph.hpp"
#include "cuda/launch/tiles.hpp"
#include "cuda/staged_backend.hpp"
#include "examples/tools/standard_streams.hpp"
#include "gpu.hpp"
#include "kaiju/backend/cpu.hpp"
#include "kaiju/base/float_state.hpp"
#include "ops.hpp"

namespace kaiju::bench {
namespace {

using cuda::DeviceBuffer;

void check(const Status& status) {
  if (!status.ok()) throw Failed{status};
}
void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw Failed{internal_error(std::string("the GPU answers \"") + cudaGetErrorString(error) + "\"")};
}

template <class T>
DeviceBuffer<T> on_gpu(const std::vector<T>& values, size_t count) {
  DeviceBuffer<T> buffer;
  check(take(buffer, count, "a bench"));
  for (size_t done = 0; done < count; done += values.size())
    check(cudaMemcpy(buffer.data() + done, values.data(), std::min(values.size(), count - done) * sizeof(T),
                     cudaMemcpyHostToDevice));
  return buffer;
}
template <class T>
DeviceBuffer<T> on_gpu(const std::vector<T>& values) {
  return on_gpu(values, values.size());
}

class GpuOps {
 public:
  GpuOps(std::shared_ptr<cuda::Device> device, CpuBackend& cpu, const OpsOptions& options)
      : wanted(options.only),
        device_(device),
        gpu_(device),
        checked_(device),
        cpu_(cpu),
        options_(options),
        ceilings_(gpu_ceilings(device->name())) {
    check(gpu_.take_memory(128));
    check(checked_.status());
  }

  std::vector<Line> lines;
  Wanted wanted;
  Ceilings ceilings() const { return {0, 1e-9 * ceilings_.bytes_per_second, 0, 1e-9 * ceilings_.int8_per_second, 0}; }

  void model(const std::string& name, int32_t d_model, int32_t heads, int32_t head_dim, int32_t d_ff, int32_t vocab) {
    group_ = fmt::format("{}, {}", name, device_->name());
    const int32_t width = heads * head_dim;
    for (const int32_t rows : options_.rows) {
      matmul<&CpuBackend::linear, &cuda::StagedBackend::linear, &cuda::CudaBackend::linear, int8_t, float>(
          "q, k, v", d_model, width + 2 * head_dim, rows);
      matmul<&CpuBackend::add_linear, &cuda::StagedBackend::add_linear, &cuda::CudaBackend::add_linear, int8_t,
             arith::bf16>("o", width, d_model, rows);
      matmul<&CpuBackend::up, &cuda::StagedBackend::up, &cuda::CudaBackend::up, int8_t, uint8_t>("up", d_model, d_ff,
                                                                                                 rows);
      matmul<&CpuBackend::add_down, &cuda::StagedBackend::add_down, &cuda::CudaBackend::add_down, uint8_t, arith::bf16>(
          "down", d_ff, d_model, rows);
      if (rows <= 256)
        matmul<&CpuBackend::linear, &cuda::StagedBackend::linear, &cuda::CudaBackend::linear, int8_t, float>(
            "logits", d_model, vocab, rows);
    }
    for (const int32_t rows : options_.rows) norm(d_model, rows);
    for (const bool keys : {false, true})
      for (const int32_t rows : options_.rows) project_heads(heads, head_dim, rows, keys);
    check_attention(heads, head_dim);
    for (const int32_t sequences : {1, 64, 256})
      for (const int32_t window : {1024, 0}) attention(heads, head_dim, window, 4096, sequences, 1);
    for (const int32_t window : {1024, 0}) attention(heads, head_dim, window, 8192, 1, 8192);
  }

  void sampling(int32_t vocab) {
    group_ = fmt::format("sampling, {}", device_->name());
    SamplingSpec greedy, warm, top_p, all_filters;
    warm.temperature = 0.8f, warm.seed = 7;
    top_p = warm, top_p.top_p = 0.95f;
    all_filters = top_p, all_filters.top_k = 40, all_filters.min_p = 0.02f;
    for (const int32_t rows : options_.rows) {
      if (rows > 256) continue;
      draws("greedy", greedy, vocab, rows);
      draws("temperature 0.8", warm, vocab, rows);
      draws("top p 0.95", top_p, vocab, rows);
      draws("top k 40, min p 0.02, top p 0.95", all_filters, vocab, rows);
    }
  }

 private:
  // So many that what surrounds them does not count.
  static int32_t launches(int32_t rows) { return rows > 1024 ? 4 : rows > 256 ? 16 : 128; }
  // Seconds of one of the launches that `work` makes, `count` of them.
  double seconds_of(int32_t count, const std::function<void()>& work) {
    const cudaStream_t stream = device_->stream();
    cuda::Graph graph;
    check(cuda::Graph::record(stream, graph, work));
    check(device_->status());
    return best_seconds(options_.seconds,
                        [&] {
                          check(graph.launch(stream));
                          check(cudaStreamSynchronize(stream));
                        }) /
           count;
  }

  void add(const std::string& operation, const std::string& shape, int32_t rows, double seconds, double bytes,
           double operations, bool attention = false) {
    const double per_second = attention ? ceilings_.attention_per_second : ceilings_.int8_per_second;
    const double memory = ceilings_.bytes_per_second > 0 ? bytes / ceilings_.bytes_per_second : 0,
                 matrix = per_second > 0 ? operations / per_second : 0;
    const bool by_memory = memory > 0 ? memory >= matrix : operations < 300 * bytes;
    const char* const ceiling = ceilings_.bytes_per_second == 0 ? ""
                                : by_memory                     ? "4.40 TB/s"
                                : attention                     ? "1,000 TOP/s"
                                                                : "1,500 TOP/s";
    lines.push_back({group_, operation, shape, rows, seconds * 1e6,
                     by_memory ? 1e-9 * bytes / seconds : 1e-12 * operations / seconds, by_memory ? "GB/s" : "TOP/s",
                     std::max(memory, matrix) / seconds, ceiling});
    if (!options_.json) std::fputs(".", stderr);
  }

  std::string path_of(int32_t rows, const cuda::MatmulShape& shape) const {
    if (gpu_.cublaslt() && gpu_.cublaslt()->serves(rows, shape.out, shape.in)) return "cuBLASLt";
    const cuda::Tile tile = cuda::choose_tile(device_->chip(), rows, shape);
    switch (tile.path) {
      case cuda::Path::kSkinny:
        return cuda::serves_gemv(rows, shape.in) ? "one row" : "skinny";
      case cuda::Path::kTiled:
        return "mma tiles";
      case cuda::Path::kSm90:
        return fmt::format("wgmma {}x{}/{}/{}", tile.rows, tile.outs, tile.split, tile.share);
    }
    return {};
  }

  template <auto kCpu, auto kChecked, auto kTimed, class A, class Out>
  void matmul(const std::string& operation, int32_t in, int32_t out, int32_t rows) {
    if (!wanted(operation)) return;
    constexpr cuda::MatmulKind kKind = std::is_same_v<A, uint8_t>     ? cuda::MatmulKind::kAddDown
                                       : std::is_same_v<Out, float>   ? cuda::MatmulKind::kLinear
                                       : std::is_same_v<Out, uint8_t> ? cuda::MatmulKind::kUp
                                                                      : cuda::MatmulKind::kAddLinear;
    const auto bytes = static_cast<size_t>(in) * static_cast<size_t>(out),
               inputs = static_cast<size_t>(rows) * static_cast<size_t>(in);
    const size_t outputs = static_cast<size_t>(rows) * static_cast<size_t>(out);
    if (weights_.size() < bytes) {
      weights_ = random_values<int8_t>(bytes, 1, signed_byte);
      pool_ = {};
      pool_ = on_gpu(weights_, std::max(2 * bytes, static_cast<size_t>(options_.buffer_mib) << 20));
    }
    const std::vector<A> a = [&] {
      if constexpr (std::is_same_v<A, int8_t>)
        return random_values<int8_t>(inputs, 2, signed_byte);
      else
        return random_values<uint8_t>(inputs, 3, unsigned_byte);
    }();
    const std::vector<float> scale(static_cast<size_t>(out), 1e-6f);
    row_sum_.assign(static_cast<size_t>(out), 0);
    for (size_t n = 0; n < row_sum_.size(); ++n)
      for (int32_t i = 0; i < in; ++i) row_sum_[n] += weights_[n * static_cast<size_t>(in) + static_cast<size_t>(i)];
    const Matrix matrix{weights_.data(), row_sum_.data(), out, in};
    std::vector<Out> found(outputs, Out{0}), expected(static_cast<size_t>(out));
    (checked_.*kChecked)(matrix, a.data(), rows, scale.data(), found.data());
    check(checked_.status());
    for (const int32_t row : {0, rows / 2, rows - 1}) {
      std::fill(expected.begin(), expected.end(), Out{0});
      (cpu_.*kCpu)(matrix, a.data() + size_t{static_cast<uint32_t>(row)} * static_cast<size_t>(in), 1, scale.data(),
                   expected.data());
      if (std::memcmp(expected.data(), found.data() + static_cast<size_t>(row) * static_cast<size_t>(out),
                      expected.size() * sizeof(Out)) != 0)
        throw Wrong{operation};
    }

    const auto a_there = on_gpu(a);
    const auto scale_there = on_gpu(scale);
    const auto out_there = on_gpu(found);
    const auto row_sum_there = on_gpu(row_sum_);
    const auto copies = static_cast<int32_t>(pool_.size() / bytes);
    const auto weights = [&](int32_t i) {
      return Matrix{pool_.data() + static_cast<size_t>(i % copies) * bytes, row_sum_there.data(), out, in};
    };
    if (cuda::CublasLt* const cublaslt = gpu_.cublaslt()) {
      std::vector<cuda::CublasLtMatmul> alike;
      for (int32_t i = 0; i < copies; ++i)
        alike.push_back({kKind,
                         {weights(i).weight, out, in, a_there.data(), rows, scale_there.data(), out_there.data()},
                         row_sum_there.data()});
      check(cublaslt->choose(alike, options_.products_file));
    }
    const int32_t count = launches(rows);
    const double seconds = seconds_of(count, [&] {
      for (int32_t i = 0; i < count; ++i)
        (gpu_.*kTimed)(weights(i), a_there.data(), rows, scale_there.data(), out_there.data());
    });
    add(operation, fmt::format("{} x {}, {}", out, in, path_of(rows, cuda::shape_of(kKind, out, in))), rows, seconds,
        static_cast<double>(bytes), 2.0 * rows * static_cast<double>(bytes));
  }

  void norm(int32_t width, int32_t rows) {
    if (!wanted("norm")) return;
    const auto x = random_values<arith::bf16>(static_cast<size_t>(rows) * static_cast<size_t>(width), 4, unit_bf16);
    std::vector<int8_t> found(x.size()), expected(x.size());
    checked_.norm({x.data(), rows, width, 1e-5f, 30.0f, found.data()});
    check(checked_.status());
    cpu_.norm({x.data(), rows, width, 1e-5f, 30.0f, expected.data()});
    if (found != expected) throw Wrong{"norm"};
    const auto there = on_gpu(x);
    const auto out = on_gpu(found);
    const int32_t count = launches(rows);
    const double seconds = seconds_of(count, [&] {
      for (int32_t i = 0; i < count; ++i) gpu_.norm({there.data(), rows, width, 1e-5f, 30.0f, out.data()});
    });
    add("norm", fmt::format("{}", width), rows, seconds, 3.0 * static_cast<double>(x.size()), 0);
  }

  // One row of each of so many sequences; with `keys` theirs are stored too, in a block each.
  void project_heads(int32_t heads, int32_t head_dim, int32_t rows, bool keys) {
    if (!wanted("heads")) return;
    const auto n = static_cast<size_t>(rows), width = static_cast<size_t>(heads * head_dim),
               key = static_cast<size_t>(head_dim), half = key / 2, stride = width + (keys ? 2 * key : 0);
    const auto q = random_values<float>(n * stride, 8, unit_float);
    std::vector<arith::CosSin> angles;
    std::vector<int32_t> positions, row_segment;
    std::vector<BlockId> tables;
    for (int32_t row = 0; row < rows; ++row) {
      positions.push_back(row % kBlockTokens);
      row_segment.push_back(row);
      tables.push_back(rows - 1 - row);
      for (size_t i = 0; i < half; ++i)
        angles.push_back(arith::cos_sin(static_cast<uint64_t>(row), 0x28BE60DB9391054Au >> (i / 2)));
    }
    const std::vector<float> inverse(key, 127.0f);
    const auto q_there = on_gpu(q), inverse_there = on_gpu(inverse);
    const auto angles_there = on_gpu(angles);
    const auto positions_there = on_gpu(positions), row_segment_there = on_gpu(row_segment);
    const auto tables_there = on_gpu(tables);
    std::vector<BatchSegment> segments;
    for (int32_t row = 0; row < rows; ++row)
      segments.push_back(
          {row, 1, positions[static_cast<size_t>(row)], 0, {tables_there.data() + row, tables_there.data() + row}});
    const auto segments_there = on_gpu(segments);
    const int64_t block_bytes = int64_t{2} * kBlockTokens * head_dim;
    const auto out = on_gpu(std::vector<int8_t>(n * width, 0)),
               cache = on_gpu(std::vector<int8_t>(n * static_cast<size_t>(block_bytes), 0)),
               expected_cache = on_gpu(std::vector<int8_t>(cache.size(), 0));
    KvSlot slot{reinterpret_cast<std::byte*>(cache.data()), block_bytes, 0, 1, head_dim, BlockKind::kGlobal, 0};
    const Batch batch{rows, {}, {positions_there.data(), n}, {segments_there.data(), n}, {row_segment_there.data(), n}};
    const float* c = inverse_there.data();
    const cuda::RopeArgs args{
        q_there.data(), rows,      static_cast<int32_t>(stride), angles_there.data(), heads, 1, head_dim, c, c, c,
        keys,           out.data()};
    const auto work = [&] { check(cuda::rope_quantise(device_->stream(), device_->chip(), args, batch, slot)); };

    work();
    std::vector<float> queries, k, v;
    for (size_t row = 0; row < n; ++row) {
      const auto at = q.begin() + static_cast<std::ptrdiff_t>(row * stride),
                 behind = at + static_cast<std::ptrdiff_t>(width);
      queries.insert(queries.end(), at, behind);
      if (!keys) continue;
      k.insert(k.end(), behind, behind + head_dim);
      v.insert(v.end(), behind + head_dim, behind + 2 * head_dim);
    }
    std::vector<int8_t> found(n * width), expected(n * width);
    cpu_.queries(queries.data(), {rows, {}, {}, {}, {}}, angles.data(), heads, 1, head_dim, inverse.data(),
                 expected.data());
    check(cudaStreamSynchronize(device_->stream()));
    check(cudaMemcpy(found.data(), out.data(), found.size(), cudaMemcpyDeviceToHost));
    if (found != expected) throw Wrong{"heads"};
    if (keys) {  // where they lie is the backend's own: append() says, which tests hold to the reference
      const auto k_there = on_gpu(k), v_there = on_gpu(v);
      slot.pool = reinterpret_cast<std::byte*>(expected_cache.data());
      gpu_.append(k_there.data(), v_there.data(), batch, angles_there.data(), c, c, slot);
      slot.pool = reinterpret_cast<std::byte*>(cache.data());
      check(cudaStreamSynchronize(device_->stream()));
      std::vector<int8_t> stored(cache.size()), expected_stored(cache.size());
      check(cudaMemcpy(stored.data(), cache.data(), stored.size(), cudaMemcpyDeviceToHost));
      check(cudaMemcpy(expected_stored.data(), expected_cache.data(), stored.size(), cudaMemcpyDeviceToHost));
      if (stored != expected_stored) throw Wrong{"heads"};
    }
    const int32_t count = launches(rows);
    const double seconds = seconds_of(count, [&] {
      for (int32_t i = 0; i < count; ++i) work();
    });
    add("heads", keys ? "with keys" : "queries", rows, seconds, 5.0 * static_cast<double>(q.size()), 0);
  }

  void draws(const std::string& shape, const SamplingSpec& spec, int32_t vocab, int32_t rows) {
    if (!wanted("sample")) return;
    // Four uniform numbers make nearly a normal one, of a deviation of 3.
    const auto uniform =
        random_values<float>(4 * static_cast<size_t>(rows) * static_cast<size_t>(vocab), 9, unit_float);
    std::vector<float> logits(uniform.size() / 4);
    for (size_t i = 0; i < logits.size(); ++i)
      logits[i] = 2.6f * ((uniform[4 * i] + uniform[4 * i + 1]) + (uniform[4 * i + 2] + uniform[4 * i + 3]));
    std::vector<cuda::SampleRow> specs;
    for (int32_t row = 0; row < rows; ++row) {
      specs.push_back(cuda::sample_row_of(spec, nullptr, row, row, 0));
      specs.back().answer = row;
    }
    const auto there = on_gpu(logits);
    const auto specs_there = on_gpu(specs);
    const auto drawn = on_gpu(std::vector<cuda::Sampled>(static_cast<size_t>(rows)));
    const auto last = on_gpu(std::vector<int32_t>(static_cast<size_t>(rows)));
    const auto top = on_gpu(std::vector<cuda::Alternative>(static_cast<size_t>(rows) * cuda::kMostTop));
    const auto work = [&] {
      check(cuda::sample(device_->stream(), device_->chip(), there.data(), nullptr, specs_there.data(), rows, vocab,
                         last.data(), drawn.data(), top.data()));
    };
    work();
    check(cudaStreamSynchronize(device_->stream()));
    std::vector<cuda::Sampled> found(static_cast<size_t>(rows));
    check(cudaMemcpy(found.data(), drawn.data(), found.size() * sizeof(cuda::Sampled), cudaMemcpyDeviceToHost));
    for (const int32_t row : {0, rows / 2, rows - 1}) {
      SampledToken expected, token;
      cpu_.sample({logits.data() + int64_t{row} * vocab, vocab, &spec, nullptr, row, 0}, expected);
      cuda::read_sampled(found[static_cast<size_t>(row)], nullptr, token);
      if (token.token != expected.token || token.logprob != expected.logprob) throw Wrong{"sample"};
    }
    const int32_t count = 16;
    const double seconds = seconds_of(count, [&] {
      for (int32_t i = 0; i < count; ++i) work();
    });
    add("sample", shape, rows, seconds, 4.0 * static_cast<double>(logits.size()), 0);
  }

  // Three rows at the end of 1,100 keys, each backend on a cache of its own.
  void check_attention(int32_t heads, int32_t head_dim) {
    if (!wanted("attend")) return;
    constexpr int32_t kContext = 1100, kRows = 3;
    const auto width = static_cast<size_t>(head_dim);
    std::vector<BlockId> table;
    for (int32_t b = kContext / kBlockTokens; b >= 0; --b) table.push_back(b);
    std::vector<int32_t> positions, segment_of(kContext, 0), tokens(kContext, 0);
    std::vector<arith::CosSin> angles;
    for (int32_t p = 0; p < kContext; ++p) {
      positions.push_back(p);
      for (int32_t i = 0; i < head_dim / 2; ++i)
        angles.push_back(arith::cos_sin(static_cast<uint64_t>(p), 0x28BE60DB9391054Au >> (i / 2)));
    }
    const std::vector<float> inverse(width, 127.0f), out_inverse(width, 1.0f);
    const auto k = random_values<float>(kContext * width, 5, unit_float);
    const auto q = random_values<int8_t>(static_cast<size_t>(kRows * heads) * width, 6, signed_byte);
    const auto attend = [&](auto& backend) {
      std::vector<std::byte> cache(table.size() * 2 * kBlockTokens * width);
      const KvSlot slot{cache.data(), int64_t{2} * kBlockTokens * head_dim, 0, 1, head_dim, BlockKind::kGlobal, 0};
      const auto batch_of = [&](const BatchSegment& s) {
        const auto n = static_cast<size_t>(s.row_count);
        return Batch{
            s.row_count, {tokens.data(), n}, {positions.data() + s.position, n}, {&s, 1}, {segment_of.data(), n}};
      };
      const BatchSegment all{0, kContext, 0, 0, {table.data(), table.data()}},
          last{0, kRows, kContext - kRows, 0, {table.data(), table.data()}};
      std::vector<int8_t> out(q.size());
      backend.append(k.data(), k.data(), batch_of(all), angles.data(), inverse.data(), inverse.data(), slot);
      backend.attend({q.data(), heads, 1e-4f, out_inverse.data(), out.data()}, batch_of(last), slot);
      return out;
    };
    const auto expected = attend(cpu_), found = attend(checked_);
    check(checked_.status());
    if (expected != found) throw Wrong{"attend"};
  }

  // The last `rows` positions of each of so many sequences.
  void attention(int32_t heads, int32_t head_dim, int32_t window, int32_t context, int32_t sequences, int32_t rows) {
    if (!wanted("attend")) return;
    const int64_t block_bytes = int64_t{2} * kBlockTokens * head_dim;
    const int32_t blocks = context / kBlockTokens, all_rows = sequences * rows;
    const auto random = random_values<int8_t>(size_t{16} << 20, 7, signed_byte);
    const auto cache = on_gpu(random, static_cast<size_t>(sequences * blocks * block_bytes));
    const auto queries = on_gpu(random, static_cast<size_t>(all_rows) * static_cast<size_t>(heads * head_dim));
    const auto out = on_gpu(random, queries.size());
    const auto out_inverse = on_gpu(std::vector<float>(static_cast<size_t>(head_dim), 1.0f));
    std::vector<BlockId> tables;
    for (int32_t b = 0; b < sequences * blocks; ++b) tables.push_back(sequences * blocks - 1 - b);
    const auto tables_there = on_gpu(tables);
    std::vector<BatchSegment> segments;
    std::vector<int32_t> positions, row_segment;
    double keys = 0;
    for (int32_t s = 0; s < sequences; ++s) {
      const BlockId* const table = tables_there.data() + s * blocks;
      segments.push_back({s * rows, rows, context - rows, 0, {table, table}});
      for (int32_t i = 0; i < rows; ++i) {
        positions.push_back(context - rows + i);
        row_segment.push_back(s);
        keys += std::min(positions.back() + 1, window > 0 ? window : context);
      }
    }
    const auto segments_there = on_gpu(segments);
    const auto positions_there = on_gpu(positions), row_segment_there = on_gpu(row_segment);
    const KvSlot slot{
        reinterpret_cast<std::byte*>(cache.data()), block_bytes, 0, 1, head_dim, BlockKind::kGlobal, window};
    const Batch batch{all_rows,
                      {},
                      {positions_there.data(), positions.size()},
                      {segments_there.data(), segments.size()},
                      {row_segment_there.data(), row_segment.size()}};
    const int32_t count = launches(all_rows);
    const double seconds = seconds_of(count, [&] {
      gpu_.begin_batch();
      for (int32_t i = 0; i < count; ++i)
        gpu_.attend({queries.data(), heads, 1e-4f, out_inverse.data(), out.data()}, batch, slot);
    });
    const double read = 2.0 * head_dim * sequences * std::min(context, window > 0 ? window + rows - 1 : context);
    add("attend",
        fmt::format("{} x {} keys{}", sequences, context, window > 0 ? fmt::format(", window {}", window) : ""),
        all_rows, seconds, read, 4.0 * keys * heads * head_dim, true);
  }

  std::shared_ptr<cuda::Device> device_;
  cuda::CudaBackend gpu_;
  cuda::StagedBackend checked_;
  CpuBackend& cpu_;
  const OpsOptions& options_;
  GpuCeilings ceilings_;
  std::string group_;
  std::vector<int8_t> weights_;
  std::vector<int32_t> row_sum_;
  DeviceBuffer<int8_t> pool_;
};

}  // namespace

int run_ops_on_gpu(const OpsOptions& given) {
  OpsOptions options = given;
  if (options.rows.empty()) options.rows = {1, 16, 64, 256, 1024, 8192};
  try {
    const FloatState float_state;
    auto cpu = value_of(CpuBackend::create("auto", options.threads));
    GpuOps ops(value_of(cuda::Device::open()), *cpu, options);
    const auto show = [&] {
      if (options.json || ops.lines.empty()) return;
      std::fputs("\n", stderr);
      print_table({}, ops.lines);
      std::fflush(stdout);
      ops.lines.clear();
    };
    if (!options.json)
      tools::print(
          "Matmuls: by which kernel; a tile is rows x outputs/blocks that divide the sum/blocks that share weights. "
          "Attention's operations: 4 a visible key, row and\n"
          "channel, where the matrix units do 8.\n");
    ops.model("small", 5120, 40, 128, 20480, 65536);
    show();
    ops.model("large", 12288, 96, 128, 51200, 65536);
    show();
    ops.sampling(65536);
    show();
    if (const int code = ops.wanted.exit_code()) return code;
    if (options.json) tools::print("{}\n", to_json(ops.ceilings(), ops.lines));
    return 0;
  } catch (const Wrong& wrong) {
    tools::print(stderr, "\nkaiju-bench: {} does not give the CPU's bits, so nothing was timed\n", wrong.what);
  } catch (const Failed& failed) {
    tools::print(stderr, "\nkaiju-bench: {}\n", failed.what());
  }
  return 1;
}

}  // namespace kaiju::bench
