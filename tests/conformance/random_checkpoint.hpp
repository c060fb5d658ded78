// A checkpoint of random weights, for as long as it is held: its file has no name any more.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "catch.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "kaiju/format/random_model.hpp"

namespace kaiju::test {

inline std::shared_ptr<const Checkpoint> random_checkpoint(const ModelConfig& config, uint64_t seed) {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("kaiju-" + config.name + "-" + std::to_string(::getpid()) + ".safetensors"))
                               .string();
  const Status written = write_random_checkpoint(path, config, seed);
  INFO(written.message());
  REQUIRE(written.ok());
  auto opened = Checkpoint::open(path);
  std::filesystem::remove(path);
  INFO(opened.status().message());
  REQUIRE(opened.ok());
  return *opened;
}

}  // namespace kaiju::test
