// Vectors: the vector operations that are the same for every instruction set, in the compiler's vector types. A header
// of this folder defines kLanes, includes this file, and adds the operations that differ. The loops (../loops) use
// both. Everything is in an unnamed namespace, so each instruction set has its own copy, compiled with its own flags
// (kernels.hpp says why).
#pragma once

#include "../kernels.hpp"

#define KAIJU_INLINE inline __attribute__((always_inline))

namespace kaiju::cpu {
namespace {

using Ints = int32_t __attribute__((vector_size(4 * kLanes)));
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Longs = uint64_t __attribute__((vector_size(4 * kLanes)));
using Doubles = double __attribute__((vector_size(4 * kLanes)));
using HalfInts = int32_t __attribute__((vector_size(2 * kLanes)));
using HalfFloats = float __attribute__((vector_size(2 * kLanes)));
using Words = uint16_t __attribute__((vector_size(2 * kLanes)));
using Bytes = int8_t __attribute__((vector_size(kLanes)));

KAIJU_INLINE constexpr int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
KAIJU_INLINE constexpr int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

KAIJU_INLINE Ints ints(int32_t x) { return Ints{} + x; }
KAIJU_INLINE Floats floats(float x) { return Floats{} + x; }
KAIJU_INLINE Doubles doubles(double x) { return Doubles{} + x; }

template <class Vector>
KAIJU_INLINE Vector load(const void* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class Vector>
KAIJU_INLINE void store(void* to, Vector v) {
  __builtin_memcpy(to, &v, sizeof v);
}
// The first `count` lanes, when there may be fewer than a vector has. The others read as 0.
template <class Vector>
KAIJU_INLINE Vector load_some(const void* from, int32_t count) {
  if (count >= kLanes) return load<Vector>(from);
  Vector v{};
  __builtin_memcpy(&v, from, sizeof v / kLanes * static_cast<size_t>(count));
  return v;
}
template <class Vector>
KAIJU_INLINE void store_some(void* to, Vector v, int32_t count) {
  if (count >= kLanes) return store(to, v);
  __builtin_memcpy(to, &v, sizeof v / kLanes * static_cast<size_t>(count));
}

KAIJU_INLINE Floats to_floats(Ints x) { return __builtin_convertvector(x, Floats); }
}  // namespace
}  // namespace kaiju::cpu
