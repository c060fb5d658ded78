// The two kinds of cache block, and PerKind: an array with one value for each of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace kaiju {

// A global block holds the KV of 64 tokens for all layers with full attention, a window block for all layers with a
// sliding window.
enum class BlockKind : int32_t { kGlobal = 0, kWindow = 1 };
inline constexpr int32_t kBlockKinds = 2;
inline constexpr BlockKind kBothKinds[kBlockKinds] = {BlockKind::kGlobal, BlockKind::kWindow};

inline const char* name_of(BlockKind kind) { return kind == BlockKind::kGlobal ? "global" : "window"; }
constexpr BlockKind other_kind(BlockKind kind) {
  return kind == BlockKind::kGlobal ? BlockKind::kWindow : BlockKind::kGlobal;
}

// A PerKind has one T for each kind of block and is indexed by the kind. The memory layout of a PerKind is that of
// T[kBlockKinds], and its values start as zeros.
template <class T>
struct PerKind {
  T values[kBlockKinds] = {};

  constexpr T& operator[](BlockKind kind) { return values[static_cast<size_t>(kind)]; }
  constexpr const T& operator[](BlockKind kind) const { return values[static_cast<size_t>(kind)]; }
  // These overloads of operator[] take the block kind as a number, for loops over the kinds.
  constexpr T& operator[](std::integral auto kind) { return values[static_cast<size_t>(kind)]; }
  constexpr const T& operator[](std::integral auto kind) const { return values[static_cast<size_t>(kind)]; }
  constexpr T* begin() { return values; }
  constexpr T* end() { return values + kBlockKinds; }
  constexpr const T* begin() const { return values; }
  constexpr const T* end() const { return values + kBlockKinds; }
};

}  // namespace kaiju
