// Calibration by its rules, on made-up counts.
#include "kaiju/engine/calibration.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>

#include "catch.hpp"
#include "kaiju/format/random_model.hpp"

namespace {

using namespace kaiju;

constexpr int64_t kDay = int64_t{86'400} * 1'000'000'000;

std::shared_ptr<const Checkpoint> calibrated_model() {
  static const auto made = [] {
    ModelConfig config;
    config.name = "calibrated";
    config.vocab_size = 64;
    config.d_model = config.head_dim = config.d_ff = 64;
    config.n_heads = config.n_kv_heads = 1;
    config.context = 256;
    config.layers = {{LayerKind::kGlobal, 0, 0, 0}};
    config.derive_counts();
    const std::string path =
        (std::filesystem::temp_directory_path() / ("kaiju-calibrated-" + std::to_string(::getpid()))).string();
    REQUIRE(write_random_checkpoint(path, config, 1).ok());
    auto opened = Checkpoint::open(path);
    std::filesystem::remove(path);
    REQUIRE(opened.ok());
    return *opened;
  }();
  return made;
}

// Blocks whose keys and values are spread by a normal law, and whose tokens come from a part of the vocabulary.
class MadeUpBlocks {
 public:
  explicit MadeUpBlocks(Calibration& calibration, uint32_t seed) : calibration_(calibration), random_(seed) {}

  double spread = 30;  // of the bytes
  int32_t first_token = 0;
  std::string character;
  int64_t day = 0;

  void blocks(int count) {
    std::normal_distribution<double> byte(0, spread);
    std::uniform_int_distribution<int32_t> token(first_token, first_token + 31);
    for (; count > 0; --count) {
      for (KvCounts::Slot& slot : calibration_.counts().slots)
        for (auto* counts : {&slot.keys, &slot.values})
          for (size_t channel = 0; channel < counts->size(); channel += KvCounts::kBins)
            for (int i = 0; i < 64; ++i) {
              const auto value = static_cast<int32_t>(std::clamp(byte(random_), -127.0, 127.0));
              ++(*counts)[channel + static_cast<size_t>(KvCounts::bin_of(value))];
            }
      std::vector<int32_t> tokens;
      for (int i = 0; i < 64; ++i) tokens.push_back(token(random_));
      calibration_.add(tokens, character, TimePoint(day * kDay + ++seconds_));
    }
  }

 private:
  Calibration& calibration_;
  std::mt19937 random_;
  int64_t seconds_ = 0;
};

Calibration calibration_of(CalibrationOptions options = {}) {
  if (options.window_blocks == CalibrationOptions().window_blocks) options.window_blocks = 8;
  auto made = Calibration::create(*calibrated_model(), options);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return std::move(made).value();
}

uint32_t printed_seed() {
  const uint32_t seed = std::random_device()();
  UNSCOPED_INFO("seed " << seed);
  return seed;
}

}  // namespace

TEST_CASE("two windows far outside their history freeze the collection, of tokens or of ranges, and one does not") {
  const uint32_t from = printed_seed();
  for (const bool of_tokens : {true, false}) {
    Calibration own = calibration_of();
    MadeUpBlocks traffic(own, from);
    traffic.blocks(8 * 100);
    CHECK(own.figures().known);
    CHECK_FALSE(own.figures().frozen);
    CHECK(own.figures().windows == 100);
    const auto change = [&](bool odd) {
      traffic.first_token = odd && of_tokens ? 20 : 0;
      traffic.spread = odd && !of_tokens ? 45 : 30;
    };
    change(true);
    traffic.blocks(8);
    change(false);
    traffic.blocks(8);
    CHECK_FALSE(own.figures().frozen);
    const KvScales before = own.propose().value();
    change(true);
    traffic.blocks(16);
    const CalibrationFigures figures = own.figures();
    CHECK(figures.frozen);
    const CalibrationDistance& distance = of_tokens ? figures.tokens : figures.scales;
    CHECK(distance.newest > distance.mean + 3 * distance.deviation);
    CHECK(own.propose()->tokens == before.tokens);  // nothing of it is collected
    change(false);
    traffic.blocks(80);
    CHECK(own.figures().frozen);  // until somebody has looked
    CHECK(own.propose()->tokens == before.tokens);
    own.thaw();
    traffic.blocks(16);
    CHECK_FALSE(own.figures().frozen);
    CHECK(own.propose()->tokens != before.tokens);
    own.reset();
    CHECK(own.propose().status().code() == StatusCode::kNotFound);
    CHECK_FALSE(own.figures().known);
  }
}

TEST_CASE("a character that is suddenly everybody's is left out, and those who always were are not") {
  Calibration own = calibration_of();
  MadeUpBlocks traffic(own, printed_seed());
  for (; traffic.day < 7; ++traffic.day) {
    traffic.character = "usual";
    traffic.blocks(100);
    traffic.character = "rare";
    traffic.blocks(2);
  }
  CHECK(own.figures().left_out == 0);
  traffic.character = "usual";
  traffic.blocks(1000);
  CHECK(own.figures().left_out == 0);
  traffic.blocks(10);
  CHECK(own.figures().left_out == 10);
  traffic.character = "rare";  // of 2 a day, which count as 16
  traffic.blocks(160);
  CHECK(own.figures().left_out == 10);
  traffic.blocks(5);
  CHECK(own.figures().left_out == 15);
  traffic.character = "new";
  traffic.blocks(161);
  CHECK(own.figures().left_out == 16);
  traffic.character = "";
  traffic.blocks(500);
  CHECK(own.figures().left_out == 16);
  traffic.day += 20;  // all of it is too old
  traffic.character = "usual";
  traffic.blocks(160);
  CHECK(own.figures().left_out == 16);
}

TEST_CASE("a new set widens what saturates, narrows what is hardly used, and keeps all else") {
  const KvScales before = scales_of(*calibrated_model()).value();
  const auto ratio_of = [&](double spread) {
    CalibrationOptions options;
    options.window_blocks = 400;
    Calibration own = calibration_of(options);
    MadeUpBlocks traffic(own, printed_seed());
    traffic.spread = spread;
    traffic.blocks(400);
    const KvScales made = own.propose().value();
    const float ratio = made.slots[0].v_clip[5] / before.slots[0].v_clip[5];
    CHECK(std::accumulate(made.slots[0].values.begin(), made.slots[0].values.end(), uint64_t{0}) == 400u * 64 * 64);
    return ratio;
  };
  CHECK(ratio_of(60) == Approx(1.25f));
  CHECK(ratio_of(27) == 1.0f);
  CHECK(ratio_of(20) == Approx(0.85f).margin(0.06));
  CHECK(ratio_of(5) == Approx(0.8f));
}

TEST_CASE("options of a calibration that make no sense are refused") {
  for (const auto& wrong : {CalibrationOptions{.window_blocks = 0}, CalibrationOptions{.sigmas = 0},
                            CalibrationOptions{.windows_known = 1}, CalibrationOptions{.character_ratio = 1},
                            CalibrationOptions{.least_daily_blocks = 0}, CalibrationOptions{.most_clipped = 1}})
    CHECK(Calibration::create(*calibrated_model(), wrong).status().code() == StatusCode::kInvalidArgument);
}
