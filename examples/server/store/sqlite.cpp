// SQLite: one connection to one file. Statements are prepared once and kept.
#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <unordered_map>

#include "database.hpp"

namespace kaiju::server {
namespace {

constexpr int kWaitMs = 10'000;
constexpr int64_t kApplication = 0x6B61696A;  // "kaij": says that a file is a store of this program

struct Close {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Connection = std::unique_ptr<sqlite3, Close>;
using Statement = std::unique_ptr<sqlite3_stmt, Close>;

std::string with_types(std::string_view sql) {
  std::string out(sql);
  for (const auto& [from, to] :
       {std::pair("{int}", "INTEGER"), std::pair("{text}", "TEXT"), std::pair("{words}", "TEXT"),
        std::pair("{bytes}", "BLOB"), std::pair("{id}", "INTEGER PRIMARY KEY AUTOINCREMENT"),
        std::pair("{end}", ") STRICT")})
    for (size_t at = out.find(from); at != std::string::npos; at = out.find(from, at))
      out.replace(at, std::char_traits<char>::length(from), to);
  return out;
}

// "$1" of PostgreSQL is "?1" here; no literal of ours has a '$'.
std::string with_question_marks(std::string sql) {
  for (char& c : sql)
    if (c == '$') c = '?';
  return sql;
}

class Sqlite : public Database {
 public:
  explicit Sqlite(const std::string& file) : file_(file) {
    sqlite3* opened = nullptr;
    const int result = sqlite3_open_v2(file.c_str(), &opened,
                                       SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    connection_.reset(opened);
    if (result != SQLITE_OK) fail(result, "opened");
    sqlite3_extended_result_codes(opened, 1);
    sqlite3_busy_timeout(opened, kWaitMs);
    while (!try_prepare_file()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  Rows run(const char* sql, std::initializer_list<Parameter> parameters) override {
    Statement& statement = statements_[sql];
    if (!statement) statement = prepare(with_question_marks(sql));
    int place = 0;
    for (const Parameter& parameter : parameters) bind(statement.get(), ++place, parameter);
    Rows rows;
    int result;
    while ((result = sqlite3_step(statement.get())) == SQLITE_ROW) rows.push_back(row_of(statement.get()));
    sqlite3_reset(statement.get());
    sqlite3_clear_bindings(statement.get());  // they refer to the caller's bytes
    if (result != SQLITE_DONE) fail(result, "used");
    return rows;
  }

  int64_t changed() override { return sqlite3_changes64(connection_.get()); }
  // IMMEDIATE takes the lock for writing at once: a transaction that reads first could lose it halfway.
  void begin(bool writes) override { execute(writes ? "BEGIN IMMEDIATE" : "BEGIN"); }
  void commit() override { execute("COMMIT"); }
  void roll_back() noexcept override {
    if (sqlite3_get_autocommit(connection_.get()) == 0)
      sqlite3_exec(connection_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
  int64_t schema_version() override { return number_of("PRAGMA user_version"); }
  void set_schema_version(int64_t version) override { execute(fmt::format("PRAGMA user_version = {}", version)); }
  void make(std::string_view sql) override { execute(with_types(sql)); }

 private:
  [[noreturn]] void fail(int result, const char* done) {
    std::error_code ignored;
    const auto folder = std::filesystem::path(file_).parent_path();
    const char* reason = connection_ ? sqlite3_errmsg(connection_.get()) : sqlite3_errstr(result);
    const auto with = [&](StatusCode code, const char* what_to_do) {
      return store_failure(code, fmt::format("{}: the store cannot be {}: {}; {}", file_, done, reason, what_to_do));
    };
    switch (result & 0xFF) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        throw with(StatusCode::kBusy, "another process holds it: try again");
      case SQLITE_NOMEM:
        throw StoreFailure(out_of_memory());
      case SQLITE_FULL:
        throw with(StatusCode::kIo, "make room on the disk");
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        throw with(StatusCode::kIo, "it is damaged or no store: give another file, or restore it from a backup");
      case SQLITE_READONLY:
      case SQLITE_PERM:
        throw with(StatusCode::kIo, "let this program write to the file and its folder");
      case SQLITE_CANTOPEN:
        throw with(StatusCode::kIo, !folder.empty() && !std::filesystem::is_directory(folder, ignored)
                                        ? "make its folder first"
                                        : "give a file that this program may read and write");
      case SQLITE_IOERR:
        throw with(StatusCode::kIo, "look at the disk");
      default:
        throw StoreFailure(internal_error(fmt::format("{}: the store cannot be {}: {}", file_, done, reason)));
    }
  }

  void execute(const std::string& sql) {
    const int result = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr);
    if (result != SQLITE_OK) fail(result, "used");
  }

  Statement prepare(const std::string& sql) {
    sqlite3_stmt* prepared = nullptr;
    const int result = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                          SQLITE_PREPARE_PERSISTENT, &prepared, nullptr);
    if (result != SQLITE_OK) fail(result, "used");
    return Statement(prepared);
  }

  void bind(sqlite3_stmt* statement, int place, const Parameter& parameter) {
    int result = SQLITE_OK;
    if (const auto* number = std::get_if<int64_t>(&parameter)) {
      result = sqlite3_bind_int64(statement, place, *number);
    } else if (const auto* text = std::get_if<Text>(&parameter)) {
      result = sqlite3_bind_text64(statement, place, text->bytes.empty() ? "" : text->bytes.data(), text->bytes.size(),
                                   SQLITE_STATIC, SQLITE_UTF8);
    } else if (const auto* blob = std::get_if<Blob>(&parameter)) {
      result = sqlite3_bind_blob64(statement, place, blob->bytes.empty() ? "" : blob->bytes.data(), blob->bytes.size(),
                                   SQLITE_STATIC);
    } else {
      result = sqlite3_bind_null(statement, place);
    }
    if (result != SQLITE_OK) fail(result, "used");
  }

  static std::vector<Value> row_of(sqlite3_stmt* statement) {
    std::vector<Value> row;
    const int count = sqlite3_column_count(statement);
    for (int i = 0; i < count; ++i) {
      const int type = sqlite3_column_type(statement, i);
      if (type == SQLITE_NULL) {
        row.emplace_back();
      } else if (type == SQLITE_INTEGER) {
        row.emplace_back(static_cast<int64_t>(sqlite3_column_int64(statement, i)));
      } else {
        const char* bytes = static_cast<const char*>(sqlite3_column_blob(statement, i));
        const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, i));
        row.emplace_back(bytes ? std::string(bytes, size) : std::string());
      }
    }
    return row;
  }

