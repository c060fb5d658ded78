// CpuBackend: divides each operation into pieces for the threads and calls the kernels of one instruction set. It has
// no arithmetic of its own.
#include <algorithm>
#include <cmath>
#include <new>
#include <system_error>

#include "cpu_attention.hpp"
#include "instruction_sets.hpp"
#include "kaiju/arith/softmax.hpp"
#include "kaiju/backend/cpu.hpp"
#include "skipping.hpp"
#include "weight_order.hpp"

namespace kaiju {

static_assert(cpu::kBlock == kBlockTokens && cpu::kChunk == arith::kChunkKeys);

namespace {

// Work smaller than this stays on the calling thread: waking another costs about as much.
constexpr int64_t kRowElementsPerPart = 8192;
constexpr int64_t kWeightBytesPerPart = 48 << 10;
constexpr int32_t kLogitsPerPart = 4096;
constexpr int64_t kPreparedBytesPerPart = 16 << 10;
constexpr int32_t kRowsPerPart =
    96;  // of a product with many rows, which read the weights again for every part of the rows

using cpu::ceil_div;
using cpu::kPartsPerThread;
using cpu::up_to_unit;

// Calls work(first_row, end_row) over all rows, on several threads when there is enough to do.
template <class Work>
void for_rows(ThreadPool& pool, int32_t rows, int64_t elements_per_row, Work&& work) {
  const int64_t parts = std::clamp<int64_t>(rows * elements_per_row / kRowElementsPerPart, 1,
                                            std::min<int64_t>(rows, int64_t{pool.threads()} * kPartsPerThread));
  if (parts == 1) return work(0, rows);
  pool.parallel_for(static_cast<int32_t>(parts), [&](int32_t part, int32_t) {
    work(static_cast<int32_t>(rows * int64_t{part} / parts), static_cast<int32_t>(rows * int64_t{part + 1} / parts));
  });
}

}  // namespace

std::vector<std::string> CpuBackend::isas() {
  std::vector<std::string> names;
  for (const cpu::InstructionSet& set : cpu::instruction_sets())
    if (set.runs_here()) names.emplace_back(set.name);
  return names;
}

Result<std::unique_ptr<CpuBackend>> CpuBackend::create(std::string_view isa, int32_t threads, const HostThreads& host) {
  const auto sets = cpu::instruction_sets();
  const auto set = std::find_if(sets.begin(), sets.end(), [&](const cpu::InstructionSet& each) {
    return isa == "auto" ? each.runs_here() : each.name == isa;
  });
  if (set == sets.end()) {
    std::string known = "auto";
    for (const cpu::InstructionSet& each : sets) known.append(", ").append(each.name);
    return invalid_argument("instruction set \"" + std::string(isa) + "\" is none of " + known);
  }
  if (!set->runs_here()) {
    std::string here;
    for (const std::string& name : isas()) here += ", " + name;
    return Status(StatusCode::kUnsupported,
                  "this machine lacks the instructions of " + std::string(isa) + "; choose one of auto" + here);
  }
  return with_kernels(set->kernels(), threads, host);
}

Result<std::unique_ptr<CpuBackend>> CpuBackend::with_kernels(const cpu::Kernels& kernels, int32_t threads,
                                                             const HostThreads& host) {
  if (threads < 1) return invalid_argument("threads must be at least 1, not " + std::to_string(threads));
  try {
    return std::unique_ptr<CpuBackend>(new CpuBackend(kernels, threads, host));
  } catch (const std::system_error& error) {
    return Status(StatusCode::kUnsupported,
                  "the system did not start " + std::to_string(threads) + " threads: " + error.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

CpuBackend::CpuBackend(const cpu::Kernels& kernels, int32_t threads, const HostThreads& host)
    : kernels_(kernels),
      order_(std::make_unique<cpu::WeightOrder>()),
      next_weights_(std::make_unique<cpu::NextWeights[]>(static_cast<size_t>(threads))),
      pool_(
          threads,
          [](void* weights, int32_t thread) { return static_cast<cpu::NextWeights*>(weights)[thread].bring_nearer(); },
          next_weights_.get(), host),
      sampler_(kernels) {
  const size_t bytes = up_to_unit(kernels_.attention_scratch_bytes, 64) + 2 * cpu::kSumsBytes;
  scratch_stride_ = static_cast<size_t>(up_to_unit(static_cast<int64_t>(bytes), 4096)) + 64;
  const auto take = [](Buffer<std::byte>& buffer, size_t size) {
    Result<Buffer<std::byte>> made = Buffer<std::byte>::make(size, "the scratch memory");
    if (!made.ok()) throw std::bad_alloc();
    buffer = std::move(made).value();
  };
  take(scratch_, scratch_stride_ * static_cast<size_t>(pool_.threads()));
  if (threads == 1) return;
  take(chunk_sums_, 2 * static_cast<size_t>(most_chunk_tasks()) * cpu::kSumsBytes);
  chunk_tasks_.reserve(static_cast<size_t>(most_chunk_tasks()));
}

CpuBackend::~CpuBackend() = default;

const char* CpuBackend::isa() const { return kernels_.isa; }

Status CpuBackend::take_memory(const StepSizes& sizes) {
  KAIJU_TRY(take_prepared(sizes.rows, sizes.widest_input));
  // At most: pieces full of query rows, one more at the end of each segment, and what cutting for the threads adds
  // (attend).
  const int64_t parts = int64_t{pool_.threads()} * kPartsPerThread,
                group_parts = ceil_div(sizes.heads / sizes.kv_heads, cpu::kMaxQueryRows);
  const int64_t pieces = (2 * parts + ceil_div(int64_t{sizes.rows} * sizes.heads, cpu::kMaxQueryRows / 2) +
                          int64_t{sizes.segments} * sizes.kv_heads) *
                             group_parts +
                         parts;
  try {
    pieces_.reserve(static_cast<size_t>(pieces));
    piece_totals_.resize(static_cast<size_t>(std::max(sizes.rows, sizes.segments) + 2 * pool_.threads()));
    sampler_.reserve(sizes.vocab_size);
  } catch (const std::bad_alloc&) {
    return {StatusCode::kOutOfMemory, "the system gave no memory for sampling from " +
                                          std::to_string(sizes.vocab_size) + " tokens and for attention of " +
                                          std::to_string(sizes.rows) + " rows"};
  }
  return {};
}

Status CpuBackend::take_prepared(int32_t rows, int32_t inputs) {
  const size_t bytes = kernels_.prepared_bytes(rows, inputs);
  if (bytes <= prepared_.size()) return {};
  Result<Buffer<std::byte>> made = Buffer<std::byte>::make(bytes, "the prepared activations");
  if (!made.ok()) return made.status();
  prepared_ = std::move(made).value();
  return {};
}

void CpuBackend::embed(const Matrix& table, const float* scale, std::span<const int32_t> tokens, arith::bf16* x) {
  for_rows(pool_, static_cast<int32_t>(tokens.size()), table.in, [&](int32_t first, int32_t end) {
    kernels_.embed(table.weight, table.in, scale, tokens.data() + first, end - first, x + int64_t{first} * table.in);
  });
}

void CpuBackend::norm(const NormArgs& norm) {
  for_rows(pool_, norm.rows, norm.width, [&](int32_t first, int32_t end) {
    const int64_t at = int64_t{first} * norm.width;
    kernels_.norm(norm.x + at, end - first, norm.width, norm.eps, norm.inverse_scale, norm.a + at);
  });
}

void CpuBackend::linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) {
  linears({{{w, scale, out}}}, a, rows);
}
void CpuBackend::linears(std::span<const LinearProduct> products, const int8_t* a, int32_t rows) {
  cpu::MatmulArgs args[kMostLinears];
  for (size_t i = 0; i < products.size(); ++i) {
    const auto& [w, scale, out] = products[i];
    args[i] = {w.weight, w.row_sum, w.out, w.in, a, rows, scale, out, cpu::MatmulKind::kLinear, nullptr};
  }
  multiply({args, products.size()});
}
void CpuBackend::wide_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) {
  cpu::MatmulArgs args{w.weight, w.row_sum, w.out, w.in, a, 2 * rows, scale, out, cpu::MatmulKind::kWide, nullptr};
  multiply({&args, 1});
}
void CpuBackend::up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h) {
  cpu::MatmulArgs args{w.weight, w.row_sum, w.out, w.in, a, rows, alpha, h, cpu::MatmulKind::kUp, nullptr};
  multiply({&args, 1});
}
void CpuBackend::add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x) {
  cpu::MatmulArgs args{w.weight, w.row_sum, w.out, w.in, a, rows, scale, x, cpu::MatmulKind::kAddLinear, nullptr};
  multiply({&args, 1});
}
void CpuBackend::add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x) {
  cpu::MatmulArgs args{w.weight, w.row_sum, w.out, w.in, h, rows, scale, x, cpu::MatmulKind::kAddDown, nullptr};
  if (!add_down_skipping(args)) multiply({&args, 1});
}

