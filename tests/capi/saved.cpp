// Saved sessions through kaiju.h: in memory and in files, with the library's own key, on a real model.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

namespace fs = std::filesystem;

int32_t append(const void* data, size_t size, void* user_data) {
  static_cast<std::string*>(user_data)->append(static_cast<const char*>(data), size);
  return 0;
}

struct Reading {
  std::string bytes;
  size_t at = 0;
  static int64_t next(void* data, size_t size, void* user_data) {
    auto* self = static_cast<Reading*>(user_data);
    const size_t count = std::min(size, self->bytes.size() - self->at);
    std::memcpy(data, self->bytes.data() + self->at, count);
    self->at += count;
    return static_cast<int64_t>(count);
  }
};

std::string saved(Host& host, const kaiju_options* options = nullptr) {
  std::string bytes;
  Host::check(ask([&](kaiju_error** e) { return kaiju_session_save(host.session, options, append, &bytes, e); }));
  return bytes;
}

Answer restore(Host& host, const std::string& bytes, kaiju_session** out, const kaiju_options* options = nullptr) {
  Reading reading{bytes};
  return ask(
      [&](kaiju_error** e) { return kaiju_session_restore(host.engine, options, Reading::next, &reading, out, e); });
}

struct Options {
  kaiju_options* bag = nullptr;
  explicit Options(const std::string& key = "") {
    if (kaiju_options_create(&bag) != KAIJU_OK) throw std::runtime_error("no options");
    if (!key.empty())
      Host::check(ask([&](kaiju_error** e) {
        return kaiju_options_set_string(bag, KAIJU_SESSION_KEY, key.data(), key.size(), e);
      }));
  }
  ~Options() { kaiju_options_destroy(bag); }
};

std::vector<int32_t> some_tokens(int32_t first, size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>((first + 7 * i * i) % static_cast<size_t>(kTinyVocabulary)));
  return tokens;
}

// Tokens and the bits of all log-probabilities of a reply.
std::pair<std::vector<int32_t>, std::vector<float>> bits(Host& host, kaiju_session* session,
                                                         const std::vector<int32_t>& tokens, int32_t* cached) {
  kaiju_options_set_int(host.options, KAIJU_GENERATE_LOGPROBS, 64, nullptr);
  std::pair<std::vector<int32_t>, std::vector<float>> out;
  Host::check(ask([&](kaiju_error** e) {
    return kaiju_engine_submit(host.engine, session, tokens.data(), tokens.size(), host.options, nullptr, nullptr, e);
  }));
  while (kaiju_engine_pending(host.engine) > 0) {
    Host::check(ask([&](kaiju_error** e) { return kaiju_engine_step(host.engine, e); }));
    for (kaiju_event event; polled(host.engine, &event, sizeof event, 1) == 1;) {
      out.first.insert(out.first.end(), event.tokens, event.tokens + event.token_count);
      out.second.insert(out.second.end(), event.logprobs, event.logprobs + event.logprob_count);
      if (cached) *cached = event.cached_tokens;
    }
  }
  return out;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::string kKey = "a key of thirty-two bytes, or so";

}  // namespace

TEST_CASE("a restored session gives the bits of one that was never saved and computes nothing again") {
  for (const size_t length : {5u, 63u, 64u, 65u, 127u, 128u, 129u, 191u, 192u, 193u, 300u}) {
    INFO(length << " tokens");
    Host stays, leaves, comes, cold;
    stays.submit(some_tokens(3, length));
    stays.drain();
    leaves.submit(some_tokens(3, length));
    leaves.drain();
    const std::vector<int32_t> more = some_tokens(11, 20);
    const auto expected = bits(stays, stays.session, more, nullptr);
    kaiju_session* session = nullptr;
    Host::check(restore(comes, saved(leaves), &session));
    int32_t cached = 0;
    CHECK(bits(comes, session, more, &cached) == expected);
    CHECK(cached == static_cast<int32_t>(length) + 7);
    kaiju_session_destroy(session);

    Options without_kv;
    kaiju_options_set_int(without_kv.bag, KAIJU_SESSION_KV, 0, nullptr);
    const std::string small = saved(leaves, without_kv.bag);
    CHECK(small.size() < 4 * (length + 8) + 300);
    Host::check(restore(cold, small, &session));
    CHECK(bits(cold, session, more, &cached) == expected);
    CHECK(cached == 0);
    kaiju_session_destroy(session);
  }
}

