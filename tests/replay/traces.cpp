// The traces of kaiju-bench replay: from its own generators, and from the Mooncake format.
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/replay/mooncake.hpp"
#include "bench/replay/traffic.hpp"
#include "catch.hpp"

using namespace kaiju;
using namespace kaiju::replay;

namespace {

TrafficOptions few() {
  TrafficOptions options;
  options.conversations = 300;
  options.characters = 30;
  options.warm_up_hours = 1;
  options.hours = 3;
  options.versions_per_day = 4;
  return options;
}

// Everything in a trace, as bytes.
std::string bytes_of(const Trace& trace) {
  std::ostringstream out;
  for (const Text& text : trace.texts)
    out << text.before << ' ' << text.end << ' ' << text.content << ' ' << text.first << '\n';
  for (const Request& request : trace.requests)
    out << std::hexfloat << request.seconds << ' ' << request.prompt << ' ' << request.reply << ' '
        << request.conversation << ' ' << static_cast<int>(request.kind) << request.leaves << '\n';
  return out.str();
}

Result<Trace> read(const std::string& text) {
  std::istringstream in(text);
  return read_mooncake(in);
}

}  // namespace

TEST_CASE("the same seed gives the same trace, and another seed gives another") {
  TrafficOptions options = few();
  const std::string first = bytes_of(make_traffic(options).value());
  CHECK(first == bytes_of(make_traffic(options).value()));
  options.seed = 2;
  CHECK(first != bytes_of(make_traffic(options).value()));
}

TEST_CASE("traffic has its requests in order, and each prompt is a character and a history that fit the context") {
  const TrafficOptions options = few();
  const Trace trace = make_traffic(options).value();
  size_t swipes = 0, edits = 0, earlier = 0, leaving = 0;
  std::set<int32_t> prompts, roots;
  double before = -1e300;
  for (const Request& request : trace.requests) {
    REQUIRE(request.seconds >= before);
    before = request.seconds;
    CHECK((request.kind == RequestKind::kEarlier) == (request.seconds < 0));
    CHECK(request.seconds < 4 * 3600);
    CHECK(trace.prompt_tokens(request) + trace.reply_tokens(request) <= options.context);
    const int32_t root = trace.root(request.prompt);
    CHECK(trace.token_count(root) >= options.prompt_tokens_least);
    CHECK(trace.token_count(root) <= options.prompt_tokens_most);
    CHECK((request.kind == RequestKind::kEarlier) == (request.reply == kNone));
    if (request.reply != kNone) {
      CHECK(trace.texts[static_cast<size_t>(request.reply)].before == request.prompt);
      CHECK(trace.texts[static_cast<size_t>(request.reply)].first == trace.prompt_tokens(request));
    }
    CHECK(prompts.insert(request.prompt).second == (request.kind != RequestKind::kSwipe));
    roots.insert(root);
    swipes += request.kind == RequestKind::kSwipe;
    edits += request.kind == RequestKind::kEdit;
    earlier += request.kind == RequestKind::kEarlier;
    leaving += request.leaves;
  }
  CHECK(earlier == 300);
  CHECK(swipes > 10);
  CHECK(edits > 5);
  CHECK(leaving > 300);
  CHECK(roots.size() > 30);  // some characters were edited
  for (size_t i = 0; i < trace.texts.size(); ++i) CHECK(trace.texts[i].before < static_cast<int32_t>(i));
}

TEST_CASE("a chat that outgrows the context loses thousands of tokens at once, not a few each turn") {
  TrafficOptions options = few();
  options.conversations = 20;
  options.sitting_turns = 200;
  options.edit = options.swipe = 0;
  options.versions_per_day = 0;
  options.new_chat = 0;
  const Trace trace = make_traffic(options).value();
  std::vector<int32_t> last(20, 0);
  int32_t cuts = 0;
  for (const Request& request : trace.requests) {
    int32_t& tokens = last[static_cast<size_t>(request.conversation)];
    const int32_t now = trace.prompt_tokens(request);
    if (now < tokens) {
      ++cuts;
      CHECK(tokens - now > options.truncation_step - 1000);
    }
    tokens = now + trace.reply_tokens(request);
  }
  CHECK(cuts > 10);
}