// Products of the same rows. Threads share the outputs, in units of the kernel; and the rows too, when outputs are few
// and rows many.
void CpuBackend::multiply(std::span<cpu::MatmulArgs> products) {
  cpu::MatmulArgs& first = products.front();
  const int32_t rows = first.rows, threads = pool_.threads();
  prepare(first);

  MatmulCut cuts[kMostLinears];
  int32_t begins[kMostLinears + 1] = {};  // the first part of each product
  for (size_t i = 0; i < products.size(); ++i) {
    products[i].prepared = first.prepared;
    cuts[i] = cut_matmul(products[i].out, products[i].in, rows);
    begins[i + 1] = begins[i] + cuts[i].out_parts * cuts[i].row_parts;
  }
  const Matrix next = next_large({first.weight, first.row_sum, first.out, first.in}, rows);
  const int32_t parts = begins[products.size()];
  pool_.parallel_for(parts, [&](int32_t part, int32_t thread) {
    size_t product = 0;
    const auto piece_of = [&](int32_t p) {
      while (p >= begins[product + 1]) ++product;
      const auto [out_parts, row_parts] = cuts[product];
      const int32_t at = p - begins[product], out_part = at / row_parts, row_part = at % row_parts;
      cpu::MatmulPiece piece;
      piece.first_out = first_out(products[product].out, out_part, out_parts);
      piece.end_out = first_out(products[product].out, out_part + 1, out_parts);
      piece.first_row = first_row(rows, row_part, row_parts);
      piece.end_row = first_row(rows, row_part + 1, row_parts);
      return piece;
    };
    cpu::MatmulPiece piece = piece_of(part);
    const cpu::MatmulArgs& args = products[product];
    if (part + threads < parts) {
      const cpu::MatmulPiece later = piece_of(part + threads);
      piece.next_weight = products[product].weight + int64_t{later.first_out} * first.in;
      piece.next_outs = later.end_out - later.first_out;
    } else {
      announce(thread, next, rows);
    }
    kernels_.matmul[static_cast<int32_t>(args.kind)](args, piece);
  });
}

