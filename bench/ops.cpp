// kaiju-bench ops: times each operation of the CPU backend at the shapes of a nano model and of a 1 B model.
// ops_cuda.cpp does the same for a GPU.
#include "ops.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "bench.hpp"
#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "gpu_options.hpp"
#include "kaiju/backend/cpu.hpp"
#include "kaiju/backend/reference.hpp"
#include "kaiju/base/float_state.hpp"

namespace kaiju::bench {
namespace {

class Ops {
 public:
  Ops(CpuBackend& backend, const Ceilings& ceilings, const OpsOptions& options)
      : wanted(options.only), backend_(backend), ceilings_(ceilings), options_(options) {}

  std::vector<Line> lines;
  Wanted wanted;

  void model(const std::string& group, int32_t d_model, int32_t heads, int32_t head_dim, int32_t d_ff, int32_t vocab,
             int64_t weight_bytes) {
    group_ = group;
    weight_bytes_ = weight_bytes;
    for (const int32_t rows : options_.rows) {
      product("linear q", d_model, heads * head_dim, rows, [&](auto& b, const Matrix& w, int32_t r, int32_t first) {
        b.linear(w, a_.data() + int64_t{first} * w.in, r, scale_.data(), f_.data() + int64_t{first} * w.out);
      });
      product("linear k", d_model, head_dim, rows, [&](auto& b, const Matrix& w, int32_t r, int32_t first) {
        b.linear(w, a_.data() + int64_t{first} * w.in, r, scale_.data(), f_.data() + int64_t{first} * w.out);
      });
      product("add_linear o", heads * head_dim, d_model, rows, [&](auto& b, const Matrix& w, int32_t r, int32_t first) {
        b.add_linear(w, a_.data() + int64_t{first} * w.in, r, scale_.data(), x_.data() + int64_t{first} * w.out);
      });
      product("up", d_model, d_ff, rows, [&](auto& b, const Matrix& w, int32_t r, int32_t first) {
        b.up(w, a_.data() + int64_t{first} * w.in, r, scale_.data(), h_out_.data() + int64_t{first} * w.out);
      });
      product("add_down", d_ff, d_model, rows, [&](auto& b, const Matrix& w, int32_t r, int32_t first) {
        b.add_down(w, h_.data() + int64_t{first} * w.in, r, scale_.data(), x_.data() + int64_t{first} * w.out);
      });
      if (rows <= 16)
        product("logits", d_model, vocab, rows, [&](auto& b, const Matrix& w, int32_t r, int32_t first) {
          b.linear(w, a_.data() + int64_t{first} * w.in, r, scale_.data(), f_.data() + int64_t{first} * w.out);
        });
    }
    for (const int32_t rows : options_.rows) norm(d_model, rows);
    attention(heads, head_dim, 1024, 1024, {1, 64, 512});
    attention(heads, head_dim, 0, 4096, {1, 64, 512});
    sampling(vocab);
  }

 private:
  void add(const std::string& operation, const std::string& shape, int32_t rows, double seconds, double amount,
           const char* unit, double ceiling, const char* name) {
    lines.push_back(
        {group_, operation, shape, rows, seconds * 1e6, amount, unit, ceiling > 0 ? amount / ceiling : 0, name});
    if (!options_.json) std::fputs(".", stderr);
  }

