// Weight updates: what they make of a checkpoint, and what is refused.
#include "kaiju/format/weight_update.hpp"

#include "catch.hpp"
#include "kaiju/format/head.hpp"
#include "tests/format/training_run.hpp"

using kaiju::Checkpoint;
using kaiju::StatusCode;
using tiny::TrainingRun;

namespace {

constexpr uint64_t kSeed = 20261130;

using Bytes = std::vector<std::byte>;

std::shared_ptr<const Checkpoint> updated(const std::shared_ptr<const Checkpoint>& checkpoint, const Bytes& update) {
  auto made = kaiju::with_update(checkpoint, update);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return *made;
}

void refuses(const std::shared_ptr<const Checkpoint>& checkpoint, const Bytes& update, StatusCode code,
             const std::string& words) {
  const kaiju::Status status = kaiju::with_update(checkpoint, update).status();
  INFO(status.message());
  CHECK(status.code() == code);
  CHECK(tiny::contains(status.message(), words));
}

// Makes the digest of a changed update true: docs/checkpoint.md spelled out a second time, on purpose.
Bytes sealed(Bytes update) {
  const uint64_t size = update.size();
  std::memcpy(&update[24], &size, sizeof size);
  const std::string digest = tiny::xxh3({reinterpret_cast<const char*>(update.data()) + 128, update.size() - 128});
  std::memcpy(&update[96], digest.data(), digest.size());
  return update;
}

// Where the entry of a tensor begins.
size_t entry_of(const Bytes& update, const std::string& name) {
  for (size_t at = 128; at < update.size();) {
    uint16_t form_and_name[2];
    uint64_t bytes = 0;
    std::memcpy(form_and_name, &update[at], sizeof form_and_name);
    std::memcpy(&bytes, &update[at + 8], sizeof bytes);
    if (std::string(reinterpret_cast<const char*>(&update[at + 16]), form_and_name[1]) == name) return at;
    at += 16 + form_and_name[1] + bytes;
  }
  FAIL("no entry of " << name);
  return 0;
}

}  // namespace

TEST_CASE("updates make of a checkpoint what the file of the new weights is, tensor by tensor") {
  INFO("seed " << kSeed);
  for (const kaiju::ModelConfig& config : {tiny::config(3), tiny::scaled_config()}) {
    TrainingRun run(config, kSeed);
    const std::shared_ptr<const Checkpoint> first = run.now();
    std::shared_ptr<const Checkpoint> now = first;
    for (int step = 0; step < 20; ++step) {
      const Bytes update = run.step({.scales = step % 3 == 1, .far = step % 5 == 4, .fitted = step % 4 > 1});
      now = updated(now, update);
      auto head = kaiju::read_weight_update(update);
      REQUIRE(head.ok());
      CHECK(head->number == run.number());
      CHECK(head->after == run.now()->digest());
      CHECK(now->digest() == run.now()->digest());
      CHECK(now->config_text() == run.now()->config_text());
      for (const kaiju::TensorInfo& tensor : run.now()->tensors()) {
        const kaiju::TensorInfo& own = *now->find(tensor.name);
        CHECK(own.digest == tensor.digest);
        std::vector<std::byte> read(own.bytes.size());
        REQUIRE(now->read(own.bytes, read.data()).ok());
        CHECK(std::equal(read.begin(), read.end(), tensor.bytes.begin(), tensor.bytes.end()));
      }
    }
    CHECK(first->digest() != now->digest());
    CHECK(first->find("embed.weight")->digest == tiny::TrainingRun(config, kSeed).now()->find("embed.weight")->digest);
  }
}

TEST_CASE("an update of ternary steps takes a fifth of a byte for each weight") {
  kaiju::ModelConfig config = tiny::config();
  config.vocab_size = 4096;
  config.d_ff = 2048;
  TrainingRun run(config, kSeed);
  size_t weights = 0;
  for (const kaiju::TensorInfo& tensor : run.now()->tensors())
    if (tensor.dtype == kaiju::DType::kI8) weights += tensor.bytes.size();
  CHECK(static_cast<double>(run.step().size()) <= 0.203 * static_cast<double>(weights));
}

TEST_CASE("scales that change by a 128th of them take a fifth of a byte each") {
  for (const kaiju::ModelConfig& config : {tiny::config(3), tiny::scaled_config()}) {
    TrainingRun run(config, kSeed);
    const size_t without = run.step().size();
    size_t steps = 0;
    for (const kaiju::TensorInfo& tensor : run.now()->tensors())
      if (tensor.name.ends_with(".scale")) steps += 16 + tensor.name.size() + (tensor.bytes.size() / 4 + 4) / 5;
    CHECK(run.step({.fitted = true}).size() == without + steps);
  }
}

