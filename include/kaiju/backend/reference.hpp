// ReferenceBackend: the executable specification of every operation of a backend. The code of ReferenceBackend is
// scalar and single-threaded, and follows docs/arithmetic.md. Every other backend must give the same bits as
// ReferenceBackend. In a ReferenceBackend, the keys of a block and the values of a block each have the layout [64
// tokens, head_dim].
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kaiju/arith/rms.hpp"
#include "kaiju/arith/rows.hpp"
#include "kaiju/arith/sampling.hpp"
#include "kaiju/arith/softmax.hpp"
#include "kaiju/backend/backend.hpp"
#include "kaiju/backend/chain_draw.hpp"
#include "kaiju/base/random.hpp"

namespace kaiju {

// Returns the address of one token's key [head_dim] or value [head_dim]. `half` is the address of a head's keys or
// values in a block with the layout of ReferenceBackend.
inline int8_t* reference_row(std::byte* half, int32_t position, int32_t head_dim) {
  return reinterpret_cast<int8_t*>(half) + int64_t{position % kBlockTokens} * head_dim;
}

// Whether a guide's mask allows a token.
inline bool allows(std::span<const uint32_t> allowed, int32_t token) {
  return allowed.empty() || (allowed[static_cast<size_t>(token / 32)] >> (token % 32) & 1) != 0;
}

// Draws a token from one row of logits. This function defines the result of sampling; every other backend must draw the
// same token.
inline void sample_row(const SampleArgs& args, std::vector<arith::Candidate>& scratch, SampledToken& result) {
  const SamplingSpec& spec = *args.spec;
  const std::span<const float> logits(args.logits, static_cast<size_t>(args.vocab_size));
  const float plain_maximum = *std::max_element(logits.begin(), logits.end());
  const double log_total = arith::log_total(logits, plain_maximum);

  const float* const sampled_from = args.changed ? args.changed : args.logits;
  scratch.clear();
  for (int32_t token = 0; token < args.vocab_size; ++token) {
    float logit = sampled_from[token];
    if (spec.repetition_penalty != 1.0f && args.seen && args.seen[token])
      logit = arith::penalise(logit, spec.repetition_penalty);
    scratch.push_back({logit, token, 0});
  }
  for (const auto& [token, bias] : spec.logit_bias) scratch[token].logit = arith::add(scratch[token].logit, bias);
  if (args.guide) {
    for (const auto& [token, bias] : args.guide->logit_bias)
      scratch[token].logit = arith::add(scratch[token].logit, bias);
    for (arith::Candidate& c : scratch)
      if (!allows(args.guide->allowed, c.token)) c.logit = -HUGE_VALF;
  }

  const arith::Candidate best = *std::min_element(scratch.begin(), scratch.end());
  if (spec.chain) {
    draw_by_chain(args, scratch, result);
  } else if (spec.temperature == 0.0f) {
    result.token = best.token;
  } else {
    const float factor = arith::temperature_factor(spec.temperature);
    for (arith::Candidate& c : scratch) c.mass = arith::mass(c.logit, best.logit, factor);
    arith::truncate(scratch, spec.top_k, spec.top_p, spec.min_p);
    result.token = arith::draw(scratch, random_bits(spec.seed, spec.stream, static_cast<uint64_t>(args.position)));
  }
  result.logprob = arith::logprob(logits[result.token], plain_maximum, log_total);

  result.top.clear();
  if (args.top_logprobs > 0) {
    scratch.clear();
    for (int32_t token = 0; token < args.vocab_size; ++token) scratch.push_back({logits[token], token, 0});
    const auto count = std::min<size_t>(static_cast<size_t>(args.top_logprobs), scratch.size());
    std::partial_sort(scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(count), scratch.end());
    for (size_t i = 0; i < count; ++i)
      result.top.push_back({scratch[i].token, arith::logprob(scratch[i].logit, plain_maximum, log_total)});
  }
}

class ReferenceBackend {
 public:
  void embed(const Matrix& table, const float* scale, std::span<const int32_t> tokens, arith::bf16* x) {
    for (size_t row = 0; row < tokens.size(); ++row) {
      const int8_t* bytes = table.weight + int64_t{tokens[row]} * table.in;
      for (int32_t i = 0; i < table.in; ++i)
        x[row * table.in + i] = arith::to_bf16(arith::mul(bytes[i], scale[tokens[row]]));
    }
  }

