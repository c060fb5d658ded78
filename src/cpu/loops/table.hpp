// Collects the loops of one instruction set in its table of kernels.
#pragma once

#include "attention.hpp"
#include "candidates.hpp"
#include "matmul.hpp"
#include "rows.hpp"
#include "scaled_rows.hpp"
#include "skip_matmul.hpp"

namespace kaiju::cpu {
namespace {

constexpr Kernels kTable = {
    .isa = kIsa,
    .embed = embed,
    .norm = norm,
    .prepared_bytes = prepared_bytes,
    .prepare = prepare,
    .row_unit = kMostRows,
    .out_unit = kBlockOuts,
    .matmul = {multiply<MatmulKind::kLinear>, multiply<MatmulKind::kUp>, multiply<MatmulKind::kAddLinear>,
               multiply<MatmulKind::kAddDown>, multiply<MatmulKind::kWide>},
    .multiply_skipping = multiply_skipping,
    .queries = queries,
    .append = append,
    .attention_scratch_bytes = sizeof(Scratch),
    .attention = {sum_chunk<false>, fold<false>, finish_attention<false>},
    .scaled_attention = {sum_chunk<true>, fold<true>, finish_attention<true>},
    .embed_rows = embed_rows,
    .norm_rows = norm_rows,
    .quantise_rows = quantise_rows,
    .gate_rows = gate_rows,
    .add_rows = add_rows,
    .logit_rows = logit_rows,
    .query_rows = query_rows,
    .append_rows = append_rows,
    .maximum = maximum,
    .masses = masses,
    .collect = collect,
    .maxima = maxima,
    .buckets = buckets,
    .moments = moments,
    .surprise = surprise,
};

}  // namespace
}  // namespace kaiju::cpu
