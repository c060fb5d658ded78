// Options that subcommands of kaiju-bench share: which GPUs compute, and who computes their matmuls.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"

namespace kaiju::bench {

inline void add_devices(CLI::App& command, std::vector<int32_t>& devices) {
  command.add_option("--devices", devices, "devices to compute on: 1 is the first GPU; several share the model")
      ->check(tools::whole_number(0, 1024))
      ->delimiter(',');
}

inline void add_products_file(CLI::App& command, std::string& file) {
  command
      .add_option("--products-file", file,
                  "on a GPU where cuBLASLt computes the matmuls: file that keeps its fastest algorithms, measured once")
      ->type_name("FILE");
}

inline void add_products(CLI::App& command, std::string& products, std::string& file) {
  command
      .add_option("--products", products,
                  "who computes matmuls on a GPU: auto, own or cublaslt, which serves models on one GPU alone")
      ->check(tools::name_from({"auto", "own", "cublaslt"}))
      ->capture_default_str();
  add_products_file(command, file);
}

}  // namespace kaiju::bench
