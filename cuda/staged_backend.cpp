// StagedBackend: copies operands to the GPU and back around each operation. See staged_backend.hpp.
#include "staged_backend.hpp"

#include <algorithm>

#include "memory.hpp"

namespace kaiju::cuda {

// The device memory of one operation.
class StagedBackend::Call {
 public:
  explicit Call(StagedBackend& owner) : device_(owner.backend_.device()), shortage_(owner.shortage_) {}

  // A copy on the device.
  template <class T>
  T* in(const T* from, size_t count) {
    T* to = out<T>(count);
    if (to && device_.ok())
      device_.check(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyHostToDevice, device_.stream()),
                    "a copy to the GPU");
    return to;
  }
  // Memory for a result, full of 0xA5: what the operation leaves unwritten shows.
  template <class T>
  T* out(size_t count) {
    DeviceBuffer<std::byte>& buffer = buffers_.emplace_back();
    if (const Status taken = take(buffer, std::max<size_t>(count * sizeof(T), 16), "an operation"); !taken.ok()) {
      if (shortage_.ok()) shortage_ = taken;
      device_.check(cudaErrorMemoryAllocation, "an operation's memory");  // nothing is launched from here on
      return nullptr;
    }
    device_.check(cudaMemsetAsync(buffer.data(), 0xA5, count * sizeof(T), device_.stream()), "filling memory");
    return reinterpret_cast<T*>(buffer.data());
  }
  Matrix in(const Matrix& w) {
    return {in(w.weight, static_cast<size_t>(w.out) * w.in),
            w.row_sum ? in(w.row_sum, static_cast<size_t>(w.out)) : nullptr, w.out, w.in};
  }

  // The outputs of a matmul; null sums stay null.
  Outputs in(const Outputs& y, int32_t rows) {
    if (!y.sums) return y;
    const auto count = static_cast<size_t>(rows), width = static_cast<size_t>(y.width);
    Outputs there = y;
    there.sums = in(y.sums, (y.wide ? 2 : 1) * count * width);
    there.scale = in_or_null(y.scale, count);
    there.bias = in_or_null(y.bias, width);
    return there;
  }
  template <class T>
  const T* in_or_null(const T* from, size_t count) {
    return from ? in(from, count) : nullptr;
  }
  // Where rows of floats are quantised to.
  static size_t bytes_of(const Quantiser& to, int32_t rows, int32_t width) {
    return static_cast<size_t>(to.wide ? 2 * rows : rows) * static_cast<size_t>(width);
  }
  Quantiser out(const Quantiser& to, int32_t rows, int32_t width) {
    Quantiser there = to;
    there.bytes = out<int8_t>(bytes_of(to, rows, width));
    there.scale = out<float>(static_cast<size_t>(rows));
    return there;
  }
  void back(const Quantiser& to, const Quantiser& there, int32_t rows, int32_t width) {
    back(to.bytes, there.bytes, bytes_of(to, rows, width));
    back(to.scale, there.scale, static_cast<size_t>(rows));
  }

  template <class T>
  void back(T* to, const T* from, size_t count) {
    if (device_.ok())
      device_.check(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToHost, device_.stream()),
                    "a copy from the GPU");
    device_.check(cudaStreamSynchronize(device_.stream()), "an operation");
  }

  // The batch with everything it points to; `pool_blocks` becomes the number of cache blocks that its rows may touch.
  Batch in(const Batch& batch, const KvSlot& kv, int32_t& pool_blocks) {
    const auto rows = static_cast<size_t>(batch.row_count);
    const auto kind = static_cast<size_t>(kv.kind);
    pool_blocks = 0;
    std::vector<BatchSegment> segments(batch.segments.begin(), batch.segments.end());
    int32_t single_from = 0;
    for (size_t s = 0; s < segments.size(); ++s)
      if (segments[s].row_count > 1) single_from = static_cast<int32_t>(s) + 1;
    for (BatchSegment& segment : segments) {
      const int32_t first = kv.first_visible(segment.position) / kBlockTokens,
                    last = (segment.position + segment.row_count - 1) / kBlockTokens;
      std::vector<BlockId> table(static_cast<size_t>(last) + 1, kNoBlock);
      for (int32_t i = first; i <= last; ++i) {
        table[i] = segment.table[kind][i];
        pool_blocks = std::max(pool_blocks, table[i] + 1);
      }
      segment.table[0] = segment.table[1] = nullptr;
      segment.table[kind] = in(table.data(), table.size());
      wait();  // the table's host memory goes
    }
    const Batch there{batch.row_count,
                      {in(batch.tokens.data(), rows), rows},
                      {in(batch.positions.data(), rows), rows},
                      {in(segments.data(), segments.size()), segments.size()},
                      {in(batch.row_segment.data(), rows), rows},
                      single_from};
    wait();
    return there;
  }

 private:
  void wait() { device_.check(cudaStreamSynchronize(device_.stream()), "a copy to the GPU"); }

  Device& device_;
  Status& shortage_;
  std::vector<DeviceBuffer<std::byte>> buffers_;
};

