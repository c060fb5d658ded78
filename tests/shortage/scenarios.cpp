// Out of memory, disk errors: in every place, once and for good. The scenarios go from loading over engine, submit and
// step to saving.
#include <filesystem>
#include <fstream>
#include <map>

#include "kaiju/engine/conversation.hpp"
#include "kaiju/kaiju.hpp"
#include "tests/capi/host.hpp"
#include "tests/engine/harness.hpp"
#include "tests/engine/memory_file.hpp"
#include "tests/format/tiny.hpp"
#include "tests/shortage/shortage.hpp"
#include "tests/text/byte_bpe_model.hpp"
#include "tests/text/tiny_gate.hpp"

using kaiju::StatusCode;
using shortage::sweep_files;
using shortage::sweep_memory;
using shortage::sweep_memory_of_steps;

namespace {

// What could be moved into `events`: nothing where memory is short.
size_t poll_events(kaiju_engine* engine, kaiju_event* events, size_t event_size, size_t capacity) {
  size_t count = 0;
  (void)kaiju_engine_poll(engine, events, event_size, capacity, &count, nullptr);
  return count;
}

// A model that chats, with a tokenizer of few pieces: every allocation of its loading is failed in turn.
const std::string& small_chat_model() {
  static const std::string path = [] {
    kaiju::tests::TinyModel tiny;
    tiny.add("<unk>", 0, kaiju::PieceKind::kUnknown);
    for (const char* symbol : {"<s>", "</s>", "<|card|>", "<|user|>", "<|char|>", "<|end|>", "<|text|>"})
      tiny.add(symbol, 0, kaiju::PieceKind::kControl);
    for (const char* piece : {"\xE2\x96\x81", "a", "b", "ab"}) tiny.add(piece, -1, kaiju::PieceKind::kNormal);
    const std::string plain = kaiju::tests::temporary_folder() + "/small-plain",
                      chat = kaiju::tests::temporary_folder() + "/small-chat";
    const kaiju::Status status = kaiju::write_random_checkpoint(plain, tiny::config(2), 1);
    if (!status.ok()) throw std::runtime_error(status.message());
    kaiju::tests::add_tokenizer(plain, chat, tiny.bytes(), kaiju::tests::kTinyChat);
    return chat;
  }();
  return path;
}

StatusCode code(kaiju_status status) { return static_cast<StatusCode>(status); }

// Owns what kaiju.h gives; the first failure counts, and what comes after it gets NULL handles.
struct Owner {
  kaiju_status first = KAIJU_OK;
  kaiju_options *engine_options = nullptr, *options = nullptr;
  kaiju_model* model = nullptr;
  kaiju_engine* engine = nullptr;
  kaiju_session *session = nullptr, *second = nullptr;

