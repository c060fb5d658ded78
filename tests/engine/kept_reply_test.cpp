// A stop string's own tokens leave the turn: what stays spells what the user saw, and the next prompt goes on from
// that.
#include "kaiju/engine/detail/kept_reply.hpp"

#include "kaiju/engine/conversation.hpp"
#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

// Tokens 0 to 255 are bytes, 256 is a control symbol; then come the words.
class Words final : public Pieces {
 public:
  explicit Words(std::vector<std::string> words) {
    for (int byte = 0; byte < 256; ++byte) pieces_.emplace_back(1, static_cast<char>(byte));
    pieces_.emplace_back();
    pieces_.insert(pieces_.end(), words.begin(), words.end());
  }
  std::string_view piece(int32_t token) const override {
    return token >= 0 && token < size() ? std::string_view(pieces_[static_cast<size_t>(token)]) : std::string_view();
  }
  int32_t size() const { return static_cast<int32_t>(pieces_.size()); }

 private:
  std::vector<std::string> pieces_;
};

// What a user sees of a reply.
std::string shown(const std::vector<int32_t>& reply, const std::vector<std::string>& stops, const Pieces& pieces) {
  ReplyText text(stops, false);
  std::string out;
  for (const int32_t token : reply)
    if (text.push(pieces.piece(token), out) != TextEnd::kNone) break;
  text.finish(out);
  return out;
}

}  // namespace

TEST_CASE("a reply keeps its tokens before the stop string, and new tokens for the part of a token before it") {
  const Words words({"Hello", " there", ".\n", "\nUser", ":", "He", "llo", "l", "o", "H", "e", "xST", "OP", "\n"});
  enum : int32_t {
    kControl = 256,
    kHello,
    kThere,
    kStopLine,
    kUser,
    kColon,
    kHe,
    kLlo,
    kL,
    kO,
    kH,
    kE,
    kXst,
    kOp,
    kLine
  };
  const auto kept = [&](const std::vector<int32_t>& reply, const std::vector<std::string>& stops) {
    return kept_reply(reply, stops, false, words, words.size());
  };
  using Tokens = std::vector<int32_t>;
  // No string was complete: everything stays, be it the beginning of one.
  CHECK(kept({kHello, kThere}, {"Stop"}) == Tokens{kHello, kThere});
  CHECK(kept({kHello, kUser}, {"\nUser:"}) == Tokens{kHello, kUser});
  CHECK(kept({}, {"Stop"}).empty());
  // The string begins where a token does.
  CHECK(kept({kHello, kUser, kColon}, {"\nUser:"}) == Tokens{kHello});
  CHECK(kept({kUser, kColon}, {"\nUser:"}).empty());
  CHECK(kept({kHello, kControl, kUser}, {"\nUser"}) == Tokens{kHello, kControl});
  // It begins inside one.
  CHECK(kept({kThere, kStopLine, 'U', 's'}, {"\nU"}) == Tokens{kThere, '.'});
  CHECK(kept({kHello, kXst, kOp}, {"STOP"}) == Tokens{kHello, 'x'});
  CHECK(kept({kHello}, {"lo"}) == Tokens{kHe, kL});  // the fewest tokens, and of equal ones no byte's
  CHECK(kept({kHello}, {"o"}) == Tokens{kHe, kL, kL});
  CHECK(kept({kThere, kHello}, {"lo"}) == Tokens{kThere, kHe, kL});
  // Text behind it in its last token goes too; of strings that end first the longest counts.
  CHECK(kept({kHello, kThere}, {"o th"}) == Tokens{kHe, kL, kL});
  CHECK(kept({kThere, kHello, kThere}, {"ll", "ell", "there"}) == Tokens{' '});
  CHECK(kept({kHello}, {"ll", "ell"}) == Tokens{kH});
}

