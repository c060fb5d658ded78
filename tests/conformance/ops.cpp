// Rows, products and sampling: every backend gives the reference's bits.
#include "world.hpp"

namespace kaiju::test {
namespace {

constexpr int32_t kCases = 40;

struct ProductCase {
  int32_t rows, in, out;
};

ProductCase product_case(Random& random) {
  if (random.chance(20))
    return {random.between(1, 4), 512 * random.between(1, 4),
            random.between(1, 300)};  // what kernels for few rows like best
  const int32_t rows = random.chance(50) ? random.between(1, 8) : random.between(9, 70);
  return {rows, 64 * random.between(1, random.chance(20) ? 25 : 8),
          random.chance(30) ? random.between(1, 200) : 16 * random.between(1, 12)};
}

}  // namespace

TEST_CASE("embedding a token gives the reference's bits") {
  repeat(kCases, [](Random& random) {
    const OwnedMatrix table(random, random.between(1, 50), 64 * random.between(1, 20));
    const std::vector<float> scale = random.scales(table.out, random.pick({1e-3f, 1e-18f, 1e15f, 1e-38f}));
    std::vector<int32_t> tokens(random.between(1, 70));
    for (int32_t& token : tokens) token = random.below(table.out);
    std::vector<arith::bf16> expected(tokens.size() * table.in), x(expected.size());
    ReferenceBackend().embed(table.view(), scale.data(), tokens, expected.data());
    for (const auto& backend : backends()) {
      INFO(name_of(*backend));
      backend->embed(table.view(), scale.data(), tokens, x.data());
      CHECK(differences(x, expected) == 0);
    }
  });
}

TEST_CASE("norm gives the reference's bits for any width, at any magnitude") {
  repeat(2 * kCases, [](Random& random) {
    const int32_t rows = random.between(1, 70),
                  width = 64 * (random.chance(10) ? random.between(75, 230) : random.between(1, 25));
    const float deviation = random.pick({1.0f, 1.0f, 1e-6f, 1e-20f, 3e-22f, 1e-30f, 1e15f});
    const float eps = random.pick({1e-5f, 1e-12f, 1e-38f}), inverse = random.pick({127.0f / 4, 1.0f, 1e-6f, 1e9f});
    const std::vector<arith::bf16> x = random.stream(static_cast<size_t>(rows) * width, deviation);
    std::vector<int8_t> expected(x.size()), a(x.size());
    ReferenceBackend().norm({x.data(), rows, width, eps, inverse, expected.data()});
    for (const auto& backend : backends()) {
      INFO(name_of(*backend));
      backend->norm({x.data(), rows, width, eps, inverse, a.data()});
      CHECK(differences(a, expected) == 0);
    }
  });
}

TEST_CASE("rows of two bytes a value are multiplied with the reference's bits") {
  repeat(kCases, [](Random& random) {
    const ProductCase c = product_case(random);
    const OwnedMatrix w(random, c.out, c.in);
    const std::vector<int8_t> a = random.bytes(size_t{2} * c.rows * c.in);
    const std::vector<float> scale = random.scales(c.out, random.pick({1e-5f, 1e-30f, 1e-42f, 1e12f}));
    std::vector<float> expected(static_cast<size_t>(c.rows) * c.out), out(expected.size()), sums(2 * expected.size());
    ReferenceBackend().linear(w.view(), a.data(), 2 * c.rows, scale.data(), sums.data());
    for (size_t row = 0; row < static_cast<size_t>(c.rows); ++row)
      for (size_t n = 0; n < static_cast<size_t>(c.out); ++n)
        expected[row * c.out + n] = arith::fma(256.0f, sums[2 * row * c.out + n], sums[(2 * row + 1) * c.out + n]);
    ReferenceBackend().wide_linear(w.view(), a.data(), c.rows, scale.data(), out.data());
    CHECK(differences(out, expected) == 0);
    for (const auto& backend : backends()) {
      INFO(name_of(*backend) << ", rows " << c.rows << ", in " << c.in << ", out " << c.out);
      std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
      backend->wide_linear(w.view(), a.data(), c.rows, scale.data(), out.data());
      CHECK(differences(out, expected) == 0);
    }
  });
}

TEST_CASE("linear gives the reference's bits") {
  repeat(kCases, [](Random& random) {
    const ProductCase c = product_case(random);
    const OwnedMatrix w(random, c.out, c.in);
    const std::vector<int8_t> a = random.bytes(static_cast<size_t>(c.rows) * c.in);
    const std::vector<float> scale = random.scales(c.out, random.pick({1e-5f, 1e-30f, 1e-42f, 1e12f}));
    std::vector<float> expected(static_cast<size_t>(c.rows) * c.out), out(expected.size());
    ReferenceBackend().linear(w.view(), a.data(), c.rows, scale.data(), expected.data());
    for (const auto& backend : backends()) {
      INFO(name_of(*backend) << ", rows " << c.rows << ", in " << c.in << ", out " << c.out);
      backend->linear(w.view(), a.data(), c.rows, scale.data(), out.data());
      CHECK(differences(out, expected) == 0);
    }
  });
}

TEST_CASE("up gives the reference's bits, saturated or not") {
  repeat(kCases, [](Random& random) {
    const ProductCase c = product_case(random);
    const OwnedMatrix w(random, c.out, c.in);
    const std::vector<int8_t> a = random.bytes(static_cast<size_t>(c.rows) * c.in);
    const std::vector<float> alpha = random.scales(c.out, random.pick({1e-3f, 1e-4f, 1e-2f, 1e30f, 1e-40f}));
    std::vector<uint8_t> expected(static_cast<size_t>(c.rows) * c.out), h(expected.size());
    ReferenceBackend().up(w.view(), a.data(), c.rows, alpha.data(), expected.data());
    for (const auto& backend : backends()) {
      INFO(name_of(*backend) << ", rows " << c.rows << ", in " << c.in << ", out " << c.out);
      backend->up(w.view(), a.data(), c.rows, alpha.data(), h.data());
      CHECK(differences(h, expected) == 0);
    }
  });
}

TEST_CASE("up squares each of the 256 bytes as the reference does") {
  // One weight of 1 against activations of 1 and a scale that walks through all bytes.
  Random random(1);
  OwnedMatrix w(random, 256, 64);
  std::fill(w.weight.begin(), w.weight.end(), int8_t{0});
  for (int32_t n = 0; n < 256; ++n) w.weight[static_cast<size_t>(n) * 64] = 1, w.row_sum[n] = 1;
  std::vector<float> alpha(256);
  for (int32_t n = 0; n < 256; ++n) alpha[n] = static_cast<float>(n);
  for (const int32_t rows : {1, 40}) {
    std::vector<int8_t> a(static_cast<size_t>(rows) * 64, 0);
    for (int32_t r = 0; r < rows; ++r) a[static_cast<size_t>(r) * 64] = 1;
    for (const auto& backend : backends()) {
      std::vector<uint8_t> h(static_cast<size_t>(rows) * 256);
      backend->up(w.view(), a.data(), rows, alpha.data(), h.data());
      for (size_t i = 0; i < h.size(); ++i) {
        INFO(name_of(*backend) << ", u = " << i % 256);
        CHECK(h[i] == arith::square_byte(static_cast<uint8_t>(i % 256)));
      }
    }
  }
}

TEST_CASE("adding a matmul to the residual stream gives the reference's bits") {
  repeat(kCases, [](Random& random) {
    const ProductCase c = product_case(random);
    const OwnedMatrix w(random, c.out, c.in);
    const std::vector<int8_t> a = random.bytes(static_cast<size_t>(c.rows) * c.in);
    const std::vector<float> scale = random.scales(c.out, random.pick({1e-5f, 1e-30f, 1e-42f, 1e8f}));
    const std::vector<arith::bf16> x =
        random.stream(static_cast<size_t>(c.rows) * c.out, random.pick({1.0f, 1e-25f, 1e10f, 1e-39f}));
    std::vector<arith::bf16> expected = x;
    ReferenceBackend().add_linear(w.view(), a.data(), c.rows, scale.data(), expected.data());
    for (const auto& backend : backends()) {
      INFO(name_of(*backend) << ", rows " << c.rows << ", in " << c.in << ", out " << c.out);
      std::vector<arith::bf16> sum = x;
      backend->add_linear(w.view(), a.data(), c.rows, scale.data(), sum.data());
      CHECK(differences(sum, expected) == 0);
    }
  });
}

TEST_CASE("the down projection takes unsigned bytes and gives the reference's bits") {
  repeat(kCases, [](Random& random) {
    const ProductCase c = product_case(random);
    const OwnedMatrix w(random, c.out, c.in);
    std::vector<uint8_t> h(static_cast<size_t>(c.rows) * c.in);
    const bool extreme = random.chance(20);
    for (uint8_t& b : h) b = static_cast<uint8_t>(extreme ? 255 : random.chance(50) ? 0 : random.below(256));
    const std::vector<float> scale = random.scales(c.out, random.pick({1e-5f, 1e-30f, 1e8f}));
    const std::vector<arith::bf16> x = random.stream(static_cast<size_t>(c.rows) * c.out, 1.0f);
    std::vector<arith::bf16> expected = x;
    ReferenceBackend().add_down(w.view(), h.data(), c.rows, scale.data(), expected.data());
    for (const auto& backend : backends()) {
      INFO(name_of(*backend) << ", rows " << c.rows << ", in " << c.in << ", out " << c.out);
      std::vector<arith::bf16> sum = x;
      backend->add_down(w.view(), h.data(), c.rows, scale.data(), sum.data());
      CHECK(differences(sum, expected) == 0);
    }
  });
}

TEST_CASE("the longest rows the contract allows do not overflow") {
  Random random(3);
  OwnedMatrix w(random, 16, 65536);
  std::fill(w.weight.begin(), w.weight.end(), int8_t{-127});
  std::fill(w.row_sum.begin(), w.row_sum.end(), -127 * 65536);
  const std::vector<float> scale(16, 1e-9f);
  for (const int32_t rows : {1, 2, 4, 33}) {
    const std::vector<int8_t> a(static_cast<size_t>(rows) * w.in, -127);
    const std::vector<uint8_t> h(a.size(), 255);
    std::vector<float> expected(static_cast<size_t>(rows) * 16), out(expected.size());
    std::vector<arith::bf16> x_expected(expected.size()), x(expected.size());
    ReferenceBackend().linear(w.view(), a.data(), rows, scale.data(), expected.data());
    ReferenceBackend().add_down(w.view(), h.data(), rows, scale.data(), x_expected.data());
    for (const auto& backend : backends()) {
      INFO(name_of(*backend) << ", rows " << rows);
      backend->linear(w.view(), a.data(), rows, scale.data(), out.data());
      CHECK(differences(out, expected) == 0);
      std::fill(x.begin(), x.end(), arith::bf16{0});
      backend->add_down(w.view(), h.data(), rows, scale.data(), x.data());
      CHECK(differences(x, x_expected) == 0);
    }
  }
}

TEST_CASE("rotated queries are the reference's bytes") {
  repeat(kCases, [](Random& random) {
    const int32_t head_dim = random.pick({64, 128, 256}), kv_heads = random.pick({1, 2, 4}),
                  heads = kv_heads * random.between(1, 5);
    const Cache cache(1, kv_heads, head_dim, 0, {5000, 5000});
    OwnedBatch batch;
    batch.add(cache, 0, random.below(4000), random.between(1, 40));
    batch.add(cache, 1, random.below(4000), 1);
    const std::vector<float> q =
        random.normals(static_cast<size_t>(batch.rows()) * heads * head_dim, random.pick({1.0f, 1e-20f, 1e20f}));
    const std::vector<float> inverse =
        random.scales(static_cast<size_t>(kv_heads) * head_dim, random.pick({30.0f, 1e18f, 1e-18f}));
    const std::vector<arith::CosSin> angles = batch.angles(head_dim);
    std::vector<int8_t> expected(q.size()), out(q.size());
    ReferenceBackend().queries(q.data(), batch.view(), angles.data(), heads, kv_heads, head_dim, inverse.data(),
                               expected.data());
    for (const auto& backend : backends()) {
      INFO(name_of(*backend));
      backend->queries(q.data(), batch.view(), angles.data(), heads, kv_heads, head_dim, inverse.data(), out.data());
      CHECK(differences(out, expected) == 0);
    }
  });
}

namespace {

// One token, few, about half, all but few or all.
std::vector<uint32_t> random_mask(Random& random, int32_t vocab) {
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(vocab)), 0);
  const int32_t percent = random.pick({0, 1, 50, 99, 100});
  for (uint32_t& word : mask)
    for (int32_t bit = 0; bit < 32; ++bit)
      if (random.chance(percent)) word |= uint32_t{1} << bit;
  const int32_t token = random.below(vocab);
  mask[static_cast<size_t>(token / 32)] |= uint32_t{1} << token % 32;
  return mask;
}

}  // namespace

