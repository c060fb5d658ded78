// TensorDigest: the digest of a tensor (TensorInfo::digest), computed part by part.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace kaiju {

class TensorDigest {
 public:
  virtual ~TensorDigest() = default;
  virtual void restart() = 0;
  virtual void update(std::span<const std::byte> bytes) = 0;
  virtual std::string text() const = 0;  // of the bytes since restart(): 32 hexadecimal digits
};

std::unique_ptr<TensorDigest> make_tensor_digest();

}  // namespace kaiju
