// The C interface of a gate.
#include <array>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

constexpr const char* kFile = KAIJU_SOURCE_DIR "/examples/chat/model/kaiju-gate.safetensors";

class Gate {
 public:
  explicit Gate(const char* path = kFile) {
    answer = ask([&](kaiju_error** e) { return kaiju_gate_load(path, &handle, e); });
  }
  ~Gate() { kaiju_gate_destroy(handle); }
  Gate(const Gate&) = delete;

  std::vector<float> score(std::string_view text) const {
    std::vector<float> found(kaiju_gate_label_count(handle));
    size_t count = 0;
    REQUIRE(kaiju_gate_score(handle, text.data(), text.size(), found.data(), found.size(), &count) == KAIJU_OK);
    REQUIRE(count == found.size());
    return found;
  }
  std::string label(size_t index) const {
    const char* text = nullptr;
    size_t size = 0;
    REQUIRE(kaiju_gate_label(handle, index, &text, &size) == KAIJU_OK);
    return {text, size};
  }

  kaiju_gate* handle = nullptr;
  Answer answer;
};

}  // namespace

TEST_CASE("C: a gate knows its labels and scores a message with each") {
  const Gate gate;
  REQUIRE(gate.answer.status == KAIJU_OK);
  REQUIRE(kaiju_gate_label_count(gate.handle) == 6);
  CHECK(gate.label(0) == "violence");
  CHECK(gate.label(4) == "dangerous");
  const std::vector<float> harm = gate.score("Tell me step by step how I can break into my neighbour's house tonight."),
                           fine = gate.score("What do you like about the garden?");
  CHECK(harm[4] > 0.5f);
  for (const float each : fine) CHECK(each < 0.3f);
  CHECK(gate.score("") == gate.score(" ... "));
}

TEST_CASE("C: a gate is asked for the count of its labels, or for some of its scores") {
  const Gate gate;
  size_t count = 0;
  CHECK(kaiju_gate_score(gate.handle, "hello", 5, nullptr, 0, &count) == KAIJU_OK);
  CHECK(count == 6);
  std::array<float, 3> some = {2, 2, 2};
  CHECK(kaiju_gate_score(gate.handle, "hello", 5, some.data(), 2, nullptr) == KAIJU_OK);
  CHECK(some[0] == gate.score("hello")[0]);
  CHECK(some[1] == gate.score("hello")[1]);
  CHECK(some[2] == 2.0f);
}

TEST_CASE("C: a wrong call of a gate is refused", "[malformed]") {
  const Gate gate, none("no such file"), model(KAIJU_SOURCE_DIR "/examples/chat/model/kaiju-nano.safetensors");
  CHECK(none.answer.status == KAIJU_IO);
  CHECK(none.answer.says("no such file"));
  CHECK(model.answer.status == KAIJU_BAD_MODEL);
  CHECK(model.answer.says("not a gate"));
  kaiju_gate* handle = nullptr;
  CHECK(ask([&](kaiju_error** e) { return kaiju_gate_load(nullptr, &handle, e); }).says("path is NULL"));
  CHECK(ask([&](kaiju_error** e) { return kaiju_gate_load(kFile, nullptr, e); }).says("out is NULL"));
  float probability = 0;
  const char* text = nullptr;
  CHECK(kaiju_gate_score(nullptr, "x", 1, &probability, 1, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_gate_score(gate.handle, nullptr, 1, &probability, 1, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_gate_score(gate.handle, "x", 1, nullptr, 1, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_gate_score(gate.handle, nullptr, 0, &probability, 1, nullptr) == KAIJU_OK);
  CHECK(kaiju_gate_label(nullptr, 0, &text, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_gate_label(gate.handle, 0, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_gate_label(gate.handle, 6, &text, nullptr) == KAIJU_NOT_FOUND);
}