  ~Owner() {
    kaiju_session_destroy(second);
    kaiju_session_destroy(session);
    kaiju_engine_destroy(engine);
    kaiju_model_destroy(model);
    kaiju_options_destroy(options);
    kaiju_options_destroy(engine_options);
  }
  template <class Call>
  bool must(const Call& call) {
    if (first != KAIJU_OK) return false;
    kaiju_error* error = nullptr;
    first = call(&error);
    kaiju_error_destroy(error);
    return first == KAIJU_OK;
  }
  void load(const char* path) {
    must([&](kaiju_error** e) { return kaiju_model_load(nullptr, path, nullptr, nullptr, nullptr, &model, e); });
  }
  void choose() {
    must([&](kaiju_error**) { return kaiju_options_create(&options); });
    set(KAIJU_ENGINE_THREADS, 1);
    set(KAIJU_ENGINE_MAX_RUNNING, 2);
    set(KAIJU_ENGINE_STEP_TOKENS, 16);
    must([&](kaiju_error** e) { return kaiju_options_set_string(options, KAIJU_ENGINE_BACKEND, "portable", 8, e); });
    must([&](kaiju_error**) { return kaiju_options_copy(options, &engine_options); });
    must([&](kaiju_error**) { return kaiju_options_clear(options, 0); });
    set(KAIJU_GENERATE_MAX_TOKENS, 4);
    set(KAIJU_GENERATE_LOGPROBS, 2);
    set(KAIJU_GENERATE_STOP_TOKEN, -1);
    must([&](kaiju_error** e) {
      return kaiju_options_set_string(options, KAIJU_GENERATE_STOP, "a stop string that never comes", 30, e);
    });
    must([&](kaiju_error** e) { return kaiju_options_set_float(options, KAIJU_GENERATE_TEMPERATURE, 0.8, e); });
    const int32_t token = 9;
    const float bias = 0.5f;
    must([&](kaiju_error** e) { return kaiju_options_set_logit_bias(options, &token, &bias, 1, e); });
  }
  void set(kaiju_option option, int64_t value) {
    must([&](kaiju_error** e) { return kaiju_options_set_int(options, option, value, e); });
  }
  void make_engine() {
    must([&](kaiju_error** e) { return kaiju_engine_create(model, engine_options, &engine, e); });
  }
  void make_session() {
    must([&](kaiju_error** e) { return kaiju_session_create(engine, &session, e); });
  }
  void submit(kaiju_session* to, const std::array<int32_t, 5>& tokens = {1, 8, 9, 10, 11}) {
    must([&](kaiju_error** e) {
      return kaiju_engine_submit(engine, to, tokens.data(), tokens.size(), options, nullptr, nullptr, e);
    });
  }
  // Polls what there is; a request that failed fails the scenario.
  void poll() {
    kaiju_event event;
    while (poll_events(engine, &event, sizeof event, 1) == 1)
      if (event.kind == KAIJU_EVENT_FAILED && first == KAIJU_OK) first = event.status;
  }
  void run() {
    for (int steps = 0; first == KAIJU_OK && kaiju_engine_pending(engine) > 0 && steps < 100; ++steps) {
      must([&](kaiju_error** e) { return kaiju_engine_step(engine, e); });
      poll();
    }
  }
};

// Engine and model that are there before the shortage begins.
struct Ready : Owner {
  Ready() {
    load(small_chat_model().c_str());
    choose();
    make_engine();
    make_session();
    if (first != KAIJU_OK) throw std::runtime_error("the tiny engine cannot be made");
  }
};

// A scenario on an engine of its own, made outside the shortage and destroyed inside it.
template <class Body>
shortage::Scenario with_engine(const Body& body) {
  return [body] {
    std::unique_ptr<Owner> ready;
    {
      const heap::Pause pause;
      ready = std::make_unique<Ready>();
    }
    body(*ready);
    const StatusCode first = code(ready->first);
    ready.reset();
    return first;
  };
}

}  // namespace

