// The values' own rules, behind digests made true: what an honest digest of a bad tensor must not let through.
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "tiny.hpp"

using kaiju::StatusCode;
using kaiju::Verify;
using tiny::Parts;

namespace {

kaiju::Status after(const std::function<void(Parts&)>& edit, Verify verify = Verify::kFull) {
  Parts parts = tiny::take_apart(tiny::bytes());
  edit(parts);
  tiny::seal(parts);
  return tiny::load(tiny::assemble(parts), verify);
}

void refused(const std::string& part, const kaiju::Status& status) {
  INFO(status.message());
  CHECK(status.code() == StatusCode::kBadModel);
  CHECK(tiny::contains(status.message(), part));
}

// Sets one weight and keeps the row sum true.
void set_weight(Parts& parts, const std::string& matrix, size_t row, size_t column, int8_t value) {
  const size_t width = parts.header[matrix + ".weight"]["shape"][1];
  const auto old = parts.get<int8_t>(matrix + ".weight", row * width + column);
  parts.put<int8_t>(matrix + ".weight", row * width + column, value);
  parts.put<int32_t>(matrix + ".row_sum", row, parts.get<int32_t>(matrix + ".row_sum", row) + value - old);
}

}  // namespace

TEST_CASE("scales, virtual scalars and clips must be finite, positive and within their range", "[malformed]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::pair<const char*, float> bad[] = {
      {"NaN", std::nanf("")},   {"-NaN", -std::nanf("")}, {"infinite", infinity},
      {"-infinite", -infinity}, {"zero", 0.0f},           {"-zero", -0.0f},
      {"negative", -1e-3f},     {"subnormal", 1e-40f},    {"below 1e-18", 0.9e-18f},
      {"above 1e18", 1.1e18f},  {"largest", 3.4e38f}};
  const std::pair<const char*, size_t> places[] = {{"embed.scale", 15},
                                                   {"embed.in_scalar", 0},
                                                   {"embed.out_scalar", 0},
                                                   {"kv.0.k.scale", 63},
                                                   {"kv.1.v.scalar", 0},
                                                   {"kv.0.k_clip", 0},
                                                   {"kv.1.v_clip", 63},
                                                   {"layers.0.attn.in_clip", 0},
                                                   {"layers.1.attn.q_clip", 0},
                                                   {"layers.0.attn.out_clip", 0},
                                                   {"layers.0.attn.q.scale", 127},
                                                   {"layers.1.attn.o.scalar", 0},
                                                   {"layers.0.ffn.in_clip", 0},
                                                   {"layers.1.ffn.mid_clip", 0},
                                                   {"layers.0.ffn.up.scale", 7},
                                                   {"layers.1.ffn.down.scale", 0},
                                                   {"final.in_clip", 0}};
  for (const auto& [tensor, index] : places)
    for (const auto& [name, value] : bad) DYNAMIC_SECTION(tensor << " " << name) {
        for (const Verify verify : {Verify::kFull, Verify::kNone})  // small tensors are checked without weights too
          refused(std::string("tensor ") + tensor + "[" + std::to_string(index) + "]",
                  after([&, t = tensor, i = index, v = value](Parts& p) { p.put<float>(t, i, v); }, verify));
      }
}

