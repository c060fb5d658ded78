// WeightCheck: looks at weights in host memory again, part by part, to find bits that have flipped since they were
// read.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kaiju/format/tensor_digest.hpp"
#include "kaiju/model/weights.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju {

class WeightCheck {
 public:
  // The tensors must have the digests of their file; the constants, those that they have now. Both arguments must
  // outlive the object.
  WeightCheck(const Weights& weights, const Checkpoint& checkpoint) : digest_(make_tensor_digest()) {
    for (const TensorInfo& tensor : checkpoint.tensors()) places_.push_back({tensor.name, tensor.bytes, tensor.digest});
    for (const auto& values : weights.constants) add_constants(std::as_bytes(std::span(values)));
    for (const auto& values : weights.rope) add_constants(std::as_bytes(std::span(values)));
    add_constants(std::as_bytes(std::span(weights.classifier_bias)));
  }

  // As Executor::scrub.
  Result<Scrubbed> look(size_t most_bytes) {
    Scrubbed looked;
    while (looked.bytes < most_bytes && !looked.whole) {
      const Place& place = places_[next_];
      const size_t count = std::min(most_bytes - static_cast<size_t>(looked.bytes), place.bytes.size() - done_);
      if (done_ == 0) digest_->restart();
      digest_->update(place.bytes.subspan(done_, count));
      looked.bytes += count;
      done_ += count;
      if (done_ < place.bytes.size()) break;
      done_ = 0;
      next_ = (next_ + 1) % places_.size();
      looked.whole = next_ == 0;
      if (digest_->text() != place.digest)
        return bad_model("the weights in memory are damaged: " + place.name +
                         " has another digest than when it was read: end the process, and test this machine's memory");
    }
    return looked;
  }

 private:
  struct Place {
    std::string name;
    std::span<const std::byte> bytes;
    std::string digest;
  };

  void add_constants(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    digest_->restart();
    digest_->update(bytes);
    places_.push_back({"a list of constants", bytes, digest_->text()});
  }

  std::unique_ptr<TensorDigest> digest_;
  std::vector<Place> places_;
  size_t next_ = 0, done_ = 0;  // the place that is looked at, and its bytes that have been
};

}  // namespace kaiju