TEST_CASE("opening a checkpoint reports a lack of memory") {
  const std::string& path = small_chat_model();
  CHECK(sweep_memory([&] { return kaiju::Checkpoint::open(path).status().code(); }) > 500);
}
TEST_CASE("reading a config reports a lack of memory") {
  const std::string text = kaiju::config_to_json(tiny::config(2));
  CHECK(sweep_memory([&] { return kaiju::config_from_json(text).status().code(); }) > 20);
}
TEST_CASE("loading a tokenizer reports a lack of memory") {
  const auto checkpoint = kaiju::Checkpoint::open(small_chat_model()).value();
  const auto bytes = checkpoint->find("tokenizer")->bytes;
  CHECK(sweep_memory([&] { return kaiju::Tokenizer::load(bytes, 16).status().code(); }) > 20);
}
TEST_CASE("loading and using byte-level BPE reports a lack of memory") {
  const std::string json = kaiju::tests::changed_bpe([](auto& model) { model.normalization = "\"nfc\""; });
  const auto bytes = kaiju::tests::as_bytes(json);
  CHECK(sweep_memory([&] { return kaiju::Tokenizer::load(bytes, 512).status().code(); }) > 100);
  const auto tokenizer = kaiju::Tokenizer::load(bytes, 512).value();
  CHECK(sweep_memory([&] {
          return tokenizer->encode_with_special_tokens("hello e\xCC\x81<|end|>     12").status().code();
        }) > 5);
}
TEST_CASE("loading a gate reports a lack of memory, and scoring needs none") {
  const std::string path = kaiju::tests::temporary_folder() + "/gate";
  std::ofstream(path, std::ios::binary) << kaiju::tests::TinyGate().file();
  CHECK(sweep_memory([&] { return kaiju::MessageGate::load(path).status().code(); }) > 20);
  const auto gate = kaiju::MessageGate::load(path).value();
  const std::string text(100'000, 'a');
  float probabilities[2];
  heap::reset();
  gate->score(text, probabilities);
  gate->score("W\u00f6rter, words and k1nd r.o.b.o.t.s", probabilities);
  CHECK(heap::count().allocations == 0);
}
TEST_CASE("loading a model reports a lack of memory") {
  const char* path = small_chat_model().c_str();
  CHECK(sweep_memory([&] {
          Owner owner;
          owner.load(path);
          return code(owner.first);
        }) > 500);
}
TEST_CASE("setting options reports a lack of memory") {
  CHECK(sweep_memory([] {
          Owner owner;
          owner.choose();
          return code(owner.first);
        }) > 10);
}
TEST_CASE("creating an engine reports a lack of memory") {
  CHECK(sweep_memory([] {
          std::unique_ptr<Owner> owner;
          {
            const heap::Pause pause;
            owner = std::make_unique<Owner>();
            owner->load(small_chat_model().c_str());
            owner->choose();
          }
          owner->make_engine();
          const StatusCode first = code(owner->first);
          owner.reset();
          return first;
        }) > 50);
}
TEST_CASE("creating, forking and destroying sessions reports a lack of memory") {
  CHECK(sweep_memory(with_engine([](Owner& o) {
          kaiju_session_destroy(std::exchange(o.session, nullptr));
          o.make_session();
          o.must([&](kaiju_error** e) { return kaiju_session_fork(o.session, 0, &o.second, e); });
          o.must([&](kaiju_error** e) { return kaiju_session_truncate(o.session, 0, e); });
        })) > 2);
}
TEST_CASE("a session is destroyed without memory, and its request ends") {
  Ready o;
  o.submit(o.session);
  o.must([&](kaiju_error** e) { return kaiju_engine_step(o.engine, e); });
  heap::fail_at(1, true);
  kaiju_session_destroy(std::exchange(o.session, nullptr));
  heap::fail_at(0, false);
  o.run();
  kaiju_metrics metrics;
  metrics.struct_size = sizeof metrics;
  kaiju_engine_metrics(o.engine, &metrics);
  CHECK(metrics.sessions == 0);
  CHECK(metrics.tokens_decoded < 4);
}
TEST_CASE("a conversation reports a lack of memory and continues") {
  const std::vector<int32_t> head = kaiju::test::tokens_from(1, 20), input = kaiju::test::tokens_from(2, 30);
  int failures = 0;
  for (int64_t nth = 1; nth < 60; ++nth) {
    INFO("allocation " << nth);
    kaiju::test::Harness h;
    const std::shared_ptr<kaiju::Engine> engine(h.engine.get(), [](kaiju::Engine*) {});
    heap::reset();
    heap::fail_at(nth, true);
    auto none = kaiju::Conversation::create(engine, head, {});
    heap::fail_at(0, false);
    CHECK((none.ok() || none.status().code() == StatusCode::kOutOfMemory));
    auto made = kaiju::Conversation::create(engine, head, {});
    REQUIRE(made.ok());
    kaiju::RequestOptions options;
    options.max_tokens = 5;
    const auto failing = [&](const auto& call) {
      heap::fail_at(nth, true);
      const StatusCode code = call();
      heap::fail_at(0, false);
      CHECK((code == StatusCode::kOk || code == StatusCode::kOutOfMemory));
      failures += code != StatusCode::kOk;
      h.drain();
    };
    failing([&] { return made->say(input, options).status().code(); });
    failing([&] { return made->settle().code(); });
    if (made->turn_count() == 0) REQUIRE(made->say(input, options).ok());
    h.drain();
    failing([&] { return made->swipe(options).status().code(); });
    failing([&] { return made->append(input, head).code(); });
    failing([&] { return made->edit(0, kaiju::TurnPart::kReply, head).code(); });
    failing([&] { return made->turn(0, kaiju::TurnPart::kReply).status().code(); });
    failing([&] { return made->fork(1).status().code(); });
    REQUIRE(made->edit(0, kaiju::TurnPart::kReply, head).ok());
    CHECK(made->turn(0, kaiju::TurnPart::kReply).value() == head);
    none = std::move(made);
    h.step();
    CHECK(engine->metrics().sessions <= 2);
  }
  CHECK(failures > 20);
}
TEST_CASE("submit reports a lack of memory") {
  CHECK(sweep_memory(with_engine([](Owner& o) { o.submit(o.session); })) > 5);
}
TEST_CASE("step reports a lack of memory") {
  CHECK(sweep_memory_of_steps(with_engine([](Owner& o) {
          {
            const heap::Pause pause;
            o.submit(o.session);
          }
          o.run();
        })) > 5);
}
TEST_CASE("a step without memory fails its requests or leaves their replies unchanged") {
  const auto reply = [](int64_t nth) {
    Ready o;
    o.submit(o.session);
    heap::reset();
    heap::fail_at(nth, false);
    for (int steps = 0; kaiju_engine_pending(o.engine) > 0 && steps < 100; ++steps) {
      (void)kaiju_engine_step(o.engine, nullptr);
      o.poll();
    }
    heap::fail_at(0, false);
    std::vector<int32_t> tokens(kaiju_session_tokens(o.session, nullptr, 0));
    kaiju_session_tokens(o.session, tokens.data(), tokens.size());
    return std::pair(o.first, tokens);
  };
  const auto wanted = reply(0);
  REQUIRE(wanted.second.size() == 9);
  int same = 0;
  for (int64_t nth = 1; nth < 60; ++nth) {
    INFO("allocation " << nth);
    const auto got = reply(nth);
    if (got.first == KAIJU_OK) CHECK(got.second == wanted.second);  // else an event said that the request failed
    same += got.second == wanted.second;
  }
  CHECK(same > 0);
}
TEST_CASE("a poll without memory loses no event") {
  const auto polled = [](int64_t nth, bool for_good) {
    Ready o;
    o.submit(o.session);
    for (int steps = 0; steps < 20; ++steps) o.must([&](kaiju_error** e) { return kaiju_engine_step(o.engine, e); });
    std::vector<std::pair<int32_t, int32_t>> events;  // kind, and of a token its id
    const auto poll = [&] {
      std::array<kaiju_event, 3> some;
      while (const size_t count = poll_events(o.engine, some.data(), sizeof some[0], some.size())) {
        const heap::Pause pause;
        for (size_t i = 0; i < count; ++i)
          events.emplace_back(some[i].kind, some[i].token_count > 0 ? some[i].tokens[0] : -1);
      }
    };
    heap::reset();
    heap::fail_at(nth, for_good);
    poll();
    heap::fail_at(0, false);
    poll();
    CHECK(kaiju_engine_pending(o.engine) == 0);
    return events;
  };
  const auto wanted = polled(0, false);
  REQUIRE(wanted.size() == 5);
  for (const bool for_good : {false, true})
    for (int64_t nth = 1; nth < 20; ++nth) {
      INFO("allocation " << nth << (for_good ? " and all after it" : ""));
      CHECK(polled(nth, for_good) == wanted);
    }
}
TEST_CASE("however memory runs out in a step, every request has one last event") {
  const auto last_events = [](int64_t nth, bool for_good) {
    Ready o;
    o.must([&](kaiju_error** e) { return kaiju_session_create(o.engine, &o.second, e); });
    o.submit(o.session);
    o.submit(o.second, {1, 8, 8, 8, 8});
    std::map<kaiju_request, int> last;
    const auto step_and_poll = [&] {
      (void)kaiju_engine_step(o.engine, nullptr);
      kaiju_event event;
      while (poll_events(o.engine, &event, sizeof event, 1) == 1) {
        const heap::Pause pause;
        if (event.kind == KAIJU_EVENT_DONE || event.kind == KAIJU_EVENT_FAILED) ++last[event.request];
      }
    };
    heap::reset();
    heap::fail_at(nth, for_good);
    for (int steps = 0; steps < 20; ++steps) step_and_poll();
    heap::fail_at(0, false);
    for (int steps = 0; steps < 20; ++steps) step_and_poll();
    CHECK(kaiju_engine_pending(o.engine) == 0);
    return last;
  };
  for (const bool for_good : {false, true})
    for (int64_t nth = 1; nth < 150; ++nth) {
      INFO("allocation " << nth << (for_good ? " and all after it" : ""));
      CHECK(last_events(nth, for_good) == std::map<kaiju_request, int>{{1, 1}, {2, 1}});
    }
}
TEST_CASE("cancelling a request and destroying a session work while memory runs out") {
  CHECK(sweep_memory_of_steps(with_engine([](Owner& o) {
          o.must([&](kaiju_error** e) { return kaiju_session_create(o.engine, &o.second, e); });
          o.submit(o.session);
          o.submit(o.second, {1, 8, 8, 8, 8});
          o.must([&](kaiju_error** e) { return kaiju_engine_step(o.engine, e); });
          o.must([&](kaiju_error**) { return kaiju_engine_cancel(o.engine, 1); });
          kaiju_session_destroy(std::exchange(o.second, nullptr));
          o.run();
        })) > 20);
}
TEST_CASE("generate reports a lack of memory") {
  CHECK(sweep_memory_of_steps(with_engine([](Owner& o) {
          const int32_t tokens[] = {1, 4, 9, 6, 5};
          o.must([&](kaiju_error** e) {
            return kaiju_generate(o.engine, o.session, tokens, 5, o.options, nullptr, nullptr, nullptr, 0, e);
          });
        })) > 20);
}
TEST_CASE("tokenizing and detokenizing report a lack of memory") {
  CHECK(sweep_memory(with_engine([](Owner& o) {
          int32_t tokens[32];
          char text[32];
          size_t count = 0, size = 0;
          o.must([&](kaiju_error** e) { return kaiju_tokenize(o.model, "ab ba", 5, tokens, 32, &count, e); });
          o.must([&](kaiju_error** e) {
            return kaiju_detokenize(o.model, tokens, o.first ? 0 : count, text, 32, &size, e);
          });
          const kaiju_message messages[] = {{KAIJU_ROLE_CARD, 0, "ab", 2, nullptr, 0},
                                            {KAIJU_ROLE_USER, 0, "ba", 2, nullptr, 0}};
          o.must([&](kaiju_error** e) {
            return kaiju_chat_format(o.model, messages, sizeof messages[0], 2, KAIJU_CHAT_REPLY, tokens, 32, &count, e);
          });
        })) > 10);
}
TEST_CASE("writing a checkpoint reports a lack of memory and leaves the old file") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  const kaiju::ModelConfig config = tiny::config(1);
  CHECK(sweep_memory([&] { return kaiju::write_random_checkpoint(path, config, 1).code(); }) > 100);
  CHECK(folder.file_count() == 1);
  CHECK(kaiju::Checkpoint::open(path).ok());
}

