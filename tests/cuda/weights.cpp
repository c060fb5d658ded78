// The weights of scores as the tensor cores' attention finds them, held to the contract's. Needs no GPU and no CUDA:
// one source for both.
#include "catch.hpp"
#include "cuda/kernels/score_weight.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kEach = 8;
constexpr int32_t kDifferences = 1 << 23;  // more than scores of 256 channels can lie apart: 2 * 256 * 127^2

TEST_CASE("the short computation of softmax weights equals the contract's at every possible difference of scores") {
  // What models have, around 1e-4; the least and the most that is served; whole, short and long fractions.
  for (const float z : {6e-5f, 1.1e-4f, 3.3e-6f, 0x1p-14f, 0.37f, 1.0f, 0x1.fffffep+2f, 1e-12f, 1e-38f}) {
    const ScoreWeight weigh(z);
    int32_t wrong = -1;
    for (int32_t first = 0; first < kDifferences && wrong < 0; first += kEach) {
      int32_t score[kEach], maximum[kEach];
      uint32_t weight[kEach];
      for (int32_t i = 0; i < kEach; ++i) maximum[i] = 1000 - first, score[i] = maximum[i] - first - i;
      weigh(score, maximum, weight);
      for (int32_t i = 0; i < kEach; ++i)
        if (weight[i] - arith::bits_of(arith::kRoundBias) != arith::key_weight(-(first + i), z)) wrong = first + i;
    }
    INFO("z " << z);
    CHECK(wrong == -1);
  }
}

}  // namespace
}  // namespace kaiju::cuda
