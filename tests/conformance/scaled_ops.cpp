// The row operations of version 2 of the arithmetic: every backend gives the reference's bits, at any magnitude.
#include <cmath>

#include "world.hpp"

namespace kaiju::test {
namespace {

constexpr int32_t kCases = 40;

// What an operation wrote, with a few values after the end that it must leave alone.
struct Written {
  std::vector<float> floats, scales;
  std::vector<int8_t> bytes;

  Written(size_t float_count, size_t byte_count, size_t scale_count)
      : floats(float_count + 16, 0.25f), scales(scale_count + 16, 0.25f), bytes(byte_count + 64, 0x55) {}
};

// `run` makes fresh copies of what the operation overwrites, and returns what it wrote.
template <class Run>
void check(Run run) {
  ReferenceBackend reference;
  const Written expected = run(reference);
  for (AnyBackend* backend : scaled_backends()) {
    INFO(name_of(*backend));
    const Written found = run(*backend);
    CHECK(differences(found.floats, expected.floats) == 0);
    CHECK(differences(found.bytes, expected.bytes) == 0);
    CHECK(differences(found.scales, expected.scales) == 0);
  }
}

// Of the models that exist, and random ones; sometimes more than the shared memory of a GPU holds.
int32_t width_of(Random& random) {
  if (random.chance(3)) return 49'984;
  return random.chance(50) ? random.pick({64, 192, 1536, 4864}) : 64 * random.between(1, 20);
}

// Rows that differ in what they hold: usual values, zeros, tiny and huge ones, one value far above the others, values
// on both sides of the least that counts.
std::vector<float> rows_of(Random& random, int32_t rows, int32_t width) {
  std::vector<float> out;
  for (int32_t row = 0; row < rows; ++row) {
    const float deviation = random.pick({1.0f, 1.0f, 1.0f, 30.0f, 0.0f, 0x1p-110f, 0x1p-135f, 0x1p-100f, 0x1p49f});
    const std::vector<float> values = random.normals(static_cast<size_t>(width), deviation);
    out.insert(out.end(), values.begin(), values.end());
    if (random.chance(20)) out[out.size() - 1 - static_cast<size_t>(random.below(width))] = 0x1p20f;
    if (random.chance(10)) std::fill(out.end() - width, out.end(), random.pick({0x1p-100f, 0x1.fffffep-101f, -0.0f}));
  }
  return out;
}

struct OwnedQuantiser {
  Quantiser shape;
  int32_t rows, width;

  OwnedQuantiser(Random& random, int32_t row_count, int32_t row_width, bool may_be_wide = false)
      : rows(row_count), width(row_width) {
    shape.hadamard = random.pick({1, 16, 32, 64});
    shape.wide = may_be_wide && random.chance(40);
    shape.bf16 = !shape.wide && random.chance(40);
    if (!shape.wide && random.chance(30)) shape.inverse = random.pick({30.0f, 1e6f, 1e-6f});
  }
  size_t byte_count() const { return static_cast<size_t>(rows) * static_cast<size_t>(width) * (shape.wide ? 2 : 1); }
  Written written(size_t floats) const { return {floats, byte_count(), static_cast<size_t>(rows)}; }
  Quantiser to(Written& written) const {
    Quantiser to = shape;
    to.bytes = written.bytes.data();
    to.scale = written.scales.data();
    return to;
  }
};

// What linear() gave, and what becomes of it.
struct OwnedOutputs {
  std::vector<float> sums, scale, bias;
  Outputs shape;

