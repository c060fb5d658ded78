// Digests: XXH3-128 as 32 hexadecimal digits (canonical, big-endian), and the root digest that identifies a checkpoint.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/format/checkpoint.hpp"
#include "kaiju/format/tensor_digest.hpp"

namespace kaiju::format {

class Digest final : public TensorDigest {
 public:
  Digest();
  void restart() override;
  void update(std::span<const std::byte> bytes) override;
  std::string text() const override;

 private:
  struct State;
  struct Free {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, Free> state_;
};

bool is_digest(std::string_view text);  // 32 lower-case hexadecimal digits

// Of docs/checkpoint.md, "Metadata": the tensors come sorted by name, each with its digest.
std::string root_digest(std::string_view arithmetic, std::string_view config, const std::vector<TensorInfo>& sorted);

}  // namespace kaiju::format
