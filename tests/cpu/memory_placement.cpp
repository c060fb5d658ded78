// Memory nodes: what the system is asked, by another that writes it down, and by this machine's.
#include "kaiju/base/detail/memory_placement.hpp"

#include <cerrno>
#if defined(__linux__)
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "catch.hpp"

namespace kaiju {
namespace {

using Nodes = std::vector<int32_t>;

class Asked final : public MemoryNodes {
 public:
  Asked(Nodes nodes, int answer) : nodes_(std::move(nodes)), answer_(answer) {}
  Nodes all() const override { return nodes_; }
  int interleave(std::span<const std::byte> memory, const Nodes& nodes) const override {
    memory_ = memory;
    named_ = nodes;
    ++calls_;
    return answer_;
  }
  int read_in(std::span<const std::byte> memory) const override {
    read_ += memory.size();
    return answer_;
  }

  Nodes nodes_;
  int answer_;
  mutable std::span<const std::byte> memory_;
  mutable Nodes named_;
  mutable int calls_ = 0;
  mutable size_t read_ = 0;
};

// Bytes from 64 after the beginning of a page on.
struct Pages {
  alignas(4096) std::byte bytes[5 * 4096];
  std::span<const std::byte> from_64(size_t count) const { return {bytes + 64, count}; }
};

}  // namespace

TEST_CASE("lists of nodes are read as Linux writes them") {
  CHECK(nodes_of_list("0\n") == Nodes{0});
  CHECK(nodes_of_list("0-3\n") == Nodes{0, 1, 2, 3});
  CHECK(nodes_of_list("0-1,4,6-7\n") == Nodes{0, 1, 4, 6, 7});
  CHECK(nodes_of_list("").empty());
  CHECK(nodes_of_list("\n").empty());
  CHECK(!MemoryNodes().all().empty());
}

TEST_CASE("the whole pages of memory are interleaved over all nodes") {
  static const Pages pages{};
  const Asked two({0, 2}, 0);
  REQUIRE(interleave(pages.from_64(3 * 4096), "the memory", two).ok());
  CHECK(two.named_ == Nodes{0, 2});
  CHECK(two.memory_.data() == pages.bytes + 4096);
  CHECK(two.memory_.size() == 2 * 4096);
  REQUIRE(interleave(pages.from_64(4096), "the memory", two).ok());  // no whole page
  CHECK(two.calls_ == 1);
  CHECK(two.read_ == 0);
  REQUIRE(interleave_file(pages.from_64(8192), "the memory", two).ok());
  CHECK(two.read_ == 8192);
  CHECK(two.calls_ == 2);
}

TEST_CASE("a machine with one memory node is asked for nothing, whatever it would answer") {
  static const Pages pages{};
  const Asked one({0}, EPERM);
  CHECK(interleave(pages.from_64(3 * 4096), "the memory", one).ok());
  CHECK(interleave_file(pages.from_64(3 * 4096), "the memory", one).ok());
  CHECK(one.calls_ == 0);
  CHECK(one.read_ == 0);
}

TEST_CASE("a system that does not interleave is an error that names the memory and the reason") {
  static const Pages pages{};
  const Asked two({0, 1}, EPERM);
  for (const Status& status : {interleave(pages.from_64(3 * 4096), "the KV cache", two),
                               interleave_file(pages.from_64(3 * 4096), "the KV cache", two)}) {
    INFO(status.message());
    CHECK(status.code() == StatusCode::kUnsupported);
    CHECK(status.message().find("the KV cache") != std::string::npos);
    CHECK(status.message().find("not permitted") != std::string::npos);
  }
}

#if defined(__linux__)
TEST_CASE("the system's own call interleaves, unless it is forbidden here") {
  void* const memory = mmap(nullptr, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  const MemoryNodes system;
  const int error = system.interleave({static_cast<const std::byte*>(memory), 8 * 4096}, system.all());
  INFO("error " << error);
  CHECK((error == 0 || error == EPERM || error == ENOSYS));
  int policy = -1;
  if (error == 0 && syscall(SYS_get_mempolicy, &policy, nullptr, 0, memory, MPOL_F_ADDR) == 0)
    CHECK(policy == MPOL_INTERLEAVE);
  CHECK(system.read_in({static_cast<const std::byte*>(memory), 8 * 4096}) != EFAULT);
  munmap(memory, 8 * 4096);
}
#endif

}  // namespace kaiju