TEST_CASE("a stop string next to half a code point leaves only whole code points") {
  const Words words({"\xF0\x9F", "\x98\x80", "a\xF0\x9F",
                     "\x98\x80"
                     "b",
                     "\xEF\xBF\xBD"});
  enum : int32_t { kFirst = 257, kSecond, kBefore, kBehind, kReplacement };
  using Tokens = std::vector<int32_t>;
  const auto kept = [&](const std::vector<int32_t>& reply, const std::vector<std::string>& stops) {
    return kept_reply(reply, stops, false, words, words.size());
  };
  const std::string smile = "\xF0\x9F\x98\x80", replacement(kReplacementCharacter);
  CHECK(kept({'x', kFirst, kSecond}, {smile}) == Tokens{'x'});
  CHECK(kept({kBefore, kSecond}, {smile}) == Tokens{'a'});
  CHECK(kept({kFirst, kBehind}, {"b"}) == Tokens{kFirst, kSecond});
  CHECK(kept({kFirst, kSecond, 'b'}, {"b"}) == Tokens{kFirst, kSecond});
  // Half of one is shown as a replacement character, and the turn has what was shown.
  CHECK(kept({'x', kFirst, 'b'}, {"b"}) == Tokens{'x', kReplacement});
  CHECK(kept({'x', 0xFF, 'b'}, {"b"}) == Tokens{'x', 0xFF});
  // The end of the reply may complete a string too.
  CHECK(kept({'x', kFirst}, {"x" + replacement}).empty());
  CHECK(kept({'y', 'x', kFirst}, {replacement}) == Tokens{'y', 'x'});
  CHECK(kept({'x', kFirst}, {"b"}) == Tokens{'x', kFirst});
}

TEST_CASE("text before a stop string that no tokens spell is dropped") {
  const ScriptedPieces pieces(97);  // letters and pairs, no bytes
  const auto token_of = [&](std::string_view piece) {
    for (int32_t token = 96; token >= 0; --token)
      if (pieces.piece(token) == piece) return token;
    return -1;
  };
  REQUIRE(token_of("ab") == 0);
  CHECK(kept_reply(std::vector<int32_t>{1, token_of("c")}, {"c"}, false, pieces, 97).empty());
  CHECK(spell("cab", pieces, 97) == std::vector<int32_t>{token_of("c"), 0});
  CHECK(spell("ca\xF0", pieces, 97) == std::vector<int32_t>{token_of("c"), token_of("a")});
  CHECK(spell("", pieces, 97).empty());
}

TEST_CASE("whatever tokens and stop strings, the turn spells what the user saw") {
  const Words words({"ab", "abc", "bca", "c\xC3", "\xC3\xA4",
                     "\xA4"
                     "a",
                     "aaaa", "ccb", "\xE2\x82"});
  const std::vector<int32_t> some = {'a', 'b', 'c', 0xC3, 0xA4, 0xE2, 256, 257, 258, 259, 260, 261, 262, 263, 264, 265};
  size_t cut = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    auto any = [&, n = uint64_t{0}](size_t below) mutable { return mix(seed * 1000 + ++n) % below; };
    std::vector<int32_t> reply(any(12));
    for (int32_t& token : reply) token = some[any(some.size())];
    std::vector<std::string> stops(1 + any(3));
    for (std::string& stop : stops)
      for (size_t i = 0, size = 1 + any(3); i < size; ++i)
        stop += std::vector<std::string>{"a", "b", "c", "\xC3\xA4", std::string(kReplacementCharacter)}[any(5)];
    const std::string seen = shown(reply, stops, words);
    const std::vector<int32_t> kept = kept_reply(reply, stops, false, words, words.size());
    INFO("seed " << seed);
    REQUIRE(shown(kept, {}, words) == seen);
    cut += kept != reply;
  }
  CHECK(cut > 500);
}