// Rearranges the bytes for the kernel: threads share the rows, in units of the kernel, and the columns.
void CpuBackend::prepare(cpu::MatmulArgs& args) {
  if (!take_prepared(args.rows, args.in).ok()) throw std::bad_alloc();
  args.prepared = prepared_.data();
  const int32_t row_units = ceil_div(args.rows, kernels_.row_unit), lines = args.in / cpu::kInUnit;
  const auto parts = static_cast<int32_t>(std::clamp<int64_t>(int64_t{args.rows} * args.in / kPreparedBytesPerPart, 1,
                                                              int64_t{pool_.threads()} * kPartsPerThread));
  const int32_t row_parts = std::min(parts, row_units), column_parts = std::clamp(parts / row_parts, 1, lines);
  pool_.parallel_for(row_parts * column_parts, [&](int32_t part, int32_t) {
    const int32_t row_part = part / column_parts, column_part = part % column_parts;
    const auto column = [&](int64_t p) { return static_cast<int32_t>(lines * p / column_parts) * cpu::kInUnit; };
    kernels_.prepare(args, {first_row(args.rows, row_part, row_parts), first_row(args.rows, row_part + 1, row_parts),
                            column(column_part), column(column_part + 1)});
  });
}

CpuBackend::MatmulCut CpuBackend::cut_matmul(int32_t out, int32_t in, int32_t rows) const {
  const int32_t out_units = ceil_div(out, kernels_.out_unit), row_units = ceil_div(rows, kernels_.row_unit);
  const int32_t most_parts = pool_.threads() * kPartsPerThread;
  const int64_t work = int64_t{out} * in * ceil_div(rows, 8);
  MatmulCut cut;
  cut.out_parts =
      static_cast<int32_t>(std::clamp<int64_t>(work / kWeightBytesPerPart, 1, std::min(out_units, most_parts)));
  // A matrix of fewer parts than threads is small: reading it once more for each part of the rows costs little.
  const int32_t rows_per_part = cut.out_parts < pool_.threads() ? kernels_.row_unit : kRowsPerPart;
  cut.row_parts = std::clamp(std::min(most_parts / cut.out_parts, rows / rows_per_part), 1, row_units);
  return cut;
}

