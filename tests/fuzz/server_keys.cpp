// Fuzz: the file of keys. Either tenants that a request can name, or a problem that names the file.
#include <sys/mman.h>
#include <unistd.h>

#include "examples/server/tenants.hpp"
#include "tests/fuzz/fuzz.hpp"

using fuzz::promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = ::memfd_create("keys", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  promise(file >= 0 && ::ftruncate(file, 0) == 0, "a file in memory");
  promise(::pwrite(file, data, size, 0) == static_cast<ssize_t>(size), "the file is written");
  const fuzz::MemoryBound bound(size, 300, 64 << 10);
  try {
    const kaiju::server::Tenants tenants("secret", path);
  } catch (const std::runtime_error& problem) {
    promise(std::string_view(problem.what()).starts_with(path + ":"), "a problem names the file");
  }
  return 0;
}