TEST_CASE("blocks move correctly between device, host memory and file while memory runs out") {
  CHECK(sweep_memory_of_steps([] {
          std::unique_ptr<kaiju::Engine> engine;
          const auto run = [&](uint64_t seed) -> StatusCode {
            std::vector<int32_t> prompt;
            {
              const heap::Pause pause;
              prompt = kaiju::test::tokens_from(seed, 300);
            }
            auto session = engine->create_session();
            if (!session.ok()) return session.status().code();
            kaiju::RequestOptions options;
            options.max_tokens = 2;
            options.scope.salt = "one";
            const auto request = engine->submit(*session, prompt, options);
            if (!request.ok()) return request.status().code();
            while (engine->pending() > 0) {
              if (const kaiju::Status status = engine->step(); !status.ok()) return status.code();
              for (kaiju::Event event; engine->poll(event);) continue;
            }
            return StatusCode::kOk;
          };
          {
            const heap::Pause pause;
            kaiju::ExecutorInfo info = kaiju::test::small_facts();
            info.block_count[0] = info.block_count[1] = 8;
            kaiju::EngineOptions options;
            options.cache.host_bytes = 12 * info.block_bytes[0];
            options.cache.file_bytes = 40 * info.block_bytes[0];
            options.cache.file = std::make_shared<kaiju::test::MemoryFile>();
            engine = std::move(
                         kaiju::Engine::create(std::make_unique<kaiju::test::ScriptedExecutor>(info), nullptr, options))
                         .value();
            for (uint64_t seed = 1; seed < 5; ++seed) REQUIRE(run(seed) == StatusCode::kOk);
          }
          const StatusCode first = run(1);
          {
            const heap::Pause pause;
            if (first == StatusCode::kOk) CHECK(engine->metrics().cache.hit_file > 0);
          }
          engine.reset();
          return first;
        }) > 5);
}
TEST_CASE("creating and writing a tier's file reports a disk failure") {
  const tiny::Folder folder;
  CHECK(sweep_files([&] {
          auto file = kaiju::open_block_file(folder / "tier", 4096);
          if (!file.ok()) return file.status().code();
          kaiju::BlockName digest;
          std::vector<std::byte> bytes(100);
          return (*file)->write(0, bytes, digest).code();
        }) >= 3);
  CHECK(folder.file_count() == 0);
}

