// A CheckpointWriter that asks nothing of config and tensors: for the files that a model can be in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/format/checkpoint.hpp"

namespace kaiju::format {

// `config` is JSON text. The tensors come in an order that docs/checkpoint.md allows.
Result<std::unique_ptr<CheckpointWriter>> create_writer(const std::string& path, int32_t arithmetic, std::string config,
                                                        std::vector<CheckpointWriter::Declaration> tensors);

}  // namespace kaiju::format
