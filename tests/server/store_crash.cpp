// kill -9: a process that writes turns is killed at random moments; every turn that it was told is kept, whole.
// KAIJU_STORE_KILLS says how often (30). KAIJU_SEED gives the seed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "store_open.hpp"

using namespace kaiju;
using namespace kaiju::server;
using namespace kaiju::server::test;

namespace {

int64_t number_from(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

// Turn number `turn` as the writer writes it: its length differs from turn to turn, and every part says its number.
Turn numbered(int64_t turn) {
  const auto size = static_cast<size_t>(turn * 7919 % 9000);
  Turn made =
      turn_of("u" + std::to_string(turn) + std::string(size, 'x'), "r" + std::to_string(turn) + std::string(size, 'y'));
  made.input_tokens.assign(size / 3 + 1, static_cast<int32_t>(turn));
  made.replies[0].tokens.assign(size / 5 + 1, static_cast<int32_t>(-turn));
  return made;
}
// Every third turn gets another reply.
bool has_second(int64_t turn) { return turn % 3 == 0; }
Reply second(int64_t turn) { return reply_of("second " + std::to_string(turn)); }

// Appends turns until it is killed. Says each one after the store has: 2 * turn, and 2 * turn + 1 for its second reply.
[[noreturn]] void write_until_killed(const Place& place, const std::string& chat, int64_t turn, int told) {
  ::alarm(60);
  auto store = place.try_open();
  if (!store.ok()) ::_exit(2);
  const auto tell = [told](int64_t done) {
    if (::write(told, &done, sizeof(done)) != sizeof(done)) ::_exit(3);
  };
  for (;; ++turn) {
    if (!(*store)->append_turn("ann", chat, turn, numbered(turn)).ok()) ::_exit(4);
    tell(2 * turn);
    if (!has_second(turn)) continue;
    if (!(*store)->add_reply("ann", chat, turn, second(turn)).ok()) ::_exit(5);
    tell(2 * turn + 1);
  }
}

}  // namespace

TEST_CASE("kill -9 at a random moment loses no acknowledged turn and leaves none half") {
  const auto seed = static_cast<uint64_t>(number_from("KAIJU_SEED", std::random_device{}()));
  const int64_t kills = number_from("KAIJU_STORE_KILLS", 30);
  INFO("KAIJU_SEED=" << seed);
  std::mt19937_64 random(seed);
  const Place place;
  std::string chat;
  {
    auto store = place.open();
    chat = new_chat(*store);
  }
  int64_t acknowledged_count = 0, unacknowledged_count = 0, next = 0;
  for (int64_t kill = 0; kill < kills; ++kill) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      write_until_killed(place, chat, next, ends[1]);
    }
    ::close(ends[1]);
    // Some are killed while they open the store, most while they write.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    ::kill(child, SIGKILL);
    int64_t newest = -1, done = 0;
    while (::read(ends[0], &done, sizeof(done)) == sizeof(done)) {
      newest = done;
      ++acknowledged_count;
    }
    ::close(ends[0]);
    int ended = 0;
    REQUIRE(::waitpid(child, &ended, 0) == child);
    REQUIRE(WIFSIGNALED(ended));  // it ends by no failure of its own

    auto store = place.open();
    const Chat found = must(store->chat("ann", chat));
    const auto count = static_cast<int64_t>(found.turns.size());
    REQUIRE(count >= (newest < 0 ? next : newest / 2 + 1));
    REQUIRE(count <= (newest < 0 ? next : newest / 2 + 1) + 1);  // one more may have been written and not told
    unacknowledged_count += count - (newest < 0 ? next : newest / 2 + 1);
    for (int64_t turn = 0; turn < count; ++turn) {
      const Turn expected = numbered(turn);
      const Turn& kept = found.turns[static_cast<size_t>(turn)];
      REQUIRE(kept.user == expected.user);
      REQUIRE(kept.input_tokens == expected.input_tokens);
      REQUIRE(kept.replies.at(0) == expected.replies[0]);
      const bool is_newest = turn == count - 1;
      if (has_second(turn) && (!is_newest || newest == 2 * turn + 1)) {
        REQUIRE(kept.replies.size() == 2);
        REQUIRE(kept.replies[1] == second(turn));
        REQUIRE(kept.chosen == 1);
      } else if (!has_second(turn)) {
        REQUIRE(kept.replies.size() == 1);
      }
    }
    // The next writer begins behind a turn that is complete.
    if (count > 0 && has_second(count - 1) && found.turns.back().replies.size() == 1)
      REQUIRE(store->add_reply("ann", chat, count - 1, second(count - 1)).ok());
    next = count;
  }
  std::printf("%lld kills: %lld acknowledged writes kept, %lld kept that were not acknowledged yet\n",
              static_cast<long long>(kills), static_cast<long long>(acknowledged_count),
              static_cast<long long>(unacknowledged_count));
  CHECK(acknowledged_count > kills);  // most were killed while they wrote
}

// The two halves of a test whose middle is in store_postgres.sh: PostgreSQL itself is killed. KAIJU_STORE_TOLD is the
// file in which the first half says what it was told.
TEST_CASE("a writer writes until its server is gone", "[.server]") {
  const char* told = std::getenv("KAIJU_STORE_TOLD");
  REQUIRE(told != nullptr);
  const Place place;
  auto store = place.open();
  const std::string chat = new_chat(*store);
  std::FILE* file = std::fopen(told, "w");
  REQUIRE(file != nullptr);
  std::fprintf(file, "%s\n", chat.c_str());
  Status status;
  for (int64_t turn = 0; status.ok(); ++turn) {
    status = store->append_turn("ann", chat, turn, numbered(turn));
    if (status.ok()) std::fprintf(file, "%lld\n", static_cast<long long>(turn));
  }
  std::fclose(file);
  CHECK(status.code() == StatusCode::kIo);
}

TEST_CASE("every turn that was told is there", "[.server]") {
  const char* told = std::getenv("KAIJU_STORE_TOLD");
  REQUIRE(told != nullptr);
  std::FILE* file = std::fopen(told, "r");
  REQUIRE(file != nullptr);
  char id[64];
  REQUIRE(std::fscanf(file, "%63s", id) == 1);
  int64_t newest = -1;
  for (long long turn; std::fscanf(file, "%lld", &turn) == 1;) newest = turn;
  std::fclose(file);
  auto store = must(open_postgres_store(postgres()));
  const Chat chat = must(store->chat("ann", id));
  const auto count = static_cast<int64_t>(chat.turns.size());
  std::printf("%lld turns told, %lld there\n", static_cast<long long>(newest + 1), static_cast<long long>(count));
  REQUIRE(newest > 0);
  REQUIRE((count == newest + 1 || count == newest + 2));
  for (int64_t turn = 0; turn < count; ++turn) {
    REQUIRE(chat.turns[static_cast<size_t>(turn)].user == numbered(turn).user);
    REQUIRE(chat.turns[static_cast<size_t>(turn)].replies.at(0) == numbered(turn).replies[0]);
  }
}
