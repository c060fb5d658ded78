// Pieces: the bytes of each token. This is the only part of a tokenizer that the engine needs to turn tokens into text.
#pragma once

#include <cstdint>
#include <string_view>

namespace kaiju {

// Immutable once built: safe from many threads at once.
class Pieces {
 public:
  virtual ~Pieces() = default;
  // The raw bytes of a token, not necessarily whole UTF-8 (a byte token is one byte). Empty for control symbols and for
  // ids outside the vocabulary. Borrowed for the life of this object.
  virtual std::string_view piece(int32_t token) const = 0;
};

}  // namespace kaiju