  OwnedOutputs(Random& random, int32_t rows, int32_t width, bool may_be_wide = false) {
    shape.width = width;
    shape.wide = may_be_wide && random.chance(40);
    sums = rows_of(random, shape.wide ? 2 * rows : rows, width);
    scale = random.scales(static_cast<size_t>(rows), random.pick({1.0f, 1.0f, 0.02f, 1e-30f, 1e3f}));
    if (random.chance(50)) bias = random.normals(static_cast<size_t>(width), random.pick({1.0f, 1e6f}));
    if (!shape.wide && random.chance(30)) {
      shape.step = random.pick({0.05f, 1e-6f, 1e6f});
      shape.inverse = arith::divide(1.0f, shape.step);
    }
  }
  // `copy` holds the sums from then on.
  Outputs view(std::vector<float>& copy) const {
    copy = sums;
    Outputs y = shape;
    y.sums = copy.data();
    y.scale = scale.data();
    y.bias = bias.empty() ? nullptr : bias.data();
    return y;
  }
};

std::vector<float> gain_of(Random& random, int32_t width) {
  if (random.chance(30)) return {};
  return random.normals(static_cast<size_t>(width), random.pick({1.0f, 1.0f, 1e5f}));
}
const float* data_or_null(const std::vector<float>& values) { return values.empty() ? nullptr : values.data(); }

std::vector<arith::CosSin> angles_of(Random& random, int32_t rows, int32_t head_dim) {
  std::vector<arith::CosSin> out;
  for (int32_t row = 0; row < rows; ++row) {
    const auto position = static_cast<uint64_t>(random.below(5000));
    for (int32_t i = 0; i < head_dim / 2; ++i) {
      const arith::CosSin angle = arith::cos_sin(position, 0x28BE60DB9391054Aull >> (i * 40 / head_dim));
      out.push_back({angle.cos, angle.sin});
    }
  }
  return out;
}

}  // namespace

TEST_CASE("a row is transformed and quantised as the reference does it, whatever its values") {
  repeat(3 * kCases, [](Random& random) {
    const int32_t rows = random.between(1, 40), width = width_of(random);
    const std::vector<float> values = rows_of(random, rows, width);
    const OwnedQuantiser to(random, rows, width, true);
    INFO("rows " << rows << ", width " << width << ", hadamard " << to.shape.hadamard << ", wide " << to.shape.wide);
    const bool keeps = random.chance(50);  // the values
    check([&](auto& backend) {
      Written written = to.written(keeps ? values.size() : 0);
      std::vector<float> copy = values, scratch(values.size());
      backend.quantise_rows(QuantiseRows{copy.data(), rows, width, to.to(written), keeps ? scratch.data() : nullptr});
      if (keeps) std::copy(copy.begin(), copy.end(), written.floats.begin());
      return written;
    });
  });
}

TEST_CASE("a token's row of the embedding is looked up with the reference's bits, transformed back or not") {
  repeat(kCases, [](Random& random) {
    const int32_t each = random.pick({1, 1, 3}), place = random.below(each);
    const OwnedMatrix table(random, each * random.between(1, 50), width_of(random));
    const std::vector<float> factor = random.scales(table.out, random.pick({1e-3f, 1e-18f, 1e3f, 1e-38f}));
    std::vector<int32_t> tokens(random.between(1, 70));
    for (int32_t& token : tokens) token = random.below(table.out / each);
    EmbedRows args;
    args.weight = table.weight.data() + int64_t{place} * table.in;
    args.factor = factor.data() + place;
    args.each = each;
    args.tokens = tokens.data();
    args.rows = static_cast<int32_t>(tokens.size());
    args.width = table.in;
    args.hadamard = random.pick({1, 16, 32, 64});
    args.bf16 = random.chance(50);
    check([&](auto& backend) {
      Written written(tokens.size() * static_cast<size_t>(table.in), 0, 0);
      EmbedRows own = args;
      own.x = written.floats.data();
      backend.embed_rows(own);
      return written;
    });
  });
}

TEST_CASE("a norm with its gain and its quantised row are the reference's, at any magnitude") {
  repeat(2 * kCases, [](Random& random) {
    const int32_t rows = random.between(1, 40), width = width_of(random);
    const std::vector<float> x = rows_of(random, rows, width), gain = gain_of(random, width);
    const OwnedQuantiser to(random, rows, width, true);
    const float eps = random.pick({1e-5f, 1e-12f, 1.0f});
    check([&](auto& backend) {
      Written written = to.written(0);
      std::vector<float> scratch(x.size());
      NormRows args;
      args.x = x.data();
      args.rows = rows;
      args.width = width;
      args.eps = eps;
      args.gain = data_or_null(gain);
      args.scratch = scratch.data();
      args.to = to.to(written);
      backend.norm_rows(args);
      return written;
    });
  });
}

TEST_CASE("the middle of a feed-forward has the reference's bits, by each gate and beyond its limit") {
  repeat(3 * kCases, [](Random& random) {
    const int32_t rows = random.between(1, 40), width = width_of(random);
    const Gate gate = random.pick({Gate::kSilu, Gate::kGelu, Gate::kSquaredRelu});
    const OwnedOutputs gates(random, rows, width), ups(random, rows, width);
    const OwnedQuantiser to(random, rows, width);
    INFO("gate " << static_cast<int32_t>(gate) << ", rows " << rows << ", width " << width);
    check([&](auto& backend) {
      Written written = to.written(0);
      std::vector<float> gate_sums, up_sums;
      GateRows args;
      args.gate = gate;
      if (gate != Gate::kSquaredRelu) args.gates = gates.view(gate_sums);
      args.ups = ups.view(up_sums);
      args.rows = rows;
      args.to = to.to(written);
      backend.gate_rows(args);
      return written;
    });
  });
}

TEST_CASE("outputs are added to the residual stream with the reference's bits, normed or not") {
  repeat(2 * kCases, [](Random& random) {
    const int32_t rows = random.between(1, 40), width = width_of(random);
    const OwnedOutputs y(random, rows, width);
    const std::vector<float> x = rows_of(random, rows, width), gain = gain_of(random, width);
    AddRows args;
    args.rows = rows;
    args.norms = random.chance(50);
    args.gain = data_or_null(gain);
    args.eps = 1e-6f;
    args.factor = random.pick({1.0f, 1.0f, 0.3f, -1.25f});
    args.bf16 = random.chance(50);
    check([&](auto& backend) {
      Written written(x.size(), 0, 0);
      std::copy(x.begin(), x.end(), written.floats.begin());
      std::vector<float> sums;
      AddRows own = args;
      own.y = y.view(sums);
      own.x = written.floats.data();
      backend.add_rows(own);
      return written;
    });
  });
}

TEST_CASE(
    "an addition and the norm behind it have the reference's bits, whether or not a block of threads holds a row") {
  repeat(2 * kCases, [](Random& random) {
    const int32_t rows = random.between(1, 40),
                  width = random.chance(20) ? random.pick({4096, 8192, 8256, 12'288}) : width_of(random);
    const OwnedOutputs y(random, rows, width);
    const std::vector<float> x = rows_of(random, rows, width), gain = gain_of(random, width),
                             output_gain = gain_of(random, width);
    const OwnedQuantiser to(random, rows, width, true);
    AddRows add;
    add.rows = rows;
    add.norms = random.chance(50);
    add.gain = data_or_null(output_gain);
    add.eps = 1e-6f;
    add.factor = random.pick({1.0f, 1.0f, 0.3f, -1.25f});
    add.bf16 = random.chance(50);
    NormRows norm;
    norm.rows = rows;
    norm.width = width;
    norm.eps = random.pick({1e-5f, 1e-12f, 1.0f});
    norm.gain = data_or_null(gain);
    INFO("rows " << rows << ", width " << width << ", hadamard " << to.shape.hadamard << ", wide " << to.shape.wide
                 << ", outputs normed " << add.norms);
    check([&](auto& backend) {
      Written written = to.written(x.size());
      std::copy(x.begin(), x.end(), written.floats.begin());
      std::vector<float> sums, scratch(x.size());
      AddRows own = add;
      own.y = y.view(sums);
      own.x = written.floats.data();
      NormRows own_norm = norm;
      own_norm.x = own.x;
      own_norm.scratch = scratch.data();
      own_norm.to = to.to(written);
      if constexpr (requires { backend.add_norm_rows(own, own_norm); }) {
        backend.add_norm_rows(own, own_norm);
      } else {
        backend.add_rows(own);
        backend.norm_rows(own_norm);
      }
      return written;
    });
  });
}

TEST_CASE("logits have the reference's bits: of one byte or two, capped or not, in place or not, of any number") {
  repeat(3 * kCases, [](Random& random) {
    const int32_t rows = random.between(1, 20), width = random.chance(50) ? random.between(1, 70) : width_of(random);
    const OwnedOutputs y(random, rows, width, true);
    const bool in_place = !y.shape.wide && random.chance(50);
    LogitRows args;
    args.rows = rows;
    args.cap = random.pick({0.0f, 30.0f, 1.0f, 1e6f});
    INFO("width " << width << ", wide " << y.shape.wide << ", cap " << args.cap << ", in place " << in_place);
    check([&](auto& backend) {
      const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(width);
      Written written(count, 0, 0);
      std::vector<float> sums;
      LogitRows own = args;
      own.y = y.view(sums);
      if (in_place) {
        std::copy(sums.begin(), sums.end(), written.floats.begin());
        own.y.sums = written.floats.data();
      }
      own.out = written.floats.data();
      backend.logit_rows(own);
      return written;
    });
  });
}

TEST_CASE("queries are normed, rotated, transformed and quantised as the reference does it, for each size of a head") {
  repeat(2 * kCases, [](Random& random) {
    const int32_t rows = random.between(1, 20), kv_heads = random.pick({1, 2, 3}),
                  heads = kv_heads * random.between(1, 4), head_dim = random.pick({64, 128, 256, 512});
    const OwnedOutputs q(random, rows, heads * head_dim);
    const std::vector<float> gain = gain_of(random, head_dim),
                             step = random.scales(static_cast<size_t>(kv_heads) * head_dim, random.pick({1.0f, 1e-5f}));
    const std::vector<arith::CosSin> angles = angles_of(random, rows, head_dim);
    QueryRows args;
    args.rows = rows;
    args.heads = heads;
    args.kv_heads = kv_heads;
    args.head_dim = head_dim;
    args.norms = random.chance(50);
    args.gain = data_or_null(gain);
    args.eps = 1e-6f;
    args.angles = angles.data();
    args.key_step = step.data();
    args.hadamard = random.pick({1, 16, 32, 64});
    args.factor = random.pick({1e-3f, 11.0f, 1e-10f});
    INFO("head_dim " << head_dim << ", heads " << heads << ", kv heads " << kv_heads << ", norms " << args.norms);
    check([&](auto& backend) {
      const size_t of_heads = static_cast<size_t>(rows) * static_cast<size_t>(heads);
      Written written(0, of_heads * static_cast<size_t>(head_dim), of_heads);
      std::vector<float> sums;
      QueryRows own = args;
      own.q = q.view(sums);
      own.bytes = written.bytes.data();
      own.z = written.scales.data();
      backend.query_rows(own);
      return written;
    });
  });
}

}  // namespace kaiju::test
