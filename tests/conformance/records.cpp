// Records of replies: what a busy engine of any backend recorded, another one computes again alone, from the bytes.
#include "kaiju/records.hpp"

#include <random>

#include "catch.hpp"
#include "kaiju/engine/reply_record.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "talk.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

ModelConfig config() {
  ModelConfig config = test::small_config_of(1, "records");
  config.labels = {"one", "two"};
  return config;
}

class Talk : public test::Talk {
 public:
  explicit Talk(const std::string& backend) : test::Talk(config(), 11, options_of(backend, 24)) {}

  std::vector<std::string> records;  // as bytes, of all replies

 private:
  void take(const Event& event) override {
    if (event.record) records.push_back(encode_record(*event.record));
  }
};

std::vector<int32_t> prompt_of(std::mt19937& random) {
  std::vector<int32_t> prompt(4 + random() % 90);
  for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 64);
  return prompt;
}

// One of every kind of request.
RequestOptions options_of(std::mt19937& random, int kind) {
  RequestOptions options;
  options.record = true;
  options.max_tokens = 1 + static_cast<int32_t>(random() % 24);
  options.scope.salt = "a secret";
  SamplingParams& sampling = options.sampling;
  if (kind == 7 || kind == 8) {
    options.beams.width = 2 + static_cast<int32_t>(random() % 3);
    options.beams.stochastic = kind == 8;
    options.sequence_count = 2;
    options.beams.guidance = {1.5, Guidance::Risk::kMean, {{"two", 0.5}}};
    sampling.seed = kind == 8 ? random() : 0;
    return options;
  }
  sampling.seed = (uint64_t{random()} << 32) | random();
  sampling.variant = random() % 5;
  sampling.temperature = 0.7 + 0.1 * static_cast<double>(random() % 9);
  if (kind == 0) sampling.temperature = 0;
  if (kind == 1) sampling.top_k = 20, sampling.top_p = 0.93, sampling.min_p = 0.01, sampling.repetition_penalty = 1.1;
  if (kind == 2) sampling.logit_bias = {{3, -2.5F}, {9, 1.25F}};
  if (kind == 3) {
    sampling.temperature = 0;
    sampling.samplers = {{SamplerKind::kDry, {0.8, 1.75, 2, 0}}, {SamplerKind::kMirostat, {4, 0.3}}};
  }
  if (kind == 4) options.sequence_count = 3;
  if (kind == 5)
    for (options.stop_tokens.emplace(); options.stop_tokens->size() < 90;)
      options.stop_tokens->push_back(3 * static_cast<int32_t>(options.stop_tokens->size()));
  if (kind == 6) options.safety.limits = {{"one", 0.55}}, options.safety.hold_back = 2;
  return options;
}
constexpr int kKinds = 9;

ReplyRecord decoded(const std::string& bytes) {
  Result<ReplyRecord> record = decode_record(bytes);
  INFO(record.status().message());
  REQUIRE(record.ok());
  // All but the salt's digest, which nobody can make again.
  const std::string again = encode_record(*record);
  Result<ReplyRecord> twice = decode_record(again);
  REQUIRE(twice.ok());
  CHECK(again == encode_record(*twice));
  CHECK(again.substr(again.size() - record->tokens->size()) == bytes.substr(bytes.size() - record->tokens->size()));
  return *record;
}

}  // namespace

