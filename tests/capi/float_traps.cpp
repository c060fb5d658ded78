// A host that traps floating-point exceptions, inexact results too: no call of ours may raise one, and the host's own
// code keeps its traps when we call it.
#include <cfenv>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "tests/capi/host.hpp"
#include "tests/text/trained_tokenizer.hpp"

using namespace kaiju::tests;

#if defined(__GLIBC__)
namespace {

constexpr int kAll = FE_ALL_EXCEPT;

// All traps, for the length of a scope: no assertion within, for Catch2 computes in floats.
class Traps {
 public:
  Traps() : found_(fegetexcept()) {
    std::feclearexcept(kAll);
    feenableexcept(kAll);
  }
  ~Traps() {
    fedisableexcept(kAll);
    feenableexcept(found_);
  }

 private:
  int found_;
};

bool processor_traps() {
  const int found = fegetexcept();
  const bool traps = feenableexcept(FE_INEXACT) != -1 && (fegetexcept() & FE_INEXACT);
  fedisableexcept(kAll);
  feenableexcept(found);
  return traps;
}

// What `call` answers with all traps set; afterwards they must still be.
template <class Call>
auto trapped(const Call& call, bool& kept) {
  const Traps traps;
  auto answer = call();
  kept = fegetexcept() == kAll;
  return answer;
}

}  // namespace

TEST_CASE("no call raises a floating-point exception in a host that traps all of them") {
  if (!processor_traps()) return;
  bool kept = false, kept_in_callback = true;
  const std::string file = temporary_folder() + "/traps.kaiju.safetensors";
  kaiju::ModelConfig config = tiny_config(kTinyVocabulary, kTinyContext);
  config.labels = {"violence", "spam"};
  config.norm_eps = 1e-6f;
  const auto progress = [&](double) {
    kept_in_callback &= fegetexcept() == kAll;
    return 0;
  };
  const std::string plain = temporary_folder() + "/traps.plain.safetensors";
  CHECK(trapped([&] { return kaiju::write_random_checkpoint(plain, config, 1, progress); }, kept).ok());
  CHECK(kept);
  CHECK(trapped([&] { return add_tokenizer(plain, file, tiny_model().bytes(), kTinyChat), 0; }, kept) == 0);
  CHECK(kept);

  kaiju_model* model = nullptr;
  const auto in_c = [](double, void* data) {
    *static_cast<bool*>(data) &= fegetexcept() == kAll;
    return int32_t{0};
  };
  CHECK(trapped(
            [&] { return kaiju_model_load(nullptr, file.c_str(), nullptr, in_c, &kept_in_callback, &model, nullptr); },
            kept) == KAIJU_OK);
  CHECK(kept);
  REQUIRE(model);

  for (const std::string& backend : kaiju::backend_names()) {
    INFO(backend);
    kaiju_options* options = nullptr;
    kaiju_engine* engine = nullptr;
    kaiju_session* session = nullptr;
    std::string text;
    const auto on_text = [](const char* piece, size_t size, void* data) {
      static_cast<std::string*>(data)->append(piece, size);
      return int32_t{0};
    };
    const auto use = [&]() -> kaiju_status {
      const auto first_of = [](std::initializer_list<kaiju_status> all) {
        for (const kaiju_status status : all)
          if (status != KAIJU_OK) return status;
        return kaiju_status{KAIJU_OK};
      };
      const int32_t biased[] = {5, 6};
      const float bias[] = {0.1f, -0.7f};
      int32_t tokens[64];
      size_t count = 0, size = 0;
      char said[64];
      const kaiju_message messages[] = {{KAIJU_ROLE_CARD, 0, "the world", 9, nullptr, 0},
                                        {KAIJU_ROLE_USER, 0, "hello", 5, nullptr, 0}};
      kaiju_event done{};
      kaiju_metrics metrics{};
      metrics.struct_size = sizeof metrics;
      return first_of({
          kaiju_options_create(&options),
          kaiju_options_set_string(options, KAIJU_ENGINE_BACKEND, backend.data(), backend.size(), nullptr),
          kaiju_options_set_int(options, KAIJU_ENGINE_THREADS, 2, nullptr),
          kaiju_engine_create(model, options, &engine, nullptr),
          kaiju_options_clear(options, 0),
          kaiju_options_set_int(options, KAIJU_GENERATE_SEED, INT64_MAX, nullptr),  // no double holds it exactly
          kaiju_options_set_int(options, KAIJU_GENERATE_MAX_TOKENS, 12, nullptr),
          kaiju_options_set_int(options, KAIJU_GENERATE_LOGPROBS, 3, nullptr),
          kaiju_options_set_int(options, KAIJU_GENERATE_SCORES, 1, nullptr),
          kaiju_options_set_float(options, KAIJU_GENERATE_TEMPERATURE, 0.7, nullptr),
          kaiju_options_set_float(options, KAIJU_GENERATE_TOP_P, 0.9, nullptr),
          kaiju_options_set_float(options, KAIJU_GENERATE_MIN_P, 0.01, nullptr),
          kaiju_options_set_float(options, KAIJU_GENERATE_REPETITION_PENALTY, 1.1, nullptr),
          kaiju_options_set_logit_bias(options, biased, bias, 2, nullptr),
          kaiju_session_create(engine, &session, nullptr),
          kaiju_tokenize(model, "hello world", 11, tokens, 64, &count, nullptr),
          kaiju_detokenize(model, tokens, count, said, sizeof said, &size, nullptr),
          kaiju_chat_format(model, messages, sizeof messages[0], 2, KAIJU_CHAT_REPLY, tokens, 64, &count, nullptr),
          kaiju_generate(engine, session, tokens, count, options, on_text, &text, &done, sizeof done, nullptr),
          kaiju_engine_metrics(engine, &metrics),
      });
    };
    CHECK(trapped(use, kept) == KAIJU_OK);
    CHECK(kept);
    // What is refused is put into words, numbers too.
    std::vector<Answer> refused;
    const auto misuse = [&] {
      const auto refuse = [&](const auto& call) { refused.push_back(ask(call)); };
      for (const double temperature : {0.00012345, std::numeric_limits<double>::quiet_NaN(), 1e300})
        refuse([&](kaiju_error** e) {
          return kaiju_options_set_float(options, KAIJU_GENERATE_TEMPERATURE, temperature, e);
        });
      refuse([&](kaiju_error** e) { return kaiju_options_set_int(options, KAIJU_GENERATE_MAX_TOKENS, INT64_MAX, e); });
      const int32_t token = 3;
      for (const float bias : {1e30f, std::numeric_limits<float>::quiet_NaN()})
        refuse([&](kaiju_error** e) { return kaiju_options_set_logit_bias(options, &token, &bias, 1, e); });
      return 0;
    };
    trapped(misuse, kept);
    CHECK(kept);
    CHECK(refused.size() == 6);
    for (const Answer& answer : refused) CHECK(answer.status == KAIJU_INVALID_ARGUMENT);
    trapped(
        [&] {
          kaiju_session_destroy(session);
          kaiju_engine_destroy(engine);
          kaiju_options_destroy(options);
          return 0;
        },
        kept);
    CHECK(kept);
  }
  kaiju_model_destroy(model);
  CHECK(kept_in_callback);
}

