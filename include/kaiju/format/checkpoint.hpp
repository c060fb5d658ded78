// Checkpoint: a file turned into checked, named bytes and a config. Knows no arithmetic and owns no weights beyond the
// mapped file. The format, and every rule a file must satisfy, is docs/checkpoint.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kaiju/base/function.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/format/config.hpp"

namespace kaiju {

enum class DType : int32_t { kI8, kU8, kI32, kU64, kF32 };
size_t dtype_bytes(DType dtype);
const char* dtype_name(DType dtype);  // "I8", ... as safetensors spells it

// The dtype whose elements are T.
template <class T>
inline constexpr DType kDTypeOf = [] {
  static_assert(std::is_same_v<T, int8_t> || std::is_same_v<T, uint8_t> || std::is_same_v<T, int32_t> ||
                    std::is_same_v<T, uint64_t> || std::is_same_v<T, float>,
                "no tensor of a checkpoint has elements of this type");
  if (std::is_same_v<T, int8_t>) return DType::kI8;
  if (std::is_same_v<T, uint8_t>) return DType::kU8;
  if (std::is_same_v<T, int32_t>) return DType::kI32;
  if (std::is_same_v<T, uint64_t>) return DType::kU64;
  return DType::kF32;
}();

struct TensorInfo {
  std::string name;
  DType dtype = DType::kI8;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // lives as long as the checkpoint
  std::string digest;                // XXH3-128 as stored, 32 hexadecimal digits
  uint64_t offset = 0;               // of the first byte in the file
};

enum class Verify : int32_t {
  kFull,  // read everything: digests and the values' own rules (no -128, finite positive scales, row sums)
  kNone,  // header, shapes, offsets, config, root digest, and the values of F32 tensors; reads no weights and no tensor
          // digests
};

// Immutable after open; safe from any thread.
class Checkpoint {
 public:
  // Progress in [0, 1]; a nonzero return stops the load with kCancelled.
  using Progress = Function<int(double done)>;

  // Weights (I8 tensors) are used in place, in the mapped file; all other tensors are copied. kIo when it cannot be
  // read or changes meanwhile, kUnsupported when it is of another format or arithmetic version, kBadModel when it
  // breaks a rule: the message names the tensor and the rule. Opening touches no mapped byte, so whatever happens to
  // the file meanwhile is an answer. Afterwards the file must not change while the checkpoint lives. What is written
  // into it reaches the weights, and a weight past a new end raises SIGBUS when it is touched. To replace it, rename a
  // new file over it, as CheckpointWriter does: that leaves the mapped one alone.
  static Result<std::shared_ptr<const Checkpoint>> open(const std::string& path, Verify verify = Verify::kFull,
                                                        const Progress& progress = {});
  // Borrows `bytes`, which must outlive the checkpoint and be 64-byte aligned (kInvalidArgument otherwise).
  static Result<std::shared_ptr<const Checkpoint>> from_memory(std::span<const std::byte> bytes,
                                                               Verify verify = Verify::kFull);

  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const std::string& digest() const = 0;               // root digest: the checkpoint's identity
  virtual const std::vector<TensorInfo>& tensors() const = 0;  // sorted by name
  virtual const TensorInfo* find(std::string_view name) const = 0;

  // kIo when the file's size or time of change is no longer what it was when it was opened.
  virtual Status check_unchanged() const { return {}; }
  // Copies `bytes`, which lie within a tensor's. Of a file they are read by calls, so that one that was cut short is
  // kIo and no signal.
  virtual Status read(std::span<const std::byte> bytes, std::byte* to) const {
    std::copy(bytes.begin(), bytes.end(), to);
    return {};
  }

  // Typed view of a tensor that open() has already required (docs/checkpoint.md lists them); empty when absent or of
  // another type.
  template <class T>
  std::span<const T> view(std::string_view name) const {
    const TensorInfo* tensor = find(name);
    if (!tensor || tensor->dtype != kDTypeOf<T>) return {};
    return {reinterpret_cast<const T*>(tensor->bytes.data()), tensor->bytes.size() / sizeof(T)};
  }
};

// Writes a checkpoint: declare every tensor, then give their bytes in the declared order, then finish. The file appears
// under its name only when whole: temporary file, fsync, rename, fsync of the folder. A writer destroyed before
// finish() leaves nothing behind.
class CheckpointWriter {
 public:
  struct Declaration {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
  };
  // `tensors` must be required_tensors(config), in any order that docs/checkpoint.md allows, plus a `tokenizer` at the
  // end if there is one. The values are the caller's: the writer computes digests, not row sums or scales.
  static Result<std::unique_ptr<CheckpointWriter>> create(const std::string& path, const ModelConfig& config,
                                                          std::vector<Declaration> tensors);
  virtual ~CheckpointWriter() = default;
  // The next bytes of the current tensor; a tensor may come in many pieces.
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status finish() = 0;
};

// Every tensor a model of this config must have, in file order: what the loader requires and writers declare. The
// tokenizer is not among them.
std::vector<CheckpointWriter::Declaration> required_tensors(const ModelConfig& config);
// Checks dimensions, layers, slots and bounds; the message names the field and the rule.
Status check_config(const ModelConfig& config);
std::string config_to_json(const ModelConfig& config);
Result<ModelConfig> config_from_json(std::string_view json);

}  // namespace kaiju
