// The choice of a tile for a product, held to times measured on one H200 (132 multiprocessors). Needs no GPU and no CUDA.
#include "cuda/launch/tiles.hpp"

#include <algorithm>
#include <iterator>

#include "catch.hpp"

namespace kaiju::cuda {
namespace {

constexpr Path H = Path::kHopper;
constexpr Tile kForms[] = {{Path::kSkinny},    {H, 64, 96, 1, 1},   {H, 64, 96, 2, 1},   {H, 64, 96, 4, 1},   {H, 64, 160, 1, 1},
                           {H, 64, 160, 2, 1}, {H, 128, 160, 1, 1}, {H, 128, 160, 2, 1}, {H, 128, 256, 1, 1}, {H, 128, 256, 1, 2}};

struct Measured {
  int32_t rows, out, in;
  double time[std::size(kForms)];  // us; 0: not measured
};
// Two runs in one night; the newer one where both have the line. kSkinny at 8 rows, and at 16 and 64 rows of `large`, is an earlier form of
// that kernel.
// clang-format off
constexpr Measured kMeasured[] = {
    // small, q
    {1, 5120, 5120, {8.2, 17.9, 15.3, 12.3, 18.9, 13.3, 0, 0, 0, 0}},
    {8, 5120, 5120, {10.6, 18, 14.5, 12.7, 18.9, 13.3, 0, 0, 0, 0}},
    {16, 5120, 5120, {9.3, 18.1, 13.8, 11.8, 19, 13.2, 0, 0, 0, 0}},
    {32, 5120, 5120, {15.7, 18.3, 12.8, 10.8, 19.3, 13.3, 0, 0, 0, 0}},
    {64, 5120, 5120, {24.2, 19.3, 12.2, 10.7, 20.8, 14.3, 0, 0, 0, 0}},
    {128, 5120, 5120, {0, 19.7, 13.3, 0, 22.2, 15.2, 22.8, 14.5, 31.6, 0}},
    {256, 5120, 5120, {0, 0, 0, 0, 0, 0, 23.5, 16.3, 31.9, 31.8}},
    {512, 5120, 5120, {0, 0, 0, 0, 0, 0, 25.6, 0, 34.2, 34}},
    {1024, 5120, 5120, {0, 0, 0, 0, 0, 0, 48.5, 0, 66, 65}},
    {2048, 5120, 5120, {0, 0, 0, 0, 0, 0, 92.8, 0, 98.6, 98.4}},
    {8192, 5120, 5120, {0, 0, 0, 0, 0, 0, 406.4, 0, 331.2, 330.5}},
    // small, o
    {1, 5120, 5120, {8.5, 18.3, 15.4, 12.4, 21.2, 13.9, 0, 0, 0, 0}},
    {8, 5120, 5120, {10.7, 18.4, 14.8, 12.9, 19.2, 13.6, 0, 0, 0, 0}},
    {16, 5120, 5120, {9.8, 19.3, 14.6, 12.2, 20.7, 14.2, 0, 0, 0, 0}},
    {32, 5120, 5120, {16.8, 19.3, 13.7, 11.2, 21.1, 14.4, 0, 0, 0, 0}},
    {64, 5120, 5120, {27.3, 19.4, 12.6, 11, 21.2, 14.7, 0, 0, 0, 0}},
    {128, 5120, 5120, {0, 20.1, 13.8, 0, 22.7, 16, 22.5, 14.7, 31.3, 0}},
    {256, 5120, 5120, {0, 0, 0, 0, 0, 0, 23.4, 17, 32.5, 31.8}},
    {512, 5120, 5120, {0, 0, 0, 0, 0, 0, 25.7, 0, 33.8, 34}},
    {1024, 5120, 5120, {0, 0, 0, 0, 0, 0, 49.5, 0, 68.6, 68.5}},
    {2048, 5120, 5120, {0, 0, 0, 0, 0, 0, 98.3, 0, 104.9, 105.3}},
    {8192, 5120, 5120, {0, 0, 0, 0, 0, 0, 387.4, 0, 349.8, 350.5}},
    // small, up
    {1, 20480, 5120, {30.3, 36.7, 43.3, 48.9, 35.1, 31.1, 0, 0, 0, 0}},
    {8, 20480, 5120, {29.9, 35.1, 43.7, 50.6, 32.9, 30.3, 0, 0, 0, 0}},
    {16, 20480, 5120, {35.6, 34.4, 41, 46, 30.6, 29.6, 0, 0, 0, 0}},
    {32, 20480, 5120, {42.9, 32.4, 35.7, 41.7, 30.6, 29.5, 0, 0, 0, 0}},
    {64, 20480, 5120, {65, 30.5, 34.5, 40.5, 31.8, 30.2, 0, 0, 0, 0}},
    {128, 20480, 5120, {0, 44.8, 58.1, 0, 37, 43.7, 31.7, 38.1, 41, 0}},
    {256, 20480, 5120, {0, 0, 0, 0, 0, 0, 46.7, 62.2, 65.5, 64.2}},
    {512, 20480, 5120, {0, 0, 0, 0, 0, 0, 89.2, 0, 94.6, 94.7}},
    {1024, 20480, 5120, {0, 0, 0, 0, 0, 0, 181.5, 0, 159.4, 152.4}},
    {2048, 20480, 5120, {0, 0, 0, 0, 0, 0, 341.7, 0, 299.6, 287.4}},
    {8192, 20480, 5120, {0, 0, 0, 0, 0, 0, 1379, 0, 1286.9, 1212.3}},
    // small, down
    {1, 5120, 20480, {33.3, 68.9, 55.6, 33.7, 70.3, 43, 0, 0, 0, 0}},
    {8, 5120, 20480, {34.4, 66.4, 52.6, 32.9, 67.1, 41.7, 0, 0, 0, 0}},
    {16, 5120, 20480, {36.2, 67.9, 52.2, 35.2, 68.2, 43, 0, 0, 0, 0}},
    {32, 5120, 20480, {55.7, 68.2, 47.4, 31.8, 68.6, 43.3, 0, 0, 0, 0}},
    {64, 5120, 20480, {88.1, 68.2, 39.4, 32.1, 69.3, 43.9, 0, 0, 0, 0}},
    {128, 5120, 20480, {0, 70, 42.6, 0, 75.8, 46.6, 76.7, 43.1, 102.7, 0}},
    {256, 5120, 20480, {0, 0, 0, 0, 0, 0, 77.2, 47.7, 102.7, 102.8}},
    {512, 5120, 20480, {0, 0, 0, 0, 0, 0, 81.3, 0, 103.9, 104.3}},
    {1024, 5120, 20480, {0, 0, 0, 0, 0, 0, 163.9, 0, 214.7, 213.8}},
    {2048, 5120, 20480, {0, 0, 0, 0, 0, 0, 317.4, 0, 320.7, 321.3}},
    {8192, 5120, 20480, {0, 0, 0, 0, 0, 0, 1381.9, 0, 1247.8, 1116.4}},
    // small, logits
    {1, 65536, 5120, {85.9, 115, 122.4, 144.1, 98.8, 96.9, 0, 0, 0, 0}},
    {8, 65536, 5120, {87.8, 111.7, 123.1, 147.7, 94.9, 96.8, 0, 0, 0, 0}},
    {16, 65536, 5120, {100.5, 104.2, 111.3, 134.6, 91.4, 95.9, 0, 0, 0, 0}},
    {32, 65536, 5120, {133, 97.2, 102.4, 122.1, 89.5, 97.6, 0, 0, 0, 0}},
    {64, 65536, 5120, {200.7, 95, 108.4, 121.6, 95.3, 102.6, 0, 0, 0, 0}},
    {128, 65536, 5120, {0, 145.3, 164.7, 0, 133.8, 145.2, 127.8, 135.6, 110.4, 0}},
    {256, 65536, 5120, {0, 0, 0, 0, 0, 0, 182.3, 216, 153.3, 155.3}},
    // large, q
    {1, 12288, 12288, {43.2, 62, 49.4, 57.3, 68.2, 59.1, 0, 0, 0, 0}},
    {16, 12288, 12288, {60.6, 56.4, 46.2, 54.2, 61.5, 58.6, 0, 0, 0, 0}},
    {64, 12288, 12288, {96.9, 46, 41, 55.4, 53.3, 57.1, 69, 63.6, 66, 0}},
    {256, 12288, 12288, {0, 0, 0, 0, 0, 0, 105, 89.7, 70.1, 70.5}},
    {1024, 12288, 12288, {0, 0, 0, 0, 0, 0, 250.1, 0, 209.1, 206.7}},
    {8192, 12288, 12288, {0, 0, 0, 0, 0, 0, 2128.9, 0, 1921.4, 1658.2}},
    // large, o
    {1, 12288, 12288, {42.8, 63.2, 49.8, 58.3, 68.8, 60, 0, 0, 0, 0}},
    {16, 12288, 12288, {61.8, 58.4, 47.7, 57.4, 59.9, 60.9, 0, 0, 0, 0}},
    {64, 12288, 12288, {101.6, 47.1, 41.6, 57.8, 54.7, 57.9, 71.3, 67.7, 68.8, 0}},
    {256, 12288, 12288, {0, 0, 0, 0, 0, 0, 105.8, 94.2, 69.7, 69.8}},
    {1024, 12288, 12288, {0, 0, 0, 0, 0, 0, 251.2, 0, 211, 209.4}},
    {8192, 12288, 12288, {0, 0, 0, 0, 0, 0, 2240.9, 0, 1972, 1857.8}},
    // large, up
    {1, 51200, 12288, {161.6, 193.1, 208.6, 225.6, 188.7, 175.8, 0, 0, 0, 0}},
    {16, 51200, 12288, {182.7, 179.7, 189, 204.5, 170.3, 167.9, 0, 0, 0, 0}},
    {64, 51200, 12288, {411.7, 180.1, 176.6, 185.6, 171, 165.7, 201.3, 200.4, 184.8, 0}},
    {256, 51200, 12288, {0, 0, 0, 0, 0, 0, 273.8, 328.9, 286.1, 284.4}},
    {1024, 51200, 12288, {0, 0, 0, 0, 0, 0, 1119, 0, 976.7, 892.3}},
    {8192, 51200, 12288, {0, 0, 0, 0, 0, 0, 9306, 0, 7415.9, 7840}},
    // large, down
    {1, 12288, 51200, {163.1, 242.4, 178, 190.4, 237.5, 230.7, 0, 0, 0, 0}},
    {16, 12288, 51200, {244.2, 208.8, 181.7, 183.9, 204.1, 223.6, 0, 0, 0, 0}},
    {64, 12288, 51200, {379.7, 174.9, 157.2, 191.5, 196, 212.5, 268.4, 225.9, 265.7, 0}},
    {256, 12288, 51200, {0, 0, 0, 0, 0, 0, 420.2, 336.2, 256.2, 256.2}},
    {1024, 12288, 51200, {0, 0, 0, 0, 0, 0, 1057.2, 0, 835.8, 772.4}},
    {8192, 12288, 51200, {0, 0, 0, 0, 0, 0, 9886, 0, 7645.4, 7352.3}},
    // large, logits
    {1, 65536, 12288, {204.3, 263.3, 267.1, 287.5, 235.5, 210.5, 0, 0, 0, 0}},
    {16, 65536, 12288, {243.2, 237, 240.3, 257.8, 216.9, 209.7, 0, 0, 0, 0}},
    {64, 65536, 12288, {512.4, 206.3, 225.2, 242.9, 215.1, 215.8, 262.6, 269.4, 208.7, 0}},
    {256, 65536, 12288, {0, 0, 0, 0, 0, 0, 416.3, 455.2, 306.4, 303.5}},
};
// clang-format on

Chip hopper(int32_t multiprocessors) {
  static int something = 0;  // hopper_fits asks only whether there is a function
  return {90, multiprocessors, &something};
}

bool same(const Tile& a, const Tile& b) {
  return a.path == b.path && (a.path != H || (a.rows == b.rows && a.outs == b.outs && a.split == b.split && a.share == b.share));
}

TEST_CASE("the chosen form is within 6% of the fastest measured, and within 1% on average") {
  double sum = 0.0;
  for (const Measured& line : kMeasured) {
    const Tile chosen = choose_tile(hopper(132), line.rows, line.out, line.in);
    double time = 0.0, fastest = 0.0;
    for (size_t i = 0; i < std::size(kForms); ++i) {
      if (line.time[i] == 0.0) continue;
      if (fastest == 0.0 || line.time[i] < fastest) fastest = line.time[i];
      if (same(chosen, kForms[i])) time = line.time[i];
    }
    CAPTURE(line.rows, line.out, line.in, chosen.rows, chosen.outs, chosen.split, chosen.share, time, fastest);
    REQUIRE(time > 0.0);  // no form is chosen where it was not measured
    CHECK(time <= 1.06 * fastest);
    sum += time / fastest;
  }
  CHECK(sum / static_cast<double>(std::size(kMeasured)) <= 1.01);
}

TEST_CASE("the chosen form can run, on chips with any number of multiprocessors") {
  for (const int32_t multiprocessors : {1, 7, 66, 78, 114, 132, 144, 192})
    for (const int32_t out : {32, 512, 1536, 5120, 6144, 20480, 65536})
      for (const int32_t in : {64, 128, 512, 1408, 5120, 20480, 65536})
        for (const int32_t rows : {1, 2, 8, 9, 16, 17, 33, 64, 65, 100, 128, 129, 200, 257, 1000, 4096, 8192, 32768}) {
          const Tile tile = choose_tile(hopper(multiprocessors), rows, out, in);
          CAPTURE(multiprocessors, out, in, rows, tile.rows, tile.outs, tile.split, tile.share);
          REQUIRE(std::any_of(std::begin(kForms), std::end(kForms), [&](const Tile& form) { return same(tile, form); }));
          if (tile.path == Path::kSkinny) {
            REQUIRE(rows <= kSkinnyRows);
          } else {
            REQUIRE(tile.split <= pieces(in, kStepBytes));
            REQUIRE((tile.share == 1 || rows > tile.rows));
          }
        }
}

TEST_CASE("weights that fill the chip are never divided, and a few blocks of a long sum always are") {
  for (const int32_t multiprocessors : {78, 114, 132}) {
    const Tile many = choose_tile(hopper(multiprocessors), 8192, 16384, 4096), few = choose_tile(hopper(multiprocessors), 64, 3072, 32768);
    CHECK(many.rows == 128);
    CHECK(many.split == 1);
    CHECK(few.split > 1);
  }
}

// Of 264 blocks of 64 rows, clusters of four reach 248: 62 were counted on the H200 where 66 would fit by number.
TEST_CASE("clusters of four are not counted on to fill the chip") {
  CHECK(choose_tile(hopper(132), 64, 62 * 96, 5120).split == 4);
  CHECK(choose_tile(hopper(132), 64, 64 * 96, 5120).split != 4);
}

TEST_CASE("chips and shapes that wgmma does not serve get the kernels that run everywhere") {
  const Chip ampere{80, 108, nullptr};
  CHECK(choose_tile(ampere, 64, 5120, 5120).path == Path::kSkinny);
  CHECK(choose_tile(ampere, 65, 5120, 5120).path == Path::kTiled);
  CHECK(choose_tile({90, 132, nullptr}, 65, 5120, 5120).path == Path::kTiled);  // a driver without tensor maps
  CHECK(choose_tile(hopper(132), 65, 5121, 5120).path == Path::kTiled);
}

}  // namespace
}  // namespace kaiju::cuda