TEST_CASE("a stop string's tokens are not in the turn, and the next reply is that of a fresh chat with its text") {
  for (const bool straddled : {false, true}) {
    INFO("the string begins inside a token " << straddled);
    const Harness fresh;
    const ScriptedPieces pieces(97);
    const std::vector<int32_t> head = tokens_from(77, 100), input = tokens_from(2, 30), close = {6};
    // A string that first occurs where it is wanted in the reply.
    const auto reply = fresh.reference(head + input, 100);
    std::string stop, seen;
    size_t whole_tokens = 5;
    for (; seen.empty(); ++whole_tokens) {
      const std::string_view begin = pieces.piece(reply.at(whole_tokens)),
                             end = pieces.piece(reply.at(whole_tokens + 1));
      if (begin.size() != (straddled ? 2 : 1) || begin[0] < 0 || end.empty() || end[0] < 0) continue;
      stop = std::string(begin.substr(begin.size() - 1)) + std::string(end);
      std::string before;
      for (size_t i = 0; i < whole_tokens; ++i) before += pieces.piece(reply[i]);
      before += begin.substr(0, begin.size() - 1);
      if (shown(reply, {stop}, pieces) == before) seen = before;
    }
    --whole_tokens;

    Harness h;
    const std::shared_ptr<Engine> engine(h.engine.get(), [](Engine*) {});
    Conversation talk = std::move(Conversation::create(engine, head, close)).value();
    RequestOptions options = asking(100);
    options.stop_strings = {stop};
    const RequestId request = talk.say(input, options).value();
    h.drain();
    CHECK(h.replies[request].reason == DoneReason::kStopString);
    CHECK(h.replies[request].text == seen);
    CHECK(h.replies[request].tokens.size() == whole_tokens + 2);
    REQUIRE(talk.settle().ok());
    const auto turn = talk.turn(0, TurnPart::kReply).value();
    CHECK(turn.size() == whole_tokens + straddled);
    CHECK(std::equal(reply.begin(), reply.begin() + static_cast<std::ptrdiff_t>(whole_tokens), turn.begin()));
    CHECK(shown(turn, {}, pieces) == seen);
    CHECK(talk.history() == head + input + turn + close);

    const auto more = tokens_from(3, 10);
    const RequestId next = talk.say(more, asking(20)).value();
    h.drain();
    CHECK(h.replies[next].tokens == fresh.reference(head + input + turn + close + more, 20));
    CHECK(h.replies[next].counts.cached_tokens >= 130);
  }
}

TEST_CASE("a reply that is cut off inside a possible stop string keeps all its tokens, and shows them") {
  for (const DoneReason reason : {DoneReason::kLength, DoneReason::kCancelled, DoneReason::kDeadline}) {
    INFO("reason " << static_cast<int>(reason));
    Clock::time_point time(std::chrono::seconds(1000));
    EngineOptions settings;
    settings.clock = [&] { return time; };
    Harness h(small_facts(), settings);
    const std::shared_ptr<Engine> engine(h.engine.get(), [](Engine*) {});
    const ScriptedPieces pieces(97);
    Conversation talk = std::move(Conversation::create(engine, tokens_from(77, 100), {})).value();
    const auto input = tokens_from(2, 30);
    const auto reply = h.reference(tokens_from(77, 100) + input, 20);
    RequestOptions options = asking(reason == DoneReason::kLength ? 20 : 100);
    options.stop_strings = {std::string(pieces.piece(reply.back())) + "?"};  // no piece has this
    options.deadline = time + std::chrono::seconds(10);
    const RequestId request = talk.say(input, options).value();
    const Reply& told = h.replies[request];
    while (told.tokens.size() < 20) h.step();
    if (reason == DoneReason::kCancelled) REQUIRE(engine->cancel(request).ok());
    if (reason == DoneReason::kDeadline) time += std::chrono::seconds(10);
    h.drain();
    CHECK(told.reason == reason);
    CHECK(told.tokens == reply);
    CHECK(told.text == shown(reply, {}, pieces));
    REQUIRE(talk.settle().ok());
    CHECK(talk.turn(0, TurnPart::kReply).value() == reply);
  }
}
