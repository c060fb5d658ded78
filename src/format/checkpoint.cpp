// Checkpoint: opens a file and refuses one that breaks a rule of docs/checkpoint.md.
#include "kaiju/format/checkpoint.hpp"

#include <string>
#include <utility>

#include "loaded_checkpoint.hpp"

namespace kaiju {

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& path, Verify verify,
                                                           const Progress& progress, int32_t threads) {
  if (threads < 1 || threads > 256)
    return invalid_argument("a checkpoint is verified by 1 to 256 threads, not " + std::to_string(threads));
  const auto make = [](const std::string& name, format::Source source) {
    return std::make_shared<format::LoadedCheckpoint>(name, std::move(source));
  };
  return format::open_file(path, verify, progress, make, threads);
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::from_memory(std::span<const std::byte> bytes, Verify verify) {
  return format::guarded("checkpoint in memory", [&]() -> format::Loaded {
    const FloatState float_state;
    if (reinterpret_cast<uintptr_t>(bytes.data()) % format::kAlignment != 0)
      return invalid_argument("the bytes are not aligned: give an address that is a multiple of 64");
    auto checkpoint = std::make_shared<format::LoadedCheckpoint>("checkpoint in memory", format::Source(bytes));
    if (Status status = checkpoint->load(verify, {}); !status.ok()) return status;
    return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
  });
}

}  // namespace kaiju