  // call(backend, matrix, rows, first_row) writes the outputs of rows from first_row on.
  template <class Call>
  void product(const std::string& operation, int32_t in, int32_t out, int32_t rows, Call call) {
    if (!wanted(operation)) return;
    const int64_t bytes = int64_t{in} * out;
    const auto copies = static_cast<int32_t>(std::clamp<int64_t>(rows <= 16 ? weight_bytes_ / bytes : 1, 1, 4096));
    const size_t pool_bytes = static_cast<size_t>(copies * bytes);
    if (pool_.size() < pool_bytes) pool_ = random_values<int8_t>(pool_bytes, 1, signed_byte);
    row_sum_.assign(static_cast<size_t>(out), 0);
    for (int64_t i = 0; i < bytes; ++i) row_sum_[static_cast<size_t>(i / in)] += pool_[static_cast<size_t>(i)];
    a_ = random_values<int8_t>(static_cast<size_t>(rows) * in, 2, signed_byte);
    h_ = random_values<uint8_t>(static_cast<size_t>(rows) * in, 3, unsigned_byte);
    scale_.assign(static_cast<size_t>(out), 1e-6f);
    const size_t outputs = static_cast<size_t>(rows) * out;
    f_.assign(outputs, 0), h_out_.assign(outputs, 0), x_.assign(outputs, 0);

    const Matrix first{pool_.data(), row_sum_.data(), out, in};
    call(backend_, first, rows, 0);
    const auto f = f_;
    const auto h_out = h_out_;
    const auto x = x_;
    ReferenceBackend reference;
    for (const int32_t row : {0, rows / 2, rows - 1}) {
      const size_t at = static_cast<size_t>(row) * out;
      std::fill_n(x_.begin() + static_cast<int64_t>(at), out, arith::bf16{0});
      call(reference, first, 1, row);
      for (size_t i = at; i < at + static_cast<size_t>(out); ++i)
        if (arith::bits_of(f[i]) != arith::bits_of(f_[i]) || h_out[i] != h_out_[i] || x[i] != x_[i])
          throw Wrong{operation};
    }

    int32_t copy = 0;
    const double seconds = best_seconds(options_.seconds, [&] {
      std::fill_n(x_.begin(), 1, arith::bf16{0});
      call(backend_, Matrix{pool_.data() + copy * bytes, row_sum_.data(), out, in}, rows, 0);
      copy = copy + 1 < copies ? copy + 1 : 0;
    });
    const double gops = 2e-9 * static_cast<double>(bytes) * rows / seconds,
                 gb_per_s = 1e-9 * static_cast<double>(bytes) / seconds;
    const std::string shape = fmt::format("{} x {}", out, in);
    // A model's weights come from memory, or from the last-level cache when they fit; whichever ceiling is the nearer
    // one counts.
    const bool cached = copies * bytes <= 64 << 20;
    const double read = cached ? ceilings_.cached_gb_per_s : ceilings_.read_gb_per_s;
    if (gb_per_s * ceilings_.int8_gops > gops * read)
      add(operation, shape, rows, seconds, gb_per_s, "GB/s", read, cached ? "cached read" : "read");
    else
      add(operation, shape, rows, seconds, gops, "GOP/s", ceilings_.int8_gops, "int8");
  }

  void norm(int32_t width, int32_t rows) {
    if (!wanted("norm")) return;
    const auto x = random_values<arith::bf16>(static_cast<size_t>(rows) * width, 4, unit_bf16);
    std::vector<int8_t> a(x.size()), expected(x.size());
    backend_.norm({x.data(), rows, width, 1e-5f, 30.0f, a.data()});
    ReferenceBackend().norm({x.data(), rows, width, 1e-5f, 30.0f, expected.data()});
    if (a != expected) throw Wrong{"norm"};
    const double seconds =
        best_seconds(options_.seconds, [&] { backend_.norm({x.data(), rows, width, 1e-5f, 30.0f, a.data()}); });
    add("norm", fmt::format("{}", width), rows, seconds, 3e-9 * static_cast<double>(x.size()) / seconds, "GB/s", 0, "");
  }

