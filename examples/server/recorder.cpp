// See recorder.hpp.
#include "recorder.hpp"

#include <boost/asio/post.hpp>
#include <chrono>
#include <stdexcept>

#include "../tools/standard_streams.hpp"
#include "elsewhere.hpp"
#include "failure.hpp"
#include "kaiju/records.hpp"

namespace kaiju::server {
namespace {

constexpr size_t kMostWaiting = 4096;
constexpr int32_t kFiles = 16;

int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

Recorder::Recorder(const std::string& folder, const std::string& key_file, int64_t most_mib) {
  if (folder.empty() || folder == "none") return;
  Result<std::string> key = journal::read_key(key_file);
  if (!key.ok()) throw std::runtime_error("--journal-key " + key.status().message());
  const auto file_bytes = (static_cast<uint64_t>(most_mib) << 20) / kFiles;
  Result<std::unique_ptr<journal::Writer>> writer = journal::Writer::open({folder, *key, file_bytes, kFiles});
  if (!writer.ok()) throw std::runtime_error("--journal " + writer.status().message());
  writer_ = std::move(*writer);
}

void Recorder::add(std::string user, std::shared_ptr<const ReplyRecord> record) {
  if (!writer_) return;
  if (waiting_.fetch_add(1) >= kMostWaiting) {
    --waiting_, ++lost_;
    return;
  }
  asio::post(thread_, [this, user = std::move(user), record = std::move(record), at = now_ms()] {
    write(user, at, *record);
    --waiting_;
  });
}

void Recorder::write(const std::string& user, int64_t unix_ms, const ReplyRecord& record) {
  const Status status = writer_->append(user, unix_ms, encode_record(record));
  if (!status.ok() && !failed_)
    tools::print(stderr, "kaiju-server: {}; records of replies are lost\n", status.message());
  failed_ = !status.ok();
  ++(failed_ ? lost_ : replies_);
  bytes_ = writer_->bytes_written();
}

asio::awaitable<bool> Recorder::erase(std::string user) {
  Status status;
  bool erased = false;
  const std::function<void()> call = [&] {
    Result<bool> result = writer_->erase(user);
    status = result.status();
    if (result.ok()) erased = *result;
  };
  co_await elsewhere(thread_, call);
  if (!status.ok()) throw of_status(status);
  co_return erased;
}

std::string journal_user(const Tenant& tenant, const std::string& user) {
  return user.empty() ? tenant.name : tenant.name + "/" + user;
}

void add_journal_routes(Server& server, Service& service) {
  server.route("POST", "/journal/erase", [&service](Exchange& exchange) -> asio::awaitable<void> {
    if (!service.recorder.records())
      throw Failure{404, "this server keeps no journal: it runs without --journal", {}, "no_journal"};
    const nlohmann::json body = exchange.json();
    const Fields fields(body);
    const Tenant& tenant = service.tenants.of(exchange);
    const std::string user = fields.text("user");
    fields.refuse_others();
    const bool erased = co_await service.recorder.erase(journal_user(tenant, user));
    const nlohmann::ordered_json answer = {{"erased", erased}};
    co_await exchange.answer(answer);
  });
}

}  // namespace kaiju::server
