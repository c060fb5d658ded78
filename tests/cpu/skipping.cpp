// Products `down` that skip zeros: the reference's bits, with copies of the weights of now.
#include <fmt/format.h>

#include <random>

#include "catch.hpp"
#include "kaiju/backend/cpu.hpp"
#include "kaiju/backend/reference.hpp"
#include "kaiju/base/float_state.hpp"

namespace kaiju {
namespace {

constexpr uint64_t kSeed = 37;

class Product {
 public:
  Product(std::mt19937_64& random, int32_t out, int32_t in) : random_(random), out_(out), in_(in) {
    weight_.resize(static_cast<size_t>(out) * static_cast<size_t>(in));
    draw_weights();
    scale_.resize(static_cast<size_t>(out));
    for (float& scale : scale_) scale = std::uniform_real_distribution<float>(1e-5f, 1e-3f)(random_);
  }
  Matrix matrix() const { return {weight_.data(), row_sum_.data(), out_, in_}; }
  const std::vector<float>& scale() const { return scale_; }

  void draw_weights() {
    row_sum_.assign(static_cast<size_t>(out_), 0);
    for (size_t i = 0; i < weight_.size(); ++i) {
      weight_[i] = static_cast<int8_t>(static_cast<int32_t>(random_() % 255) - 127);
      row_sum_[i / static_cast<size_t>(in_)] += weight_[i];
    }
  }
  // One byte in so many is not zero; the others are, of `rows` rows.
  std::vector<uint8_t> inputs(int32_t rows, uint64_t one_in) const {
    std::vector<uint8_t> h(static_cast<size_t>(rows) * static_cast<size_t>(in_));
    for (uint8_t& byte : h) byte = one_in > 0 && random_() % one_in == 0 ? static_cast<uint8_t>(random_()) : uint8_t{0};
    return h;
  }
  std::vector<arith::bf16> stream(int32_t rows) const {
    std::vector<arith::bf16> x(static_cast<size_t>(rows) * static_cast<size_t>(out_));
    for (arith::bf16& value : x) value = arith::to_bf16(std::normal_distribution<float>(0, 2)(random_));
    return x;
  }

 private:
  std::mt19937_64& random_;
  int32_t out_, in_;
  std::vector<int8_t> weight_;
  std::vector<int32_t> row_sum_;
  std::vector<float> scale_;
};

template <class B>
std::vector<arith::bf16> add_down(B& backend, const Product& product, const std::vector<uint8_t>& h, int32_t rows,
                                  std::vector<arith::bf16> x) {
  backend.add_down(product.matrix(), h.data(), rows, product.scale().data(), x.data());
  return x;
}

}  // namespace

TEST_CASE("products that skip zeros give the reference's bits, on every instruction set and any number of threads") {
  const FloatState float_state;
  std::mt19937_64 random(kSeed);
  INFO("seed " << kSeed);
  const Product small(random, 64, 64), odd(random, 320, 192), large(random, 1024, 1536);
  ReferenceBackend reference;
  for (const std::string& isa : CpuBackend::isas())
    for (const int32_t threads : {1, 3}) {
      const auto backend = std::move(CpuBackend::create(isa, threads)).value();
      const Matrix all[] = {small.matrix(), odd.matrix(), large.matrix()};
      const Status status = backend->skip_zeros_of(all);
      if (isa == "portable") {
        CHECK(status.code() == StatusCode::kUnsupported);
        continue;
      }
      INFO(isa << ", " << threads << " threads: " << status.message());
      REQUIRE(status.ok());
      for (const Product* product : {&small, &odd, &large})
        for (int32_t rows = 1; rows <= 6; ++rows)
          for (const uint64_t one_in : {0, 1, 3, 9, 60}) {
            INFO(fmt::format("{} x {}, {} rows, one in {}", product->matrix().out, product->matrix().in, rows, one_in));
            const std::vector<uint8_t> h = product->inputs(rows, one_in);
            const std::vector<arith::bf16> x = product->stream(rows);
            CHECK(add_down(*backend, *product, h, rows, x) == add_down(reference, *product, h, rows, x));
          }
    }
}

TEST_CASE("weights that were not copied are multiplied as ever, and copies follow when they are made again") {
  const FloatState float_state;
  std::mt19937_64 random(kSeed);
  INFO("seed " << kSeed);
  Product copied(random, 128, 512);
  const Product other(random, 128, 512);
  ReferenceBackend reference;
  const auto backend = std::move(CpuBackend::create("auto", 2)).value();
  const Matrix downs[] = {copied.matrix()};
  if (!backend->skip_zeros_of(downs).ok()) return;  // a machine without vectors
  for (int round = 0; round < 2; ++round) {
    for (const Product* product : {static_cast<const Product*>(&copied), &other}) {
      const std::vector<uint8_t> h = product->inputs(2, 20);
      const std::vector<arith::bf16> x = product->stream(2);
      CHECK(add_down(*backend, *product, h, 2, x) == add_down(reference, *product, h, 2, x));
    }
    copied.draw_weights();
    REQUIRE(backend->skip_zeros_of(downs).ok());
  }
}

}  // namespace kaiju
