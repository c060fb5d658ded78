// CpuBackend: divides each operation into pieces for the threads and calls the kernels of one instruction set. It has
// no arithmetic of its own.
#include <algorithm>
#include <new>
#include <system_error>

#include "instruction_sets.hpp"
#include "kaiju/arith/softmax.hpp"
#include "kaiju/backend/cpu.hpp"

namespace kaiju {

static_assert(cpu::kBlock == kBlockTokens && cpu::kChunk == arith::kChunkKeys);

namespace {

// Work smaller than this stays on the calling thread: waking another costs about as much.
constexpr int64_t kRowElementsPerPart = 8192;
constexpr int64_t kWeightBytesPerPart = 48 << 10;
constexpr int32_t kRowsPerPart =
    96;  // of a product with many rows, which read the weights again for every part of the rows
constexpr int32_t kPartsPerThread = 4;

constexpr int64_t up_to_unit(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr int32_t ceil_div(int64_t value, int64_t by) { return static_cast<int32_t>((value + by - 1) / by); }

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

// Memory of the sums of one piece of attention, cut from a thread's scratch.
constexpr size_t kSumsBytes =
    up_to_unit(2 * cpu::kMaxQueryRows * sizeof(float), 64) + sizeof(float) * cpu::kMaxQueryRows * cpu::kMaxHeadDim;

cpu::AttentionSums sums_at(std::byte* memory) {
  auto* maximum = reinterpret_cast<float*>(memory);
  float* total = maximum + cpu::kMaxQueryRows;
  return {maximum, total, reinterpret_cast<float*>(memory + up_to_unit(2 * cpu::kMaxQueryRows * sizeof(float), 64))};
}

}  // namespace

std::vector<std::string> CpuBackend::isas() {
  std::vector<std::string> names;
  for (const cpu::InstructionSet& set : cpu::instruction_sets())
    if (set.runs_here()) names.emplace_back(set.name);
  return names;
}

Result<std::unique_ptr<CpuBackend>> CpuBackend::create(std::string_view isa, int32_t threads) {
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
  if (threads < 1) return invalid_argument("threads must be at least 1, not " + std::to_string(threads));
  try {
    return std::unique_ptr<CpuBackend>(new CpuBackend(set->kernels(), threads));
  } catch (const std::system_error& error) {
    return Status(StatusCode::kUnsupported,
                  "the system did not start " + std::to_string(threads) + " threads: " + error.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

CpuBackend::CpuBackend(const cpu::Kernels& kernels, int32_t threads)
    : kernels_(kernels), pool_(threads), sampler_(kernels) {
  const size_t bytes = up_to_unit(kernels_.attention_scratch_bytes, 64) + 2 * kSumsBytes;
  scratch_stride_ = static_cast<size_t>(up_to_unit(static_cast<int64_t>(bytes), 4096)) + 64;
  Result<Buffer<std::byte>> made =
      Buffer<std::byte>::make(scratch_stride_ * static_cast<size_t>(pool_.threads()), "the scratch memory");
  if (!made.ok()) throw std::bad_alloc();
  scratch_ = std::move(made).value();
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
  cpu::MatmulArgs args{w.weight, w.row_sum, w.out, w.in, a, rows, scale, out, cpu::MatmulKind::kLinear, nullptr};
  multiply(args);
}
void CpuBackend::up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h) {
  cpu::MatmulArgs args{w.weight, w.row_sum, w.out, w.in, a, rows, alpha, h, cpu::MatmulKind::kUp, nullptr};
  multiply(args);
}
void CpuBackend::add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x) {
  cpu::MatmulArgs args{w.weight, w.row_sum, w.out, w.in, a, rows, scale, x, cpu::MatmulKind::kAddLinear, nullptr};
  multiply(args);
}
void CpuBackend::add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x) {
  cpu::MatmulArgs args{w.weight, w.row_sum, w.out, w.in, h, rows, scale, x, cpu::MatmulKind::kAddDown, nullptr};
  multiply(args);
}

// Threads share the outputs, in units of the kernel; and the rows too, when outputs are few and rows many.
void CpuBackend::multiply(cpu::MatmulArgs& args) {
  if (!take_prepared(args.rows, args.in).ok()) throw std::bad_alloc();
  args.prepared = prepared_.data();
  const int32_t out_units = ceil_div(args.out, kernels_.out_unit), row_units = ceil_div(args.rows, kernels_.row_unit);
  for_rows(pool_, row_units, int64_t{kernels_.row_unit} * args.in / 4, [&](int32_t first, int32_t end) {
    kernels_.prepare(args, first * kernels_.row_unit, std::min(args.rows, end * kernels_.row_unit));
  });

  const int32_t most_parts = pool_.threads() * kPartsPerThread;
  const int64_t work = int64_t{args.out} * args.in * ceil_div(args.rows, 8);
  const int32_t out_parts =
      static_cast<int32_t>(std::clamp<int64_t>(work / kWeightBytesPerPart, 1, std::min(out_units, most_parts)));
  const int32_t row_parts = std::clamp(std::min(most_parts / out_parts, args.rows / kRowsPerPart), 1, row_units);
  const auto multiply_piece = kernels_.matmul[static_cast<int32_t>(args.kind)];
  pool_.parallel_for(out_parts * row_parts, [&](int32_t part, int32_t) {
    const int64_t out_part = part / row_parts, row_part = part % row_parts;
    cpu::MatmulPiece piece;
    piece.first_out = static_cast<int32_t>(out_units * out_part / out_parts) * kernels_.out_unit;
    piece.end_out =
        std::min(args.out, static_cast<int32_t>(out_units * (out_part + 1) / out_parts) * kernels_.out_unit);
    piece.first_row = static_cast<int32_t>(row_units * row_part / row_parts) * kernels_.row_unit;
    piece.end_row =
        std::min(args.rows, static_cast<int32_t>(row_units * (row_part + 1) / row_parts) * kernels_.row_unit);
    multiply_piece(args, piece);
  });
}

void CpuBackend::queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads,
                         int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  const int64_t width = int64_t{heads} * head_dim;
  for_rows(pool_, batch.row_count, width, [&](int32_t first, int32_t end) {
    kernels_.queries(q + first * width, end - first, angles + int64_t{first} * (head_dim / 2), heads, kv_heads,
                     head_dim, inverse, out + first * width);
  });
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

void CpuBackend::attend(const AttentionArgs& args, const Batch& batch, const KvSlot& kv) {
  cpu::AttentionPiece whole;
  whole.queries = args.queries;
  whole.out = args.out;
  whole.z = &args.z;
  whole.out_factor = args.out_inverse;
  attend(whole, args.heads, kernels_.attention, batch, kv);
}
void CpuBackend::attend(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv) {
  cpu::AttentionPiece whole;
  whole.queries = args.queries;
  whole.out = args.out;
  whole.z = args.z;
  whole.z_stride = args.heads;
  whole.out_factor = args.value_step;
  attend(whole, args.heads, kernels_.scaled_attention, batch, kv);
}

// A piece is some rows of one sequence times query heads of one KV head, which share what they load of the cache.
// `whole` has the arguments of all rows and heads.
void CpuBackend::attend(const cpu::AttentionPiece& whole, int32_t heads, const cpu::AttentionKernels& kernels,
                        const Batch& batch, const KvSlot& kv) {
  const int32_t group = heads / kv.kv_heads, threads = pool_.threads();
  const int64_t row_groups = int64_t{batch.row_count} * kv.kv_heads;
  const int32_t row_block = static_cast<int32_t>(std::clamp<int64_t>(row_groups / (int64_t{threads} * kPartsPerThread),
                                                                     1, std::max(1, cpu::kMaxQueryRows / group)));
  const int32_t head_parts =
      std::clamp(row_block == 1 ? ceil_div(threads, row_groups) : 1, ceil_div(group, cpu::kMaxQueryRows), group);
  const int64_t width = int64_t{heads} * kv.head_dim, out_bytes = kv.scaled ? sizeof(float) : sizeof(int8_t);

  pieces_.clear();
  for (const BatchSegment& segment : batch.segments)
    for (int32_t r = 0; r < segment.row_count; r += row_block)
      for (int32_t g = 0; g < kv.kv_heads; ++g)
        for (int32_t part = 0; part < head_parts; ++part) {
          const int32_t first_head = group * part / head_parts, end_head = group * (part + 1) / head_parts;
          const int64_t row = segment.first_row + r, head = g * group + first_head,
                        at = row * width + head * kv.head_dim;
          cpu::AttentionPiece& piece = pieces_.emplace_back(whole);
          piece.queries += at;
          piece.out = static_cast<std::byte*>(whole.out) + at * out_bytes;
          piece.row_stride = width;
          piece.row_count = std::min(row_block, segment.row_count - r);
          piece.head_count = end_head - first_head;
          piece.head_dim = kv.head_dim;
          piece.position = segment.position + r;
          piece.window = kv.window;
          piece.table = segment.table[static_cast<int32_t>(kv.kind)];
          piece.cache = kv.keys(0, g);
          piece.block_bytes = kv.block_bytes;
          if (kv.scaled) piece.z += row * whole.z_stride + head;
          piece.out_factor += int64_t{g} * kv.head_dim;
        }

  // Later rows of a sequence see more keys: the long pieces go first.
  const auto count = static_cast<int32_t>(pieces_.size());
  pool_.parallel_for(count, [&](int32_t part, int32_t thread) {
    const cpu::AttentionPiece& piece = pieces_[static_cast<size_t>(count - 1 - part)];
    std::byte* const memory = scratch(thread);
    std::byte* const sums_memory = memory + up_to_unit(kernels_.attention_scratch_bytes, 64);
    const cpu::AttentionSums total = sums_at(sums_memory), later = sums_at(sums_memory + kSumsBytes);
    int32_t chunk = kv.first_visible(piece.position) / cpu::kChunk * cpu::kChunk;
    kernels.sum_chunk(piece, chunk, total, memory);
    for (chunk += cpu::kChunk; chunk < piece.position + piece.row_count; chunk += cpu::kChunk) {
      kernels.sum_chunk(piece, chunk, later, memory);
      kernels.fold(piece, total, later);
    }
    kernels.finish(piece, total);
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
