// Conversations: swipe, edit, undo, fork and the cut give what a fresh chat with that history gives, and compute little
// more than what is new.
#include "kaiju/engine/conversation.hpp"

#include <set>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

const std::vector<int32_t> kClose = {6};

struct Chat {
  explicit Chat(const ExecutorInfo& info = small_facts(), size_t head_size = 200)
      : Chat(std::make_shared<Harness>(info), head_size) {}
  Chat(std::shared_ptr<Harness> harness, size_t head_size)
      : h(std::move(harness)),
        engine(h->engine.get(), [](Engine*) {}),
        head(tokens_from(77, head_size)),
        talk(make()) {}

  Conversation make() {
    auto made = Conversation::create(engine, head, kClose);
    REQUIRE(made.ok());
    return std::move(made).value();
  }
  static RequestOptions options(int32_t max_tokens) {
    RequestOptions options = asking(max_tokens);
    options.sampling.temperature = 1;
    options.stop_tokens = std::vector<int32_t>{6, 7};
    return options;
  }
  // Runs what was asked and holds it to one-at-a-time decoding of `history`.
  Reply finish(const Result<RequestId>& request, const std::vector<int32_t>& history, int32_t max_tokens,
               uint32_t stream) {
    INFO(request.status().message());
    REQUIRE(request.ok());
    h->drain();
    REQUIRE(talk.settle().ok());
    const Reply& reply = h->replies[request.value()];
    RequestOptions expected = options(max_tokens);
    expected.sampling.variant = stream;
    CHECK(reply.tokens == h->reference(history, max_tokens, expected));
    CHECK(reply.counts.prompt_tokens == static_cast<int32_t>(history.size()));
    return reply;
  }
  static std::vector<int32_t> without_end(std::vector<int32_t> reply) {
    if (!reply.empty() && (reply.back() == 6 || reply.back() == 7)) reply.pop_back();
    return reply;
  }
  Reply say(const std::vector<int32_t>& input, int32_t max_tokens = 20) {
    const auto request = talk.say(input, options(max_tokens));
    const auto before = talk.history();  // the new turn is closed in it already
    return finish(request, {before.begin(), before.end() - 1}, max_tokens, 0);
  }
  Reply swipe(uint32_t stream, int32_t max_tokens = 20) {
    auto prompt = head;
    for (size_t i = talk.dropped_count(); i + 1 < talk.turn_count(); ++i)
      prompt = prompt + talk.turn(i, TurnPart::kInput).value() + talk.turn(i, TurnPart::kReply).value() + kClose;
    prompt = prompt + talk.turn(talk.turn_count() - 1, TurnPart::kInput).value();
    return finish(talk.swipe(options(max_tokens)), prompt, max_tokens, stream);
  }

  std::shared_ptr<Harness> h;
  std::shared_ptr<Engine> engine;
  std::vector<int32_t> head;
  Conversation talk;
};

std::vector<ExecutorInfo> shapes() {
  std::vector<ExecutorInfo> all;
  for (const auto& [global, window] :
       {std::pair(true, 0), std::pair(true, 128), std::pair(true, 65), std::pair(false, 128)}) {
    ExecutorInfo info = small_facts();
    info.has_global = global;
    info.window = window;
    all.push_back(info);
  }
  return all;
}

int32_t computed(const Reply& reply) { return reply.counts.prompt_tokens - reply.counts.cached_tokens; }

}  // namespace

TEST_CASE("turns follow one another, each with its reply and its close") {
  for (const ExecutorInfo& info : shapes()) {
    INFO("global " << info.has_global << " window " << info.window);
    Chat chat(info);
    auto history = chat.head;
    for (uint64_t i = 0; i < 4; ++i) {
      const auto input = tokens_from(i, 15 + 10 * i);
      const Reply reply = chat.say(input, 30);
      history = history + input + Chat::without_end(reply.tokens) + kClose;
      CHECK(chat.talk.history() == history);
      CHECK(chat.talk.turn(i, TurnPart::kReply).value() == Chat::without_end(reply.tokens));
      if (i > 0)
        CHECK(computed(reply) <= static_cast<int32_t>(input.size()) + 2);  // the last token drawn, and the close
    }
    CHECK(chat.talk.turn_count() == 4);
  }
}

