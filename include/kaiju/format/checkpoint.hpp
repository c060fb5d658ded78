// Checkpoint: reads a model file and gives its config and its tensors as checked, named bytes. It knows no arithmetic,
// and its only weights are those of the mapped file. docs/checkpoint.md describes the format and every rule that a file
// must satisfy.
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
const char* dtype_name(DType dtype);  // "I8", ... as in safetensors

// The DType whose elements have type T.
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
  std::span<const std::byte> bytes;  // valid as long as the checkpoint
  std::string digest;                // XXH3-128 as stored, 32 hexadecimal digits
  uint64_t offset = 0;               // position of the first byte in the file
};

enum class Verify : int32_t {
  // Checks everything: all digests, and the rules for values (no weight of -128, finite positive scales, row sums).
  kFull,
  // Checks header, shapes, offsets, config, root digest, and the values of F32 tensors; reads no weights and checks no
  // tensor digests.
  kNone,
};

// An open checkpoint. Immutable, safe from any thread.
class Checkpoint {
 public:
  // `done` is in [0, 1]. A nonzero return value stops the load with kCancelled.
  using Progress = Function<int(double done)>;

  // Opens and checks a checkpoint file. Weights (I8 tensors) are used in place in the mapped file; all other tensors
  // are copied. kIo if the file cannot be read or changes while it is opened; kUnsupported if it has another format
  // version or arithmetic version; kBadModel if it breaks a rule, with the tensor and the rule in the message. open()
  // reads no mapped byte, so a change of the file meanwhile is an error and no signal.
  //
  // The file must not change while the checkpoint exists: bytes written into the file change the weights, and reading a
  // weight that was cut off raises SIGBUS. To replace the file, rename a new file over it, as CheckpointWriter does;
  // the mapped file then stays as it was.
  static Result<std::shared_ptr<const Checkpoint>> open(const std::string& path, Verify verify = Verify::kFull,
                                                        const Progress& progress = {});
  // Opens and checks a checkpoint in memory. `bytes` is borrowed: it must outlive the checkpoint and be 64-byte aligned
  // (kInvalidArgument otherwise).
  static Result<std::shared_ptr<const Checkpoint>> from_memory(std::span<const std::byte> bytes,
                                                               Verify verify = Verify::kFull);

  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const std::string& digest() const = 0;               // root digest, which identifies the checkpoint
  virtual const std::vector<TensorInfo>& tensors() const = 0;  // sorted by name
  virtual const TensorInfo* find(std::string_view name) const = 0;

  // kIo if the file's size or its time of last change differs from that at open.
  virtual Status check_unchanged() const { return {}; }
  // Copies `bytes`, which must lie within a tensor's bytes, to `to`. A file is read by system calls instead of its
  // mapping, so a file that was cut short is kIo and raises no signal.
  virtual Status read(std::span<const std::byte> bytes, std::byte* to) const {
    std::copy(bytes.begin(), bytes.end(), to);
    return {};
  }

  // Typed view of a tensor. Empty if the tensor is absent or has another type; open() has checked that the required
  // tensors exist (docs/checkpoint.md lists them).
  template <class T>
  std::span<const T> view(std::string_view name) const {
    const TensorInfo* tensor = find(name);
    if (!tensor || tensor->dtype != kDTypeOf<T>) return {};
    return {reinterpret_cast<const T*>(tensor->bytes.data()), tensor->bytes.size() / sizeof(T)};
  }
};

// Writes a checkpoint: declare every tensor, write their bytes in the declared order, then call finish(). The file gets
// its name only when it is complete (temporary file, fsync, rename, fsync of the folder). A writer that is destroyed
// before finish() leaves no file.
class CheckpointWriter {
 public:
  struct Declaration {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
  };
  // `tensors` must be required_tensors(config), in any order that docs/checkpoint.md allows, with an optional
  // `tokenizer` at the end. The caller provides all values, row sums and scales included; the writer computes only the
  // digests.
  static Result<std::unique_ptr<CheckpointWriter>> create(const std::string& path, const ModelConfig& config,
                                                          std::vector<Declaration> tensors);
  virtual ~CheckpointWriter() = default;
  // Writes the next bytes of the current tensor. A tensor may be written in many pieces.
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status finish() = 0;
};

// Every tensor that a model with this config must have, in file order. The loader requires them and writers declare
// them. The tokenizer is optional and not among them.
std::vector<CheckpointWriter::Declaration> required_tensors(const ModelConfig& config);
// Checks dimensions, layers, KV slots and bounds. The error message names the field and the rule.
Status check_config(const ModelConfig& config);
std::string config_to_json(const ModelConfig& config);
// The longest text that config_from_json reads: ten times what 256 layers take.
inline constexpr size_t kMostConfigBytes = size_t{256} << 10;
Result<ModelConfig> config_from_json(std::string_view json);

}  // namespace kaiju
