// The golden self-check accepts every backend that computes the contract, and notices one that does not.
#include "kaiju/backend/self_check.hpp"

#include <chrono>
#include <cstdio>

#include "world.hpp"

namespace kaiju::test {

TEST_CASE("the reference backend passes the golden self-check") {
  ReferenceBackend reference;
  const auto found = golden::hashes(reference, golden::Shapes::kAll);
  REQUIRE(found.size() == golden::kChecks);
  CHECK(golden::hashes(reference, golden::Shapes::kPlain) ==
        std::vector<uint64_t>(found.begin(), found.begin() + golden::kPlainChecks));
  for (size_t i = 0; i < golden::kChecks; ++i) {
    char line[80];
    std::snprintf(line, sizeof line, "{\"%s\", 0x%016llXu},", golden::kExpected[i].operation,
                  static_cast<unsigned long long>(found[i]));
    INFO("the table's line would be " << line);
    CHECK(found[i] == golden::kExpected[i].hash);
  }
}

TEST_CASE("every backend passes the golden self-check") {
  for (const auto& backend : backends()) {
    INFO(name_of(*backend));
    CHECK(self_check(*backend, golden::Shapes::kAll).message() == "");
  }
}

namespace {
// Errs by one in one byte of one operation.
struct Wrong : ReferenceBackend {
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
  CHECK(status.message().find("up, few rows; up, many rows differ") != std::string::npos);
}

TEST_CASE("the golden self-check passes in a host that flushes subnormals and rounds down") {
#if defined(__x86_64__)
  const unsigned found = _mm_getcsr();
  const unsigned hostile = found | 0x8040 | 0x2000;  // FTZ, DAZ, round down
  _mm_setcsr(hostile);
  std::vector<std::string> messages;
  for (const auto& backend : backends()) messages.push_back(self_check(*backend, golden::Shapes::kAll).message());
  const unsigned after = _mm_getcsr();
  _mm_setcsr(found);
  for (const std::string& message : messages) CHECK(message == "");
  CHECK(after == hostile);
#endif
}

}  // namespace kaiju::test