TEST_CASE("a swipe resumes at the first generated token: it computes one token of the prompt again") {
  for (const ExecutorInfo& info : shapes()) {
    INFO("global " << info.has_global << " window " << info.window);
    Chat chat(info);
    chat.say(tokens_from(1, 30));
    const Reply first = chat.say(tokens_from(2, 40), 150);
    std::vector<std::vector<int32_t>> replies = {Chat::without_end(first.tokens)};
    for (uint32_t stream = 1; stream < 6; ++stream) {
      const Reply reply = chat.swipe(stream, 150);
      CHECK(computed(reply) == 1);
      replies.push_back(Chat::without_end(reply.tokens));
    }
    CHECK(chat.talk.reply_count() == 6);
    CHECK(chat.talk.chosen_reply() == 5);
    CHECK(std::set<std::vector<int32_t>>(replies.begin(), replies.end()).size() > 3);
    // The chat goes on from whichever is chosen, and finds it in the cache.
    REQUIRE(chat.talk.choose(2).ok());
    CHECK(chat.talk.turn(1, TurnPart::kReply).value() == replies[2]);
    const Reply next = chat.say(tokens_from(3, 10));
    if (info.window == 0) CHECK(computed(next) <= 10 + 2 + kBlockTokens);
    CHECK(chat.talk.choose(1).code() == StatusCode::kNotFound);
  }
}

TEST_CASE("an edit in the last block computes at most the edited tail and one block") {
  for (const ExecutorInfo& info : shapes()) {
    INFO("global " << info.has_global << " window " << info.window);
    Chat chat(info);
    chat.say(tokens_from(1, 60));
    for (uint64_t i = 0; i < 6; ++i) {
      const auto input = tokens_from(10 + i, 20 + 11 * i);
      chat.say(input, 8);
      // Another input: its first half stays.
      auto edited = input;
      for (size_t at = input.size() / 2; at < edited.size(); ++at) edited[at] = (edited[at] + 1) % 90;
      const size_t newest = chat.talk.turn_count() - 1;
      REQUIRE(chat.talk.edit(newest, TurnPart::kInput, edited).ok());
      CHECK(chat.talk.reply_count() == 0);
      const Reply reply = chat.swipe(0, 8);
      CHECK(computed(reply) <= static_cast<int32_t>(edited.size() - input.size() / 2) + kBlockTokens);
      // Another reply, by the person at the keyboard: later turns see it.
      auto told = chat.talk.turn(newest, TurnPart::kReply).value();
      told.resize(std::max<size_t>(told.size(), 1));
      told.back() = (told.back() + 1) % 5 + 8;
      REQUIRE(chat.talk.edit(newest, TurnPart::kReply, told).ok());
      CHECK(computed(chat.say(tokens_from(50 + i, 5), 4)) <= 5 + 2 + kBlockTokens);
      CHECK(chat.talk.turn(newest, TurnPart::kReply).value() == told);
    }
  }
}

TEST_CASE("editing an earlier input removes the later turns, editing an earlier reply keeps them") {
  Chat chat;
  for (uint64_t i = 0; i < 5; ++i) chat.say(tokens_from(i, 20));
  REQUIRE(chat.talk.edit(3, TurnPart::kReply, tokens_from(9, 12)).ok());
  CHECK(chat.talk.turn_count() == 5);
  const auto last = chat.talk.turn(4, TurnPart::kReply).value();
  chat.say(tokens_from(8, 5));
  CHECK(chat.talk.turn(4, TurnPart::kReply).value() == last);
  REQUIRE(chat.talk.edit(1, TurnPart::kInput, tokens_from(7, 33)).ok());
  CHECK(chat.talk.turn_count() == 2);
  chat.swipe(0);
  CHECK(chat.talk.edit(2, TurnPart::kInput, tokens_from(7, 3)).code() == StatusCode::kNotFound);
}

