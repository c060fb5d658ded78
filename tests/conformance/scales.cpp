// Scales of keys and values: an engine that is given others computes as one that was made with them, and counts its
// keys and values alike on every backend.
#include <algorithm>
#include <filesystem>

#include "catch.hpp"
#include "kaiju/calibration.hpp"
#include "kaiju/kaiju.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "talk.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

// What an engine says about a prompt, and how much of the prompt it found.
struct Said {
  std::vector<std::pair<int32_t, float>> tokens;  // with their log-probabilities
  int32_t cached = 0;
  bool operator==(const Said& other) const { return tokens == other.tokens; }
};

class Talk : public test::Talk {
 public:
  Talk(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& backend)
      : test::Talk(Model::create(checkpoint), options_of(backend, 4, 256)) {}

  Said reply(SessionId session, int32_t first) {
    said_ = {};
    submit(session, prompt(first), request(12));
    drain();
    return said_;
  }
  Said reply(int32_t first = 1) { return reply(session(), first); }

  static std::vector<int32_t> prompt(int32_t first) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 200; ++i) tokens.push_back((first + i * 7) % 50);
    return tokens;
  }
  static RequestOptions request(int32_t max_tokens) {
    RequestOptions options;
    options.max_tokens = max_tokens;
    options.stop_tokens = std::vector<int32_t>();
    options.scope.character = "somebody";
    options.scope.shared_tokens = 100;
    options.scope.salt = "salt";
    return options;
  }

  int heard = 0;  // tokens

 private:
  void take(const Event& event) override {
    if (event.kind == EventKind::kToken) said_.tokens.emplace_back(event.token, event.logprob);
    heard += event.kind == EventKind::kToken ? 1 : 0;
    said_.cached = event.counts.cached_tokens;
  }
  Said said_;
};

std::shared_ptr<const Checkpoint> model() {
  static const auto made = test::random_checkpoint(test::small_config("scales", false), 11);
  return made;
}

// The model with every clip of keys and values times a factor.
std::shared_ptr<const Checkpoint> with_clips_times(float factor) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("kaiju-scales-" + std::to_string(::getpid()))).string();
  KvScales scales = scales_of(*model()).value();
  for (KvScales::Slot& slot : scales.slots) {
    for (float& clip : slot.k_clip) clip *= factor;
    for (float& clip : slot.v_clip) clip *= factor;
    slot.keys.resize(slot.k_clip.size() * KvCounts::kBins);
    slot.values.resize(slot.v_clip.size() * KvCounts::kBins);
  }
  scales.tokens.resize(static_cast<size_t>(model()->config().vocab_size));
  const Status written = write_scales(*model(), scales, path);
  INFO(written.message());
  REQUIRE(written.ok());
  auto made = with_scales(model(), path);
  std::filesystem::remove(path);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return *made;
}

// How often each magnitude occurs in the newest block of a prompt, by channel.
KvScales counted(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& backend) {
  Talk talk(checkpoint, backend);
  CalibrationOptions options;
  options.window_blocks = 1;
  auto calibration = Calibration::create(*checkpoint, options);
  REQUIRE(calibration.ok());
  CHECK_FALSE(talk.engine().calibrate(*calibration).value());  // nothing runs
  talk.submit(Talk::prompt(1), Talk::request(2));
  while (talk.heard == 0) talk.step();
  auto looked = talk.engine().calibrate(*calibration);
  INFO(looked.status().message());
  REQUIRE(looked.ok());
  CHECK(*looked);
  CHECK_FALSE(talk.engine().calibrate(*calibration).value());  // the newest block was counted
  talk.drain();
  CHECK(calibration->figures().blocks == 1);
  auto seen = calibration->propose();
  REQUIRE(seen.ok());
  return *seen;
}

}  // namespace

TEST_CASE("an engine that is given other scales replies as one that was made with them, and the way back too") {
  const auto wider = with_clips_times(1.5f);
  CHECK(wider->digest() == model()->digest());
  CHECK(wider->scale_epoch() != 0);
  for (const std::string& isa : test::isas()) {
    INFO(isa);
    const Said own = Talk(model(), isa).reply(), other = Talk(wider, isa).reply();
    CHECK_FALSE(own == other);
    Talk talk(model(), isa);
    const SessionId session = talk.session();
    CHECK(talk.reply(session, 1) == own);
    CHECK(talk.reply().cached > 190);
    for (int i = 0; i < 2; ++i) {
      REQUIRE(talk.engine().set_scales(wider).ok());
      const Said cold = talk.reply();
      CHECK(cold == other);
      CHECK(cold.cached == 0);
      CHECK(talk.reply().cached > 190);
      REQUIRE(talk.engine().set_scales(model()).ok());
      const Said again = talk.reply();
      CHECK(again == own);
      CHECK(again.cached == 0);
    }
    CHECK(talk.engine().scrub(size_t{1} << 30).ok());
  }
}

