// Database: what SqlStore needs of SQLite and PostgreSQL: prepared statements with $1-style parameters, in
// transactions.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store.hpp"

namespace kaiju::server {

// Why a call failed. Thrown inside this folder only; SqlStore gives the Status.
struct StoreFailure : std::runtime_error {
  explicit StoreFailure(Status failed) : std::runtime_error(failed.message()), status(std::move(failed)) {}
  Status status;
};
inline StoreFailure store_failure(StatusCode code, std::string message) {
  return StoreFailure(Status(code, std::move(message)));
}

struct Text {
  std::string_view bytes;
};
struct Blob {
  std::string_view bytes;
};
// A parameter; refers to its bytes while the statement runs.
using Parameter = std::variant<std::monostate, int64_t, Text, Blob>;
// A column of a row.
using Value = std::variant<std::monostate, int64_t, std::string>;
using Rows = std::vector<std::vector<Value>>;

class Database {
 public:
  virtual ~Database() = default;
  // Runs one prepared statement; `sql` is a literal that lives as long as the process: its statement is prepared once.
  // Throws StoreFailure.
  virtual Rows run(const char* sql, std::initializer_list<Parameter> parameters) = 0;
  // Rows that the last statement inserted, changed or deleted.
  virtual int64_t changed() = 0;
  // For a transaction that writes, or only reads. After a failure: roll_back, which throws nothing.
  virtual void begin(bool writes) = 0;
  virtual void commit() = 0;
  virtual void roll_back() noexcept = 0;
  // The schema's version, 0 in a new database; in a transaction that writes.
  virtual int64_t schema_version() = 0;
  virtual void set_schema_version(int64_t version) = 0;
  // Statements of the schema. Types are written {int}, {text}, {bytes}, and {words} for texts that may have any bytes;
  // {end} ends a table; {id} is a key that counts up.
  virtual void make(std::string_view sql) = 0;
};

// Brings the tables to this version. Throws StoreFailure where they are of a later one.
void migrate(Database& database);

Result<std::unique_ptr<Store>> make_sql_store(std::unique_ptr<Database> database, const StoreOptions& options);

// Throws StoreFailure.
std::unique_ptr<Database> open_sqlite(const std::string& file);
std::unique_ptr<Database> open_postgres(const std::string& connection);

}  // namespace kaiju::server
