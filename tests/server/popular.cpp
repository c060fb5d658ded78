// Which characters a server is asked for most, and which are suddenly everybody's.
#include "examples/server/popular.hpp"

#include <chrono>
#include <string>

#include "catch.hpp"

using namespace kaiju::server;
using std::chrono::seconds;

namespace {

const Popular::Clock::time_point kBegin = Popular::Clock::time_point() + std::chrono::hours(1);

Region region(const std::string& name) { return {name, {1, 2, 3}}; }

}  // namespace

TEST_CASE("what was asked for most lately comes first") {
  Popular popular(0.5);
  for (int i = 0; i < 10; ++i) (void)popular.note(region("old"), kBegin);
  for (int i = 0; i < 6; ++i) (void)popular.note(region("new"), kBegin + seconds(600));
  (void)popular.note(region(""), kBegin);  // a request without a character
  const std::vector<Region> most = popular.most_asked(10, kBegin + seconds(600));
  REQUIRE(most.size() == 2);
  CHECK(most[0].character == "new");  // the old ones count a quarter by now
  CHECK(most[1].character == "old");
  CHECK(most[1].tokens == std::vector<int32_t>{1, 2, 3});
  CHECK(popular.most_asked(1, kBegin + seconds(600)).size() == 1);
  CHECK_FALSE(popular.knows(""));
}

TEST_CASE("a character that passes its share is hot, once in ten minutes, and cools down") {
  Popular popular(0.5);
  int told = 0;
  for (int i = 0; i < 20; ++i) told += popular.note(region("hot"), kBegin);
  CHECK(told == 0);  // so few requests say nothing
  for (int i = 0; i < 100; ++i) {
    told += popular.note(region("hot"), kBegin + seconds(i));
    CHECK_FALSE(popular.note(region("other " + std::to_string(i)), kBegin + seconds(i)));
    if (i % 2 == 0) told += popular.note(region("hot"), kBegin + seconds(i));
  }
  CHECK(told == 1);
  CHECK(popular.hot_count(kBegin + seconds(99)) == 1);
  CHECK(popular.hot_count(kBegin + seconds(200)) == 0);
  for (int i = 0; i < 40; ++i) told += popular.note(region("hot"), kBegin + seconds(1000));
  CHECK(told == 2);
}

TEST_CASE("of more characters than are remembered, those that are asked for least are forgotten") {
  Popular popular(0.5);
  for (int i = 0; i < 3; ++i) (void)popular.note(region("often"), kBegin);
  for (size_t i = 0; i < 2 * Popular::kMost; ++i) (void)popular.note(region(std::to_string(i)), kBegin + seconds(1));
  CHECK(popular.knows("often"));
  CHECK(popular.most_asked(SIZE_MAX, kBegin + seconds(1)).size() <= Popular::kMost);
}