TEST_CASE("undo restores the chat as it was before the turn") {
  for (const ExecutorInfo& info : shapes()) {
    INFO("global " << info.has_global << " window " << info.window);
    Chat chat(info);
    chat.say(tokens_from(1, 50));
    const auto before = chat.talk.history();
    const Reply once = chat.say(tokens_from(2, 30), 40);
    REQUIRE(chat.talk.undo().ok());
    CHECK(chat.talk.history() == before);
    const Reply again = chat.say(tokens_from(2, 30), 40);
    CHECK(again.tokens == once.tokens);
    CHECK(computed(again) <= 30 + kBlockTokens);
    REQUIRE(chat.talk.undo().ok());
    REQUIRE(chat.talk.undo().ok());
    CHECK(chat.talk.undo().code() == StatusCode::kNotFound);
    CHECK(chat.talk.history() == chat.head);
  }
}

TEST_CASE("a fork never changes its parent, and shares its KV") {
  for (const ExecutorInfo& info : shapes()) {
    INFO("global " << info.has_global << " window " << info.window);
    Chat chat(info);
    for (uint64_t i = 0; i < 3; ++i) chat.say(tokens_from(i, 25));
    chat.swipe(1);
    const auto history = chat.talk.history();
    for (size_t turns = 0; turns <= 3; ++turns) {
      auto forked = chat.talk.fork(turns);
      REQUIRE(forked.ok());
      Chat other(chat.h, chat.head.size());
      other.talk = std::move(forked).value();
      const Reply reply = other.say(tokens_from(60 + turns, 10));
      CHECK(other.talk.turn_count() == turns + 1);
      if (turns == 3) CHECK(computed(reply) <= 10 + 2);
      CHECK(chat.talk.history() == history);
    }
    chat.say(tokens_from(90, 10));
    CHECK(chat.talk.fork(5).status().code() == StatusCode::kNotFound);
  }
}

TEST_CASE("a swipe in a fork draws from a stream that its turn has not had") {
  Chat chat;
  chat.say(tokens_from(1, 25));
  chat.swipe(1);
  auto forked = chat.talk.fork(1);
  REQUIRE(forked.ok());
  chat.talk = std::move(forked).value();
  chat.swipe(2);
  CHECK(chat.talk.reply_count() == 2);
}

TEST_CASE("a chat longer than the context is cut in large steps, and its prefix stays between them") {
  for (const ExecutorInfo& info : shapes()) {
    INFO("global " << info.has_global << " window " << info.window);
    Chat chat(info, 300);
    int64_t prompts = 0, cached = 0;
    size_t cuts = 0;
    for (uint64_t i = 0; i < 150; ++i) {
      const size_t dropped = chat.talk.dropped_count();
      const Reply reply = chat.say(tokens_from(i, 30), 30);
      const bool cut = chat.talk.dropped_count() > dropped;
      cuts += cut;
      if (!cut && i > 0) CHECK(computed(reply) <= 30 + 2);
      prompts += reply.counts.prompt_tokens;
      cached += reply.counts.cached_tokens;
    }
    CHECK(cuts >= 4);
    CHECK(cuts <= 10);
    CHECK(cached > prompts * 9 / 10);
    CHECK(chat.talk.dropped_count() > 100);
    // A chat that is loaded again gets the same cut.
    Chat loaded(chat.h, 300);
    for (size_t i = 0; i + 1 < chat.talk.turn_count(); ++i)
      REQUIRE(
          loaded.talk.append(chat.talk.turn(i, TurnPart::kInput).value(), chat.talk.turn(i, TurnPart::kReply).value())
              .ok());
    const auto input = chat.talk.turn(chat.talk.turn_count() - 1, TurnPart::kInput).value();
    loaded.say(input, 30);
    CHECK(loaded.talk.history() == chat.talk.history());
  }
}

TEST_CASE(
    "while a reply is generated the conversation cannot be changed, and a cancelled reply keeps its tokens so far") {
  Chat chat;
  chat.say(tokens_from(1, 20));
  const auto request = chat.talk.say(tokens_from(2, 20), Chat::options(50));
  REQUIRE(request.ok());
  for (int i = 0; i < 6; ++i) {
    CHECK(chat.talk.say(tokens_from(3, 2), {}).status().code() == StatusCode::kBusy);
    CHECK(chat.talk.swipe({}).status().code() == StatusCode::kBusy);
    CHECK(chat.talk.undo().code() == StatusCode::kBusy);
    CHECK(chat.talk.edit(0, TurnPart::kReply, tokens_from(1, 2)).code() == StatusCode::kBusy);
    CHECK(chat.talk.fork(1).status().code() == StatusCode::kBusy);
    CHECK(chat.talk.append({}, {}).code() == StatusCode::kBusy);
    CHECK(chat.talk.choose(0).code() == StatusCode::kBusy);
    chat.h->step();
  }
  REQUIRE(chat.engine->cancel(request.value()).ok());
  chat.h->drain();
  REQUIRE(chat.talk.settle().ok());
  CHECK(chat.talk.turn(1, TurnPart::kReply).value() == Chat::without_end(chat.h->replies[request.value()].tokens));
  chat.swipe(1);
}