TEST_CASE("a session is saved to a file as a whole; a save that fails leaves the old file") {
  Host host;
  host.submit(some_tokens(3, 100));
  host.drain();
  const std::string path = temporary_folder() + "/session";
  const auto save = [&](const std::string& to) {
    return ask([&](kaiju_error** e) { return kaiju_session_save_file(host.session, nullptr, to.c_str(), e); });
  };
  Host::check(save(path));
  struct stat info;
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  const std::string first = read_file(path);
  CHECK(first == saved(host));

  host.submit(some_tokens(5, 10));
  CHECK(save(path).status == KAIJU_BUSY);
  CHECK(read_file(path) == first);
  host.drain();
  Host::check(save(path));
  CHECK(read_file(path) == saved(host));
  for (const auto& entry : fs::directory_iterator(temporary_folder()))
    CHECK(entry.path().string().find(".tmp") == std::string::npos);

  CHECK(save(temporary_folder() + "/nowhere/session").status == KAIJU_IO);
  CHECK(save(temporary_folder()).says("is not a regular file"));
  kaiju_session* session = nullptr;
  const auto load = [&](const std::string& from) {
    return ask(
        [&](kaiju_error** e) { return kaiju_session_restore_file(host.engine, nullptr, from.c_str(), &session, e); });
  };
  CHECK(load(path + ".none").status == KAIJU_IO);
  CHECK(load(temporary_folder()).status == KAIJU_IO);
  const std::string pipe = path + ".pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(load(pipe).says("is not a regular file"));
  Host::check(load(path));
  kaiju_session_destroy(session);
  std::ofstream(path, std::ios::binary | std::ios::app) << 'x';
  CHECK(load(path).says("something follows"));
  CHECK(load(path).says(path.c_str()));
}

TEST_CASE("a session beyond the process's file size limit is refused, and the old file and the process survive") {
  Host host;
  host.submit(some_tokens(3, 100));
  host.drain();
  const std::string path = temporary_folder() + "/limited";
  const auto save = [&] {
    return ask([&](kaiju_error** e) { return kaiju_session_save_file(host.session, nullptr, path.c_str(), e); });
  };
  Host::check(save());
  const std::string before = read_file(path);
  rlimit limit;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit lower = {1000, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_DFL);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &lower) == 0);
  const Answer answer = save();
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  INFO(answer.message);
  CHECK(answer.status == KAIJU_IO);
  CHECK(answer.says(path.c_str()));
  CHECK(answer.says("1000 bytes (RLIMIT_FSIZE"));
  CHECK(read_file(path) == before);
  for (const auto& entry : fs::directory_iterator(temporary_folder()))
    CHECK(entry.path().string().find(".tmp") == std::string::npos);
}

TEST_CASE("saving to a symbolic link writes the link's target") {
  Host host;
  host.submit(some_tokens(3, 20));
  host.drain();
  const std::string link = temporary_folder() + "/link", file = temporary_folder() + "/behind_link";
  REQUIRE(symlink("behind_link", link.c_str()) == 0);
  Host::check(ask([&](kaiju_error** e) { return kaiju_session_save_file(host.session, nullptr, link.c_str(), e); }));
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_regular_file(file));
  CHECK(read_file(link) == saved(host));
}

TEST_CASE("a saved session may have the longest possible file name, and needs a folder that can be flushed") {
  Host host;
  const auto save = [&](const std::string& to) {
    return ask([&](kaiju_error** e) { return kaiju_session_save_file(host.session, nullptr, to.c_str(), e); });
  };
  const std::string longest = temporary_folder() + "/" + std::string(255, 'n'),
                    folder = temporary_folder() + "/unreadable";
  Host::check(save(longest));
  CHECK(fs::file_size(longest) > 0);
  if (geteuid() == 0) return;  // may read all
  REQUIRE(mkdir(folder.c_str(), 0300) == 0);
  CHECK(save(folder + "/session").says("cannot open its folder"));
  CHECK_FALSE(fs::exists(folder + "/session"));
  REQUIRE(chmod(folder.c_str(), 0700) == 0);
}

TEST_CASE("a session that is sealed with a key cannot be forged or changed without the key") {
  Host host;
  host.submit(some_tokens(3, 100));
  host.drain();
  const Options key(kKey), other(kKey + "!");
  const std::string plain = saved(host), keyed = saved(host, key.bag);
  kaiju_session* session = nullptr;
  Host::check(restore(host, keyed, &session, key.bag));
  kaiju_session_destroy(session);
  CHECK(restore(host, keyed, &session, other.bag).status == KAIJU_BAD_MODEL);
  CHECK(restore(host, keyed, &session).status == KAIJU_INVALID_ARGUMENT);
  CHECK(restore(host, plain, &session, key.bag).status == KAIJU_INVALID_ARGUMENT);
  for (size_t at = 0; at < keyed.size(); at += keyed.size() > 5000 ? 41 : 1) {
    std::string bad = keyed;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    const Answer answer = restore(host, bad, &session, key.bag);
    if (answer.status == KAIJU_OK || answer.message.empty()) FAIL("byte " << at);
  }
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_options_set_string(key.bag, KAIJU_SESSION_KEY, "short", 5, e);
        }).says("16 to 1024"));
}

