// Checkpoint: reads a model file and gives the model's config and its tensors as checked, named bytes. Checkpoint does
// no arithmetic, and its weights are used in place in the mapped file. docs/checkpoint.md describes the format and
// every rule that a file must satisfy.
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

// kDTypeOf<T> is the DType whose elements have the C++ type T.
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
  // kFull checks everything: all digests, and the rules for values (no weight of -128, finite positive scales, correct
  // row sums).
  kFull,
  // kNone checks the header, shapes, offsets, config, root digest, and the values of F32 tensors; it reads no weights
  // and checks no tensor digests.
  kNone,
};

// A Checkpoint is an open model file. A Checkpoint is immutable, and any thread may use it.
class Checkpoint {
 public:
  // `done` is the part of the load that is done, from 0 to 1. A nonzero return value stops the load with kCancelled.
  using Progress = Function<int(double done)>;

  // Opens and checks a checkpoint file. Weights (I8 tensors) are used in place in the mapped file; all other tensors
  // are copied. Returns kIo if the file cannot be read or changes while it is opened. Returns kUnsupported if the file
  // has another format version or arithmetic version. Returns kBadModel if the file breaks a rule; the message names
  // the tensor and the rule. open() reads the file by system calls and not through the mapping, so a change of the file
  // during open() gives an error and no signal.
  //
  // The model file must not change while the checkpoint exists: bytes written into the file change the weights, and
  // reading a weight that was cut off raises SIGBUS. To replace a model file, rename a new file over it, as
  // CheckpointWriter does; the mapped file then stays as it was.
  //
  // `threads` threads, the calling one included, share what Verify::kFull checks, and end before open() returns; only
  // the calling one calls `progress`.
  static Result<std::shared_ptr<const Checkpoint>> open(const std::string& path, Verify verify = Verify::kFull,
                                                        const Progress& progress = {}, int32_t threads = 1);
  // Opens and checks a checkpoint in memory. The memory of `bytes` is borrowed and must outlive the checkpoint. Returns
  // kInvalidArgument if `bytes` is not 64-byte aligned.
  static Result<std::shared_ptr<const Checkpoint>> from_memory(std::span<const std::byte> bytes,
                                                               Verify verify = Verify::kFull);

  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const std::string& digest() const = 0;  // root digest, which identifies the checkpoint
  // The config as the file has it, which the root digest is made of; empty where some tensors are not those that the
  // digest names (with_head, with_scales).
  virtual std::string_view config_text() const { return {}; }
  // Which scales of keys and values it has (with_scales); 0: those of the model's own file. KV of another epoch is of
  // no use to it.
  virtual uint64_t scale_epoch() const { return 0; }
  virtual const std::vector<TensorInfo>& tensors() const = 0;  // sorted by name
  virtual const TensorInfo* find(std::string_view name) const = 0;

  // Returns kIo if the file's size or its time of last change differs from the one at open().
  virtual Status check_unchanged() const { return {}; }
  // Copies `bytes`, which must lie within a tensor's bytes, to `to`. read() reads a file by system calls and not
  // through the mapping, so a file that was cut short gives kIo and raises no signal.
  virtual Status read(std::span<const std::byte> bytes, std::byte* to) const {
    std::copy(bytes.begin(), bytes.end(), to);
    return {};
  }
  // Interleaves the mapped weights over the memory nodes (NUMA) of the machine: reads the whole file, and moves its
  // pages, but for those that another process has mapped, too. Does nothing with one node, or without a file. Returns
  // kUnsupported if the system refuses.
  virtual Status interleave() const { return {}; }

  // Returns a typed view of a tensor. The view is empty if the tensor is absent or its elements have another type than
  // T. The function open() has checked that all required tensors exist (docs/checkpoint.md lists them).
  template <class T>
  std::span<const T> view(std::string_view name) const {
    const TensorInfo* tensor = find(name);
    if (!tensor || tensor->dtype != kDTypeOf<T>) return {};
    return {reinterpret_cast<const T*>(tensor->bytes.data()), tensor->bytes.size() / sizeof(T)};
  }
};

// Writes a checkpoint file: declare every tensor, write the bytes of all tensors in the declared order, then call
// finish(). The checkpoint file gets its name only when it is complete (temporary file, fsync, rename, fsync of the
// folder). A writer that is destroyed before finish() leaves no file.
class CheckpointWriter {
 public:
  struct Declaration {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
  };
  // `tensors` must be required_tensors(config), in any order that docs/checkpoint.md allows, with an optional
  // `tokenizer` at the end. The caller provides the values of all tensors, row sums and scales included; the writer
  // computes only the digests.
  static Result<std::unique_ptr<CheckpointWriter>> create(const std::string& path, const ModelConfig& config,
                                                          std::vector<Declaration> tensors);
  virtual ~CheckpointWriter() = default;
  // Writes the next bytes of the current tensor. The bytes of one tensor may be written by many calls of write().
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status finish() = 0;
};

// Returns every tensor that a model with this config must have, in file order. The loader requires all tensors of this
// list, and a writer declares them. The tensor `tokenizer` is optional and not in the list.
std::vector<CheckpointWriter::Declaration> required_tensors(const ModelConfig& config);
// Checks the dimensions, layers, KV slots and bounds of a config. The error message names the field and the rule that
// the field breaks.
Status check_config(const ModelConfig& config);
std::string config_to_json(const ModelConfig& config);
// The longest text that config_from_json reads: ten times what 256 layers take.
inline constexpr size_t kMostConfigBytes = size_t{256} << 10;
Result<ModelConfig> config_from_json(std::string_view json);

}  // namespace kaiju