TEST_CASE("an update out of order, or for other weights, is refused and names what should come") {
  TrainingRun run(tiny::config(), kSeed), other(tiny::config(), kSeed + 1);
  const auto first = run.now();
  const Bytes one = run.step(), two = run.step(), three = run.step();
  const auto after_one = updated(first, one);
  refuses(first, two, StatusCode::kInvalidArgument, "is for the weights");
  refuses(after_one, one, StatusCode::kInvalidArgument, "update 1 comes after 1: send update 2 first");
  refuses(after_one, three, StatusCode::kInvalidArgument, "update 3 comes after 1: send update 2 first");
  other.step();
  refuses(after_one, other.step(), StatusCode::kInvalidArgument, "is for the weights");
  CHECK(updated(updated(after_one, two), three)->digest() == run.now()->digest());
  CHECK(kaiju::with_update(nullptr, one).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a file of later weights takes the updates that follow it, whatever their number") {
  TrainingRun run(tiny::config(), kSeed);
  for (int i = 0; i < 7; ++i) run.step();
  const auto saved = run.now();
  const Bytes next = run.step();
  CHECK(updated(saved, next)->digest() == run.now()->digest());
}

TEST_CASE("a model with the head of another file takes no updates") {
  kaiju::ModelConfig config = tiny::config();
  config.labels = {"rude", "sad"};
  TrainingRun run(config, kSeed);
  const tiny::Folder folder;
  REQUIRE(kaiju::write_head(*run.now(), folder / "head").ok());
  auto headed = kaiju::with_head(run.now(), folder / "head");
  REQUIRE(headed.ok());
  refuses(*headed, run.step(), StatusCode::kUnsupported, "update the model without them");
}

TEST_CASE("an update with any byte changed, or cut anywhere, is refused") {
  INFO("seed " << kSeed);
  TrainingRun run(tiny::config(), kSeed);
  const auto first = run.now();
  const Bytes update = run.step();
  std::mt19937_64 random(kSeed);
  for (size_t at = 0; at < update.size(); at += at < 400 ? 1 : random() % 97) {
    if (at >= 16 && at < 24) continue;  // the number, which the first update may have any of
    Bytes changed = update;
    changed[at] ^= static_cast<std::byte>(1 + random() % 255);
    INFO("byte " << at);
    CHECK_FALSE(kaiju::with_update(first, changed).ok());
    changed = Bytes(update.begin(), update.begin() + static_cast<std::ptrdiff_t>(at));
    CHECK_FALSE(kaiju::with_update(first, changed).ok());
  }
  CHECK(updated(first, update)->digest() == run.now()->digest());
}

TEST_CASE("entries that break a rule are refused behind a true digest") {
  TrainingRun run(tiny::config(), kSeed);
  const auto first = run.now();
  const Bytes update = run.step();
  const size_t embed = entry_of(update, "embed.weight"), steps = embed + 16 + 12;
  const auto with = [&](size_t at, int value) {
    Bytes changed = update;
    changed[at] = static_cast<std::byte>(value);
    return sealed(changed);
  };
  CHECK(updated(first, sealed(update))->digest() == run.now()->digest());
  refuses(first, with(8, 2), StatusCode::kUnsupported, "version 2");
  refuses(first, with(steps, 243), StatusCode::kBadModel, "above 242");
  refuses(first, with(steps, 0), StatusCode::kBadModel, "and not those that it names");
  // 16 x 64 weights: the last byte has four
  refuses(first, with(steps + 204, 242), StatusCode::kBadModel, "after the last weight");
  refuses(first, with(embed, 0), StatusCode::kBadModel, "a form that this build does not know");
  refuses(first, with(embed, 4), StatusCode::kBadModel, "a form that this build does not know");
  refuses(first, with(embed, 3), StatusCode::kBadModel, "embed.weight: weights have no steps of scales");
  refuses(first, with(embed, 2), StatusCode::kBadModel, "another size");
  refuses(first, with(embed + 16, 'E'), StatusCode::kBadModel, "which no update may change");
  refuses(first, with(12, 1), StatusCode::kBadModel, "after its last entry");
  refuses(first, with(12, 200), StatusCode::kBadModel, "cut off");
  Bytes sums = update;
  std::memcpy(&sums[embed + 16], "rope.0______", 12);
  sums[embed + 2] = std::byte{6};
  refuses(first, sealed(sums), StatusCode::kBadModel, "");
}

TEST_CASE("entries of scales that break a rule are refused behind a true digest") {
  TrainingRun run(tiny::config(), kSeed);
  const auto first = run.now();
  const Bytes update = run.step({.fitted = true});
  const size_t embed = entry_of(update, "embed.scale"), steps = embed + 16 + 11;
  const auto with = [&](size_t at, int value) {
    Bytes changed = update;
    changed[at] = static_cast<std::byte>(value);
    return sealed(changed);
  };
  CHECK(updated(first, update)->digest() == run.now()->digest());
  refuses(first, with(steps, 243), StatusCode::kBadModel, "embed.scale: its ternary steps have a byte above 242");
  refuses(first, with(embed, 1), StatusCode::kBadModel, "embed.scale: only weights have ternary steps");
  refuses(first, with(embed, 2), StatusCode::kBadModel, "embed.scale: it has another size");
  refuses(first, with(embed + 8, 1), StatusCode::kBadModel, "embed.scale: its ternary steps are not those of so many");
}

TEST_CASE("steps never leave -127 to 127") {
  tiny::Parts parts = tiny::take_apart(tiny::make(tiny::config()));
  TrainingRun run(tiny::config(), 1);
  const auto first = run.now();
  size_t largest = 0;
  const auto weights = first->view<int8_t>("embed.weight");
  while (weights[largest] != 127) REQUIRE(++largest < weights.size());
  const Bytes update = run.step();
  Bytes changed = update;
  changed[entry_of(update, "embed.weight") + 16 + 12 + largest / 5] = std::byte{242};  // + 1 for all five
  refuses(first, sealed(changed), StatusCode::kBadModel, "out of -127 to 127");
}

TEST_CASE("updates lead between models of one shape alone") {
  TrainingRun run(tiny::config(), kSeed);
  const auto other = TrainingRun(tiny::config(3), kSeed).now();
  CHECK(kaiju::make_weight_update(*run.now(), *other, 1).status().code() == StatusCode::kInvalidArgument);
}