// What is probably multiplied after this matrix, of those that all threads have parts of.
Matrix CpuBackend::next_large(const Matrix& now, int32_t rows) {
  constexpr int kMostSmall = 3;
  order_->pass(now);
  Matrix next = order_->next_after(now);
  for (int i = 0; i < kMostSmall && next.weight && cut_matmul(next.out, next.in, rows).out_parts < pool_.threads(); ++i)
    next = order_->next_after(next);
  return next;
}

// The first output or row of a part, a multiple of the kernels' unit.
int32_t CpuBackend::first_out(int32_t out, int32_t part, int32_t parts) const {
  const int64_t units = ceil_div(out, kernels_.out_unit);
  return std::min(out, static_cast<int32_t>(units * part / parts) * kernels_.out_unit);
}
int32_t CpuBackend::first_row(int32_t rows, int32_t part, int32_t parts) const {
  const int64_t units = ceil_div(rows, kernels_.row_unit);
  return std::min(rows, static_cast<int32_t>(units * part / parts) * kernels_.row_unit);
}

// Tells a thread which weights it will read first in the matrix that is probably next, if that has as many rows.
void CpuBackend::announce(int32_t thread, const Matrix& next, int32_t rows) {
  cpu::NextWeights& weights = next_weights_[static_cast<size_t>(thread)];
  weights = {};
  if (!next.weight) return;
  const auto [out_parts, row_parts] = cut_matmul(next.out, next.in, rows);
  if (thread >= out_parts * row_parts) return;
  const int32_t part = thread / row_parts;
  const auto weight = [&](int32_t p) { return next.weight + int64_t{first_out(next.out, p, out_parts)} * next.in; };
  weights.at = weight(part);
  weights.end = std::min(weight(part + 1), weights.at + cpu::NextWeights::kMostBytes);
}

void CpuBackend::queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads,
                         int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  const int64_t width = int64_t{heads} * head_dim;
  for_rows(pool_, batch.row_count, width, [&](int32_t first, int32_t end) {
    kernels_.queries(q + first * width, end - first, angles + int64_t{first} * (head_dim / 2), heads, kv_heads,
                     head_dim, inverse, out + first * width);
  });
}

// Threads share the rows, or where these are few, pieces of them.
void CpuBackend::weigh_rows(const float* logits, int32_t rows, int32_t vocab_size, RowTotal* totals) {
  const int32_t per_row = std::clamp(2 * pool_.threads() / rows, 1, ceil_div(vocab_size, kLogitsPerPart));
  const auto pieces = static_cast<size_t>(rows * per_row);
  if (piece_totals_.size() < pieces) piece_totals_.resize(pieces);
  const auto for_pieces = [&](auto work) {
    pool_.parallel_for(rows * per_row, [&](int32_t i, int32_t) {
      const int64_t row = i / per_row, piece = i % per_row, first = vocab_size * piece / per_row;
      const auto count = static_cast<int32_t>(vocab_size * (piece + 1) / per_row - first);
      work(row, piece_totals_[static_cast<size_t>(i)], logits + row * vocab_size + first, count);
    });
  };
  const auto for_totals = [&](auto work) {
    for (int32_t i = 0; i < rows * per_row; ++i) work(totals[i / per_row], piece_totals_[static_cast<size_t>(i)]);
  };
  std::fill_n(totals, rows, RowTotal{-HUGE_VALF, 0});
  for_pieces(
      [&](int64_t, RowTotal& piece, const float* some, int32_t count) { piece.best = kernels_.maximum(some, count); });
  for_totals([](RowTotal& row, const RowTotal& piece) { row.best = std::max(row.best, piece.best); });
  for_pieces([&](int64_t row, RowTotal& piece, const float* some, int32_t count) {
    piece.total = kernels_.masses(some, count, totals[row].best, arith::kLog2E, nullptr);
  });
  for_totals([](RowTotal& row, const RowTotal& piece) { row.total += piece.total; });
}