TEST_CASE("constants derived from values each in range must stay in range themselves", "[malformed]") {
  const auto too_large = [](const char* constant, const char* tensor, const char* a, float x, const char* b, float y) {
    DYNAMIC_SECTION(constant << " from " << a) {
      refused(std::string("tensor ") + tensor + ": the constant `" + constant + "`",
              after([=](Parts& p) { p.put<float>(a, 0, x), p.put<float>(b, 0, y); }));
    }
  };
  too_large("e", "embed.scale", "embed.scale", 1e10f, "embed.in_scalar", 1e10f);
  too_large("sl", "embed.scale", "embed.scale", 1e10f, "embed.out_scalar", 1e10f);
  too_large("c_in", "final.in_clip", "final.in_clip", 1e-12f, "final.in_clip", 1e-12f);
  too_large("c_in", "layers.0.attn.in_clip", "layers.0.attn.in_clip", 1e-12f, "layers.0.attn.in_clip", 1e-12f);
  too_large("c_in", "layers.1.ffn.in_clip", "layers.1.ffn.in_clip", 1e-12f, "layers.1.ffn.in_clip", 1e-12f);
  too_large("sk", "kv.0.k.scale", "kv.0.k.scale", 1e18f, "kv.0.k.scalar", 1e18f);
  too_large("sv", "kv.1.v.scale", "kv.1.v.scale", 1e18f, "kv.1.v.scalar", 1e18f);
  too_large("ck", "kv.0.k_clip", "kv.0.k_clip", 1e-17f, "kv.0.k_clip", 1e-17f);
  too_large("cv", "kv.0.v_clip", "kv.0.v_clip", 1e-17f, "kv.0.v_clip", 1e-17f);
  too_large("sq", "layers.0.attn.q.scale", "layers.0.attn.q.scale", 1e10f, "layers.0.attn.q.scalar", 1e10f);
  too_large("cq", "layers.0.attn.q_clip", "layers.0.attn.q_clip", 1e-18f, "kv.0.k_clip", 1e18f);
  too_large("z", "layers.0.attn.q_clip", "layers.0.attn.q_clip", 1e18f, "layers.0.attn.q_clip", 1e18f);
  too_large("co", "layers.0.attn.out_clip", "layers.0.attn.out_clip", 1e-10f, "kv.0.v_clip", 1e10f);
  too_large("so", "layers.0.attn.o.scale", "layers.0.attn.o.scale", 1e15f, "layers.0.attn.o.scalar", 1e3f);
  too_large("alpha", "layers.0.ffn.up.scale", "layers.0.ffn.up.scale", 1e8f, "layers.0.ffn.mid_clip", 1e-10f);
  too_large("sd", "layers.0.ffn.down.scale", "layers.0.ffn.down.scale", 1e3f, "layers.0.ffn.mid_clip", 1e12f);
}

TEST_CASE("a classifier's bias may have any sign, and must be finite and within its range", "[malformed]") {
  kaiju::ModelConfig config = tiny::config();
  config.labels = {"violence", "self-harm", "spam"};
  const std::string file = tiny::make(config);
  const auto with = [&](const char* tensor, size_t index, float value) {
    Parts parts = tiny::take_apart(file);
    parts.put<float>(tensor, index, value);
    tiny::seal(parts);
    return tiny::load(tiny::assemble(parts));
  };
  for (const float good : {0.0f, -0.0f, -3.5f, 1e-40f, 1e12f}) CHECK(with("classifier.bias", 1, good).ok());
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), 1.1e12f, -1.1e12f})
    refused("tensor classifier.bias[1] is", with("classifier.bias", 1, bad));
  refused("tensor classifier.scale[2] is", with("classifier.scale", 2, -1.0f));
  refused("tensor classifier.scalar[0] is", with("classifier.scalar", 0, 0.0f));
  refused("tensor classifier.scale: the constant `sc`", with("classifier.scale", 0, 1e15f));
}

TEST_CASE("a file whose classifier does not fit its labels is refused by tensor", "[malformed]") {
  kaiju::ModelConfig config = tiny::config();
  config.labels = {"violence", "self-harm", "spam"};
  const std::string file = tiny::make(config);
  const auto after_edit = [&](const std::function<void(tiny::ordered_json&)>& edit) {
    Parts parts = tiny::take_apart(file);
    parts.edit_config(edit);
    tiny::seal(parts);
    return tiny::load(tiny::assemble(parts));
  };
  refused("tensor classifier.weight is I8 [3, 64]; the config asks for I8 [2, 64]",
          after_edit([](auto& c) { c["classifier"]["labels"].erase(0); }));
  refused("tensor \"classifier.bias\" is not one the config asks for",
          after_edit([](auto& c) { c.erase("classifier"); }));
}

TEST_CASE("no weight may be -128, wherever it is", "[malformed]") {
  for (const std::string& matrix : tiny::matrices_of(tiny::config()))
    for (const size_t column : {0, 15, 16, 33, 63}) {
      DYNAMIC_SECTION(matrix << " column " << column) {
        refused("tensor " + matrix + ".weight: row 3 holds the weight -128",
                after([&](Parts& p) { set_weight(p, matrix, 3, column, -128); }));
      }
    }
  CHECK(after([](Parts& p) { set_weight(p, "layers.0.ffn.up", 3, 9, -127); }).ok());
}