TEST_CASE("a saved session of another model is refused by name") {
  Host host, plain(plain_model_file());
  host.submit(some_tokens(3, 100));
  host.drain();
  kaiju_session* session = nullptr;
  const Answer answer = restore(plain, saved(host), &session);
  CHECK(answer.status == KAIJU_UNSUPPORTED);
  CHECK(answer.says("was saved with the model"));
}

TEST_CASE("a saved conversation is no saved session, and each says what it is") {
  Host host;
  kaiju_conversation* talk = nullptr;
  const int32_t head[] = {1, 3, 20};
  REQUIRE(kaiju_conversation_create(host.engine, head, 3, &talk, nullptr) == KAIJU_OK);
  const std::string chat = temporary_folder() + "/a.chat", session = temporary_folder() + "/a.session";
  REQUIRE(kaiju_conversation_save_file(talk, nullptr, chat.c_str(), nullptr) == KAIJU_OK);
  REQUIRE(kaiju_session_save_file(host.session, nullptr, session.c_str(), nullptr) == KAIJU_OK);
  kaiju_session* back = nullptr;
  kaiju_conversation* talk_back = nullptr;
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_session_restore_file(host.engine, nullptr, chat.c_str(), &back, e);
        }).says("this is a saved conversation: restore it as a conversation"));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_conversation_restore_file(host.engine, nullptr, session.c_str(), &talk_back, e);
        }).says("this is a saved session: restore it as a session"));
  kaiju_conversation_destroy(talk);
}

TEST_CASE("C++: the calls of a session or conversation that was moved from are refused") {
  const auto model = kaiju::Model::load(chat_model_file()).value();
  const auto engine = model->create_engine().value();
  kaiju::Session session = std::move(kaiju::Session::create(engine)).value();
  const kaiju::Session taken = std::move(session);
  const int32_t tokens[] = {1, 20};
  for (const kaiju::Status& status :
       {session.submit(tokens, {}).status(), session.generate(tokens, {}).status(), session.fork(0).status(),
        session.truncate(0), session.tokens().status(), session.pin().status(), session.save("/nowhere")})
    CHECK(status.message() == "the session was moved to another object");
  kaiju::Conversation talk = std::move(model->create_conversation(engine, tokens)).value();
  const kaiju::Conversation now = std::move(talk);
  for (const kaiju::Status& status : {talk.say(tokens, {}).status(), talk.swipe({}).status(), talk.undo(),
                                      talk.append({}, tokens), talk.fork(0).status()})
    CHECK(status.message() == "the conversation was moved to another object");
}

TEST_CASE("saving and restoring refuse wrong arguments") {
  Host host;
  kaiju_session* session = nullptr;
  CHECK(kaiju_session_save(nullptr, nullptr, append, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_session_save(host.session, nullptr, nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_session_save_file(host.session, nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_session_save_file(nullptr, nullptr, "x", nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_session_save_file(host.session, nullptr, "", e);
        }).says("the path is empty"));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_session_restore_file(host.engine, nullptr, "", &session, e);
        }).message == "the path is empty: name the file");
  CHECK(kaiju_session_restore(nullptr, nullptr, Reading::next, nullptr, &session, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_session_restore(host.engine, nullptr, nullptr, nullptr, &session, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_session_restore(host.engine, nullptr, Reading::next, nullptr, nullptr, nullptr) ==
        KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_session_restore_file(host.engine, nullptr, nullptr, &session, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_session_restore_file(host.engine, nullptr, "x", nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  const auto stop = [](const void*, size_t, void*) -> int32_t { return 1; };
  const auto stop_reading = [](void*, size_t, void*) -> int64_t { return -1; };
  const auto too_much = [](void*, size_t size, void*) -> int64_t { return static_cast<int64_t>(size) + 1; };
  CHECK(kaiju_session_save(host.session, nullptr, stop, nullptr, nullptr) == KAIJU_CANCELLED);
  CHECK(kaiju_session_restore(host.engine, nullptr, stop_reading, nullptr, &session, nullptr) == KAIJU_CANCELLED);
  CHECK(kaiju_session_restore(host.engine, nullptr, too_much, nullptr, &session, nullptr) == KAIJU_BAD_MODEL);
}

TEST_CASE("a saved session's path with a zero byte is refused, in C++, where a path has a length") {
  kaiju::RunOptions options;
  options.executor.threads = 1;
  const auto engine = kaiju::Model::load(chat_model_file()).value()->create_engine(options).value();
  const kaiju::SessionId session = engine->create_session().value();
  const std::string whole = temporary_folder() + "/zero", cut = whole + std::string("\0more", 5);
  for (const kaiju::Status& status :
       {kaiju::save_session(*engine, session, cut), kaiju::restore_session(*engine, cut).status()}) {
    CHECK(status.code() == kaiju::StatusCode::kInvalidArgument);
    CHECK(status.message().find(whole + ": a zero byte follows") != std::string::npos);
  }
  CHECK_FALSE(fs::exists(whole));
}
