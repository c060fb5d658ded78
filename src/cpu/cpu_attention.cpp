// CpuBackend's attention, in pieces for the threads. A piece is some rows of one sequence times query heads of one KV
// head, which share what they load of the cache. Where pieces are too few for the threads, as when one long sequence is
// decoded, their chunks of 512 keys are computed by any thread, and then folded in order: sums of a chunk depend on
// nothing else, so the bits are the same.
#include "cpu_attention.hpp"

#include <algorithm>

#include "kaiju/backend/cpu.hpp"

namespace kaiju {

using cpu::ceil_div;
using cpu::kPartsPerThread;

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

namespace {

int32_t first_chunk(const cpu::AttentionPiece& piece) {
  const int32_t first = piece.window > 0 && piece.position >= piece.window ? piece.position - piece.window + 1 : 0;
  return first / cpu::kChunk * cpu::kChunk;
}
int32_t end_of_keys(const cpu::AttentionPiece& piece) { return piece.position + piece.row_count; }

}  // namespace

// Chunks that are computed before they are folded.
int32_t CpuBackend::most_chunk_tasks() const { return 2 * pool_.threads(); }

// How the query heads of a group and the rows are cut.
CpuBackend::AttentionCut CpuBackend::cut_attention(int32_t group, const Batch& batch, const KvSlot& kv) const {
  const int32_t threads = pool_.threads();
  const int64_t row_groups = int64_t{batch.row_count} * kv.kv_heads;
  AttentionCut cut;
  cut.rows = static_cast<int32_t>(std::clamp<int64_t>(row_groups / (int64_t{threads} * kPartsPerThread), 1,
                                                      std::max(1, cpu::kMaxQueryRows / group)));
  int64_t pieces = 0, chunks = 0;  // of whole groups of heads
  for (const BatchSegment& segment : batch.segments) {
    const int64_t of_segment = int64_t{ceil_div(segment.row_count, cut.rows)} * kv.kv_heads;
    const int32_t keys = segment.position + segment.row_count, first = kv.first_visible(segment.position);
    pieces += of_segment;
    chunks += of_segment * (ceil_div(keys, cpu::kChunk) - first / cpu::kChunk);
  }
  const int32_t least_heads = ceil_div(group, cpu::kMaxQueryRows);
  cut.by_chunks = threads > 1 && pieces < threads && chunks > pieces;
  const int64_t wanted = cut.by_chunks ? ceil_div(most_chunk_tasks(), chunks) : ceil_div(threads, row_groups);
  cut.heads = std::clamp(cut.rows == 1 ? static_cast<int32_t>(wanted) : 1, least_heads, group);
  return cut;
}

// `whole` has the arguments of all rows and heads.
void CpuBackend::attend(const cpu::AttentionPiece& whole, int32_t heads, const cpu::AttentionKernels& kernels,
                        const Batch& batch, const KvSlot& kv) {
  const int32_t group = heads / kv.kv_heads;
  const auto [row_block, head_parts, by_chunks] = cut_attention(group, batch, kv);
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

  if (by_chunks && pieces_.size() <= static_cast<size_t>(most_chunk_tasks()))
    attend_by_chunks(kernels);
  else
    attend_by_pieces(kernels);
}

// Later rows of a sequence see more keys: the long pieces go first.
void CpuBackend::attend_by_pieces(const cpu::AttentionKernels& kernels) {
  const auto count = static_cast<int32_t>(pieces_.size());
  pool_.parallel_for(count, [&](int32_t part, int32_t thread) {
    const cpu::AttentionPiece& piece = pieces_[static_cast<size_t>(count - 1 - part)];
    std::byte* const memory = scratch(thread);
    std::byte* const sums_memory = memory + cpu::up_to_unit(static_cast<int64_t>(kernels_.attention_scratch_bytes), 64);
    const cpu::AttentionSums total = cpu::sums_at(sums_memory), later = cpu::sums_at(sums_memory + cpu::kSumsBytes);
    int32_t chunk = first_chunk(piece);
    kernels.sum_chunk(piece, chunk, total, memory);
    for (chunk += cpu::kChunk; chunk < end_of_keys(piece); chunk += cpu::kChunk) {
      kernels.sum_chunk(piece, chunk, later, memory);
      kernels.fold(piece, total, later);
    }
    kernels.finish(piece, total);
  });
}

void CpuBackend::attend_by_chunks(const cpu::AttentionKernels& kernels) {
  chunk_tasks_.clear();
  const auto count = static_cast<int32_t>(pieces_.size());
  for (int32_t p = 0; p < count; ++p) {
    const cpu::AttentionPiece& piece = pieces_[static_cast<size_t>(p)];
    for (int32_t chunk = first_chunk(piece); chunk < end_of_keys(piece); chunk += cpu::kChunk) {
      chunk_tasks_.push_back({p, chunk});
      if (static_cast<int32_t>(chunk_tasks_.size()) == most_chunk_tasks()) sum_and_fold(kernels);
    }
  }
  if (!chunk_tasks_.empty()) sum_and_fold(kernels);
}

// Computes the chunks of the list and folds them into the totals of their pieces. `chunk_sums_` has room for the sums
// of each task, and behind them for the total of each piece.
void CpuBackend::sum_and_fold(const cpu::AttentionKernels& kernels) {
  const auto sums = [this](int32_t i) {
    return cpu::sums_at(chunk_sums_.data() + static_cast<size_t>(i) * cpu::kSumsBytes);
  };
  const auto tasks = static_cast<int32_t>(chunk_tasks_.size());
  pool_.parallel_for(tasks, [&](int32_t i, int32_t thread) {
    const cpu::ChunkTask& task = chunk_tasks_[static_cast<size_t>(i)];
    kernels.sum_chunk(pieces_[static_cast<size_t>(task.piece)], task.chunk, sums(i), scratch(thread));
  });
  const int32_t first_piece = chunk_tasks_.front().piece;
  pool_.parallel_for(chunk_tasks_.back().piece - first_piece + 1, [&](int32_t part, int32_t) {
    const int32_t p = first_piece + part;
    const cpu::AttentionPiece& piece = pieces_[static_cast<size_t>(p)];
    const cpu::AttentionSums total = sums(most_chunk_tasks() + p);
    for (int32_t i = 0; i < tasks; ++i) {
      const cpu::ChunkTask& task = chunk_tasks_[static_cast<size_t>(i)];
      if (task.piece != p) continue;
      if (task.chunk == first_chunk(piece))
        std::fill_n(total.maximum, piece.row_count * piece.head_count, cpu::kNothingSeen);
      kernels.fold(piece, total, sums(i));
      if (task.chunk + cpu::kChunk >= end_of_keys(piece)) kernels.finish(piece, total);
    }
  });
  chunk_tasks_.clear();
}

}  // namespace kaiju
