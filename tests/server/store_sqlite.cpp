// Files of SQLite: which are taken, which are refused unchanged, and how they are synced.
#include <sqlite3.h>

#include <fstream>
#include <sstream>

#include "store_open.hpp"

using namespace kaiju;
using namespace kaiju::server;
using namespace kaiju::server::test;

namespace {

std::string bytes_of(const std::string& file) {
  std::ostringstream bytes;
  bytes << std::ifstream(file, std::ios::binary).rdbuf();
  return bytes.str();
}

void run_on(const std::string& file, const char* sql) {
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(file.c_str(), &database) == SQLITE_OK);
  CHECK(sqlite3_exec(database, sql, nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(database);
}

std::string value_on(const std::string& file, const char* sql) {
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(file.c_str(), &database) == SQLITE_OK);
  std::string value;
  sqlite3_exec(
      database, sql,
      [](void* to, int, char** columns, char**) {
        *static_cast<std::string*>(to) = columns[0];
        return 0;
      },
      &value, nullptr);
  sqlite3_close(database);
  return value;
}

}  // namespace

TEST_CASE("a database of another program is refused and not changed") {
  const Place place;
  run_on(place.file(), "CREATE TABLE theirs (x)");
  const std::string before = bytes_of(place.file());
  CHECK(said(open_sqlite_store(place.file())).find("another program") != std::string::npos);
  CHECK(bytes_of(place.file()) == before);
}

TEST_CASE("a store of a later version is refused") {
  const Place place;
  REQUIRE(open_sqlite_store(place.file()).ok());
  run_on(place.file(), "PRAGMA user_version = 99");
  const std::string words = said(open_sqlite_store(place.file()));
  CHECK(words.find("version 99") != std::string::npos);
  CHECK(words.find("a later one") != std::string::npos);
  CHECK(value_on(place.file(), "PRAGMA user_version") == "99");
}

TEST_CASE("what is no store is refused with what to do") {
  const Place place;
  std::ofstream(place.file()) << std::string(10'000, 'x');
  CHECK(said(open_sqlite_store(place.file())).find("no store") != std::string::npos);
  CHECK(said(open_sqlite_store("")).find("name of a file") != std::string::npos);
  CHECK(said(open_sqlite_store(":memory:")).find("name of a file") != std::string::npos);
  CHECK(said(open_sqlite_store((place.folder() / "no" / "x.db").string())).find("make its folder first") !=
        std::string::npos);
  CHECK(said(open_sqlite_store(place.folder().string())).find("read and write") != std::string::npos);
}

TEST_CASE("the file is in WAL mode, its tables take only their types, and foreign rows are impossible") {
  const Place place;
  {
    REQUIRE(open_sqlite_store(place.file()).ok());
  }
  CHECK(value_on(place.file(), "PRAGMA journal_mode") == "wal");
  CHECK(value_on(place.file(), "PRAGMA user_version") == "2");
  CHECK(value_on(place.file(), "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND strict = 1") == "7");
}

TEST_CASE("a store that another process holds answers that it is busy", "[.slow]") {
  const Place place;
  auto store = must(open_sqlite_store(place.file()));
  const std::string chat = new_chat(*store);
  sqlite3* other = nullptr;
  REQUIRE(sqlite3_open(place.file().c_str(), &other) == SQLITE_OK);
  REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
  const Status status = store->append_turn("ann", chat, 0, turn_of("a", "A"));
  CHECK(status.code() == StatusCode::kBusy);
  CHECK(must(store->chat("ann", chat)).turns.empty());  // reading goes on
  sqlite3_close(other);
  must(store->append_turn("ann", chat, 0, turn_of("a", "A")));
}

#ifndef KAIJU_SERVER_POSTGRES
TEST_CASE("a build without PostgreSQL says how to get it") {
  const Status status = open_postgres_store("host=/tmp").status();
  CHECK(status.code() == StatusCode::kUnsupported);
  CHECK(status.message().find("-DKAIJU_SERVER_POSTGRES=ON") != std::string::npos);
}
#else
TEST_CASE("a PostgreSQL that is not there is said, with what to check") {
  const Status status = open_postgres_store("host=/nonexistent dbname=x connect_timeout=2").status();
  CHECK(status.code() == StatusCode::kIo);
  CHECK(status.message().find("check the connection string") != std::string::npos);
}
#endif
