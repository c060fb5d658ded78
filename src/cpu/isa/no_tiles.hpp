// What instruction sets without tiles have in the place of tiles.hpp: the names that the loops are written with. None
// of these functions is called, and none is defined.
#pragma once

#include <cstdint>

namespace kaiju::cpu {
namespace {

constexpr bool kHasTiles = false;

struct TileUse {
  explicit TileUse(bool) {}
};
template <int kTile>
void tile_zero();
template <int kTile>
void tile_load(const void* from, int64_t stride);
template <int kTile>
void tile_store(void* to, int64_t stride);
template <int kC, int kA, int kB>
void tile_dot_su();
template <int kC, int kA, int kB>
void tile_dot_us();

}  // namespace
}  // namespace kaiju::cpu