TEST_CASE("a signal that interrupts a file call, once or again and again, changes nothing") {
  const tiny::Folder folder;
  const kaiju::ModelConfig config = tiny::config(1);
  const Ready owner;
  const std::string session = folder / "session";
  int64_t interrupted = 0;
  for (const int64_t more : {0, 5})
    for (int64_t nth = 1;; ++nth) {
      const size_t files_before = shortage::open_files();
      shortage::files::interrupt_at(nth, more);
      const kaiju::Status written = kaiju::write_random_checkpoint(folder / "model", config, 1);
      auto tier = kaiju::open_block_file(folder / "tier", 4096);
      kaiju::Status tier_written = tier.status();
      kaiju::BlockName digest;
      const std::vector<std::byte> bytes(100);
      if (tier.ok()) tier_written = (*tier)->write(0, bytes, digest);
      tier = kaiju::Status();
      kaiju_session* restored = nullptr;
      const kaiju_status saved = kaiju_session_save_file(owner.session, nullptr, session.c_str(), nullptr);
      const kaiju_status read = kaiju_session_restore_file(owner.engine, nullptr, session.c_str(), &restored, nullptr);
      const bool reached = shortage::files::calls() >= nth;
      shortage::files::interrupt_at(0);
      kaiju_session_destroy(restored);
      INFO("file call " << nth << " and " << more << " more: " << written.message() << tier_written.message());
      REQUIRE(written.ok());
      REQUIRE(tier_written.ok());
      REQUIRE(saved == KAIJU_OK);
      REQUIRE(read == KAIJU_OK);
      REQUIRE(shortage::open_files() == files_before);
      REQUIRE(folder.file_count() == 2);
      if (!reached) break;
      ++interrupted;
    }
  CHECK(interrupted > 30);
}