TEST_CASE("equal scales give equal bits, in an epoch of their own") {
  const auto same = with_clips_times(1.0f);
  CHECK(same->scale_epoch() != 0);
  CHECK(same->scale_epoch() == with_clips_times(1.0f)->scale_epoch());
  CHECK(same->scale_epoch() != with_clips_times(1.25f)->scale_epoch());
  CHECK(Talk(same, "portable").reply() == Talk(model(), "portable").reply());
}

TEST_CASE("scales wait for the replies under way, and other requests wait for the scales") {
  const auto wider = with_clips_times(1.5f);
  const Said own = Talk(model(), "portable").reply(), other = Talk(wider, "portable").reply();
  Talk talk(model(), "portable");
  talk.submit(Talk::prompt(1), Talk::request(12));
  talk.step();
  CHECK(talk.engine().set_scales(wider).code() == StatusCode::kBusy);
  talk.submit(Talk::prompt(1), Talk::request(12));
  for (int i = 0; i < 40; ++i) talk.step();
  CHECK(talk.heard == 12);
  CHECK(talk.engine().pending() == 1);
  REQUIRE(talk.engine().set_scales(wider).ok());
  talk.drain();
  CHECK(talk.heard == 24);
  CHECK(talk.reply() == other);

  talk.submit(Talk::prompt(1), Talk::request(12));
  talk.step();
  CHECK(talk.engine().set_scales(model()).code() == StatusCode::kBusy);
  CHECK(talk.engine().set_scales(wider).ok());  // what it has already: requests begin again
  talk.submit(Talk::prompt(9), Talk::request(12));
  talk.drain();
  CHECK(talk.reply() == other);
  CHECK(own.tokens.size() == 12);
}

TEST_CASE("keys and values are counted alike on every backend") {
  const auto saturating = with_clips_times(1e-3f);
  const auto prompt = Talk::prompt(1);
  for (const auto& checkpoint : {model(), saturating}) {
    const KvScales reference = counted(checkpoint, "reference");
    for (int32_t token = 0; token < 50; ++token)
      CHECK(reference.tokens[static_cast<size_t>(token)] ==
            static_cast<uint64_t>(std::count(prompt.begin() + 128, prompt.begin() + 192, token)));
    uint64_t all = 0, saturated = 0;
    for (const KvScales::Slot& slot : reference.slots)
      for (const auto* counts : {&slot.keys, &slot.values})
        for (size_t i = 0; i < counts->size(); ++i) {
          all += (*counts)[i];
          if (i % KvCounts::kBins == KvCounts::kBins - 1) saturated += (*counts)[i];
        }
    CHECK(all == uint64_t{2} * 2 * 64 * kBlockTokens);  // of two slots of 64 channels
    CHECK((saturated > all * 9 / 10) == (checkpoint == saturating));
    for (const std::string& isa : test::isas()) {
      INFO(isa);
      const KvScales counts = counted(checkpoint, isa);
      for (size_t s = 0; s < counts.slots.size(); ++s) {
        CHECK(counts.slots[s].keys == reference.slots[s].keys);
        CHECK(counts.slots[s].values == reference.slots[s].values);
      }
    }
  }
}

TEST_CASE("a calibration of other scales, or of another model, counts nothing") {
  Talk talk(model(), "portable");
  talk.submit(Talk::prompt(1), Talk::request(12));
  while (talk.heard == 0) talk.step();
  for (const auto& other :
       {with_clips_times(1.5f), test::random_checkpoint(test::small_config("another", false), 12)}) {
    auto calibration = Calibration::create(*other);
    REQUIRE(calibration.ok());
    CHECK(talk.engine().calibrate(*calibration).status().code() == StatusCode::kInvalidArgument);
    CHECK(calibration->figures().blocks == 0);
  }
  talk.drain();
}

TEST_CASE("a model whose keys and values have scales of their own has none to change or to count") {
  const auto scaled = test::random_checkpoint(test::small_config_of(2, "scaled"), 11);
  CHECK(scales_of(*scaled).status().code() == StatusCode::kUnsupported);
  CHECK(with_scales(scaled, "none").status().code() == StatusCode::kUnsupported);
  CHECK(Calibration::create(*scaled).status().code() == StatusCode::kUnsupported);
}
