// Collects the loops of one instruction set in its table of kernels.
#pragma once

#include "attention.hpp"
#include "matmul.hpp"
#include "rows.hpp"

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
               multiply<MatmulKind::kAddDown>},
    .queries = queries,
    .append = append,
    .attention_scratch_bytes = sizeof(Scratch),
    .sum_chunk = sum_chunk,
    .fold = fold,
    .finish = finish_attention,
    .maximum = maximum,
    .masses = masses,
};

}  // namespace
}  // namespace kaiju::cpu