StagedBackend::StagedBackend(std::shared_ptr<Device> device) : backend_(std::move(device)) {
  shortage_ = backend_.take_memory(256);  // any head_dim
  if (!shortage_.ok()) backend_.device().check(cudaErrorMemoryAllocation, "the sums of attention");
}
StagedBackend::~StagedBackend() = default;

Status StagedBackend::status() const { return shortage_.ok() ? backend_.device().status() : shortage_; }

void StagedBackend::embed(const Matrix& table, const float* scale, std::span<const int32_t> tokens, arith::bf16* x) {
  Call call(*this);
  const size_t count = tokens.size() * static_cast<size_t>(table.in);
  auto* out = call.out<arith::bf16>(count);
  backend_.embed(call.in(table), call.in(scale, static_cast<size_t>(table.out)),
                 {call.in(tokens.data(), tokens.size()), tokens.size()}, out);
  call.back(x, out, count);
}

void StagedBackend::norm(const NormArgs& norm) {
  Call call(*this);
  const size_t count = static_cast<size_t>(norm.rows) * norm.width;
  NormArgs there = norm;
  there.x = call.in(norm.x, count), there.a = call.out<int8_t>(count);
  backend_.norm(there);
  call.back(norm.a, there.a, count);
}

void StagedBackend::linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) {
  Call call(*this);
  const size_t count = static_cast<size_t>(rows) * w.out;
  auto* there = call.out<float>(count);
  backend_.linear(call.in(w), call.in(a, static_cast<size_t>(rows) * w.in), rows,
                  call.in(scale, static_cast<size_t>(w.out)), there);
  call.back(out, there, count);
}

void StagedBackend::up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h) {
  Call call(*this);
  const size_t count = static_cast<size_t>(rows) * w.out;
  auto* there = call.out<uint8_t>(count);
  backend_.up(call.in(w), call.in(a, static_cast<size_t>(rows) * w.in), rows,
              call.in(alpha, static_cast<size_t>(w.out)), there);
  call.back(h, there, count);
}

void StagedBackend::add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x) {
  Call call(*this);
  const size_t count = static_cast<size_t>(rows) * w.out;
  auto* there = call.in(x, count);
  backend_.add_linear(call.in(w), call.in(a, static_cast<size_t>(rows) * w.in), rows,
                      call.in(scale, static_cast<size_t>(w.out)), there);
  call.back(x, there, count);
}

void StagedBackend::add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x) {
  Call call(*this);
  const size_t count = static_cast<size_t>(rows) * w.out;
  auto* there = call.in(x, count);
  backend_.add_down(call.in(w), call.in(h, static_cast<size_t>(rows) * w.in), rows,
                    call.in(scale, static_cast<size_t>(w.out)), there);
  call.back(x, there, count);
}

void StagedBackend::queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads,
                            int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  Call call(*this);
  const size_t rows = static_cast<size_t>(batch.row_count), count = rows * heads * head_dim;
  auto* there = call.out<int8_t>(count);
  backend_.queries(call.in(q, count), {batch.row_count, {}, {}, {}, {}}, call.in(angles, rows * (head_dim / 2)), heads,
                   kv_heads, head_dim, call.in(inverse, static_cast<size_t>(kv_heads) * head_dim), there);
  call.back(out, there, count);
}

void StagedBackend::append(const float* k, const float* v, const Batch& batch, const arith::CosSin* angles,
                           const float* k_inverse, const float* v_inverse, const KvSlot& kv) {
  Call call(*this);
  const size_t rows = static_cast<size_t>(batch.row_count), width = static_cast<size_t>(kv.kv_heads) * kv.head_dim;
  int32_t blocks = 0;
  const Batch there = call.in(batch, kv, blocks);
  KvSlot slot = kv;
  const auto bytes = static_cast<size_t>(blocks * kv.block_bytes);
  slot.pool = call.in(kv.pool, bytes);
  backend_.append(call.in(k, rows * width), call.in(v, rows * width), there, call.in(angles, rows * (kv.head_dim / 2)),
                  call.in(k_inverse, width), call.in(v_inverse, width), slot);
  call.back(kv.pool, slot.pool, bytes);
}