TEST_CASE("tokenizers of every kind are read and used by a host that traps all floating-point exceptions") {
  if (!processor_traps()) return;
  for (const char* rules : {"identity", "nmt_nfkc"}) {
    const std::string bytes = train_tokenizer(rules);
    bool kept = false;
    const bool right = trapped(
        [&] {
          const auto tokenizer = load(bytes, 512);
          if (!tokenizer.ok()) return false;
          const auto tokens = tokenizer.value()->encode("the quick brown fox, \xEF\xBC\xA1\xC3\xA9 jumps");
          return tokens.ok() && tokenizer.value()->decode(tokens.value()).ok();
        },
        kept);
    INFO(rules);
    CHECK(right);
    CHECK(kept);
  }
}

TEST_CASE("a checkpoint is refused with a message in a host that traps all floating-point exceptions") {
  if (!processor_traps()) return;
  kaiju::ModelConfig config = tiny_config(kTinyVocabulary, kTinyContext);
  config.norm_eps = 1e-30f;
  bool kept = false;
  CHECK(trapped([&] { return kaiju::check_config(config); }, kept).code() == kaiju::StatusCode::kBadModel);
  CHECK(kept);
  for (const char* number : {"1e-5", "0.1", "1e400", "123456789012345678901234567890.5"}) {
    INFO(number);
    const std::string text = std::string(R"({"norm_eps": )") + number + "}";
    CHECK_FALSE(trapped([&] { return kaiju::config_from_json(text); }, kept).ok());
    CHECK(kept);
  }
}
#endif