  // The last `rows` positions of a context attend to all of it, or to their window.
  void attention(int32_t heads, int32_t head_dim, int32_t window, int32_t context,
                 const std::vector<int32_t>& row_counts) {
    if (!wanted("attend") && !wanted("append") && !wanted("queries")) return;
    const int32_t blocks = context / kBlockTokens + 1;
    const int64_t block_bytes = int64_t{2} * kBlockTokens * head_dim;
    std::vector<std::byte> pool(static_cast<size_t>(blocks * block_bytes));
    std::vector<BlockId> table(static_cast<size_t>(blocks));
    for (int32_t b = 0; b < blocks; ++b) table[static_cast<size_t>(b)] = blocks - 1 - b;
    std::vector<int32_t> positions, segments(static_cast<size_t>(context), 0), tokens(static_cast<size_t>(context), 0);
    std::vector<arith::CosSin> angles;
    for (int32_t p = 0; p < context; ++p) {
      positions.push_back(p);
      for (int32_t i = 0; i < head_dim / 2; ++i)
        angles.push_back(arith::cos_sin(static_cast<uint64_t>(p), 0x28BE60DB9391054Au >> (i / 2)));
    }
    const KvSlot slot{pool.data(), block_bytes, 0, 1, head_dim, BlockKind::kGlobal, window};
    const auto batch_of = [&](const BatchSegment& segment) {
      const auto n = static_cast<size_t>(segment.row_count);
      return Batch{segment.row_count,
                   {tokens.data(), n},
                   {positions.data() + segment.position, n},
                   {&segment, 1},
                   {segments.data(), n}};
    };
    const auto width = static_cast<size_t>(head_dim);
    const std::vector<float> inverse(width, 127.0f), out_inverse(width, 1.0f);
    const auto k = random_values<float>(static_cast<size_t>(context) * width, 5, unit_float);
    const auto fill = [&](auto& backend) {
      const BatchSegment all{0, context, 0, 0, {table.data(), table.data()}};
      backend.append(k.data(), k.data(), batch_of(all), angles.data(), inverse.data(), inverse.data(), slot);
    };
    const auto q = random_values<float>(512u * static_cast<size_t>(heads) * width, 6, unit_float);
    std::vector<int8_t> queries(q.size()), out(q.size()), expected(q.size());
    const auto attend = [&](auto& backend, int32_t first, int32_t rows, int8_t* to) {
      const BatchSegment last{0, rows, first, 0, {table.data(), table.data()}};
      const Batch batch = batch_of(last);
      backend.queries(q.data(), batch, angles.data() + static_cast<size_t>(first) * (width / 2), heads, 1, head_dim,
                      inverse.data(), queries.data());
      backend.attend({queries.data(), heads, 1e-4f, out_inverse.data(), to}, batch, slot);
    };
    ReferenceBackend reference;
    fill(reference);
    attend(reference, context - 3, 3, expected.data());
    fill(backend_);
    attend(backend_, context - 3, 3, out.data());
    if (out != expected) throw Wrong{"attend"};

    const std::string shape = fmt::format("{} heads of {}, {} keys", heads, head_dim, context);
    for (const int32_t rows : row_counts) {
      const int32_t first = context - rows;
      attend(backend_, first, rows, out.data());
      const BatchSegment last{0, rows, first, 0, {table.data(), table.data()}};
      const Batch batch = batch_of(last);
      double seconds = best_seconds(options_.seconds, [&] {
        backend_.attend({queries.data(), heads, 1e-4f, out_inverse.data(), out.data()}, batch, slot);
      });
      double keys = 0;
      for (int32_t p = first; p < context; ++p) keys += p + 1 - slot.first_visible(p);
      // A key costs head_dim products for its score and twice as many for the two bytes of its weight.
      if (wanted("attend"))
        add("attend", shape, rows, seconds, 6e-9 * keys * heads * head_dim / seconds, "GOP/s", ceilings_.int8_gops,
            "int8");
      if (window > 0) continue;
      seconds = best_seconds(options_.seconds, [&] {
        backend_.queries(q.data(), batch, angles.data(), heads, 1, head_dim, inverse.data(), queries.data());
      });
      if (wanted("queries"))
        add("queries", fmt::format("{} heads of {}", heads, head_dim), rows, seconds,
            5e-9 * rows * heads * head_dim / seconds, "GB/s", 0, "");
      seconds = best_seconds(options_.seconds, [&] {
        backend_.append(k.data(), k.data(), batch, angles.data(), inverse.data(), inverse.data(), slot);
      });
      if (wanted("append"))
        add("append", fmt::format("1 head of {}", head_dim), rows, seconds, 10e-9 * rows * head_dim / seconds, "GB/s",
            0, "");
    }
  }

  void sampling(int32_t vocab) {
    auto logits = random_values<float>(static_cast<size_t>(vocab), 7, unit_float);
    for (float& l : logits) l *= 12.0f;
    SamplingSpec greedy, plain, nucleus;
    plain.temperature = 0.8f;
    nucleus.temperature = 0.8f, nucleus.top_p = 0.95f, nucleus.repetition_penalty = 1.1f;
    std::vector<uint8_t> seen(logits.size(), 0);
    for (size_t i = 0; i < seen.size(); i += 9) seen[i] = 1;
    for (const auto& [name, spec] :
         {std::pair{"greedy", &greedy}, {"temperature", &plain}, {"top_p, penalty", &nucleus}}) {
      if (!wanted("sample")) return;
      const SampleArgs args{logits.data(), vocab, spec, seen.data(), 9, 0};
      SampledToken token, expected;
      backend_.sample(args, token);
      ReferenceBackend().sample(args, expected);
      if (token.token != expected.token || token.logprob != expected.logprob) throw Wrong{"sample"};
      const double seconds = best_seconds(options_.seconds, [&] { backend_.sample(args, token); });
      add("sample", fmt::format("{}, {}", vocab, name), 1, seconds, 1e-6 * vocab / seconds, "M logits/s", 0, "");
    }
  }