TEST_CASE("sampling draws the reference's tokens and log-probabilities") {
  repeat(5 * kCases, [](Random& random) {
    const int32_t vocab = random.chance(2)    ? 530000
                          : random.chance(10) ? random.between(3000, 140000)
                                              : 16 * random.between(1, 200);
    std::vector<float> logits = random.normals(vocab, random.pick({1.0f, 4.0f, 0.01f, 30.0f, 0.0f}));
    if (random.chance(30))
      for (float& l : logits) l = std::round(l);  // ties
    std::vector<uint8_t> seen(vocab);
    for (uint8_t& s : seen) s = random.chance(10);
    SamplingSpec spec;
    spec.temperature = random.pick({0.0f, 0.7f, 1.0f, 2.0f, 0.01f});
    spec.top_k = random.pick({0, 0, 1, 5, 40, 5000});
    spec.top_p = random.pick({1.0f, 0.95f, 0.5f, 1e-6f, 0.99999999f});
    spec.min_p = random.pick({0.0f, 0.0f, 0.05f, 0.9f, 1.0f});
    spec.repetition_penalty = random.pick({1.0f, 1.1f, 0.8f});
    spec.seed = static_cast<uint64_t>(random.below(1 << 30));
    for (int32_t i = random.below(3); i > 0; --i)
      spec.logit_bias.push_back({random.below(vocab), random.uniform(-100.0f, 100.0f)});
    SampleArgs args{logits.data(), vocab, &spec, seen.data(), random.below(1000), random.pick({0, 0, 5, 100})};
    TokenGuide guide;
    if (random.chance(80)) guide.allowed = random_mask(random, vocab);
    for (int32_t i = random.below(3); i > 0; --i)
      guide.logit_bias.push_back({random.below(vocab), random.uniform(-100.0f, 100.0f)});
    if (random.chance(50)) args.guide = &guide;
    std::vector<float> changed(logits);
    for (float& logit : changed)
      if (random.chance(20)) logit = random.pick({-HUGE_VALF, 0.0f, 50.0f});
    changed[static_cast<size_t>(random.below(vocab))] = 1.0f;
    if (random.chance(20)) args.changed = changed.data();
    SampledToken expected, token;
    ReferenceBackend().sample(args, expected);
    if (args.guide && !args.changed) CHECK(allows(guide.allowed, expected.token));
    for (const auto& backend : backends()) {
      INFO(name_of(*backend) << ", vocab " << vocab << ", temperature " << spec.temperature << ", top_k " << spec.top_k
                             << ", top_p " << spec.top_p << ", min_p " << spec.min_p);
      backend->sample(args, token);
      CHECK(token.token == expected.token);
      CHECK(arith::bits_of(token.logprob) == arith::bits_of(expected.logprob));
      REQUIRE(token.top.size() == expected.top.size());
      for (size_t i = 0; i < token.top.size(); ++i) {
        CHECK(token.top[i].token == expected.top[i].token);
        CHECK(arith::bits_of(token.top[i].logprob) == arith::bits_of(expected.top[i].logprob));
      }
    }
  });
}

TEST_CASE("an unknown instruction set and a number of zero threads are refused") {
  CHECK(CpuBackend::create("sse9", 1).status().code() == StatusCode::kInvalidArgument);
  CHECK(CpuBackend::create("auto", 0).status().code() == StatusCode::kInvalidArgument);
  CHECK(CpuBackend::create("auto", 1).ok());
}

TEST_CASE("an instruction set that this machine lacks is refused by name, with a list of those it has") {
#if defined(__x86_64__)
  const std::string foreign = "neon";
#else
  const std::string foreign = "avx2";
#endif
  const Status refused = CpuBackend::create(foreign, 1).status();
  CHECK(refused.code() == StatusCode::kUnsupported);
  CHECK(refused.message().find("lacks the instructions of " + foreign) != std::string::npos);
  CHECK(refused.message().find("portable") != std::string::npos);
}

}  // namespace kaiju::test
