// Guided requests and logits hooks in the C interface.
#include <cmath>

#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

using Mask = std::vector<uint32_t>;

Mask all_ones() { return Mask((kTinyVocabulary + 31) / 32, ~0u); }
Mask only(int32_t token) {
  Mask mask((kTinyVocabulary + 31) / 32, 0);
  mask[static_cast<size_t>(token / 32)] = 1u << token % 32;
  return mask;
}

struct Guided : Host {
  Answer guide(kaiju_request request, const Mask& mask, const std::vector<int32_t>& tokens = {},
               const std::vector<float>& bias = {}) {
    const kaiju_guide guide{sizeof guide, mask.empty() ? nullptr : mask.data(), mask.size(), tokens.data(), bias.data(),
                            tokens.size()};
    return ask([&](kaiju_error** e) { return kaiju_engine_guide(engine, request, &guide, e); });
  }
  // A host's loop: sleeps until there is something to do, and guides after submit and after each token.
  template <class MaskOf>
  std::vector<int32_t> run(kaiju_request request, MaskOf mask_of) {
    std::vector<int32_t> tokens;
    check(guide(request, mask_of(size_t{0})));
    while (kaiju_engine_pending(engine) > 0) {
      if (!kaiju_engine_wait(engine, 1'000'000'000)) throw std::runtime_error("nothing to step");
      check(ask([&](kaiju_error** e) { return kaiju_engine_step(engine, e); }));
      bool done = false, more = false;
      kaiju_event event{};
      while (polled(engine, &event, sizeof event, 1) == 1) {
        if (event.kind == KAIJU_EVENT_TOKEN) tokens.push_back(event.tokens[0]), more = true;
        done |= event.kind == KAIJU_EVENT_DONE;
      }
      if (more && !done) check(guide(request, mask_of(tokens.size())));
    }
    return tokens;
  }
};

const std::vector<int32_t> kPrompt = {1, 9, 40, 7, 22};

}  // namespace

TEST_CASE("C: a guided request gives the tokens of its masks, and those of an unguided one where they allow all") {
  Guided host;
  host.submit(kPrompt);
  const std::vector<int32_t> plain = host.drain();
  REQUIRE(plain.size() == 8);
  Guided other;
  REQUIRE(kaiju_options_set_int(other.options, KAIJU_GENERATE_GUIDED, 1, nullptr) == KAIJU_OK);
  CHECK(other.run(other.submit(kPrompt), [](size_t) { return all_ones(); }) == plain);
  Guided third;
  REQUIRE(kaiju_options_set_int(third.options, KAIJU_GENERATE_GUIDED, 1, nullptr) == KAIJU_OK);
  CHECK(third.run(third.submit(kPrompt), [](size_t place) { return only(static_cast<int32_t>(20 + place)); }) ==
        std::vector<int32_t>{20, 21, 22, 23, 24, 25, 26, 27});
}

TEST_CASE("C: a guide's biases count for one token") {
  Guided host;
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_GUIDED, 1, nullptr) == KAIJU_OK);
  const kaiju_request request = host.submit(kPrompt);
  REQUIRE(host.guide(request, {}, {33}, {5000.0f}).status == KAIJU_OK);
  kaiju_event event{};
  while (kaiju_engine_wait(host.engine, 0)) {
    REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
    while (polled(host.engine, &event, sizeof event, 1) == 1) CHECK(event.tokens[0] == 33);
  }
  REQUIRE(host.guide(request, {}, {33}, {-5000.0f}).status == KAIJU_OK);
  REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
  REQUIRE(polled(host.engine, &event, sizeof event, 1) == 1);
  CHECK(event.tokens[0] != 33);
  CHECK_FALSE(kaiju_engine_wait(host.engine, 0));
  CHECK(kaiju_engine_pending(host.engine) == 1);
  REQUIRE(kaiju_engine_cancel(host.engine, request) == KAIJU_OK);
  host.drain();
}