void StagedBackend::attend(const AttentionArgs& args, const Batch& batch, const KvSlot& kv) {
  Call call(*this);
  const size_t count = static_cast<size_t>(batch.row_count) * args.heads * kv.head_dim;
  int32_t blocks = 0;
  const Batch there = call.in(batch, kv, blocks);
  KvSlot slot = kv;
  slot.pool = call.in(kv.pool, static_cast<size_t>(blocks * kv.block_bytes));
  auto* out = call.out<int8_t>(count);
  backend_.begin_batch();
  backend_.attend({call.in(args.queries, count), args.heads, args.z,
                   call.in(args.out_inverse, static_cast<size_t>(kv.kv_heads) * kv.head_dim), out},
                  there, slot);
  call.back(args.out, out, count);
}

// ---- version 2 of the arithmetic ----

void StagedBackend::embed_rows(const EmbedRows& args) {
  Call call(*this);
  const auto rows = static_cast<size_t>(args.rows), width = static_cast<size_t>(args.width);
  const auto last = static_cast<size_t>(*std::max_element(args.tokens, args.tokens + rows)),
             table_rows = last * static_cast<size_t>(args.each) + 1;
  EmbedRows there = args;
  there.weight = call.in(args.weight, table_rows * width);
  there.factor = call.in(args.factor, table_rows);
  there.tokens = call.in(args.tokens, rows);
  there.x = call.out<float>(rows * width);
  backend_.embed_rows(there);
  call.back(args.x, there.x, rows * width);
}

void StagedBackend::norm_rows(const NormRows& args) {
  Call call(*this);
  const auto rows = static_cast<size_t>(args.rows), width = static_cast<size_t>(args.width);
  NormRows there = args;
  there.x = call.in(args.x, rows * width);
  there.gain = call.in_or_null(args.gain, width);
  there.scratch = call.out<float>(rows * width);
  there.to = call.out(args.to, args.rows, args.width);
  backend_.norm_rows(there);
  call.back(args.to, there.to, args.rows, args.width);
}

void StagedBackend::quantise_rows(const QuantiseRows& args) {
  Call call(*this);
  const size_t count = static_cast<size_t>(args.rows) * static_cast<size_t>(args.width);
  QuantiseRows there = args;
  there.values = call.in(args.values, count);
  if (args.scratch) there.scratch = call.out<float>(count);
  there.to = call.out(args.to, args.rows, args.width);
  backend_.quantise_rows(there);
  if (args.scratch) call.back(args.values, there.values, count);
  call.back(args.to, there.to, args.rows, args.width);
}

void StagedBackend::gate_rows(const GateRows& args) {
  Call call(*this);
  GateRows there = args;
  there.gates = call.in(args.gates, args.rows);
  there.ups = call.in(args.ups, args.rows);
  there.to = call.out(args.to, args.rows, args.ups.width);
  backend_.gate_rows(there);
  call.back(args.to, there.to, args.rows, args.ups.width);
}

void StagedBackend::add_rows(const AddRows& args) {
  Call call(*this);
  const auto width = static_cast<size_t>(args.y.width), count = static_cast<size_t>(args.rows) * width;
  AddRows there = args;
  there.y = call.in(args.y, args.rows);
  there.gain = call.in_or_null(args.gain, width);
  there.x = call.in(args.x, count);
  backend_.add_rows(there);
  call.back(args.x, there.x, count);
}

void StagedBackend::add_norm_rows(const AddRows& args, const NormRows& norm) {
  Call call(*this);
  const auto width = static_cast<size_t>(args.y.width), count = static_cast<size_t>(args.rows) * width;
  AddRows there = args;
  there.y = call.in(args.y, args.rows);
  there.gain = call.in_or_null(args.gain, width);
  there.x = call.in(args.x, count);
  NormRows norm_there = norm;
  norm_there.x = there.x;
  norm_there.gain = call.in_or_null(norm.gain, width);
  norm_there.scratch = call.out<float>(count);
  norm_there.to = call.out(norm.to, norm.rows, norm.width);
  backend_.add_norm_rows(there, norm_there);
  call.back(args.x, there.x, count);
  call.back(norm.to, norm_there.to, norm.rows, norm.width);
}

void StagedBackend::logit_rows(const LogitRows& args) {
  Call call(*this);
  const size_t count = static_cast<size_t>(args.rows) * static_cast<size_t>(args.y.width);
  LogitRows there = args;
  there.y = call.in(args.y, args.rows);
  there.out = args.out == args.y.sums ? there.y.sums : call.out<float>(count);
  backend_.logit_rows(there);
  call.back(args.out, there.out, count);
}

void StagedBackend::query_rows(const QueryRows& args) {
  Call call(*this);
  const auto rows = static_cast<size_t>(args.rows), heads = static_cast<size_t>(args.heads),
             head_dim = static_cast<size_t>(args.head_dim);
  QueryRows there = args;
  there.q = call.in(args.q, args.rows);
  there.gain = call.in_or_null(args.gain, head_dim);
  there.angles = call.in(args.angles, rows * (head_dim / 2));
  there.key_step = call.in(args.key_step, static_cast<size_t>(args.kv_heads) * head_dim);
  there.bytes = call.out<int8_t>(rows * heads * head_dim);
  there.z = call.out<float>(rows * heads);
  backend_.query_rows(there);
  call.back(args.bytes, there.bytes, rows * heads * head_dim);
  call.back(args.z, there.z, rows * heads);
}

