// MessageGate: what it takes for words, what changes no score, and files that are no gates.
#include "kaiju/text/message_gate.hpp"

#include <cmath>
#include <fstream>

#include "catch.hpp"
#include "src/text/gate_words.hpp"
#include "tests/text/tiny_gate.hpp"

using namespace kaiju;
using kaiju::tests::TinyGate;

namespace {

using Words = std::vector<std::string>;

class Collected : public GateWords {
 public:
  Words words;

 private:
  void take(std::string_view word) override { words.emplace_back(word); }
};

Words words(std::string_view text) {
  Collected found;
  found.read(text);
  return found.words;
}

std::shared_ptr<const MessageGate> gate_of(const TinyGate& tiny) {
  const std::string file = tiny.file();
  auto gate = MessageGate::from_memory(std::as_bytes(std::span(file)));
  if (!gate.ok()) FAIL(gate.status().message());
  return gate.value();
}

Status refused(const std::string& file) { return MessageGate::from_memory(std::as_bytes(std::span(file))).status(); }

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("a gate's words have no case, no marks and no signs") {
  CHECK(words("Hello, World! don't It\u2019s") == Words{"hello", "world", "dont", "its"});
  CHECK(words("Caf\u00e9 STRA\u00dfE \uff35\uff33\uff21 \U0001d4f6\U0001d4ee \u2460\u00bd") ==
        Words{"cafe", "strasse", "usa", "me", "11", "2"});
  CHECK(words("na\u0308ive co\u00adop a\u200bb \u3164x y") == Words{"naive", "coop", "ab", "x", "y"});
  CHECK(words("\u041f\u0440\u0438\u0432\u0435\u0442 \u03ba\u03b1\u03c4 \u0455\u0435x") ==
        Words{"\u043fp\u0438bet", "kat", "sex"});
  CHECK(words("'tis rock'n'roll 10' 5'4") == Words{"tis", "rocknroll", "10", "5", "4"});
  CHECK(words("").empty());
  CHECK(words(" \n\t?! ...").empty());
  CHECK(words("\xff"
              "a\xc3"
              "b \x80\xe2\x82") == Words{"a", "b"});
}

TEST_CASE("a gate reads numbers and signs in words as letters, and spelled words as words") {
  CHECK(words("h3ll0 w0rld 1488 $5 th!s @ll b@d! me@home") ==
        Words{"hello", "world", "1488", "$5", "this", "all", "bad", "meahome"});
  CHECK(words("soooo niiice goood zzz 1000000") == Words{"soo", "niice", "good", "zz", "100"});
  CHECK(words("k.i.n.d - h e l l o - w o") == Words{"kind", "hello", "w", "o"});
  CHECK(words("I am a b c d and e f") == Words{"i", "am", "abcd", "and", "e", "f"});
  CHECK(words("h 3 l l 0") == Words{"hello"});
  CHECK(words("a, b, c") == Words{"abc"});
  CHECK(words("a - b - c") == Words{"a", "b", "c"});
  CHECK(words(std::string(63, 'x') + "ab").size() == 2);  // 64 letters, then one, of which two and one are left
  CHECK(words(repeated("a ", 66)) == Words{"aa", "a", "a"});
}

TEST_CASE("what shows the same has the same score") {
  const auto gate = gate_of(TinyGate());
  const auto plain = gate->score("You are the kind robot, and we like you.");
  for (const char* text : {"YOU ARE THE KIND ROBOT AND WE LIKE YOU", "  you are the k1nd r0bot... and we like you!!!\n",
                           "you are the k.i.n.d robot and we like you\u0301",
                           "You \u0430re the k\u200bi\u200bn\u200bd robot, \uff41nd we l\u00adike you"})
    CHECK(gate->score(text) == plain);
  CHECK(gate->score("you are a kiiind robot and i like you") ==
        gate->score("you are a kiiiiiiiind robot and i like you"));
  CHECK(gate->score("You like the kind robot, and we are you.") != plain);
  CHECK(gate->score("") == gate->score("..."));
}

TEST_CASE("a line in a long text counts as it does in a short one") {
  // A gate that knows one word: no text around it may hide it.
  TinyGate tiny;
  tiny.weights.assign(tiny.weights.size(), 0);
  const auto empty = gate_of(tiny);
  const std::vector<float> nothing = empty->score("snails");
  CHECK(nothing == empty->score(repeated("hello ", 1000)));
  tiny.weights.assign(tiny.weights.size(), -1);
  const auto gate = gate_of(tiny);  // every feature lowers it, by count / sqrt(count)
  const std::vector<float> one = gate->score(repeated("hello ", 48));
  for (const int count : {72, 96, 480, 100'000}) CHECK(gate->score(repeated("hello ", count))[0] >= one[0] * 0.99f);
  CHECK(gate->score(repeated("hello ", 47))[0] > one[0]);
}

TEST_CASE("a gate's scores are recorded ones, whatever the machine") {
  const auto gate = gate_of(TinyGate(7));
  format::Digest digest;
  for (const char* text :
       {"", "Hello!", "I grow blue tomatoes, and you?", "\u0416\u00e9\u4e16\u754c 42",
        "a text that is long enough to be judged in several windows, which it is as soon as it has more "
        "than forty-eight words; so it goes on and on, about the garden, about the weather, about snails "
        "and tomatoes and robots and about everything else that a small robot may think of on a long and "
        "quiet afternoon in the garden, until at last there are enough of them"})
    for (const float probability : gate->score(text)) digest.update(std::as_bytes(std::span(&probability, 1)));
  CHECK(digest.text() == "6fc00a18ddef47a88f25eb3bb52e51bd");
}

TEST_CASE("a file that is no gate is refused by name", "[malformed]") {
  struct Case {
    const char* name;
    void (*change)(TinyGate& tiny);
    StatusCode code;
    const char* says;
  };
  const Case cases[] = {
      {"another format", [](TinyGate& t) { t.metadata["format"] = "kaiju"; }, StatusCode::kBadModel, "not a gate"},
      {"a later version", [](TinyGate& t) { t.metadata["format_version"] = "2"; }, StatusCode::kUnsupported, "version"},
      {"a field more", [](TinyGate& t) { t.metadata["more"] = "x"; }, StatusCode::kBadModel, "more"},
      {"no notice", [](TinyGate& t) { t.metadata.erase("notice"); }, StatusCode::kBadModel, "notice"},
      {"a number for a text", [](TinyGate& t) { t.metadata["notice"] = 3; }, StatusCode::kBadModel, "notice"},
      {"no labels", [](TinyGate& t) { t.metadata["config"] = "{}"; }, StatusCode::kBadModel, "classifier"},
      {"an empty list of labels", [](TinyGate& t) { t.metadata["config"] = R"({"classifier": {"labels": []}})"; },
       StatusCode::kBadModel, "labels"},
      {"a label twice", [](TinyGate& t) { t.metadata["config"] = R"({"classifier": {"labels": ["harm", "harm"]}})"; },
       StatusCode::kBadModel, "another"},
      {"more labels than weights",
       [](TinyGate& t) { t.metadata["config"] = R"({"classifier": {"labels": ["a", "b", "c"]}})"; },
       StatusCode::kBadModel, "[buckets, 3]"},
      {"other config", [](TinyGate& t) { t.metadata["config"] = R"({"classifier": {"labels": ["a", "b"]}, "x": 1})"; },
       StatusCode::kBadModel, "x"},
      {"config that is no JSON", [](TinyGate& t) { t.metadata["config"] = "["; }, StatusCode::kBadModel, "config"},
      {"another digest", [](TinyGate& t) { t.metadata["digest"] = std::string(32, '0'); }, StatusCode::kBadModel,
       "damaged"},
      {"a scale that is no number", [](TinyGate& t) { t.scales[1] = std::nanf(""); }, StatusCode::kBadModel, "scale"},
      {"an endless bias", [](TinyGate& t) { t.biases[0] = INFINITY; }, StatusCode::kBadModel, "bias"},
      {"buckets that are no power of two",
       [](TinyGate& t) {
         t.weights.resize(384 * 2);
         t.tensors = {{"weights", {{"dtype", "I8"}, {"shape", {384, 2}}, {"data_offsets", {0, 768}}}},
                      {"bias", {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {768, 776}}}},
                      {"scale", {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {776, 784}}}}};
       },
       StatusCode::kBadModel, "power of two"},
      {"a tensor of another name",
       [](TinyGate& t) {
         t.tensors["size"] = t.tensors["scale"];
         t.tensors.erase("scale");
       },
       StatusCode::kBadModel, "must be weights"},
      {"weights of another type", [](TinyGate& t) { t.tensors["weights"]["dtype"] = "U8"; }, StatusCode::kBadModel,
       "must be weights"},
      {"a hole between tensors", [](TinyGate& t) { t.tensors["scale"]["data_offsets"] = {524, 532}; },
       StatusCode::kBadModel, "scale"},
  };
  for (const Case& each : cases) SECTION(each.name) {
      TinyGate tiny;
      each.change(tiny);
      const Status status = refused(tiny.file());
      INFO(status.message());
      CHECK(status.code() == each.code);
      CHECK(status.message().find(each.says) != std::string::npos);
    }
}

TEST_CASE("a gate's file that is cut or damaged anywhere is refused", "[malformed][sweep]") {
  const std::string good = TinyGate().file();
  for (size_t size = 0; size < good.size(); ++size)
    if (refused(good.substr(0, size)).code() != StatusCode::kBadModel) FAIL("length " << size);
  const auto gate = gate_of(TinyGate());
  const auto scores = gate->score("hello robot");
  for (size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      auto loaded = MessageGate::from_memory(std::as_bytes(std::span(bad)));
      if (loaded.ok() && (loaded.value()->labels() != gate->labels() || loaded.value()->score("hello robot") != scores))
        FAIL("bit " << bit << " of byte " << at << " changed the gate unseen");
    }
  SUCCEED();
}

TEST_CASE("a gate is loaded from a file, and what is wrong is told with its path") {
  const std::string model = KAIJU_SOURCE_DIR "/examples/chat/model/";
  auto gate = MessageGate::load(model + "kaiju-gate.safetensors");
  REQUIRE(gate.ok());
  CHECK(gate.value()->labels() == Words{"violence", "sexual", "self_harm", "harassment", "dangerous", "distress"});
  const Status none = MessageGate::load(model + "no-gate.safetensors").status();
  CHECK(none.code() == StatusCode::kIo);
  CHECK(none.message().find("no-gate.safetensors") != std::string::npos);
  const Status another = MessageGate::load(model + "kaiju-nano.safetensors").status();
  CHECK(another.code() == StatusCode::kBadModel);
  CHECK(another.message().find("not a gate") != std::string::npos);
}