TEST_CASE("contradictory traffic options are refused with the reason") {
  TrafficOptions options = few();
  options.context = 4096;
  CHECK(make_traffic(options).status().message().find("context of 4096") != std::string::npos);
}

TEST_CASE("prompts of a recorded trace share what their hash ids share") {
  Result<Trace> trace = read(
      "{\"timestamp\": 3000, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [5, 6, 9]}\n"
      "\n"
      "{\"timestamp\": 0, \"input_length\": 1030, \"output_length\": 0, \"hash_ids\": [5, 6, 7], \"more\": null}\n");
  REQUIRE(trace.ok());
  REQUIRE(trace->requests.size() == 2);
  const Request& first = trace->requests[0];
  const Request& second = trace->requests[1];
  CHECK(first.seconds == 0);
  CHECK(second.seconds == 3);
  CHECK(trace->prompt_tokens(first) == 1030);
  CHECK(trace->prompt_tokens(second) == 1100);
  CHECK(first.reply == kNone);
  CHECK(trace->reply_tokens(second) == 7);
  CHECK(trace->texts[static_cast<size_t>(first.prompt)].before ==
        trace->texts[static_cast<size_t>(second.prompt)].before);
  CHECK(first.prompt != second.prompt);
  // Equal ids are equal words, wherever they stand.
  Result<Trace> moved = read("{\"timestamp\":0,\"input_length\":1024,\"output_length\":1,\"hash_ids\":[1,1]}");
  REQUIRE(moved.ok());
  CHECK(moved->texts[0].content == moved->texts[1].content);
}

TEST_CASE("a malformed line of a recorded trace is refused with its number") {
  const std::string good = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [1, 2]}\n";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"timestamp\": 0,", "is not a JSON object"},
      {"[1, 2]", "is not a JSON object"},
      {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1}", "lacks hash_ids"},
      {"{\"timestamp\": \"0\", \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [1, 2]}", "timestamp"},
      {"{\"timestamp\": 0, \"input_length\": 600.5, \"output_length\": 1, \"hash_ids\": [1, 2]}", "input_length"},
      {"{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1, \"hash_ids\": []}", "input_length"},
      {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": -1, \"hash_ids\": [1, 2]}", "output_length"},
      {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [1]}", "2 blocks"},
      {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [1, \"x\"]}", "hash id"},
      {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": 3}", "hash_ids"},
      {"{\"timestamp\": 0, \"input_length\": 99999999999, \"output_length\": 1, \"hash_ids\": [1]}", "input_length"},
  };
  for (const auto& [line, reason] : bad) {
    INFO(line);
    const Result<Trace> trace = read(good + "\n" + line + "\n" + good);
    REQUIRE_FALSE(trace.ok());
    CHECK(trace.status().code() == StatusCode::kInvalidArgument);
    CHECK(trace.status().message().find("line 3 ") == 0);
    CHECK(trace.status().message().find(reason) != std::string::npos);
  }
}

TEST_CASE("a trace that does not end is refused at its limit, and so is a line") {
  const std::string good = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [1, 2]}\n";
  std::istringstream fits(good + good), longer(good + good + "\n"),
      endless(good + std::string(kMostTraceLineBytes + 1, ' '));
  CHECK(read_mooncake(fits, 2 * good.size()).ok());
  CHECK(read_mooncake(longer, 2 * good.size()).status().message() ==
        "line 3 is beyond the first " + std::to_string(2 * good.size()) + " bytes, the most that is read of a trace");
  CHECK(read_mooncake(endless).status().message() ==
        "line 2 is longer than 4194304 bytes, the most that a line may have");
}

