// TrainingRun: a model whose weights take random steps, with the weight updates between its states.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kaiju/format/weight_update.hpp"
#include "tests/format/tiny.hpp"

namespace tiny {

class TrainingRun {
 public:
  TrainingRun(const ModelConfig& config, uint64_t seed) : parts_(take_apart(make(config, seed))), random_(seed) {
    now_ = open();
  }

  // As a file of the present weights.
  const std::shared_ptr<const Checkpoint>& now() const { return now_; }
  std::string file() const { return assemble(parts_); }
  uint64_t number() const { return number_; }

  // What a step changes beside a third of all weights by 1.
  struct Also {
    bool scales = false;  // the scales of the rows, and where the model has clips those of keys and values
    bool far = false;     // one weight by more than 1
    bool fitted = false;  // every fourth value of the scales, by 1 / 128 of it up or down
  };
  // Takes a step; returns the update that leads there.
  std::vector<std::byte> step(const Also& also = {false, false, false}) {
    for (const kaiju::TensorInfo& tensor : now_->tensors()) {
      if (tensor.dtype == kaiju::DType::kI8) move(tensor);
      const bool is_clip = tensor.name.ends_with("k_clip") || tensor.name.ends_with("v_clip");
      if (also.scales && (is_clip || tensor.name.ends_with("up.scale")))
        parts_.put<float>(tensor.name, 0, parts_.get<float>(tensor.name, 0) * 1.25f);
      if (also.fitted && tensor.name.ends_with(".scale")) fit(tensor);
    }
    if (also.far) {
      const int8_t weight = parts_.get<int8_t>("embed.weight", 5);
      parts_.put<int8_t>("embed.weight", 5, static_cast<int8_t>(weight > 0 ? weight - 100 : weight + 100));
    }
    for (const kaiju::TensorInfo& tensor : now_->tensors())
      if (tensor.dtype == kaiju::DType::kI8) sum_rows(tensor);
    seal(parts_);
    const std::shared_ptr<const Checkpoint> before = now_;
    now_ = open();
    auto update = kaiju::make_weight_update(*before, *now_, ++number_);
    INFO(update.status().message());
    REQUIRE(update.ok());
    return *update;
  }

 private:
  template <class T>
  T* values(const std::string& tensor) {
    return reinterpret_cast<T*>(&parts_.data[parts_.place(tensor).first]);
  }
  void move(const kaiju::TensorInfo& tensor) {
    auto* const weights = values<int8_t>(tensor.name);
    for (size_t i = 0; i < tensor.bytes.size(); ++i) {
      const uint32_t draw = static_cast<uint32_t>(random_()) % 6;
      if (draw < 2) weights[i] = static_cast<int8_t>(std::clamp(weights[i] + (draw == 0 ? 1 : -1), -127, 127));
    }
  }
  void fit(const kaiju::TensorInfo& tensor) {
    auto* const scales = values<float>(tensor.name);
    for (size_t i = 0; i < tensor.bytes.size() / sizeof(float); i += 4)
      scales[i] *= 1.0f + (random_() % 2 == 0 ? 0.0078125f : -0.0078125f);
  }
  void sum_rows(const kaiju::TensorInfo& tensor) {
    const auto* row = values<int8_t>(tensor.name);
    auto* const sums = values<int32_t>(tensor.name.substr(0, tensor.name.size() - 7) + ".row_sum");
    for (int64_t n = 0; n < tensor.shape[0]; ++n, row += tensor.shape[1])
      sums[n] = std::accumulate(row, row + tensor.shape[1], 0);
  }
  std::shared_ptr<const Checkpoint> open() const {
    const auto bytes = std::make_shared<Aligned>(assemble(parts_));
    auto opened = Checkpoint::from_memory(bytes->bytes());
    INFO(opened.status().message());
    REQUIRE(opened.ok());
    const Checkpoint* const checkpoint = opened->get();
    return {checkpoint, [bytes, opened = *opened](const Checkpoint*) {}};
  }

  Parts parts_;
  std::mt19937_64 random_;
  std::shared_ptr<const Checkpoint> now_;
  uint64_t number_ = 0;
};

}  // namespace tiny
