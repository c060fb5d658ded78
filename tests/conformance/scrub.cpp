// Looks at the weights in memory: they find nothing while all is well, and every bit that has flipped.
#include <fstream>
#include <random>

#include "catch.hpp"
#include "kaiju/base/buffer.hpp"
#include "kaiju/kaiju.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "talk.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

class Talk : public test::Talk {
 public:
  Talk(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& backend)
      : test::Talk(Model::create(checkpoint), options_of(backend, 4)) {}

  std::vector<int32_t> reply() {
    heard_.clear();
    RequestOptions options;
    options.max_tokens = 8;
    submit(std::vector<int32_t>{1, 2, 3}, options);
    drain();
    return heard_;
  }

 private:
  void take(const Event& event) override {
    if (event.kind == EventKind::kToken) heard_.push_back(event.token);
  }
  std::vector<int32_t> heard_;
};

uint64_t bytes_of_pass(Engine& engine, size_t part) {
  uint64_t bytes = 0;
  for (bool whole = false; !whole;) {
    Result<Scrubbed> looked = engine.scrub(part);
    INFO(looked.status().message());
    REQUIRE(looked.ok());
    bytes += looked->bytes;
    whole = looked->whole;
  }
  return bytes;
}

// The checkpoint in memory that may be written.
class Writable {
 public:
  explicit Writable(const ModelConfig& config) {
    const auto path = std::filesystem::temp_directory_path() / ("kaiju-scrub-" + std::to_string(::getpid()));
    REQUIRE(write_random_checkpoint(path.string(), config, 3).ok());
    bytes_ = Buffer<std::byte>::make(std::filesystem::file_size(path), "a file").value();
    std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(bytes_.data()), std::ssize(bytes_));
    std::filesystem::remove(path);
    auto opened = Checkpoint::from_memory({bytes_.data(), bytes_.size()});
    REQUIRE(opened.ok());
    checkpoint = *opened;
  }

 private:
  Buffer<std::byte> bytes_;

 public:
  std::shared_ptr<const Checkpoint> checkpoint;
};

// Whether one pass finds damage.
bool finds_damage(Engine& engine, size_t part) {
  for (;;) {
    Result<Scrubbed> looked = engine.scrub(part);
    if (looked.status().code() == StatusCode::kBadModel) return true;
    REQUIRE(looked.ok());
    if (looked->whole) return false;
  }
}

}  // namespace

TEST_CASE("a look at the weights finds nothing while all is well, between replies, on every backend") {
  const int32_t arithmetic = GENERATE(1, 2);
  const auto checkpoint = test::random_checkpoint(test::small_config_of(arithmetic, "scrub"), 3);
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    Talk talk(checkpoint, backend);
    const std::vector<int32_t> reply = talk.reply();
    const uint64_t all = bytes_of_pass(talk.engine(), size_t{1} << 30);
    CHECK(all > 0);
    CHECK(bytes_of_pass(talk.engine(), 61) == all);
    CHECK(bytes_of_pass(talk.engine(), 1000) == all);
    CHECK(talk.reply() == reply);
    CHECK(bytes_of_pass(talk.engine(), 777) == all);
  }
}

TEST_CASE("a look at the weights finds every flipped bit") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const Writable file(test::small_config_of(1, "scrub"));
  const auto& checkpoint = file.checkpoint;
  Talk talk(checkpoint, "reference");
  CHECK_FALSE(finds_damage(talk.engine(), 5000));
  for (int i = 0; i < 200; ++i) {
    const TensorInfo& tensor = checkpoint->tensors()[random() % checkpoint->tensors().size()];
    INFO(tensor.name);
    const size_t at = random() % tensor.bytes.size();
    auto& byte = const_cast<std::byte&>(tensor.bytes[at]);
    const auto bit = static_cast<std::byte>(1U << random() % 8);
    byte ^= bit;
    CHECK(finds_damage(talk.engine(), 100 + random() % 100000));
    byte ^= bit;
    bytes_of_pass(talk.engine(), 100000);
  }
}
