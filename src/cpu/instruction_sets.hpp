// Instruction sets: which ones the CPU backend has kernels for, and which of them this machine supports.
#pragma once

#include <span>
#include <string_view>

#include "kernels.hpp"

namespace kaiju::cpu {

struct InstructionSet {
  std::string_view name;
  bool (*runs_here)();
  const Kernels& (*kernels)();  // null where this build has none
};

// Best first.
std::span<const InstructionSet> instruction_sets();

}  // namespace kaiju::cpu
