// C: keys, values and tokens are watched, and an engine takes other scales of keys and values.
#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

struct Calibration {
  kaiju_calibration* handle = nullptr;
  explicit Calibration(const Host& host) {
    kaiju_calibration_options options{};
    options.struct_size = sizeof options;
    options.window_blocks = 1;
    options.windows_known = 2;
    REQUIRE(kaiju_calibration_create(host.engine, &options, &handle, nullptr) == KAIJU_OK);
  }
  ~Calibration() { kaiju_calibration_destroy(handle); }
  Calibration(const Calibration&) = delete;
  kaiju_calibration_figures read() const {
    kaiju_calibration_figures figures{};
    figures.struct_size = sizeof figures;
    REQUIRE(kaiju_calibration_read(handle, &figures) == KAIJU_OK);
    return figures;
  }
};

std::vector<int32_t> prompt_of(int32_t first) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 70; ++i) tokens.push_back(1 + (first + i * 3) % 40);
  return tokens;
}

// Steps until a block was counted.
void count_one(Host& host, const Calibration& calibration, int32_t first) {
  host.submit(prompt_of(first));
  int32_t counted = 0;
  for (int steps = 0; counted == 0; ++steps) {
    REQUIRE(steps < 100);
    REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
    REQUIRE(kaiju_engine_calibrate(host.engine, calibration.handle, &counted, nullptr) == KAIJU_OK);
  }
}

}  // namespace

TEST_CASE("C: what a calibration has seen becomes scales, which an engine takes and gives back") {
  Host host(plain_model_file());
  const std::string path = temporary_folder() + "/scales";
  const Calibration calibration(host);
  CHECK(kaiju_calibration_save(calibration.handle, path.c_str(), nullptr) == KAIJU_NOT_FOUND);
  for (int32_t first = 0; first < 3; ++first) {
    count_one(host, calibration, first);
    const Answer busy = ask([&](kaiju_error** e) { return kaiju_engine_set_scales(host.engine, nullptr, e); });
    CHECK(busy.status == KAIJU_OK);  // those that it has
    host.drain();
  }
  const kaiju_calibration_figures figures = calibration.read();
  CHECK(figures.blocks == 3);
  CHECK(figures.windows == 3);
  CHECK(figures.known == 1);
  CHECK(figures.tokens > 0);
  kaiju_saturation slot{};
  slot.struct_size = sizeof slot;
  REQUIRE(kaiju_calibration_saturation(calibration.handle, 0, &slot) == KAIJU_OK);
  CHECK(slot.keys > 0);
  CHECK(slot.keys == slot.values);
  CHECK(slot.saturated_keys <= slot.keys);
  CHECK(kaiju_calibration_saturation(calibration.handle, 99, &slot) == KAIJU_NOT_FOUND);

  REQUIRE(kaiju_calibration_save(calibration.handle, path.c_str(), nullptr) == KAIJU_OK);
  host.submit(prompt_of(1));
  REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  CHECK(kaiju_engine_set_scales(host.engine, path.c_str(), nullptr) == KAIJU_BUSY);
  host.drain();
  REQUIRE(kaiju_engine_set_scales(host.engine, path.c_str(), nullptr) == KAIJU_OK);
  const Answer old =
      ask([&](kaiju_error** e) { return kaiju_engine_calibrate(host.engine, calibration.handle, nullptr, e); });
  CHECK(old.status == KAIJU_INVALID_ARGUMENT);
  CHECK(old.says("make one of this engine"));
  CHECK(Calibration(host).read().known == 1);
  REQUIRE(kaiju_engine_set_scales(host.engine, nullptr, nullptr) == KAIJU_OK);
  count_one(host, calibration, 7);
  host.drain();
  CHECK(kaiju_calibration_thaw(calibration.handle) == KAIJU_OK);
  CHECK(kaiju_calibration_reset(calibration.handle) == KAIJU_OK);
  CHECK(calibration.read().known == 0);

  const Bag with;
  REQUIRE(with.set(KAIJU_MODEL_SCALES, path).status == KAIJU_OK);
  kaiju_model* model = nullptr;
  REQUIRE(kaiju_model_load(nullptr, plain_model_file().c_str(), with.handle, nullptr, nullptr, &model, nullptr) ==
          KAIJU_OK);
  kaiju_model_destroy(model);
}

TEST_CASE("C: calibrations and scales that make no sense are refused") {
  Host host(plain_model_file());
  const Calibration calibration(host);
  kaiju_calibration* made = nullptr;
  kaiju_calibration_options options{};
  const auto create = [&] {
    return ask([&](kaiju_error** e) { return kaiju_calibration_create(host.engine, &options, &made, e); });
  };
  CHECK(create().says("struct_size"));
  options.struct_size = sizeof options;
  options.most_clipped = 2;
  CHECK(create().says("most_clipped"));
  CHECK(made == nullptr);
  CHECK(kaiju_calibration_create(nullptr, nullptr, &made, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_calibration_create(host.engine, nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_calibrate(host.engine, nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_calibrate(nullptr, calibration.handle, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_set_scales(nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_set_scales(host.engine, plain_model_file().c_str(), nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_set_scales(host.engine, "/none", nullptr) == KAIJU_IO);
  CHECK(kaiju_calibration_read(nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_calibration_saturation(nullptr, 0, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_calibration_save(nullptr, "x", nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_calibration_save(calibration.handle, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_calibration_thaw(nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_calibration_reset(nullptr) == KAIJU_INVALID_ARGUMENT);
  kaiju_calibration_destroy(nullptr);
}
