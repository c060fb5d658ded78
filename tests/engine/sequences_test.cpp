// Requests of several sequences: each is computed as a request of its own would be, whatever happens to the others.
#include <cstdlib>
#include <random>
#include <set>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

constexpr int32_t kCount = 4;

// What the host knows of a sequence from its events.
struct Heard {
  std::vector<int32_t> tokens;  // generated
  std::string text;
  bool done = false;
  DoneReason reason = DoneReason::kNone;
  RequestCounts counts;
};

// A harness that keeps the events of each sequence apart. A token's counts say where it belongs.
struct Sequences : Harness {
  explicit Sequences(const ExecutorInfo& f = small_facts(), EngineOptions options = {}) : Harness(f, options) {}

  void listen() {
    for (Event event; engine->poll(event);) {
      Heard& heard = of[event.request][event.sequence];
      REQUIRE_FALSE(heard.done);
      events.push_back(event.kind);
      heard.text += event.text;
      heard.counts = event.counts;
      if (event.kind == EventKind::kToken) {
        heard.tokens.resize(static_cast<size_t>(event.counts.generated) - 1, -1);
        heard.tokens.push_back(event.token);
      }
      if (event.kind == EventKind::kDone || event.kind == EventKind::kSequenceDone)
        heard.done = true, heard.reason = event.reason;
      if (event.kind == EventKind::kDone) done.insert(event.request);
      suspended += event.kind == EventKind::kSuspended;
      resumed += event.kind == EventKind::kResumed;
    }
  }
  void step() {
    const Status status = engine->step();
    INFO(status.message());
    REQUIRE(status.ok());
    check();
    poison_free();
    listen();
  }
  void drain() {
    while (engine->pending() > 0) step();
  }
  void step_until(RequestId request, int32_t sequence, size_t count) {
    while (of[request][sequence].tokens.size() < count) step();
  }
  // What a request with this stream generates alone.
  std::vector<int32_t> alone(const std::vector<int32_t>& prompt, int32_t count, RequestOptions options,
                             uint32_t stream) const {
    options.sampling.variant = stream;
    return reference(prompt, count, options);
  }

  std::map<RequestId, std::map<int32_t, Heard>> of;
  std::set<RequestId> done;
  std::vector<EventKind> events;
  int suspended = 0, resumed = 0;
};

RequestOptions drawing(int32_t max_tokens, int32_t sequences = kCount) {
  RequestOptions options = asking(max_tokens);
  options.sampling.temperature = 1;
  options.sampling.repetition_penalty = 1.2f;
  options.sampling.variant = 7;
  options.sequence_count = sequences;
  return options;
}