void StagedBackend::append_rows(const KeyValueRows& args, const Batch& batch, const KvSlot& kv) {
  Call call(*this);
  const auto rows = static_cast<size_t>(batch.row_count), head_dim = static_cast<size_t>(args.head_dim),
             width = static_cast<size_t>(args.kv_heads) * head_dim;
  int32_t blocks = 0;
  const Batch batch_there = call.in(batch, kv, blocks);
  KvSlot slot = kv;
  const auto bytes = static_cast<size_t>(blocks * kv.block_bytes);
  slot.pool = call.in(kv.pool, bytes);
  KeyValueRows there = args;
  there.k = call.in(args.k, batch.row_count);
  there.v = call.in(args.v, batch.row_count);
  there.key_gain = call.in_or_null(args.key_gain, head_dim);
  there.angles = call.in(args.angles, rows * (head_dim / 2));
  there.key_inverse = call.in(args.key_inverse, width);
  there.value_inverse = call.in(args.value_inverse, width);
  backend_.append_rows(there, batch_there, slot);
  call.back(kv.pool, slot.pool, bytes);
}

void StagedBackend::attend(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv) {
  Call call(*this);
  const auto items = static_cast<size_t>(batch.row_count) * static_cast<size_t>(args.heads),
             count = items * static_cast<size_t>(kv.head_dim);
  int32_t blocks = 0;
  const Batch batch_there = call.in(batch, kv, blocks);
  KvSlot slot = kv;
  slot.pool = call.in(kv.pool, static_cast<size_t>(blocks * kv.block_bytes));
  ScaledAttentionArgs there = args;
  there.queries = call.in(args.queries, count);
  there.z = call.in(args.z, items);
  there.value_step = call.in(args.value_step, static_cast<size_t>(kv.kv_heads) * static_cast<size_t>(kv.head_dim));
  there.out = call.out<float>(count);
  backend_.attend(there, batch_there, slot);
  call.back(args.out, there.out, count);
}

void StagedBackend::sample(const SampleArgs& args, SampledToken& result) {
  Call call(*this);
  Device& device = backend_.device();
  const auto vocab = static_cast<size_t>(args.vocab_size);
  SamplingSpec spec = *args.spec;
  if (!args.seen) spec.repetition_penalty = 1.0f;
  SampleRow sample = sample_row_of(spec, args.guide, 0, args.position, args.top_logprobs);
  sample.adjusted |= args.changed != nullptr;
  const SampleRow* samples = call.in(&sample, 1);
  const float* logits = call.in(args.logits, vocab);
  auto* adjusted = call.out<float>(vocab);
  auto* there = call.out<Sampled>(1);
  auto* top_there = call.out<Alternative>(kMostTop);
  auto* last_there = call.out<int32_t>(1);
  const uint8_t* seen = args.seen ? call.in(args.seen, vocab) : call.out<uint8_t>(vocab);
  const float* sampled_from = args.changed ? call.in(args.changed, vocab) : logits;
  if (device.ok())
    device.check(penalise(device.stream(), sampled_from, samples, 1, args.vocab_size, seen, adjusted), "penalties");
  const auto add = [&](const std::vector<std::pair<int32_t, float>>& biases) {
    for (const auto& [token, bias] : biases) {  // one launch each: a token may come twice here
      const Bias one{0, token, bias};
      if (device.ok())
        device.check(add_biases(device.stream(), call.in(&one, 1), 1, args.vocab_size, adjusted), "biases");
      device.check(cudaStreamSynchronize(device.stream()), "biases");
    }
  };
  add(spec.logit_bias);
  std::vector<MaskPiece> mask;
  if (args.guide) {
    add(args.guide->logit_bias);
    append_mask(*args.guide, 0, mask);
  }
  if (!mask.empty() && device.ok())
    device.check(exclude_tokens(device.stream(), call.in(mask.data(), mask.size()), static_cast<int32_t>(mask.size()),
                                args.vocab_size, adjusted),
                 "masks");
  if (device.ok())
    device.check(cuda::sample(device.stream(), device.chip(), logits, adjusted, samples, 1, args.vocab_size, last_there,
                              there, top_there),
                 "sampling");
  Sampled sampled{};
  call.back(&sampled, there, 1);
  Alternative top[kMostTop];
  call.back(top, top_there, kMostTop);
  if (device.ok()) read_sampled(sampled, top, result);
}

}  // namespace kaiju::cuda