  Value value_of(const std::string& sql) {
    const Statement statement = prepare(sql);
    const int result = sqlite3_step(statement.get());
    if (result != SQLITE_ROW) fail(result, "used");
    return row_of(statement.get()).at(0);
  }
  int64_t number_of(const std::string& sql) { return std::get<int64_t>(value_of(sql)); }
  std::string text_of(const std::string& sql) { return std::get<std::string>(value_of(sql)); }

  // SQLite does not wait for its lock where a file gets its write-ahead log. False: another process has the lock, and
  // there is time to try again.
  bool try_prepare_file() {
    try {
      prepare_file();
      return true;
    } catch (const StoreFailure& failed) {
      Sqlite::roll_back();
      if (failed.status.code() != StatusCode::kBusy || std::chrono::steady_clock::now() > open_until_) throw;
      return false;
    }
  }

  void prepare_file() {
    const bool is_new = refuse_foreign();  // before anything is changed
    execute("PRAGMA trusted_schema = OFF");
    execute("PRAGMA foreign_keys = ON");
    // FULL syncs the log at every commit; NORMAL would lose the newest commits when the power fails.
    execute("PRAGMA synchronous = FULL");
    if (text_of("PRAGMA journal_mode = WAL") != "wal")
      throw store_failure(
          StatusCode::kIo,
          fmt::format("{}: its file system takes no write-ahead log; put the store on a local disk", file_));
    if (is_new) execute(fmt::format("PRAGMA application_id = {}", kApplication));
  }

  // Whether the file is new.
  bool refuse_foreign() {
    execute("BEGIN");  // one state of the file: another program may be making its tables
    const int64_t tables = number_of("SELECT count(*) FROM sqlite_schema");
    const int64_t application = number_of("PRAGMA application_id");
    execute("COMMIT");
    const bool is_new = tables == 0 && application == 0;
    if (application != kApplication && !is_new)
      throw store_failure(StatusCode::kUnsupported,
                          fmt::format("{}: a database of another program; give the store a file of its own", file_));
    return is_new;
  }

  std::string file_;
  std::chrono::steady_clock::time_point open_until_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
  Connection connection_;
  std::unordered_map<const char*, Statement> statements_;  // by literal; finalized before the connection closes
};

}  // namespace

std::unique_ptr<Database> open_sqlite(const std::string& file) {
  if (file.empty() || file.starts_with(':') || file.find('\0') != std::string::npos)
    throw store_failure(StatusCode::kInvalidArgument,
                        "the store needs the name of a file that does not begin with ':'");
  return std::make_unique<Sqlite>(file);
}

}  // namespace kaiju::server