std::vector<int32_t> beginning_of(const std::vector<int32_t>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("a transition between states is allowed if the table has it, and else an error that names both states") {
  int allowed = 0;
  for (int32_t from = 0; from < kSequenceStates; ++from)
    for (int32_t to = 0; to < kSequenceStates; ++to) {
      const auto a = static_cast<SequenceState>(from), b = static_cast<SequenceState>(to);
      const Status status = check_transition(a, b);
      CHECK(status.ok() == may_move(a, b));
      allowed += status.ok();
      if (status.ok()) continue;
      CHECK(status.code() == StatusCode::kInternal);
      CHECK(status.message() == std::string("a sequence that is ") + name_of(a) + " cannot become " + name_of(b));
    }
  CHECK(allowed == static_cast<int>(std::size(kSequenceTransitions)));
  CHECK(may_move(SequenceState::kWaiting, SequenceState::kRunning));
  CHECK_FALSE(may_move(SequenceState::kEnded, SequenceState::kRunning));
  CHECK_FALSE(may_move(SequenceState::kWaiting, SequenceState::kEnding));
}

TEST_CASE("a scheduler that is told to make a forbidden transition reports it, and does nothing undefined") {
  Scheduler scheduler(small_facts(), {96, 96, 96, 4, 0}, {});
  auto sequence = std::make_unique<Sequence>();
  sequence->request = std::make_shared<Request>();
  sequence->request->id = sequence->request->session = 1;
  sequence->request->prompt_count = 3;
  sequence->request->max_tokens = 2;
  sequence->request->sequences.resize(1);
  *sequence->tokens = {5, 6, 7};
  Sequence& here = *sequence;
  scheduler.add(std::move(sequence));
  CHECK(scheduler.fault().ok());
  scheduler.move(here, SequenceState::kEnding);
  CHECK(scheduler.fault().message() == "a sequence that is waiting cannot become ending");
  StepPlan plan;
  CHECK(scheduler.plan(plan, TimePoint()).code() == StatusCode::kInternal);
  scheduler.abandon();
}

TEST_CASE("the sequences of a request generate what requests of their own would") {
  const std::vector<int32_t> prompt = tokens_from(1, 150);
  for (const bool beside : {false, true}) {
    Sequences h;
    h.executor->beside_host = beside;
    const SessionId session = h.session();
    const RequestOptions options = drawing(60);
    const RequestId request = h.submit(session, prompt, options);
    h.drain();
    for (int32_t i = 0; i < kCount; ++i) {
      const Heard& heard = h.of[request][i];
      CHECK(heard.tokens == h.alone(prompt, 60, options, 7 + static_cast<uint32_t>(i)));
      CHECK(heard.done);
      CHECK(heard.reason == DoneReason::kLength);
      CHECK(heard.counts.prompt_tokens == 150);
    }
    CHECK(std::count(h.events.begin(), h.events.end(), EventKind::kSequenceDone) == kCount - 1);
    CHECK(h.events.back() == EventKind::kDone);
    CHECK(h.engine->session_tokens(session).value() == prompt + h.of[request][0].tokens);
    CHECK(h.engine->metrics().requests_done == 1);
    for (const BlockKind kind : kBothKinds) CHECK(h.count(kind, BlockState::kLive) == 0);
  }
}

TEST_CASE("sequences of a request compute their prompt once") {
  Sequences h;
  const std::vector<int32_t> prompt = tokens_from(1, 640);
  h.submit(h.session(), prompt, drawing(10));
  h.drain();
  // Each computes its last block, which is not whole when the others begin, and its own tokens.
  CHECK(h.executor->rows <= 640 + 3 * kBlockTokens + kCount * 10);
}

TEST_CASE("the session keeps the sequence that was chosen, whichever ends last") {
  for (int32_t kept = 0; kept < kCount; ++kept) {
    Sequences h;
    const std::vector<int32_t> prompt = tokens_from(3, 70);
    const SessionId session = h.session();
    const RequestId request = h.submit(session, prompt, drawing(30));
    h.step_until(request, kCount - 1, 5);
    REQUIRE(h.engine->keep_sequence(request, kept).ok());
    REQUIRE(h.engine->end_sequence(request, 1).ok());
    h.drain();
    CHECK(h.of[request][1].reason == DoneReason::kCancelled);
    CHECK(h.engine->session_tokens(session).value() == prompt + h.of[request][kept].tokens);
    // The next turn goes on from it.
    const std::vector<int32_t> more = tokens_from(4, 20);
    const RequestId next = h.submit(session, more, asking(20));
    h.drain();
    CHECK(h.of[next][0].tokens == h.reference(prompt + h.of[request][kept].tokens + more, 20));
  }
}

TEST_CASE("a fork in flight generates what a request with its tokens as prompt would, and never changes its parent") {
  for (const bool beside : {false, true})
    for (const size_t at : {1, 5, 63, 64, 100}) {
      CAPTURE(at, beside);
      Sequences h;
      h.executor->beside_host = beside;
      const std::vector<int32_t> prompt = tokens_from(5, 90);
      const RequestOptions options = drawing(150, 1);
      const RequestId request = h.submit(h.session(), prompt, options);
      h.step_until(request, 0, at);
      std::vector<int32_t> children;
      for (uint32_t i = 0; i < 3; ++i) children.push_back(h.engine->fork_sequence(request, 0, 100 + i).value());
      CHECK(children == std::vector<int32_t>{1, 2, 3});
      const size_t before = h.of[request][0].tokens.size();
      const int64_t rows = h.executor->rows;
      h.drain();
      CHECK(h.of[request][0].tokens == h.alone(prompt, 150, options, 7));
      for (const int32_t child : children) {
        std::vector<int32_t> generated = h.of[request][child].tokens;
        // The first tokens are the parent's, as it had them when the step began.
        const size_t shared = static_cast<size_t>(
            std::find_if(generated.begin(), generated.end(), [](int32_t token) { return token >= 0; }) -
            generated.begin());
        CHECK(shared >= before);
        CHECK(shared <= before + 1);
        const std::vector<int32_t> begun = beginning_of(h.of[request][0].tokens, shared);
        std::copy(begun.begin(), begun.end(), generated.begin());
        CHECK(generated == begun + h.alone(prompt + begun, 150 - static_cast<int32_t>(shared), options,
                                           99 + static_cast<uint32_t>(child)));
      }
      // Whole blocks are found; of the last one, and where it began, a fork computes its own.
      CHECK(h.executor->rows - rows <= 4 * (150 - static_cast<int64_t>(before)) + 3 * (kBlockTokens + 2));
    }
}

TEST_CASE("a sequence that was cut back goes on as if it had never gone further") {
  for (const bool beside : {false, true})
    for (const int32_t back : {1, 3, 40, 64, 100, 139, 140}) {
      CAPTURE(back, beside);
      Sequences h;
      h.executor->beside_host = beside;
      const std::vector<int32_t> prompt = tokens_from(6, 100);
      const RequestOptions options = drawing(200, 1);
      const RequestId request = h.submit(h.session(), prompt, options);
      h.step_until(request, 0, 140);
      const int32_t length = 100 + static_cast<int32_t>(h.of[request][0].tokens.size()) - back;
      REQUIRE(h.engine->cut_sequence(request, 0, length).ok());
      h.drain();
      CHECK(h.of[request][0].tokens == h.alone(prompt, 200, options, 7));
      CHECK(h.of[request][0].counts.generated == 200);
    }
}

TEST_CASE("what was cut off is not in the text that is still held back, and not in a stop string") {
  Sequences h;
  const std::vector<int32_t> prompt = tokens_from(8, 40);
  const std::vector<int32_t> whole = h.alone(prompt, 60, drawing(60, 1), 7);
  ScriptedPieces pieces(97);
  // A stop string that begins in the first 30 tokens and ends behind them.
  RequestOptions options = drawing(60, 1);
  std::string stop;
  for (int32_t i = 28; i < 33; ++i) stop += pieces.piece(whole[static_cast<size_t>(i)]);
  if (stop.find('\xF0') != std::string::npos || stop.find('\x98') != std::string::npos) return;
  options.stop_strings = {stop};
  const RequestId plain = h.submit(h.session(), prompt, options);
  h.drain();
  const RequestId request = h.submit(h.session(), prompt, options);
  h.step_until(request, 0, 31);
  REQUIRE(h.engine->cut_sequence(request, 0, 40 + 29).ok());
  h.drain();
  CHECK(h.of[request][0].tokens == h.of[plain][0].tokens);
  CHECK(h.of[request][0].reason == DoneReason::kStopString);
}

TEST_CASE("proposed tokens never change what is generated, and right ones save steps") {
  const std::vector<int32_t> prompt = tokens_from(9, 80);
  for (const float penalty : {1.0f, 1.3f}) {
    RequestOptions options = drawing(120, 1);
    options.sampling.repetition_penalty = penalty;
    for (const int wrong_from : {0, 1, 2, 5}) {  // of five drafts; 5: all are right
      CAPTURE(penalty, wrong_from);
      Sequences h;
      const std::vector<int32_t> expected = h.alone(prompt, 120, options, 7);
      const RequestId request = h.submit(h.session(), prompt, options);
      h.step_until(request, 0, 1);
      const size_t runs = h.executor->runs;
      while (h.engine->pending() > 0) {
        const size_t known = h.of[request][0].tokens.size();
        std::vector<int32_t> drafts;
        for (size_t i = known; i < std::min(known + 5, expected.size()); ++i)
          drafts.push_back(static_cast<int>(i - known) < wrong_from ? expected[i] : (expected[i] + 1) % 97);
        const Status proposed = h.engine->propose(request, 0, drafts);
        REQUIRE((proposed.ok() || proposed.code() == StatusCode::kNotFound));
        h.step();
      }
      CHECK(h.of[request][0].tokens == expected);
      const size_t steps = h.executor->runs - runs, kept = static_cast<size_t>(wrong_from) + 1;
      CHECK(steps <= (119 + kept - 1) / kept + 1);
    }
  }
}

TEST_CASE("a draft after a stop token or the last token is not kept") {
  Sequences h;
  const std::vector<int32_t> prompt = tokens_from(10, 50);
  RequestOptions options = drawing(40, 1);
  const std::vector<int32_t> whole = h.alone(prompt, 40, options, 7);
  options.stop_tokens = std::vector<int32_t>{whole[9]};
  const std::vector<int32_t> expected = h.alone(prompt, 40, options, 7);
  const SessionId session = h.session();
  const RequestId request = h.submit(session, prompt, options);
  h.step_until(request, 0, 2);
  if (expected.size() < 5) return;  // the stop token came early with this seed
  REQUIRE(h.engine->propose(request, 0, std::vector<int32_t>(whole.begin() + 2, whole.end())).ok());
  h.drain();
  CHECK(h.of[request][0].tokens == expected);
  CHECK(h.engine->session_tokens(session).value() == prompt + expected);
}

TEST_CASE("an executor that samples one row of a segment refuses proposals by name") {
  ExecutorInfo info = small_facts();
  info.most_samples = 1;
  Sequences h(info);
  const RequestId request = h.submit(h.session(), tokens_from(1, 20), asking(10));
  const std::vector<int32_t> drafts = {1, 2};
  CHECK(h.engine->propose(request, 0, drafts).code() == StatusCode::kUnsupported);
  h.drain();
}

TEST_CASE("cancel, suspend and a deadline act on all sequences of a request") {
  const std::vector<int32_t> prompt = tokens_from(11, 60);
  for (const int how : {0, 1, 2}) {
    TimePoint time = TimePoint() + std::chrono::seconds(1000);
    EngineOptions engine;
    engine.clock = [&] { return time; };
    Sequences h(small_facts(), engine);
    RequestOptions options = drawing(80);
    options.deadline = time + std::chrono::seconds(10);
    const RequestId request = h.submit(h.session(), prompt, options);
    h.step_until(request, kCount - 1, 10);
    if (how == 0) REQUIRE(h.engine->cancel(request).ok());
    if (how == 1) time = time + std::chrono::seconds(20);
    if (how == 2) {
      REQUIRE(h.engine->suspend(request).ok());
      for (int i = 0; i < 5; ++i) h.step();
      CHECK(h.suspended == kCount);
      CHECK(h.engine->metrics().requests_suspended == 1);
      CHECK(h.engine->metrics().requests_running == 0);
      REQUIRE(h.engine->resume(request).ok());
    }
    h.drain();
    for (int32_t i = 0; i < kCount; ++i) {
      const Heard& heard = h.of[request][i];
      CHECK(heard.done);
      CHECK(heard.reason == (how == 0   ? DoneReason::kCancelled
                             : how == 1 ? DoneReason::kDeadline
                                        : DoneReason::kLength));
      const std::vector<int32_t> expected = h.alone(prompt, 80, options, 7 + static_cast<uint32_t>(i));
      CHECK(heard.tokens == beginning_of(expected, heard.tokens.size()));
      if (how == 2) CHECK(heard.tokens.size() == 80);
    }
    if (how == 2) CHECK(h.resumed == kCount);
  }
}

TEST_CASE("an engine that stops fails a request of several sequences once") {
  Sequences h;
  const SessionId session = h.session();
  const RequestId request = h.submit(session, tokens_from(12, 60), drawing(50));
  h.step_until(request, kCount - 1, 5);
  h.executor->before_run = [](const StepPlan&) { return internal_error("broken"); };
  CHECK_FALSE(h.engine->step().ok());
  int failed = 0;
  for (Event event; h.engine->poll(event);) failed += event.kind == EventKind::kFailed;
  CHECK(failed == 1);
  CHECK(h.engine->pending() == 0);
}

TEST_CASE("calls about sequences that do not exist, and counts out of range, are refused by name") {
  Sequences h;
  RequestOptions options = drawing(20);
  const SessionId session = h.session();
  options.sequence_count = 5;
  CHECK(h.engine->submit(session, tokens_from(1, 10), options).status().message() ==
        "sequence_count is 5; it must be from 1 to 4");
  options.sequence_count = 0;
  CHECK(h.engine->submit(session, tokens_from(1, 10), options).status().code() == StatusCode::kInvalidArgument);
  options.sequence_count = 2;
  Event done;
  CHECK(h.engine->generate(session, tokens_from(1, 10), options, {}, done).code() == StatusCode::kInvalidArgument);
  const RequestId request = h.submit(session, tokens_from(1, 10), options);
  CHECK(h.engine->end_sequence(request, 2).message() == "request 1 has no sequence 2; it has 2");
  CHECK(h.engine->fork_sequence(request, -1, 1).status().code() == StatusCode::kNotFound);
  CHECK(h.engine->cut_sequence(request, 0, 9).code() == StatusCode::kInvalidArgument);
  CHECK(h.engine->keep_sequence(request + 1, 0).code() == StatusCode::kNotFound);
  const std::vector<int32_t> wrong = {97};
  CHECK(h.engine->propose(request, 0, wrong).code() == StatusCode::kInvalidArgument);
  h.drain();
  CHECK(h.engine->end_sequence(request, 0).code() == StatusCode::kNotFound);
}

TEST_CASE("a fork of a sequence that has ended by then ends at once") {
  Sequences h;
  const RequestId request = h.submit(h.session(), tokens_from(13, 30), drawing(20, 2));
  h.step_until(request, 1, 4);
  REQUIRE(h.engine->end_sequence(request, 0).ok());
  CHECK(h.engine->fork_sequence(request, 0, 50).value() == 2);
  h.drain();
  CHECK(h.of[request][2].done);
  CHECK(h.of[request][2].reason == DoneReason::kCancelled);
  CHECK(h.of[request][2].tokens.empty());
}

// Everything at once, in little memory: forks, cuts, ends, proposals, suspensions and cancels, at random moments. Every
// sequence must have generated what its stream gives after the tokens that it had.
TEST_CASE("whatever is done to sequences at random moments, each generates what its stream gives") {
  const unsigned seed = std::getenv("KAIJU_TEST_SEED")
                            ? static_cast<unsigned>(std::atol(std::getenv("KAIJU_TEST_SEED")))
                            : std::random_device{}();
  INFO("KAIJU_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](size_t count) { return static_cast<int32_t>(random() % count); };
  for (int round = 0; round < 12; ++round) {
    ExecutorInfo info = small_facts();
    info.block_count[0] = 24 + below(40), info.block_count[1] = 14 + below(20);
    EngineOptions engine;
    engine.reserve_tokens = round % 3 == 0 ? 30 : 0;
    Sequences h(info, engine);
    h.executor->beside_host = round % 2 == 0;
    int32_t busy = 0;
    h.executor->before_run = [&](const StepPlan&) -> Status {
      if (busy <= 0) return {};
      --busy;
      return {StatusCode::kBusy, "later"};
    };
    // The stream of each sequence, and the tokens with which it draws by it: those before are its parent's.
    struct Told {
      std::vector<int32_t> prompt;
      std::map<int32_t, uint32_t> streams;
      std::map<int32_t, int32_t> parents;
    };
    std::map<RequestId, Told> told;
    for (int i = 0; i < 250; ++i) {
      if (h.engine->pending() < 3) {
        const std::vector<int32_t> prompt = tokens_from(random() % 5, static_cast<size_t>(20 + below(120)));
        const RequestOptions options = drawing(20 + below(120), 1 + below(kCount));
        const auto request = h.engine->submit(h.session(), prompt, options);
        if (request.ok()) {
          Told& of = told[request.value()];
          of.prompt = prompt;
          for (int32_t s = 0; s < options.sequence_count; ++s) of.streams[s] = 7 + static_cast<uint32_t>(s);
        }
      }
      if (!told.empty()) {
        const RequestId request = std::next(told.begin(), below(told.size()))->first;
        Told& of = told[request];
        const int32_t sequence = below(of.streams.size());
        const auto& heard = h.of[request][sequence].tokens;
        switch (below(8)) {
          case 0:
            if (of.streams.size() < 8 && of.parents.count(sequence) == 0) {
              const auto stream = static_cast<uint32_t>(1000 + below(1000));
              if (auto child = h.engine->fork_sequence(request, sequence, stream); child.ok())
                of.streams[*child] = stream, of.parents[*child] = sequence;
            }
            break;
          case 1:
            (void)h.engine->cut_sequence(request, sequence,
                                         static_cast<int32_t>(of.prompt.size()) + below(heard.size() + 1));
            break;
          case 2: {
            RequestOptions options = drawing(300, 1);
            const std::vector<int32_t> rest =
                h.alone(of.prompt, static_cast<int32_t>(heard.size()) + 5, options, of.streams[sequence]);
            (void)h.engine->propose(
                request, sequence,
                std::vector<int32_t>(rest.begin() + static_cast<std::ptrdiff_t>(heard.size()), rest.end()));
            break;
          }
          case 3:
            if (below(6) == 0) (void)h.engine->end_sequence(request, sequence);
            break;
          case 4:
            (void)(below(2) ? h.engine->suspend(request) : h.engine->resume(request));
            break;
          case 5:
            if (below(12) == 0) (void)h.engine->cancel(request);
            break;
          case 6:
            busy = 1;
            break;
          default:
            break;
        }
      }
      const Status status = h.engine->step();
      INFO(status.message());
      REQUIRE((status.ok() || status.code() == StatusCode::kBusy));
      h.check();
      h.listen();
    }
    for (const auto& [request, of] : told) (void)h.engine->resume(request);
    busy = 0;
    h.drain();
    for (const auto& [request, of] : told) {
      CHECK(h.done.count(request) == 1);
      for (const auto& [sequence, stream] : of.streams) {
        const std::vector<int32_t>& tokens = h.of[request][sequence].tokens;
        const auto parent = of.parents.find(sequence);
        // A fork's first tokens, of which no event tells, are its parent's.
        const auto own = static_cast<size_t>(
            std::find_if(tokens.begin(), tokens.end(), [](int32_t token) { return token >= 0; }) - tokens.begin());
        std::vector<int32_t> expected;
        if (parent != of.parents.end())
          expected = h.alone(of.prompt, static_cast<int32_t>(own), drawing(300, 1), of.streams.at(parent->second));
        else
          REQUIRE(own == 0);
        const std::vector<int32_t> rest =
            h.alone(of.prompt + expected, static_cast<int32_t>(tokens.size() - own), drawing(300, 1), stream);
        std::vector<int32_t> heard(tokens.begin() + static_cast<std::ptrdiff_t>(own), tokens.end());
        CHECK(heard == rest);
      }
    }
    for (const BlockKind kind : kBothKinds) CHECK(h.count(kind, BlockState::kLive) == 0);
  }
}
