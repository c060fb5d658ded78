// Banned phrases with the bundled model, on every backend of this machine: no reply has one, whatever the borders of
// its tokens, and a reply that has none anyway is as without.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "talk.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

struct Reply {
  std::vector<int32_t> tokens;
  std::string text;
  DoneReason reason = DoneReason::kNone;
  bool operator==(const Reply&) const = default;
};

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return text;
}
bool has(const std::string& text, const std::string& phrase) {
  return lower(text).find(lower(phrase)) != std::string::npos;
}

class Talk : public test::Talk {
 public:
  explicit Talk(const std::string& backend, int32_t slots = 16)
      : Talk(Model::load(std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors").value(),
             backend, slots) {}
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // The replies to prompts of the same number.
  std::vector<Reply> replies(const std::vector<RequestOptions>& all) {
    const std::vector<int32_t> prompt = tokenizer().encode("Hello! What did you do this morning?").value();
    found_.assign(all.size(), {});
    place_.clear();
    for (size_t next = 0; next < all.size() || engine().pending() > 0; step())
      for (; next < all.size() && engine().pending() < 1024; ++next) place_[submit(prompt, all[next])] = next;
    return std::move(found_);
  }

 private:
  Talk(const std::shared_ptr<const Model>& model, const std::string& backend, int32_t slots)
      : test::Talk(model, options(backend, slots)), tokenizer_(model->tokenizer().value()) {}
  static RunOptions options(const std::string& backend, int32_t slots) {
    RunOptions options = options_of(backend, slots);
    options.engine.check_ledger = slots == 16;
    return options;
  }
  void take(const Event& event) override {
    Reply& reply = found_[place_.at(event.request)];
    reply.text += event.text;
    if (event.kind == EventKind::kToken) reply.tokens.push_back(event.token);
    CHECK(event.counts.generated == static_cast<int32_t>(reply.tokens.size()));
    if (event.kind != EventKind::kDone) return;
    reply.reason = event.reason;
    REQUIRE(engine().destroy_session(event.session).ok());
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::map<RequestId, size_t> place_;
  std::vector<Reply> found_;
};

RequestOptions sampled(uint64_t seed) {
  RequestOptions options;
  options.max_tokens = 24;
  options.sampling.temperature = 1.0;
  options.sampling.top_p = 0.95;
  options.sampling.seed = seed;
  return options;
}

}  // namespace

TEST_CASE("no reply has a banned phrase, and one that has none anyway is as without") {
  const uint64_t seed = test::seed_of_run();
  INFO("seed " << seed);
  const char* asked = std::getenv("KAIJU_TEST_REPLIES");
  const uint64_t replies = asked ? std::strtoull(asked, nullptr, 10) : 160;
  REQUIRE(replies >= 160);
  std::vector<Reply> expected;
  for (const std::string& backend : test::isas()) {  // not the reference backend: a minute
    INFO(backend);
    Talk talk(backend, replies > 1000 ? 128 : 16);
    test::Random random(seed);
    std::vector<RequestOptions> plain, banned;
    for (uint64_t i = 0; i < replies; ++i) plain.push_back(sampled(seed + i));
    const std::vector<Reply> free = talk.replies(plain);
    for (size_t i = 0; i < free.size(); ++i) {
      banned.push_back(plain[i]);
      // Pieces of this reply and of another one, with no regard to tokens and words, in any case.
      for (const Reply* from : {&free[i], &free[static_cast<size_t>(random.below(static_cast<int32_t>(replies)))]}) {
        if (from->text.size() < 4 || random.chance(30)) continue;
        const auto first = static_cast<size_t>(random.below(static_cast<int32_t>(from->text.size()) - 3));
        std::string phrase = from->text.substr(first, static_cast<size_t>(random.between(2, 12)));
        std::erase_if(phrase, [](char c) { return static_cast<unsigned char>(c) >= 128; });
        if (phrase.empty()) continue;
        banned.back().banned_phrases.push_back(random.chance(50) ? lower(phrase) : phrase);
      }
    }
    const std::vector<Reply> found = talk.replies(banned);
    size_t untouched = 0, changed = 0, elsewhere = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      INFO("reply " << i << ": " << found[i].text << "\nwithout: " << free[i].text);
      const std::string whole = talk.tokenizer().decode(found[i].tokens).value();
      size_t begins = std::string::npos;
      for (const std::string& phrase : banned[i].banned_phrases) {
        INFO("phrase: " << phrase);
        CHECK_FALSE(has(found[i].text, phrase));
        CHECK_FALSE(has(whole, phrase));
        begins = std::min(begins, lower(free[i].text).find(lower(phrase)));
      }
      if (begins == std::string::npos) {
        CHECK(found[i] == free[i]);
        ++untouched;
        continue;
      }
      ++changed;
      // What comes before the phrase's first token is as it was, and that token is another one. Now and then the reply
      // goes further back, where many tokens have failed, or less far, where the phrase begins in tokens that were
      // told.
      size_t same = 0;
      while (same < found[i].tokens.size() && same < free[i].tokens.size() &&
             found[i].tokens[same] == free[i].tokens[same])
        ++same;
      const std::string kept = talk.tokenizer().decode(std::span(free[i].tokens).first(same)).value();
      const std::string next =
          talk.tokenizer().decode(std::span(free[i].tokens).first(std::min(same + 1, free[i].tokens.size()))).value();
      elsewhere += kept.size() > begins + 1 || next.size() + 1 < begins;
    }
    INFO(changed << " replies changed, " << elsewhere << " elsewhere than where the phrase begins");
    CHECK(elsewhere <= 1 + replies / 1000);
    CHECK(untouched > 20);
    CHECK(changed > 50);
    if (expected.empty()) expected = found;
    CHECK(found == expected);
  }
}

TEST_CASE("banned phrases that cannot be are refused by name") {
  Talk talk("portable");
  const auto says = [&](auto change, StatusCode code, const char* words) {
    RequestOptions options = sampled(1);
    options.banned_phrases = {"morning"};
    change(options);
    const Status refused =
        talk.engine().submit(talk.engine().create_session().value(), std::vector<int32_t>{5}, options).status();
    INFO(refused.message());
    CHECK(refused.code() == code);
    CHECK(refused.message().find(words) != std::string::npos);
  };
  constexpr StatusCode kBad = StatusCode::kInvalidArgument, kNo = StatusCode::kUnsupported;
  says([](RequestOptions& o) { o.banned_phrases = {""}; }, kBad, "1 to 1024 bytes");
  says([](RequestOptions& o) { o.banned_phrases = {"\xC3"}; }, kBad, "UTF-8");
  says([](RequestOptions& o) { o.banned_phrases.assign(65, "x"); }, kBad, "at most 64");
  says([](RequestOptions& o) { o.guided = true; }, kNo, "guided");
  says([](RequestOptions& o) { o.sampling = {}, o.beams.width = 2; }, kNo, "beams");
}
