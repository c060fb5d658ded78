// The file tier's file: gives back what was written, or says that it cannot; and leaves nothing behind.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"

using namespace kaiju;

namespace {

std::string fresh_path(const char* name) {
  const auto path = std::filesystem::temp_directory_path() / ("kaiju-block-file-" + std::to_string(::getpid()) + name);
  std::filesystem::remove(path);
  return path.string();
}
std::vector<std::byte> bytes_of(int seed, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(seed * 31 + static_cast<int>(i * i));
  return bytes;
}

}  // namespace

TEST_CASE("a tier's file returns what was written, and detects changed bytes") {
  const std::string path = fresh_path("a");
  auto file = open_block_file(path, 1 << 20);
  INFO(file.status().message());
  REQUIRE(file.ok());
  CHECK_FALSE(std::filesystem::exists(path));  // nobody else opens it, nothing is left of it
  BlockName digests[3];
  for (int i = 0; i < 3; ++i) CHECK((*file)->write(i * 1000, bytes_of(i, 1000), digests[i]).ok());
  for (int i = 0; i < 3; ++i) {
    std::vector<std::byte> back(1000);
    CHECK((*file)->read(i * 1000, back, digests[i]).ok());
    CHECK(back == bytes_of(i, 1000));
    CHECK((*file)->read(i * 1000, back, digests[(i + 1) % 3]).code() == StatusCode::kBadModel);
  }
  // A block written over in part, as when two writes tear.
  BlockName ignored;
  CHECK((*file)->write(1500, bytes_of(9, 10), ignored).ok());
  std::vector<std::byte> back(1000);
  CHECK((*file)->read(1000, back, digests[1]).code() == StatusCode::kBadModel);
  CHECK((*file)->read(0, back, digests[0]).ok());
  CHECK((*file)->read((1 << 20) - 10, back, digests[0]).code() == StatusCode::kIo);  // beyond its end
}

TEST_CASE("a tier's file never replaces an existing file") {
  const std::string path = fresh_path("b");
  std::ofstream(path) << "mine";
  const auto file = open_block_file(path, 4096);
  CHECK(file.status().code() == StatusCode::kIo);
  CHECK(file.status().message().find(path) != std::string::npos);
  CHECK(std::filesystem::file_size(path) == 4);
  std::filesystem::remove(path);
  CHECK(open_block_file("/nowhere/at/all", 4096).status().code() == StatusCode::kIo);
  CHECK(open_block_file(path, 0).status().code() == StatusCode::kInvalidArgument);
  CHECK(open_block_file(path, int64_t{1} << 60).status().code() == StatusCode::kIo);  // more than there is
  CHECK_FALSE(std::filesystem::exists(path));
}
