// Over which memory nodes (NUMA) of the machine memory lies. Asks Linux by system calls, without libnuma.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/base/status.hpp"

namespace kaiju {

// What the system is asked; tests ask another.
class MemoryNodes {
 public:
  virtual ~MemoryNodes() = default;
  // The numbers of the machine's nodes that have memory. One node, if the system does not say.
  virtual std::vector<int32_t> all() const;
  // Takes the pages of `memory`, which begins and ends at a page, in turn from those of these nodes that the process
  // may use. Pages that exist are moved, unless another process has mapped them, too. Returns errno, or 0.
  virtual int interleave(std::span<const std::byte> memory, const std::vector<int32_t>& nodes) const;
  // Maps the pages of a file that `memory` lies in, and reads those that are not in memory yet. Returns errno, or 0.
  virtual int read_in(std::span<const std::byte> memory) const;
};

// The numbers of a list as Linux writes it: "0-2,5".
std::vector<int32_t> nodes_of_list(const char* list);

// Interleaves the whole pages of `memory` over all nodes. Does nothing with one node. kUnsupported, which names `what`,
// if the system refuses. The pages of a mapped file are read in first.
Status interleave(std::span<const std::byte> memory, const char* what, const MemoryNodes& nodes = MemoryNodes());
Status interleave_file(std::span<const std::byte> mapped, const char* what, const MemoryNodes& nodes = MemoryNodes());

}  // namespace kaiju