  CpuBackend& backend_;
  const Ceilings& ceilings_;
  const OpsOptions& options_;
  std::string group_;
  int64_t weight_bytes_ = 0;
  std::vector<int8_t> pool_, a_;
  std::vector<uint8_t> h_, h_out_;
  std::vector<int32_t> row_sum_;
  std::vector<float> scale_, f_;
  std::vector<arith::bf16> x_;
};

int run(OpsOptions options) {
#if KAIJU_CUDA
  if (options.isa == "cuda") return run_ops_on_gpu(options);
#else
  if (options.isa == "cuda")
    throw Failed{Status(StatusCode::kUnsupported, "this build has no CUDA backend: configure with -DKAIJU_CUDA=ON")};
#endif
  if (options.rows.empty()) options.rows = {1, 4, 16, 64, 512};
  auto backend = CpuBackend::create(options.isa, options.threads);
  if (!backend.ok()) {
    tools::print(stderr, "kaiju-bench: {}\n", backend.status().message());
    return 1;
  }
  const FloatState float_state;
  ThreadPool pool(options.threads);
  const Ceilings ceilings =
      measure_ceilings(pool, options.buffer_mib << 20, std::string_view((*backend)->isa()) == "amx");
  Ops ops(**backend, ceilings, options);
  try {
    ops.model("nano (512, 8 x 64, 1536), " + std::string((*backend)->isa()), 512, 8, 64, 1536, 8192, 34 << 20);
    ops.model("1 B (2048, 16 x 128, 5632), " + std::string((*backend)->isa()), 2048, 16, 128, 5632, 65536,
              int64_t{options.buffer_mib} << 20);
  } catch (const Wrong& wrong) {
    tools::print(stderr, "\nkaiju-bench: {} does not give the reference's bits, so nothing was timed\n", wrong.what);
    return 1;
  }
  if (const int code = ops.wanted.exit_code()) return code;
  if (options.json)
    tools::print("{}\n", to_json(ceilings, ops.lines));
  else
    std::fputs("\n", stderr), print_table(ceilings, ops.lines);
  return 0;
}

}  // namespace

void add_ops(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("ops",
                         "times each operation of a backend: on the CPU at the shapes of a nano and of a 1 B "
                         "model, on a GPU at those of small and large");
  auto options = std::make_shared<OpsOptions>();
  command
      ->add_option("--backend", options->isa,
                   "auto (of the CPU), amx, avx512, avxvnni, avx2, i8mm, neon, portable or cuda")
      ->check(tools::name_from({"auto", "amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "portable", "cuda"}))
      ->capture_default_str();
  add_products_file(*command, options->products_file);
  command->add_option("--threads", options->threads, "number of threads, the calling thread included")
      ->check(tools::whole_number(1, 256))
      ->capture_default_str();
  command->add_option("--rows", options->rows, "numbers of rows in the matmuls")
      ->check(tools::whole_number(1, 65536))
      ->delimiter(',')
      ->default_str("1,4,16,64,512; of a GPU 1,16,64,256,1024,8192");
  command->add_option("--only", options->only, "operations whose name contains this");
  command->add_option("--seconds", options->seconds, "time spent on each line")
      ->check(tools::number_from(0.0001, 86400))
      ->capture_default_str();
  command
      ->add_option("--buffer-mib", options->buffer_mib,
                   "memory for the bandwidth ceiling and the weights of the larger model")
      ->check(tools::whole_number(64, 65536))
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  command->footer(
      "Examples:\n  kaiju-bench ops\n  kaiju-bench ops --threads 1 --rows 1,512 --only up\n  kaiju-bench ops --backend "
      "cuda --rows 1,64,8192\n  kaiju-bench ops --json > ops.json");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
