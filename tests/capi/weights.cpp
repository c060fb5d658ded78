// C: an engine takes weight updates between steps, and refuses those that it must not take.
#include "catch.hpp"
#include "tests/capi/host.hpp"
#include "tests/format/training_run.hpp"

using namespace kaiju::tests;

namespace {

using Bytes = std::vector<std::byte>;

Answer update(const Host& host, const Bytes& bytes) {
  return ask([&](kaiju_error** e) { return kaiju_engine_update_weights(host.engine, bytes.data(), bytes.size(), e); });
}

std::string file_of(const tiny::TrainingRun& run, const char* name) {
  const std::string path = temporary_folder() + "/" + name;
  tiny::write_file(path, run.file());
  return path;
}

const std::vector<int32_t> kPrompt = {1, 9, 4, 7, 3};

}  // namespace

TEST_CASE("C: an engine takes updates in order, between the steps of a reply, and then equals the file") {
  tiny::TrainingRun run(tiny_config(kTinyVocabulary, kTinyContext), 5);
  Host host(file_of(run, "first"));
  host.submit(kPrompt);
  REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  const Bytes one = run.step(), two = run.step();
  Bytes damaged = one;
  damaged.back() ^= std::byte{1};
  CHECK(update(host, damaged).status == KAIJU_BAD_MODEL);
  CHECK(update(host, two).status == KAIJU_INVALID_ARGUMENT);
  REQUIRE(update(host, one).status == KAIJU_OK);
  CHECK(update(host, one).says("send update 2 first"));
  CHECK(kaiju_engine_set_head(host.engine, nullptr, nullptr) == KAIJU_OK);
  CHECK(kaiju_engine_set_scales(host.engine, nullptr, nullptr) == KAIJU_OK);  // those that it has
  REQUIRE(update(host, two).status == KAIJU_OK);
  CHECK(host.drain().size() == 8);
  CHECK(kaiju_engine_set_scales(host.engine, nullptr, nullptr) == KAIJU_OK);
  kaiju_session_destroy(host.session);
  REQUIRE(kaiju_session_create(host.engine, &host.session, nullptr) == KAIJU_OK);
  host.submit(kPrompt);
  Host fresh(file_of(run, "second"));
  fresh.submit(kPrompt);
  CHECK(host.drain() == fresh.drain());
}

TEST_CASE("C: updates that make no sense are refused") {
  Host host(plain_model_file());
  CHECK(kaiju_engine_update_weights(nullptr, "", 0, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_update_weights(host.engine, nullptr, 8, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_update_weights(host.engine, nullptr, 0, nullptr) == KAIJU_BAD_MODEL);
  CHECK(update(host, Bytes(200)).says("not a weight update"));
}
