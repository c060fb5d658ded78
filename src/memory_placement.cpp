// Reads what memory nodes there are in /sys, and interleaves pages over them by mbind(2).
#include "kaiju/base/detail/memory_placement.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>
#if defined(__linux__)
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kaiju {

std::vector<int32_t> nodes_of_list(const char* list) {
  std::vector<int32_t> nodes;
  while (*list >= '0' && *list <= '9') {
    char* end = nullptr;
    const long first = std::strtol(list, &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    for (long node = first; node <= last; ++node) nodes.push_back(static_cast<int32_t>(node));
    list = *end == ',' ? end + 1 : end;
  }
  return nodes;
}

#if defined(__linux__)

constexpr size_t kMostNodes = 1024;  // of Linux
constexpr size_t kWordBits = 8 * sizeof(unsigned long);

std::vector<int32_t> MemoryNodes::all() const {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/sys/devices/system/node/has_memory", "re"),
                                                             std::fclose);
  char line[4096] = "";
  std::vector<int32_t> nodes;
  if (file && std::fgets(line, sizeof line, file.get())) nodes = nodes_of_list(line);
  return nodes.empty() ? std::vector<int32_t>{0} : nodes;
}

int MemoryNodes::interleave(std::span<const std::byte> memory, const std::vector<int32_t>& nodes) const {
  unsigned long mask[kMostNodes / kWordBits] = {};
  for (const int32_t node : nodes)
    if (const auto bit = static_cast<size_t>(node); bit < kMostNodes) mask[bit / kWordBits] |= 1ul << bit % kWordBits;
  // Linux reads one bit less than it is told of.
  const long result =
      ::syscall(SYS_mbind, memory.data(), memory.size(), MPOL_INTERLEAVE, mask, kMostNodes + 1, MPOL_MF_MOVE);
  return result == 0 ? 0 : errno;
}

int MemoryNodes::read_in(std::span<const std::byte> memory) const {
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ of Linux 5.14, which older headers lack
  return ::madvise(const_cast<std::byte*>(memory.data()), memory.size(), kPopulateRead) == 0 ? 0 : errno;
}

static size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

#else

std::vector<int32_t> MemoryNodes::all() const { return {0}; }
int MemoryNodes::interleave(std::span<const std::byte>, const std::vector<int32_t>&) const { return ENOSYS; }
int MemoryNodes::read_in(std::span<const std::byte>) const { return ENOSYS; }
static size_t page_bytes() { return 4096; }

#endif

static Status refused(const char* what, const char* call, int error) {
  return {StatusCode::kUnsupported, std::string("the system does not interleave ") + what +
                                        " over the machine's memory nodes (" + call + ": " +
                                        std::generic_category().message(error) + "): allow the call, or do not ask"};
}

Status interleave(std::span<const std::byte> memory, const char* what, const MemoryNodes& nodes) {
  const std::vector<int32_t> all = nodes.all();
  const size_t page = page_bytes(), before = (0 - reinterpret_cast<uintptr_t>(memory.data())) % page;
  if (all.size() < 2 || memory.size() < before + page) return {};
  const int error = nodes.interleave(memory.subspan(before, (memory.size() - before) / page * page), all);
  return error == 0 ? Status() : refused(what, "mbind", error);
}

Status interleave_file(std::span<const std::byte> mapped, const char* what, const MemoryNodes& nodes) {
  if (nodes.all().size() < 2) return {};
  if (const int error = nodes.read_in(mapped)) return refused(what, "madvise", error);
  return interleave(mapped, what, nodes);
}

}  // namespace kaiju
