// PostgreSQL: one connection by libpq. Parameters and columns travel in binary; statements are prepared once for each
// connection.
#include "database.hpp"

#ifndef KAIJU_SERVER_POSTGRES

namespace kaiju::server {
std::unique_ptr<Database> open_postgres(const std::string&) {
  throw store_failure(
      StatusCode::kUnsupported,
      "this build has no PostgreSQL: configure it with -DKAIJU_SERVER_POSTGRES=ON, or use a file of SQLite");
}
}  // namespace kaiju::server

#else

#include <fmt/format.h>
#include <libpq-fe.h>

#include <bit>
#include <cstring>
#include <memory>
#include <unordered_map>

namespace kaiju::server {
namespace {

// Types that PostgreSQL has numbers for (pg_type.dat).
constexpr Oid kInt8 = 20, kInt4 = 23;

struct Close {
  void operator()(PGconn* connection) const { PQfinish(connection); }
  void operator()(PGresult* result) const { PQclear(result); }
};
using Connection = std::unique_ptr<PGconn, Close>;
using Answer = std::unique_ptr<PGresult, Close>;

std::string with_types(std::string_view sql) {
  std::string out(sql);
  for (const auto& [from, to] :
       {std::pair("{int}", "BIGINT"), std::pair("{text}", "TEXT"), std::pair("{words}", "BYTEA"),
        std::pair("{bytes}", "BYTEA"), std::pair("{id}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
        std::pair("{end}", ")")})
    for (size_t at = out.find(from); at != std::string::npos; at = out.find(from, at))
      out.replace(at, std::char_traits<char>::length(from), to);
  return out;
}

std::string one_line(const char* message) {
  std::string text = message ? message : "";
  for (char& c : text)
    if (c == '\n') c = ' ';
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

class Postgres : public Database {
 public:
  explicit Postgres(const std::string& where) : connection_(PQconnectdb(where.c_str())) {
    if (!connection_) throw StoreFailure(out_of_memory());
    begin_session();
  }

  Rows run(const char* sql, std::initializer_list<Parameter> parameters) override {
    const std::string& name = prepared(sql);
    std::vector<uint64_t> numbers;
    numbers.reserve(parameters.size());
    std::vector<const char*> values;
    std::vector<int> sizes, formats(parameters.size(), 1);
    for (const Parameter& parameter : parameters) {
      if (const auto* number = std::get_if<int64_t>(&parameter)) {
        numbers.push_back(__builtin_bswap64(static_cast<uint64_t>(*number)));  // network order
        values.push_back(reinterpret_cast<const char*>(&numbers.back()));
        sizes.push_back(sizeof(uint64_t));
      } else if (std::holds_alternative<std::monostate>(parameter)) {
        values.push_back(nullptr);
        sizes.push_back(0);
      } else {
        const auto* text = std::get_if<Text>(&parameter);
        const std::string_view bytes = text ? text->bytes : std::get<Blob>(parameter).bytes;
        values.push_back(bytes.empty() ? "" : bytes.data());
        sizes.push_back(static_cast<int>(bytes.size()));
      }
    }
    const Answer answer(PQexecPrepared(connection_.get(), name.c_str(), static_cast<int>(values.size()), values.data(),
                                       sizes.data(), formats.data(), 1));
    check(answer);
    const char* count = PQcmdTuples(answer.get());
    changed_ = count && *count ? std::strtoll(count, nullptr, 10) : 0;
    return rows_of(answer.get());
  }

  int64_t changed() override { return changed_; }

  void begin(bool writes) override {
    // A read sees one state of the database in all of its statements.
    const char* sql = writes ? "BEGIN" : "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    if (PQstatus(connection_.get()) == CONNECTION_OK) {
      const Answer answer(PQexec(connection_.get(), sql));
      if (PQresultStatus(answer.get()) == PGRES_COMMAND_OK) return;
      if (PQstatus(connection_.get()) == CONNECTION_OK) fail(answer.get());
    }
    PQreset(connection_.get());  // lost since the last transaction: nothing of this one was sent
    begin_session();
    execute(sql);
  }

  void commit() override {
    const Answer answer(PQexec(connection_.get(), "COMMIT"));
    check(answer);
    if (std::string_view(PQcmdStatus(answer.get())) != "COMMIT")  // ROLLBACK: the transaction had failed
      throw StoreFailure(internal_error("PostgreSQL rolled a transaction back"));
  }

  void roll_back() noexcept override {
    const PGTransactionStatusType status = PQtransactionStatus(connection_.get());
    if (status == PQTRANS_INTRANS || status == PQTRANS_INERROR) PQclear(PQexec(connection_.get(), "ROLLBACK"));
  }

  int64_t schema_version() override {
    // Two servers that start together: one makes the tables, the other waits.
    execute("SELECT pg_advisory_xact_lock(7737219401)");
    execute("CREATE TABLE IF NOT EXISTS kaiju_schema (version BIGINT NOT NULL)");
    const Rows rows = run("SELECT version FROM kaiju_schema", {});
    return rows.empty() ? 0 : std::get<int64_t>(rows[0][0]);
  }
  void set_schema_version(int64_t version) override {
    run("DELETE FROM kaiju_schema", {});
    run("INSERT INTO kaiju_schema (version) VALUES ($1)", {version});
  }
  void make(std::string_view sql) override { execute(with_types(sql)); }

 private:
  void begin_session() {
    names_.clear();  // prepared statements belong to a connection
    if (PQstatus(connection_.get()) != CONNECTION_OK)
      throw store_failure(StatusCode::kIo,
                          fmt::format("no connection to PostgreSQL: {}; check the connection string and that "
                                      "the server runs",
                                      one_line(PQerrorMessage(connection_.get()))));
    PQsetNoticeProcessor(connection_.get(), [](void*, const char*) {}, nullptr);
    execute("SET synchronous_commit TO on");
    execute("SET client_min_messages TO warning");
    execute("SET lock_timeout TO '10s'");
    execute("SET idle_in_transaction_session_timeout TO '60s'");
  }

  [[noreturn]] void fail(const PGresult* answer) {
    const char* code = answer ? PQresultErrorField(answer, PG_DIAG_SQLSTATE) : nullptr;
    const std::string_view state = code ? code : "";
    const std::string reason = one_line(PQerrorMessage(connection_.get()));
    const auto with = [&](StatusCode status, const char* what_to_do) {
      return store_failure(status, fmt::format("PostgreSQL: {}; {}", reason, what_to_do));
    };
    if (PQstatus(connection_.get()) != CONNECTION_OK || state.starts_with("57") || state.starts_with("08"))
      throw with(StatusCode::kIo, "the connection was lost: try again");
    if (state == "55P03" || state.starts_with("40")) throw with(StatusCode::kBusy, "try again");
    if (state.starts_with("53")) throw with(StatusCode::kIo, "give it more disk, memory or connections");
    if (state.starts_with("42501") || state.starts_with("25006"))
      throw with(StatusCode::kIo, "let this user make and write tables in its schema");
    throw StoreFailure(internal_error(fmt::format("PostgreSQL: {} (SQLSTATE {})", reason, state)));
  }

  void check(const Answer& answer) {
    const ExecStatusType status = PQresultStatus(answer.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail(answer.get());
  }

  void execute(const std::string& sql) {
    const Answer answer(PQexec(connection_.get(), sql.c_str()));
    check(answer);
  }

  const std::string& prepared(const char* sql) {
    const auto found = names_.find(sql);
    if (found != names_.end()) return found->second;
    std::string name = fmt::format("s{}", names_.size());
    // No types are given: the server takes those of the columns that the parameters are compared with or stored in.
    const Answer answer(PQprepare(connection_.get(), name.c_str(), sql, 0, nullptr));
    check(answer);
    return names_.emplace(sql, std::move(name)).first->second;
  }

  static Rows rows_of(const PGresult* answer) {
    Rows rows;
    const int row_count = PQntuples(answer), column_count = PQnfields(answer);
    for (int r = 0; r < row_count; ++r) {
      std::vector<Value> row;
      for (int c = 0; c < column_count; ++c) {
        const char* bytes = PQgetvalue(answer, r, c);
        const auto size = static_cast<size_t>(PQgetlength(answer, r, c));
        if (PQgetisnull(answer, r, c)) {
          row.emplace_back();
        } else if (PQftype(answer, c) == kInt8 || PQftype(answer, c) == kInt4) {
          uint64_t number = 0;
          for (size_t i = 0; i < size; ++i) number = number << 8 | static_cast<uint8_t>(bytes[i]);
          row.emplace_back(size == 4 ? static_cast<int64_t>(static_cast<int32_t>(number))
                                     : static_cast<int64_t>(number));
        } else {
          row.emplace_back(std::string(bytes, size));
        }
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  Connection connection_;
  std::unordered_map<const char*, std::string> names_;  // of prepared statements, by literal
  int64_t changed_ = 0;
};

}  // namespace

std::unique_ptr<Database> open_postgres(const std::string& connection) {
  return std::make_unique<Postgres>(connection);
}

}  // namespace kaiju::server

#endif
