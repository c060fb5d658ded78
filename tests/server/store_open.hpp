// Opens the store that the tests are run with: a new file of SQLite, or the PostgreSQL database that KAIJU_POSTGRES
// names, emptied.
#pragma once

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "catch.hpp"
#include "examples/server/store/store.hpp"
#ifdef KAIJU_SERVER_POSTGRES
#include <libpq-fe.h>
#endif

namespace kaiju::server::test {

inline std::string postgres() {
  const char* connection = std::getenv("KAIJU_POSTGRES");
  return connection ? connection : "";
}

// Runs SQL beside the store. Only for PostgreSQL.
inline void run_beside([[maybe_unused]] const std::string& sql) {
#ifdef KAIJU_SERVER_POSTGRES
  PGconn* connection = PQconnectdb(postgres().c_str());
  PGresult* result = PQexec(connection, sql.c_str());
  const std::string problem = PQerrorMessage(connection);
  PQclear(result);
  PQfinish(connection);
  INFO(problem);
  REQUIRE(problem.find("ERROR") == std::string::npos);
#endif
}

// A place for a store of its own; what was there goes.
class Place {
 public:
  Place() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kaiju_store_XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    if (!postgres().empty())
      run_beside("SET client_min_messages TO warning; DROP SCHEMA public CASCADE; CREATE SCHEMA public");
  }
  ~Place() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Result<std::unique_ptr<Store>> try_open(const StoreOptions& options = {}) const {
    return postgres().empty() ? open_sqlite_store(file(), options) : open_postgres_store(postgres(), options);
  }
  std::unique_ptr<Store> open(const StoreOptions& options = {}) const {
    auto store = try_open(options);
    INFO(store.status().message());
    REQUIRE(store.ok());
    return std::move(*store);
  }
  std::string file() const { return (folder_ / "store.db").string(); }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

// The value of a result that must have one.
template <class T>
T must(Result<T> result) {
  INFO(result.status().message());
  REQUIRE(result.ok());
  return std::move(result).value();
}
inline void must(const Status& status) {
  INFO(status.message());
  REQUIRE(status.ok());
}
// The code and words of a failure.
inline std::string said(const Status& status) {
  REQUIRE_FALSE(status.ok());
  return std::to_string(static_cast<int>(status.code())) + ": " + status.message();
}
template <class T>
std::string said(const Result<T>& result) {
  return said(result.status());
}

inline NewCharacter wren() { return {"Wren", R"({"name":"Wren"})", "d1", {1, 2, -3}, ""}; }

inline Reply reply_of(const std::string& text) { return {text, {7, 8, 9}, "stop", 100, 64, 3}; }

inline Turn turn_of(const std::string& user, const std::string& reply, const std::string& speaker = "wren") {
  Turn turn;
  turn.user = user;
  turn.speaker = speaker;
  turn.input_tokens = {4, 5, 6};
  turn.replies = {reply_of(reply)};
  turn.chosen = 0;
  return turn;
}

// A chat of "ann" with Wren.
inline std::string new_chat(Store& store) {
  if (!store.character("wren").ok()) must(store.create_character("wren", wren()));
  return must(store.create_chat({"ann", "A walk", "Ann", {{"wren", 0}}})).id;
}

}  // namespace kaiju::server::test