  void norm(const NormArgs& norm) {
    for (int64_t row = 0; row < norm.rows; ++row)
      arith::norm_quantise(norm.x + row * norm.width, norm.width, norm.eps, norm.inverse_scale,
                           norm.a + row * norm.width);
  }

  void linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) {
    each(w, a, rows,
         [&](int64_t at, int32_t n, int32_t acc) { out[at] = arith::mul(static_cast<float>(acc), scale[n]); });
  }
  void wide_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, float* out) {
    std::vector<float> sums(size_t{2} * static_cast<size_t>(w.out));
    for (int64_t row = 0; row < rows; ++row) {
      linear(w, a + 2 * row * w.in, 2, scale, sums.data());
      for (int32_t n = 0; n < w.out; ++n) out[row * w.out + n] = arith::fma(256.0f, sums[n], sums[w.out + n]);
    }
  }
  void up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h) {
    each(w, a, rows,
         [&](int64_t at, int32_t n, int32_t acc) { h[at] = arith::square_byte(arith::up_byte(acc, alpha[n])); });
  }
  void add_linear(const Matrix& w, const int8_t* a, int32_t rows, const float* scale, arith::bf16* x) {
    each(w, a, rows, [&](int64_t at, int32_t n, int32_t acc) { x[at] = arith::residual_add(x[at], acc, scale[n]); });
  }
  void add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x) {
    each(w, h, rows, [&](int64_t at, int32_t n, int32_t acc) { x[at] = arith::residual_add(x[at], acc, scale[n]); });
  }

  void queries(const float* q, const Batch& batch, const arith::CosSin* angles, int32_t heads, int32_t kv_heads,
               int32_t head_dim, const float* inverse, int8_t* out) {
    std::vector<float> head(head_dim);
    for (int64_t row = 0; row < batch.row_count; ++row)
      for (int32_t h = 0; h < heads; ++h) {
        const int64_t at = (row * heads + h) * head_dim;
        std::copy_n(q + at, head_dim, head.begin());
        rotate(head.data(), head_dim, angles + row * (head_dim / 2));
        const float* c = inverse + int64_t{h} * kv_heads / heads * head_dim;
        for (int32_t i = 0; i < head_dim; ++i) out[at + i] = arith::quantise(head[i], c[i]);
      }
  }

  void append(const float* k, const float* v, const Batch& batch, const arith::CosSin* angles, const float* k_inverse,
              const float* v_inverse, const KvSlot& kv) {
    const int32_t head_dim = kv.head_dim;
    std::vector<float> head(head_dim);
    for (const BatchSegment& segment : batch.segments)
      for (int32_t r = 0; r < segment.row_count; ++r) {
        const int32_t position = segment.position + r;
        if (kv.kind == BlockKind::kGlobal && position < segment.write_from) continue;
        const BlockId block = segment.table[static_cast<int32_t>(kv.kind)][position / kBlockTokens];
        for (int32_t g = 0; g < kv.kv_heads; ++g) {
          const int64_t row = segment.first_row + r, at = (row * kv.kv_heads + g) * head_dim;
          std::copy_n(k + at, head_dim, head.begin());
          rotate(head.data(), head_dim, angles + row * (head_dim / 2));
          int8_t* keys = reference_row(kv.keys(block, g), position, head_dim);
          int8_t* values = reference_row(kv.values(block, g), position, head_dim);
          for (int32_t i = 0; i < head_dim; ++i) {
            keys[i] = arith::quantise(head[i], k_inverse[g * head_dim + i]);
            values[i] = arith::quantise(v[at + i], v_inverse[g * head_dim + i]);
          }
        }
      }
  }

  void attend(const AttentionArgs& args, const Batch& batch, const KvSlot& kv) {
    for (int32_t row = 0; row < batch.row_count; ++row)
      for (int32_t h = 0; h < args.heads; ++h) {
        const int64_t at = (int64_t{row} * args.heads + h) * kv.head_dim;
        const int32_t g = h * kv.kv_heads / args.heads;
        const Sums sums =
            attend_one(args.queries + at, args.z, batch.segments[batch.row_segment[row]], batch.positions[row], kv, g);
        const float inverse = arith::divide(1.0f, sums.total);
        for (int32_t i = 0; i < kv.head_dim; ++i)
          args.out[at + i] = arith::quantise(arith::mul(sums.out[i], inverse), args.out_inverse[g * kv.head_dim + i]);
      }
  }

  // ---- version 2 of the arithmetic ----

  void embed_rows(const EmbedRows& args) {
    for (int64_t row = 0; row < args.rows; ++row) arith::embed_row(args, row);
  }
  void norm_rows(const NormRows& args) {
    for (int64_t row = 0; row < args.rows; ++row) arith::norm_quantise_row(args, row);
  }
  void quantise_rows(const QuantiseRows& args) {
    for (int64_t row = 0; row < args.rows; ++row) arith::quantise_row(args, row);
  }
  void gate_rows(const GateRows& args) {
    for (int64_t row = 0; row < args.rows; ++row) arith::gate_row(args, row);
  }
  void add_rows(const AddRows& args) {
    for (int64_t row = 0; row < args.rows; ++row) arith::add_row(args, row);
  }
  void logit_rows(const LogitRows& args) {
    for (int64_t row = 0; row < args.rows; ++row) arith::logit_row(args, row);
  }
  void query_rows(const QueryRows& args) {
    for (int64_t row = 0; row < args.rows; ++row)
      for (int32_t h = 0; h < args.heads; ++h) arith::query_row(args, row, h);
  }
  void append_rows(const KeyValueRows& args, const Batch& batch, const KvSlot& kv) {
    for (const BatchSegment& segment : batch.segments)
      for (int32_t r = 0; r < segment.row_count; ++r) {
        const int32_t position = segment.position + r;
        if (kv.kind == BlockKind::kGlobal && position < segment.write_from) continue;
        const BlockId block = segment.table[static_cast<int32_t>(kv.kind)][position / kBlockTokens];
        for (int32_t g = 0; g < kv.kv_heads; ++g) {
          const int64_t row = segment.first_row + r;
          kv.key_scales(block, g)[position % kBlockTokens] =
              arith::key_row(args, row, g, reference_row(kv.keys(block, g), position, kv.head_dim));
          kv.value_scales(block, g)[position % kBlockTokens] =
              arith::value_row(args, row, g, reference_row(kv.values(block, g), position, kv.head_dim));
        }
      }
  }
  void attend(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv) {
    for (int32_t row = 0; row < batch.row_count; ++row)
      for (int32_t h = 0; h < args.heads; ++h) {
        const int64_t at = int64_t{row} * args.heads + h;
        const Sums sums =
            attend_one(args.queries + at * kv.head_dim, args.z[at], batch.segments[batch.row_segment[row]],
                       batch.positions[row], kv, h * kv.kv_heads / args.heads);
        const float inverse = arith::divide(1.0f, sums.total);
        const float* step = args.value_step + int64_t{h} * kv.kv_heads / args.heads * kv.head_dim;
        for (int32_t i = 0; i < kv.head_dim; ++i)
          args.out[at * kv.head_dim + i] = arith::mul(arith::mul(sums.out[i], inverse), step[i]);
      }
  }

  void sample(const SampleArgs& args, SampledToken& result) { sample_row(args, candidates_, result); }

 private:
  // Computes all outputs of a matmul and calls use(row * out + n, n, accumulator) for output n of each row. The
  // accumulator of a matmul output is an exact integer.
  template <class Byte, class Use>
  static void each(const Matrix& w, const Byte* a, int32_t rows, Use use) {
    for (int64_t row = 0; row < rows; ++row)
      for (int32_t n = 0; n < w.out; ++n) {
        const int8_t* weight = w.weight + int64_t{n} * w.in;
        int32_t acc = 0;
        for (int32_t k = 0; k < w.in; ++k) acc += int32_t{weight[k]} * int32_t{a[row * w.in + k]};
        use(row * w.out + n, n, acc);
      }
  }

  static void rotate(float* head, int32_t head_dim, const arith::CosSin* angles) {
    for (int32_t i = 0; i < head_dim / 2; ++i) arith::rotate(head[i], head[i + head_dim / 2], angles[i]);
  }

  // Sums over a set of keys: the sum of their attention weights (`total`) and the weighted sum of their values (`out`).
  // The weight of a key is computed from its score minus the largest score of the set (`maximum`). A score is an
  // integer times the scale of the key; in version 1 of the arithmetic all scales are 1.
  struct Sums {
    float maximum = 0.0f;
    float total = 0.0f;
    std::vector<float> out;  // [head_dim]; empty before the first chunk
  };

  // Adds the sums over two sets of keys. The set of `kept` must have the larger or an equal maximum score. The sums in
  // `scaled` are first multiplied by the factor that makes them relative to the maximum score of `kept`.
  static Sums fold(const Sums& scaled, Sums kept, float z) {
    const float factor = arith::exp2_product(arith::add(scaled.maximum, -kept.maximum), z);
    kept.total = arith::fma(scaled.total, factor, kept.total);
    for (size_t i = 0; i < kept.out.size(); ++i) kept.out[i] = arith::fma(scaled.out[i], factor, kept.out[i]);
    return kept;
  }

  static Sums attend_one(const int8_t* query, float z, const BatchSegment& segment, int32_t position, const KvSlot& kv,
                         int32_t g) {
    const BlockId* table = segment.table[static_cast<int32_t>(kv.kind)];
    const int32_t first = kv.first_visible(position);
    Sums all;
    for (int32_t chunk = first / arith::kChunkKeys * arith::kChunkKeys; chunk <= position; chunk += arith::kChunkKeys) {
      const int32_t from = std::max(chunk, first), to = std::min(chunk + arith::kChunkKeys - 1, position);
      Sums sums = sum_chunk(query, table, kv, g, from, to, z);
      if (all.out.empty())
        all = std::move(sums);
      else if (all.maximum <= sums.maximum)
        all = fold(all, std::move(sums), z);
      else
        all = fold(sums, std::move(all), z);
    }
    return all;
  }

  // Returns the sums over the keys at positions `from` to `to` (inclusive), which lie in one chunk of 512 positions.
  static Sums sum_chunk(const int8_t* query, const BlockId* table, const KvSlot& kv, int32_t g, int32_t from,
                        int32_t to, float z) {
    const int32_t head_dim = kv.head_dim;
    float score[arith::kChunkKeys], value_scale[arith::kChunkKeys];
    float maximum = 0.0f, largest_scale = 1.0f;
    for (int32_t j = from; j <= to; ++j) {
      const BlockId block = table[j / kBlockTokens];
      const int8_t* key = reference_row(kv.keys(block, g), j, head_dim);
      int32_t dot = 0;
      for (int32_t i = 0; i < head_dim; ++i) dot += int32_t{query[i]} * int32_t{key[i]};
      float& found = score[j - from];
      found = static_cast<float>(dot);
      if (kv.scaled) {
        found = arith::mul(found, arith::from_bf16(kv.key_scales(block, g)[j % kBlockTokens]));
        const float scale = arith::from_bf16(kv.value_scales(block, g)[j % kBlockTokens]);
        value_scale[j - from] = scale;
        largest_scale = j == from ? scale : std::max(largest_scale, scale);
      }
      maximum = j == from ? found : std::max(maximum, found);
    }
    const float inverse_scale = largest_scale > 0.0f ? arith::divide(1.0f, largest_scale) : 0.0f;
    int64_t total = 0;
    std::vector<int64_t> out(head_dim, 0);
    for (int32_t j = from; j <= to; ++j) {
      const uint32_t key_weight = arith::key_weight(arith::add(score[j - from], -maximum), z);
      const int64_t weight =
          kv.scaled ? arith::value_weight(key_weight, arith::mul(value_scale[j - from], inverse_scale)) : key_weight;
      const int8_t* value = reference_row(kv.values(table[j / kBlockTokens], g), j, head_dim);
      total += key_weight;
      for (int32_t i = 0; i < head_dim; ++i) out[i] += weight * value[i];
    }
    Sums sums{maximum, static_cast<float>(total), {}};
    for (const int64_t sum : out) sums.out.push_back(arith::mul(static_cast<float>(sum), largest_scale));
    return sums;
  }

  std::vector<arith::Candidate> candidates_;
};

static_assert(Backend<ReferenceBackend> && ScaledBackend<ReferenceBackend> && MultipliesWideRows<ReferenceBackend>);

}  // namespace kaiju