TEST_CASE("C: wrong guides are refused by name, and kaiju_generate refuses guided requests") {
  Guided host;
  const kaiju_request plain = host.submit(kPrompt);
  CHECK(host.guide(plain, all_ones()).says("is not guided"));
  host.drain();
  CHECK(host.guide(plain, all_ones()).status == KAIJU_NOT_FOUND);
  CHECK(host.guide(plain, Mask(all_ones().size(), 0)).status == KAIJU_NOT_FOUND);  // a grammar that is at its end
  CHECK(host.guide(77, all_ones()).says("no unfinished request 77"));
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_GUIDED, 1, nullptr) == KAIJU_OK);
  const Answer generated = ask([&](kaiju_error** e) {
    return kaiju_generate(host.engine, host.session, kPrompt.data(), kPrompt.size(), host.options, nullptr, nullptr,
                          nullptr, 0, e);
  });
  CHECK(generated.status == KAIJU_INVALID_ARGUMENT);
  CHECK(generated.says("submit"));
  const kaiju_request request = host.submit(kPrompt);
  CHECK(host.guide(request, Mask(1, ~0u)).says("1 words"));
  CHECK(host.guide(request, Mask(all_ones().size(), 0)).says("allows no token"));
  CHECK(host.guide(request, {}, {kTinyVocabulary}, {1.0f}).says("logit_bias names token"));
  CHECK(host.guide(request, {}, {1}, {NAN}).says("logit_bias of token 1"));
  const Mask mask = all_ones();
  kaiju_guide guide{0, mask.data(), mask.size(), nullptr, nullptr, 0};
  CHECK(ask([&](kaiju_error** e) { return kaiju_engine_guide(host.engine, request, &guide, e); }).says("struct_size"));
  guide = {sizeof guide, mask.data(), 0, nullptr, nullptr, 0};
  CHECK(
      ask([&](kaiju_error** e) { return kaiju_engine_guide(host.engine, request, &guide, e); }).says("allowed_words"));
  guide = {sizeof guide, nullptr, 3, nullptr, nullptr, 0};
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_engine_guide(host.engine, request, &guide, e);
        }).says("allowed is NULL"));
  guide = {sizeof guide, nullptr, 0, nullptr, nullptr, 2};
  CHECK(ask([&](kaiju_error** e) { return kaiju_engine_guide(host.engine, request, &guide, e); }).says("bias_tokens"));
  CHECK(kaiju_engine_guide(host.engine, request, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_engine_guide(nullptr, request, &guide, nullptr) == KAIJU_INVALID_ARGUMENT);
  REQUIRE(kaiju_engine_cancel(host.engine, request) == KAIJU_OK);
  host.drain();
}

TEST_CASE("C: a conversation's replies may be guided") {
  Guided host;
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_GUIDED, 1, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_MAX_TOKENS, 3, nullptr) == KAIJU_OK);
  kaiju_conversation* talk = nullptr;
  REQUIRE(kaiju_conversation_create(host.engine, kPrompt.data(), kPrompt.size(), &talk, nullptr) == KAIJU_OK);
  kaiju_request request = 0;
  const int32_t input[] = {12, 13};
  REQUIRE(kaiju_conversation_say(talk, input, 2, host.options, nullptr, &request, nullptr) == KAIJU_OK);
  const auto by_place = [](int32_t first) {
    return [first](size_t place) { return only(first + static_cast<int32_t>(place)); };
  };
  CHECK(host.run(request, by_place(30)) == std::vector<int32_t>{30, 31, 32});
  REQUIRE(kaiju_conversation_swipe(talk, host.options, nullptr, &request, nullptr) == KAIJU_OK);
  CHECK(host.run(request, by_place(40)) == std::vector<int32_t>{40, 41, 42});
  int32_t tokens[8];
  size_t count = 0;
  REQUIRE(kaiju_conversation_choose(talk, 0, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_conversation_turn(talk, 0, KAIJU_TURN_REPLY, tokens, 8, &count, nullptr) == KAIJU_OK);
  CHECK(std::vector<int32_t>(tokens, tokens + count) == std::vector<int32_t>{30, 31, 32});
  kaiju_conversation_destroy(talk);
}

TEST_CASE("C: a logits hook changes what is sampled, in kaiju_generate too, and other calls refuse the bag") {
  Host host(chat_model_file());
  struct Seen {
    size_t calls = 0, vocabulary = 0, tokens = 0;
  } seen;
  const kaiju_logits_fn force_50 = [](float* logits, size_t count, const int32_t*, size_t token_count, void* data) {
    auto& of = *static_cast<Seen*>(data);
    ++of.calls, of.vocabulary = count, of.tokens = token_count;
    for (size_t i = 0; i < count; ++i) logits[i] = i == 50 ? 0.0f : -HUGE_VALF;
  };
  REQUIRE(kaiju_options_set_logits_hook(host.options, force_50, &seen) == KAIJU_OK);
  kaiju_event done{};
  REQUIRE(kaiju_generate(host.engine, host.session, kPrompt.data(), kPrompt.size(), host.options, nullptr, nullptr,
                         &done, sizeof done, nullptr) == KAIJU_OK);
  const std::vector<int32_t> history = host.history();
  CHECK(std::vector<int32_t>(history.begin() + 5, history.end()) == std::vector<int32_t>(8, 50));
  CHECK(seen.calls == 8);
  CHECK(seen.vocabulary == kTinyVocabulary);
  CHECK(seen.tokens == kPrompt.size() + 7);
  kaiju_options* copy = nullptr;
  REQUIRE(kaiju_options_copy(host.options, &copy) == KAIJU_OK);
  REQUIRE(kaiju_options_clear(copy, KAIJU_GENERATE_MAX_TOKENS) == KAIJU_OK);
  REQUIRE(kaiju_options_clear(copy, KAIJU_GENERATE_STOP_TOKEN) == KAIJU_OK);
  kaiju_engine* engine = nullptr;
  CHECK(
      ask([&](kaiju_error** e) { return kaiju_engine_create(host.model, copy, &engine, e); }).says("the logits hook"));
  REQUIRE(kaiju_options_clear(copy, 0) == KAIJU_OK);
  CHECK(kaiju_engine_create(host.model, copy, &engine, nullptr) == KAIJU_OK);
  kaiju_engine_destroy(engine);
  kaiju_options_destroy(copy);
  CHECK(kaiju_options_set_logits_hook(nullptr, force_50, nullptr) == KAIJU_INVALID_ARGUMENT);
}
