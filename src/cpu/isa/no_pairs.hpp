// What instruction sets without products of pairs of rows (neon.hpp with i8mm) have in their place: the names that the
// loops are written with. The function is neither called nor defined.
#pragma once

#include "vectors.hpp"

namespace kaiju::cpu {
namespace {

constexpr bool kHasPairs = false;

struct OutPairs {
  Ints low{}, high{};
};
template <class = void>
OutPairs load_pairs(const int8_t* first, const int8_t* second);
template <class = void>
void add_pair_products(Ints& sum, Ints rows, Ints outs);

}  // namespace
}  // namespace kaiju::cpu
