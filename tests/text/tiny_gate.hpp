// A small gate with random weights, as the bytes of its file.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/format/digest.hpp"

namespace kaiju::tests {

struct TinyGate {
  static constexpr int kBuckets = 256;

  explicit TinyGate(uint32_t seed = 1) {
    std::mt19937 random(seed);
    for (int i = 0; i < kBuckets * 2; ++i) weights += static_cast<char>(random() % 255 - 127);
    scales = {0.01f, 0.02f};
    biases = {-1.0f, 0.5f};
    metadata = {{"format", "kaiju-gate"},
                {"format_version", "1"},
                {"config", R"({"classifier": {"labels": ["harm", "pain"]}})"},
                {"notice", "random"}};
    tensors = {{"weights", {{"dtype", "I8"}, {"shape", {kBuckets, 2}}, {"data_offsets", {0, 512}}}},
               {"bias", {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {512, 520}}}},
               {"scale", {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {520, 528}}}}};
  }

  std::string data() const {
    std::string bytes = weights;
    for (const auto* values : {&biases, &scales})
      bytes.append(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float));
    return bytes;
  }
  std::string file() const {
    nlohmann::ordered_json header = {{"__metadata__", metadata}};
    if (!metadata.contains("digest")) {
      format::Digest digest;
      const std::string all = metadata.value("config", "") + data();
      digest.update(std::as_bytes(std::span(all)));
      header["__metadata__"]["digest"] = digest.text();
    }
    header.update(tensors);
    std::string text = header.dump();
    text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
    const uint64_t size = text.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data();
  }

  std::string weights;  // [buckets, labels]
  std::vector<float> scales, biases;
  nlohmann::ordered_json metadata, tensors;
};

}  // namespace kaiju::tests