TEST_CASE("a refused turn changes nothing and says what there is room for") {
  Chat chat;
  chat.say(tokens_from(1, 20));
  const auto history = chat.talk.history();
  const Status refused = chat.talk.say(tokens_from(2, 1900), Chat::options(50)).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message() == "the input is 1900 tokens long; there is room for 1847");  // 2048 - 200 - 1
  CHECK(chat.talk.say(std::vector<int32_t>{-1}, Chat::options(5)).status().code() == StatusCode::kInvalidArgument);
  CHECK(chat.talk.append({}, std::vector<int32_t>{97}).code() == StatusCode::kInvalidArgument);
  CHECK(chat.talk.history() == history);
  CHECK(Conversation::create(chat.engine, tokens_from(1, 1025), {}).status().code() == StatusCode::kInvalidArgument);
  CHECK(Conversation::create(nullptr, {}, {}).status().code() == StatusCode::kInvalidArgument);
  Chat greeted;
  REQUIRE(greeted.talk.append({}, tokens_from(3, 9)).ok());
  CHECK(greeted.talk.swipe({}).status().code() == StatusCode::kInvalidArgument);
  greeted.say(tokens_from(4, 5));
  const size_t sessions = chat.engine->metrics().sessions;
  {
    const Conversation gone = chat.make();
  }
  CHECK(chat.engine->metrics().sessions == sessions);
}

TEST_CASE("an input that leaves room for any reply is taken, and max_tokens is cut to that room") {
  ExecutorInfo info = small_facts();
  info.context = 512;
  Harness h(info);
  const std::shared_ptr<Engine> engine(h.engine.get(), [](Engine*) {});
  const std::vector<int32_t> head = tokens_from(1, 2), input = tokens_from(2, 400);
  for (const int32_t most : {kToContextEnd, 256, 110}) {
    Conversation talk = Conversation::create(engine, head, {}).value();
    const RequestId request = talk.say(input, asking(most)).value();
    h.drain();
    CHECK(h.replies[request].tokens.size() == 110);
    const RequestId again = talk.swipe(asking(256)).value();
    h.drain();
    CHECK(h.replies[again].tokens.size() == 110);
  }
  Conversation full = Conversation::create(engine, head, {}).value();
  CHECK(full.say(tokens_from(2, 510), asking(1)).status().message() ==
        "the input is 510 tokens long; there is room for 509");
  CHECK(full.say(tokens_from(2, 510), asking(0)).ok());  // a prompt alone may fill the context
  h.drain();
}

TEST_CASE("a swipe never draws from a stream that a reply of its turn had, whichever stream that was asked with") {
  Harness h;
  const std::shared_ptr<Engine> engine(h.engine.get(), [](Engine*) {});
  Conversation talk = Conversation::create(engine, tokens_from(1, 20), {}).value();
  RequestOptions options = asking(20);
  options.sampling.temperature = 1;
  options.sampling.variant = 1;
  std::set<std::vector<int32_t>> replies;
  const RequestId said = talk.say(tokens_from(2, 10), options).value();
  h.drain();
  replies.insert(h.replies[said].tokens);
  options.sampling.variant = 0;
  for (int i = 0; i < 4; ++i) {
    const RequestId swiped = talk.swipe(options).value();
    h.drain();
    replies.insert(h.replies[swiped].tokens);
  }
  CHECK(replies.size() == 5);
}