TEST_CASE("row sums must be those of the rows", "[malformed]") {
  for (const std::string& matrix : tiny::matrices_of(tiny::config())) {
    const std::string tensor = matrix + ".row_sum";
    DYNAMIC_SECTION(tensor << " one more") {
      refused("tensor " + tensor + "[2] is",
              after([&](Parts& p) { p.put<int32_t>(tensor, 2, p.get<int32_t>(tensor, 2) + 1); }));
    }
    DYNAMIC_SECTION(tensor << " least of all") {
      refused("tensor " + tensor + "[2] is", after([&](Parts& p) { p.put<int32_t>(tensor, 2, INT32_MIN); }));
    }
  }
}

TEST_CASE("without verification weights are not read and only the structure is checked") {
  CHECK(after([](Parts& p) { set_weight(p, "embed", 0, 0, -128); }, Verify::kNone).ok());
  CHECK(after([](Parts& p) { p.put<int32_t>("embed.row_sum", 0, 12345); }, Verify::kNone).ok());
}

TEST_CASE("every damaged tensor is caught by its digest, in every byte region", "[malformed]") {
  const Parts good = tiny::take_apart(tiny::bytes());
  for (const auto& [name, entry] : good.header.items()) {
    if (name == "__metadata__") continue;
    const auto [begin, end] = good.place(name);
    DYNAMIC_SECTION(name) {
      for (const uint64_t at : {begin, (begin + end) / 2, end - 1}) {
        Parts parts = good;
        parts.data[at] ^= 1;  // the lowest bit of a float or weight: no other rule would notice
        refused(name, tiny::load(tiny::assemble(parts)));
      }
    }
  }
}

TEST_CASE("weights of two tensors of one shape, swapped, are caught by their digests", "[malformed]") {
  Parts parts = tiny::take_apart(tiny::bytes());
  const auto swap = [&](const std::string& a, const std::string& b) {
    const auto [a0, a1] = parts.place(a);
    const auto [b0, b1] = parts.place(b);
    REQUIRE(a1 - a0 == b1 - b0);
    std::swap_ranges(parts.data.begin() + static_cast<long>(a0), parts.data.begin() + static_cast<long>(a1),
                     parts.data.begin() + static_cast<long>(b0));
  };
  // Row sums and scales move along, so that nothing but the digest can tell.
  for (const char* end : {".weight", ".row_sum", ".scale"})
    swap(std::string("layers.0.ffn.up") + end, std::string("layers.1.ffn.up") + end);
  const kaiju::Status status = tiny::load(tiny::assemble(parts));
  INFO(status.message());
  CHECK(status.code() == StatusCode::kBadModel);
  CHECK(tiny::contains(status.message(), "tensor layers.0.ffn.up.weight: its bytes do not match its digest"));
}

TEST_CASE("digests swapped along with their tensors are caught by the root digest", "[malformed]") {
  Parts parts = tiny::take_apart(tiny::bytes());
  tiny::ordered_json digests = tiny::ordered_json::parse(parts.metadata()["digests"].get<std::string>());
  std::swap(digests["layers.0.ffn.up.weight"], digests["layers.1.ffn.up.weight"]);
  std::swap(parts.header["layers.0.ffn.up.weight"]["data_offsets"],
            parts.header["layers.1.ffn.up.weight"]["data_offsets"]);
  parts.metadata()["digests"] = digests.dump();
  const kaiju::Status status = tiny::load(tiny::assemble(parts), Verify::kNone);
  CHECK(status.code() == StatusCode::kBadModel);
  CHECK(tiny::contains(status.message(), "__metadata__.digest"));
}

TEST_CASE("a config that fits the tensors but is not the model's own is caught by the root digest", "[malformed]") {
  for (const auto& edit : std::vector<std::function<void(tiny::ordered_json&)>>{
           [](auto& c) { c["name"] = "other"; }, [](auto& c) { c["context"] = 128; },
           [](auto& c) { c["norm_eps"] = 2e-5; }, [](auto& c) { c["layers"][0]["window"] = 16; },
           [](auto& c) { c["chat"]["begin"] = 2; }, [](auto& c) { c.erase("chat"); }}) {
    Parts parts = tiny::take_apart(tiny::bytes());
    parts.edit_config(edit);
    const kaiju::Status status = tiny::load(tiny::assemble(parts), Verify::kNone);
    INFO(status.message());
    CHECK(status.code() == StatusCode::kBadModel);
    CHECK(tiny::contains(status.message(), "__metadata__.digest"));
  }
}