TEST_CASE("a byte-order mark at the beginning of a trace is skipped") {
  const std::string good = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [1, 2]}\n";
  CHECK(read("\xEF\xBB\xBF" + good).ok());
}

TEST_CASE("each conversation of make_chats speaks once in every interval, and the first characters have most of them") {
  ChatsOptions options;
  options.conversations = 500;
  options.first_conversation = 20;
  options.characters = 10;
  options.prompt_tokens = 600;
  options.user_tokens = 30;
  options.reply_tokens = 100;
  options.seconds = 180;
  options.measured_from = 60;
  const Trace trace = make_chats(options);
  CHECK(trace.conversation_count == 520);
  CHECK(trace.requests.size() == 1500);
  CHECK(bytes_of(trace) == bytes_of(make_chats(options)));
  std::vector<int32_t> turns(520, 0), begun(10, 0);
  std::vector<double> before(520, 0);
  double last = 0;
  for (const Request& request : trace.requests) {
    REQUIRE(request.seconds >= last);
    last = request.seconds;
    const auto c = static_cast<size_t>(request.conversation);
    REQUIRE(c >= 20);
    if (turns[c] == 0)
      ++begun[static_cast<size_t>(trace.root(request.prompt))];
    else
      CHECK(request.seconds - before[c] == Approx(60));
    before[c] = request.seconds;
    CHECK(trace.prompt_tokens(request) == 600 + 130 * turns[c] + 30);
    CHECK(trace.reply_tokens(request) == 100);
    CHECK(request.leaves == (++turns[c] == 3));
  }
  CHECK(last > 175);
  CHECK(begun[0] > 3 * begun[9]);
}

TEST_CASE("make_prompts asks for the prompts that the conversations of make_chats begin with") {
  ChatsOptions options;
  options.conversations = 10;
  options.characters = 5;
  options.prompt_tokens = 700;
  options.user_tokens = 30;
  options.reply_tokens = 100;
  const Trace trace = make_chats(options), prompts = make_prompts(options, 3, 2);
  REQUIRE(prompts.requests.size() == 2);
  for (const Request& request : prompts.requests) {
    CHECK(request.reply == kNone);
    CHECK(request.leaves);
    CHECK(prompts.prompt_tokens(request) == 700);
    CHECK(prompts.texts[static_cast<size_t>(request.prompt)].content ==
          trace.texts[static_cast<size_t>(request.prompt)].content);
  }
  CHECK(prompts.requests[0].prompt == 3);
  CHECK(prompts.requests[1].prompt == 4);
}

TEST_CASE("make_histories asks for what the conversations of make_chats said before, of the mean length asked for") {
  ChatsOptions options;
  options.conversations = 400;
  options.characters = 5;
  options.cast = 2;
  options.prompt_tokens = 700;
  options.user_tokens = 30;
  options.reply_tokens = 100;
  options.history_tokens = 1300;
  const Trace trace = make_chats(options), histories = make_histories(options, 0, options.conversations);
  REQUIRE(histories.requests.size() == 400);
  const auto content = [](const Trace& of, int32_t text) { return of.texts[static_cast<size_t>(text)].content; };
  int64_t tokens = 0;
  for (const Request& request : trace.requests) {
    const int32_t said = trace.texts[static_cast<size_t>(request.prompt)].before;
    const Request& history = histories.requests[static_cast<size_t>(request.conversation)];
    CHECK(histories.prompt_tokens(history) == trace.texts[static_cast<size_t>(said)].end);
    CHECK(content(histories, history.prompt) == content(trace, said));
    CHECK(content(histories, histories.root(history.prompt)) == content(trace, trace.root(said)));
    CHECK(content(trace, trace.root(said)) > 2 * options.characters);  // the third cast
    tokens += histories.prompt_tokens(history) - options.prompt_tokens;
    CHECK(histories.prompt_tokens(history) <= options.prompt_tokens + 2 * options.history_tokens + 130);
  }
  CHECK(tokens / 400 > 1200);
  CHECK(tokens / 400 < 1400);
}