TEST_CASE("opening a checkpoint reports a disk failure") {
  const std::string& path = small_chat_model();
  CHECK(sweep_files([&] { return kaiju::Checkpoint::open(path).status().code(); }) >= 4);
}
TEST_CASE("loading a model reports a disk failure") {
  const char* path = small_chat_model().c_str();
  CHECK(sweep_files([&] {
          Owner owner;
          owner.load(path);
          return code(owner.first);
        }) >= 4);
}
TEST_CASE("loading a gate reports a disk failure") {
  const std::string path = kaiju::tests::temporary_folder() + "/gate";
  std::ofstream(path, std::ios::binary) << kaiju::tests::TinyGate().file();
  CHECK(sweep_files([&] { return kaiju::MessageGate::load(path).status().code(); }) >= 4);
}
TEST_CASE("writing a checkpoint reports a disk failure and leaves the old file or the new one") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  const kaiju::ModelConfig config = tiny::config(1);
  uint64_t seed = 1;
  const auto digest = [&] {
    const auto checkpoint = kaiju::Checkpoint::open(path);
    return checkpoint.ok() ? checkpoint.value()->digest() : "damaged: " + checkpoint.status().message();
  };
  REQUIRE(kaiju::write_random_checkpoint(path, config, seed).ok());
  for (const bool for_good : {false, true})
    for (int64_t nth = 1;; ++nth) {
      const std::string before = digest();
      const size_t files_before = shortage::open_files();
      shortage::files::fail_at(nth, for_good);
      const kaiju::Status status = kaiju::write_random_checkpoint(path, config, ++seed);
      const bool reached = shortage::files::calls() >= nth;
      shortage::files::fail_at(0, false);
      INFO("file call " << nth << (for_good ? " and all after it: " : ": ") << status.message());
      CHECK((status.ok() || status.code() == StatusCode::kIo));
      CHECK(shortage::open_files() == files_before);
      CHECK(folder.file_count() == 1);
      const std::string now = digest();
      CHECK(now.size() == 32);
      if (status.ok()) CHECK(now != before);
      if (!reached) break;
      if (nth == 1 && for_good) CHECK(now == before);
    }
}
