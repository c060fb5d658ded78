// The golden self-check accepts every backend that computes the contract, and notices one that does not.
#include "kaiju/backend/self_check.hpp"

#include <chrono>
#include <cstdio>

#include "world.hpp"

namespace kaiju::test {

namespace {

// `plain`: how many of the checks are those of a CPU.
void check(const std::vector<uint64_t>& found, const std::vector<uint64_t>& found_plain,
           std::span<const golden::Check> expected, size_t plain) {
  REQUIRE(found.size() == expected.size());
  CHECK(found_plain == std::vector<uint64_t>(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(plain)));
  for (size_t i = 0; i < found.size(); ++i) {
    char line[80];
    std::snprintf(line, sizeof line, "{\"%s\", 0x%016llXu},", expected[i].operation,
                  static_cast<unsigned long long>(found[i]));
    INFO("the table's line would be " << line);
    CHECK(found[i] == expected[i].hash);
  }
}

}  // namespace

TEST_CASE("the reference backend passes the golden self-check") {
  ReferenceBackend reference;
  check(golden::hashes(reference, golden::Shapes::kAll), golden::hashes(reference, golden::Shapes::kPlain),
        golden::kExpected, golden::kPlainChecks);
  check(golden::scaled_hashes(reference, golden::Shapes::kAll),
        golden::scaled_hashes(reference, golden::Shapes::kPlain), golden::kScaledExpected, golden::kPlainScaledChecks);
}

TEST_CASE("every backend passes the golden self-check") {
  for (const auto& backend : backends()) {
    INFO(name_of(*backend));
    CHECK(self_check(*backend, golden::Shapes::kAll).message() == "");
  }
}

namespace {
// Errs by one in one byte of an operation of each version of the arithmetic.
struct Wrong : ReferenceBackend {
  void add_rows(const AddRows& args) {
    ReferenceBackend::add_rows(args);
    args.x[7] = arith::float_of(arith::bits_of(args.x[7]) ^ 1);
  }
  void up(const Matrix& w, const int8_t* a, int32_t rows, const float* alpha, uint8_t* h) {
    ReferenceBackend::up(w, a, rows, alpha, h);
    h[5] ^= 1;
  }
};
}  // namespace

TEST_CASE("the golden self-check names the operation whose result differs") {
  Wrong wrong;
  const Status status = self_check(wrong);
  CHECK(status.code() == StatusCode::kUnsupported);
  CHECK(status.message().find("up, few rows; up, many rows; add_rows; add_rows, normed differ") != std::string::npos);
  const Status of_first = self_check(wrong, golden::Shapes::kPlain, 1);  // what a model of version 1 needs
  CHECK(of_first.message().find("up, few rows; up, many rows differ") != std::string::npos);
}

TEST_CASE("the golden self-check passes in a host that flushes subnormals and rounds down") {
#if defined(__x86_64__)
  const unsigned found = _mm_getcsr();
  const unsigned hostile = found | 0x8040 | 0x2000;  // FTZ, DAZ, round down
  _mm_setcsr(hostile);
  const auto& made = backends();
  const unsigned flags = _mm_getcsr() & 0x3F;  // of exceptions that were met while backends were made
  std::vector<std::string> messages;
  for (const auto& backend : made) messages.push_back(self_check(*backend, golden::Shapes::kAll).message());
  const unsigned after = _mm_getcsr();
  _mm_setcsr(found);
  for (const std::string& message : messages) CHECK(message == "");
  CHECK(after == (hostile | flags));
#endif
}

}  // namespace kaiju::test