TEST_CASE("after undo, edit, append and fork a conversation tells what its next turn goes on from") {
  ExecutorInfo info = small_facts();
  info.context = 300;
  Harness h(info);
  const std::shared_ptr<Engine> engine(h.engine.get(), [](Engine*) {});
  const std::vector<int32_t> head = tokens_from(1, 10);
  Conversation talk = Conversation::create(engine, head, {}).value();
  for (uint64_t i = 0; i < 8; ++i) {
    REQUIRE(talk.say(tokens_from(10 + i, 40), asking(5)).ok());
    h.drain();
  }
  REQUIRE(talk.settle().ok());
  CHECK(talk.dropped_count() > 0);
  const auto goes_on_from = [&](Conversation& of) {
    const std::vector<int32_t> told = of.history();
    const RequestId request = of.say(tokens_from(99, 3), asking(5)).value();
    h.drain();
    CHECK(h.replies[request].counts.prompt_tokens == static_cast<int32_t>(told.size()) + 3);
  };
  Conversation child = talk.fork(3).value();
  CHECK(child.dropped_count() == 0);
  CHECK(child.history().size() == 10 + 3 * 45);
  goes_on_from(child);
  while (talk.turn_count() > 4) REQUIRE(talk.undo().ok());
  CHECK(talk.dropped_count() == 0);
  REQUIRE(talk.edit(0, TurnPart::kReply, tokens_from(5, 200)).ok());
  goes_on_from(talk);
  REQUIRE(talk.append(tokens_from(6, 200), tokens_from(7, 200)).ok());
  CHECK(talk.history().size() <= 300);
  goes_on_from(talk);
}

TEST_CASE("a turn that was asked for without an input can be answered again, an appended greeting cannot") {
  Harness h;
  const std::shared_ptr<Engine> engine(h.engine.get(), [](Engine*) {});
  Conversation talk = Conversation::create(engine, tokens_from(1, 20), {}).value();
  REQUIRE(talk.append({}, tokens_from(2, 3)).ok());
  CHECK(talk.swipe(asking(3)).status().message() ==
        "the newest turn was appended without an input: there is nothing to answer again");
  REQUIRE(talk.say({}, asking(3)).ok());
  h.drain();
  CHECK(talk.swipe(asking(3)).ok());
  h.drain();
  REQUIRE(talk.append(tokens_from(3, 3), tokens_from(4, 3)).ok());
  REQUIRE(talk.edit(2, TurnPart::kInput, {}).ok());
  CHECK(talk.swipe(asking(3)).ok());
  h.drain();
}

TEST_CASE("the first turn after a head that ends inside a user message leaves the opening out") {
  Chat chat;
  const std::vector<int32_t> opening = {3, 4}, reply = {20, 21};
  const auto input = [&](int32_t n) { return std::vector<int32_t>{3, 4, 30 + n % 50, 31, 5}; };
  Conversation talk = Conversation::create(chat.engine, chat.head, kClose, opening).value();
  const auto expected = [&] {
    std::vector<int32_t> tokens = chat.head;
    for (size_t i = talk.dropped_count(); i < talk.turn_count(); ++i) {
      const auto whole = talk.turn(i, TurnPart::kInput).value();
      tokens.insert(tokens.end(), whole.begin() + (i == talk.dropped_count() ? 2 : 0), whole.end());
      tokens.insert(tokens.end(), {20, 21, 6});
    }
    return tokens;
  };
  int32_t turns = 0;
  for (; talk.dropped_count() == 0; ++turns) {
    REQUIRE(talk.append(input(turns), reply).ok());
    REQUIRE(talk.turn(static_cast<size_t>(turns), TurnPart::kInput).value() == input(turns));
    REQUIRE(talk.history() == expected());
  }
  CHECK(turns > 2);
  Conversation fork = talk.fork(talk.turn_count()).value();
  CHECK(fork.history() == talk.history());

  // The prompt of a request, and a turn that has no opening: a greeting.
  Conversation fresh = Conversation::create(chat.engine, chat.head, kClose, opening).value();
  const auto prompt_tokens = [&](const std::vector<int32_t>& text) {
    const auto request = fresh.say(text, chat.options(1));
    REQUIRE(request.ok());
    chat.h->drain();
    REQUIRE(fresh.settle().ok());
    return chat.h->replies[request.value()].counts.prompt_tokens;
  };
  CHECK(prompt_tokens(input(0)) == static_cast<int32_t>(chat.head.size()) + 3);
  REQUIRE(fresh.undo().ok());
  REQUIRE(fresh.append({}, reply).ok());
  CHECK(prompt_tokens(input(0)) == static_cast<int32_t>(chat.head.size()) + 3 + 5);
}
