// Overlay: a model some of whose tensors are those of another file.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kaiju/format/checkpoint.hpp"

namespace kaiju::format {

// The digest stays the model's.
class Overlay : public Checkpoint {
 public:
  // A tensor of `over` takes the place of the model's of the same name.
  Overlay(std::shared_ptr<const Checkpoint> model, std::shared_ptr<const Checkpoint> over)
      : model_(std::move(model)), over_(std::move(over)), tensors_(over_->tensors()) {
    for (const TensorInfo& tensor : model_->tensors())
      if (!over_->find(tensor.name)) tensors_.push_back(tensor);
    std::sort(tensors_.begin(), tensors_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  }

  const ModelConfig& config() const override { return model_->config(); }
  const std::string& digest() const override { return model_->digest(); }
  uint64_t scale_epoch() const override { return model_->scale_epoch(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    const TensorInfo* own = over_->find(name);
    return own ? own : model_->find(name);
  }
  Status check_unchanged() const override {
    KAIJU_TRY(over_->check_unchanged());
    return model_->check_unchanged();
  }
  Status read(std::span<const std::byte> bytes, std::byte* to) const override {
    const std::less_equal<const std::byte*> up_to;  // of any two pointers
    for (const TensorInfo& tensor : over_->tensors())
      if (up_to(tensor.bytes.data(), bytes.data()) &&
          up_to(bytes.data() + bytes.size(), tensor.bytes.data() + tensor.bytes.size()))
        return over_->read(bytes, to);
    return model_->read(bytes, to);
  }
  Status interleave() const override {
    KAIJU_TRY(over_->interleave());
    return model_->interleave();
  }

 protected:
  const Checkpoint& over() const { return *over_; }

 private:
  std::shared_ptr<const Checkpoint> model_, over_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace kaiju::format