// Calls work(row, KV head, block, token within the block) for every key that the batch writes.
template <class Work>
void CpuBackend::for_each_kept(const Batch& batch, const KvSlot& kv, Work&& work) {
  for_rows(pool_, batch.row_count, int64_t{2} * kv.kv_heads * kv.head_dim, [&](int32_t first, int32_t end) {
    for (int32_t row = first; row < end; ++row) {
      const BatchSegment& segment = batch.segments[batch.row_segment[row]];
      const int32_t position = batch.positions[row];
      if (kv.kind == BlockKind::kGlobal && position < segment.write_from) continue;
      const BlockId block = segment.table[static_cast<int32_t>(kv.kind)][position / kBlockTokens];
      for (int32_t g = 0; g < kv.kv_heads; ++g) work(row, g, block, position % kBlockTokens);
    }
  });
}

void CpuBackend::append(const float* k, const float* v, const Batch& batch, const arith::CosSin* angles,
                        const float* k_inverse, const float* v_inverse, const KvSlot& kv) {
  const int32_t head_dim = kv.head_dim;
  for_each_kept(batch, kv, [&](int32_t row, int32_t g, BlockId block, int32_t token) {
    const int64_t at = (int64_t{row} * kv.kv_heads + g) * head_dim;
    kernels_.append(k + at, v + at, angles + int64_t{row} * (head_dim / 2), head_dim, k_inverse + int64_t{g} * head_dim,
                    v_inverse + int64_t{g} * head_dim, token, kv.keys(block, g), kv.values(block, g));
  });
}

// ---- version 2 of the arithmetic ----

void CpuBackend::embed_rows(const EmbedRows& args) {
  for_rows(pool_, args.rows, args.width, [&](int32_t first, int32_t end) { kernels_.embed_rows(args, first, end); });
}
void CpuBackend::norm_rows(const NormRows& args) {
  for_rows(pool_, args.rows, args.width, [&](int32_t first, int32_t end) { kernels_.norm_rows(args, first, end); });
}
void CpuBackend::quantise_rows(const QuantiseRows& args) {
  for_rows(pool_, args.rows, args.width, [&](int32_t first, int32_t end) { kernels_.quantise_rows(args, first, end); });
}
void CpuBackend::gate_rows(const GateRows& args) {
  for_rows(pool_, args.rows, int64_t{4} * args.ups.width,
           [&](int32_t first, int32_t end) { kernels_.gate_rows(args, first, end); });
}
void CpuBackend::add_rows(const AddRows& args) {
  for_rows(pool_, args.rows, args.y.width, [&](int32_t first, int32_t end) { kernels_.add_rows(args, first, end); });
}
void CpuBackend::logit_rows(const LogitRows& args) {
  for_rows(pool_, args.rows, args.y.width, [&](int32_t first, int32_t end) { kernels_.logit_rows(args, first, end); });
}
void CpuBackend::query_rows(const QueryRows& args) {
  for_rows(pool_, args.rows, int64_t{args.heads} * args.head_dim,
           [&](int32_t first, int32_t end) { kernels_.query_rows(args, first, end); });
}
void CpuBackend::append_rows(const KeyValueRows& args, const Batch& batch, const KvSlot& kv) {
  for_each_kept(batch, kv, [&](int32_t row, int32_t g, BlockId block, int32_t token) {
    kernels_.append_rows(args, row, g, token, kv.keys(block, g), kv.values(block, g), kv.key_scales(block, g) + token,
                         kv.value_scales(block, g) + token);
  });
}

}  // namespace kaiju
