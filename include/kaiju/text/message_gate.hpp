// MessageGate: a linear model that judges one message by its words, before a language model reads it (docs/gate.md).
// Its sums are whole numbers, so a text has the same probabilities on every machine.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/text/detail/gate_parts.hpp"

namespace kaiju {

// Immutable, so any number of threads may use it at once.
class MessageGate {
 public:
  // Reads a gate's file, which is not needed any more afterwards. Returns kIo if the file cannot be read, kUnsupported
  // if it has another version, kBadModel if it is damaged or no gate; the message has the path and the reason.
  static Result<std::shared_ptr<const MessageGate>> load(const std::string& path);
  // The same from the bytes of such a file.
  static Result<std::shared_ptr<const MessageGate>> from_memory(std::span<const std::byte> bytes);

  const std::vector<std::string>& labels() const { return parts_.labels; }
  // Writes the probability of each label, in the order of labels(). `probabilities` has room for all of them. A text of
  // more than 48 words is judged in windows of 25 to 48 words, and the probability of a label is the largest of any
  // window. Bytes that are not UTF-8 count as spaces. Allocates nothing.
  void score(std::string_view text, std::span<float> probabilities) const noexcept;
  std::vector<float> score(std::string_view text) const;

  explicit MessageGate(GateParts parts) : parts_(std::move(parts)) {}  // for load and from_memory

 private:
  GateParts parts_;
};

}  // namespace kaiju