TEST_CASE("a recorded reply of a full batch is computed again alone, by any backend") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::vector<std::string> names = backend_names();
  for (const std::string& backend : names) {
    std::mt19937 random(seed);
    Talk busy(backend), alone(names[random() % names.size()]);
    std::vector<RequestId> requests;
    const std::vector<int32_t> shared = prompt_of(random);
    for (int i = 0; i < 3 * kKinds; ++i) {
      std::vector<int32_t> prompt = shared;
      for (const int32_t token : prompt_of(random)) prompt.push_back(token);
      requests.push_back(busy.submit(prompt, options_of(random, i % kKinds)));
      if (i % 4 == 0) busy.step();
    }
    RequestOptions strict = options_of(random, 6);  // ended by a verdict after three tokens, whatever they are
    strict.max_tokens = 24, strict.safety.limits = {{"one", 0.0}}, strict.safety.run = 3, strict.safety.hold_back = 0;
    strict.stop_tokens.emplace();
    busy.submit(shared, strict);
    for (int i = 0; i < 3; ++i) {  // of 200 tokens, one in 16 ends a reply
      RequestOptions stopped = options_of(random, 5);
      stopped.max_tokens = 200, stopped.sampling.temperature = 2, stopped.stop_tokens.emplace();
      for (int32_t token = 0; token < config().vocab_size; token += 16) stopped.stop_tokens->push_back(token);
      busy.submit(prompt_of(random), stopped);
    }
    for (int i = 0; i < 4; ++i) REQUIRE(busy.engine().cancel(requests[random() % requests.size()]).ok());
    busy.drain();
    REQUIRE(busy.records.size() >= requests.size());
    int cut = 0, reasons = 0;
    for (const std::string& bytes : busy.records) {
      INFO(backend << ": " << describe_record(bytes).value());
      const ReplyRecord record = decoded(bytes);
      if (record.prompt_tokens == static_cast<int32_t>(record.tokens->size())) continue;
      Result<Replayed> again = replay(alone.engine(), record);
      INFO(again.status().message());
      REQUIRE(again.ok());
      CHECK(again->same_model);
      CHECK(again->differs_at == -1);
      CHECK(again->reply.size() == record.tokens->size() - static_cast<size_t>(record.prompt_tokens));
      const bool was_cut = record.reason == DoneReason::kCancelled || record.reason == DoneReason::kRefused;
      if (!was_cut) CHECK(again->reason == record.reason);
      cut += was_cut, reasons |= 1 << static_cast<int>(record.reason);
    }
    CHECK(cut > 0);
    CHECK((reasons & (1 << static_cast<int>(DoneReason::kStopToken))) != 0);
    CHECK((reasons & (1 << static_cast<int>(DoneReason::kRefused))) != 0);
  }
}

TEST_CASE("a replay finds the first token that differs") {
  std::mt19937 random(5);
  Talk talk("reference");
  talk.submit(prompt_of(random), options_of(random, 1));
  RequestOptions longer = options_of(random, 2);
  longer.max_tokens = 12;
  talk.submit(prompt_of(random), longer);
  talk.drain();
  ReplyRecord record = decoded(talk.records.back());
  auto tokens = std::make_shared<std::vector<int32_t>>(*record.tokens);
  const auto place = static_cast<size_t>(record.prompt_tokens) + 5;
  const int32_t right = (*tokens)[place];
  (*tokens)[place] = (right + 1) % 64;
  record.tokens = tokens;
  Result<Replayed> again = replay(talk.engine(), record);
  REQUIRE(again.ok());
  CHECK(again->differs_at == 5);
  CHECK(again->reply.back() == right);
  CHECK(again->reply.size() == 6);
}

TEST_CASE("records keep no salt, and damaged ones are refused") {
  std::mt19937 random(6);
  Talk talk("reference");
  talk.submit(prompt_of(random), options_of(random, 3));
  talk.drain();
  const std::string bytes = talk.records.at(0);
  CHECK(bytes.find("a secret") == std::string::npos);
  CHECK(describe_record(bytes)->find("salt_digest") != std::string::npos);
  CHECK(decode_record(bytes)->options.scope.salt.empty());
  for (size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(decode_record(bytes.substr(0, size)).ok());
  CHECK_FALSE(decode_record(bytes + "x").ok());
  for (int i = 0; i < 2000; ++i) {
    std::string wrong = bytes;
    wrong[random() % wrong.size()] = static_cast<char>(random());
    (void)decode_record(wrong);
  }
  std::string later = bytes;
  later.replace(later.find("max_tokens"), 10, "Max_tokens");
  CHECK(decode_record(later).status().code() == StatusCode::kUnsupported);
}

TEST_CASE("what a record lacks is refused by a replay") {
  std::mt19937 random(7);
  Talk talk("reference");
  talk.submit(prompt_of(random), options_of(random, 0));
  talk.drain();
  ReplyRecord record = decoded(talk.records.at(0));
  const RequestId running = talk.submit(prompt_of(random), options_of(random, 0));
  CHECK(replay(talk.engine(), record).status().code() == StatusCode::kBusy);
  REQUIRE(talk.engine().cancel(running).ok());
  talk.drain();
  record.options.guided = true;
  CHECK(replay(talk.engine(), record).status().code() == StatusCode::kUnsupported);
}
