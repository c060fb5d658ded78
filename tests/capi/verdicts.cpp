// Beam search and verdicts in the C interface.
#include "catch.hpp"
#include "kaiju/format/random_model.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

std::string labelled_file() {
  const std::string file = temporary_folder() + "/verdicts.kaiju.safetensors";
  kaiju::ModelConfig config = tiny_config(kTinyVocabulary, kTinyContext);
  config.labels = {"rude", "sad"};
  REQUIRE(kaiju::write_random_checkpoint(file, config, 2).ok());
  return file;
}

const std::vector<int32_t> kPrompt = {1, 9, 40, 7, 22};

void set(kaiju_options* options, kaiju_option option, std::string_view text) {
  REQUIRE(kaiju_options_set_string(options, option, text.data(), text.size(), nullptr) == KAIJU_OK);
}

}  // namespace

TEST_CASE("C: a limit ends a reply, by itself or by its tier, and the last event says which label") {
  Host host(labelled_file());
  set(host.options, KAIJU_GENERATE_LABEL_LIMIT, "sad=0");
  kaiju_event done{};
  host.submit(kPrompt);
  CHECK(host.drain(&done).empty());
  CHECK(done.kind == KAIJU_EVENT_DONE);
  CHECK(done.reason == KAIJU_DONE_REFUSED);
  CHECK(done.label == 1);

  REQUIRE(kaiju_options_clear(host.options, KAIJU_GENERATE_LABEL_LIMIT) == KAIJU_OK);
  set(host.options, KAIJU_GENERATE_TIER, "adult");
  REQUIRE(kaiju_engine_set_limit(host.engine, "adult", "rude", 0.0, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_VERDICT_REPORTS, 1, nullptr) == KAIJU_OK);
  host.submit(kPrompt);
  size_t tokens = 0, verdicts = 0;
  while (kaiju_engine_pending(host.engine) > 0) {
    REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
    for (kaiju_event event; polled(host.engine, &event, sizeof event, 1) == 1;) {
      tokens += event.kind == KAIJU_EVENT_TOKEN;
      CHECK(event.label == (event.kind == KAIJU_EVENT_VERDICT ? 0 : -1));
      if (event.kind != KAIJU_EVENT_VERDICT) continue;
      ++verdicts;
      REQUIRE(event.score_count == 1);
      CHECK(event.scores[0] > 0.0f);
    }
  }
  CHECK(tokens == 8);
  CHECK(verdicts == 1);  // the run goes on
  REQUIRE(kaiju_engine_set_limit(host.engine, "adult", "rude", 2.0, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_VERDICT_REPORTS, 0, nullptr) == KAIJU_OK);
  host.submit(kPrompt);
  CHECK(host.drain().size() == 8);

  const auto limit = [&](const char* tier, const char* label, double value) {
    return ask([&](kaiju_error** e) { return kaiju_engine_set_limit(host.engine, tier, label, value, e); });
  };
  CHECK(limit("adult", "dull", 0.5).says("it has rude, sad"));
  CHECK(limit("adult", "sad", 1.5).says("from 0 to 1"));
  CHECK(limit("", "sad", 0.5).says("a tier needs a name"));
  CHECK(limit(nullptr, "sad", 0.5).says("tier"));
  CHECK(kaiju_engine_set_limit(nullptr, "adult", "sad", 0.5, nullptr) == KAIJU_INVALID_ARGUMENT);
}

TEST_CASE("C: a search ends with one reply, and kaiju_generate tells its text") {
  Host host(labelled_file());
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_BEAMS, 4, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_float(host.options, KAIJU_GENERATE_GUIDANCE, 2.0, nullptr) == KAIJU_OK);
  set(host.options, KAIJU_GENERATE_LABEL_WEIGHT, "sad=0");
  host.submit(kPrompt);
  kaiju_event done{};
  const std::vector<int32_t> found = host.drain(&done);
  CHECK(found.size() == 8);
  CHECK(done.reason == KAIJU_DONE_LENGTH);
  Host other(labelled_file());
  REQUIRE(kaiju_generate(other.engine, other.session, kPrompt.data(), kPrompt.size(), host.options, nullptr, nullptr,
                         &done, sizeof done, nullptr) == KAIJU_OK);
  const std::vector<int32_t> history = other.history();
  CHECK(std::vector<int32_t>(history.begin() + 5, history.end()) == found);
  set(host.options, KAIJU_GENERATE_LABEL_WEIGHT, "sad");
  CHECK(ask([&](kaiju_error** e) {
          kaiju_request request = 0;
          return kaiju_engine_submit(host.engine, host.session, kPrompt.data(), kPrompt.size(), host.options, nullptr,
                                     &request, e);
        }).says("a label, =, and a number"));
}
