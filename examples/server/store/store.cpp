// Times as text, and the two ways to open a store.
#include "store.hpp"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "database.hpp"

namespace kaiju::server {
namespace {

Result<std::unique_ptr<Store>> open_store(const auto& open, const std::string& where, const StoreOptions& options) {
  return guarded<Result<std::unique_ptr<Store>>>([&]() -> Result<std::unique_ptr<Store>> {
    try {
      return make_sql_store(open(where), options);
    } catch (const StoreFailure& failed) {
      return failed.status;
    }
  });
}

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& file, const StoreOptions& options) {
  return open_store(open_sqlite, file, options);
}

Result<std::unique_ptr<Store>> open_postgres_store(const std::string& connection, const StoreOptions& options) {
  return open_store(open_postgres, connection, options);
}

std::string time_text(int64_t unix_ms) {
  int64_t seconds = unix_ms / 1000, rest = unix_ms % 1000;
  if (rest < 0) {
    rest += 1000;
    --seconds;
  }
  const std::time_t time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, rest);
}

}  // namespace kaiju::server
