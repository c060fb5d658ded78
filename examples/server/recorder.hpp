// Recorder: writes records of replies to a journal (../journal/), on a thread of its own.
//
// A user is "KEY'S NAME", or "KEY'S NAME/USER" where a request has the field `user`: the name by which a journal's
// entries are found and erased. Without a file of keys the key's name is "everybody".
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <string>

#include "../journal/journal.hpp"
#include "kaiju/engine/reply_record.hpp"
#include "service.hpp"

namespace kaiju::server {

class Recorder {
 public:
  // Without a folder it records nothing. Throws std::runtime_error.
  Recorder(const std::string& folder, const std::string& key_file, int64_t most_mib);
  ~Recorder() { join(); }
  bool records() const { return writer_ != nullptr; }
  // From the I/O thread. When the disk is slower than the replies, records are lost and counted.
  void add(std::string user, std::shared_ptr<const ReplyRecord> record);
  // Whether the journal knew the user. Throws Failure.
  asio::awaitable<bool> erase(std::string user);
  // Waits until all is written.
  void join() { thread_.join(); }

  JournalCounts counts() const { return {replies_, bytes_, lost_}; }

 private:
  void write(const std::string& user, int64_t unix_ms, const ReplyRecord& record);

  std::unique_ptr<journal::Writer> writer_;  // the thread's
  std::atomic<size_t> waiting_ = 0;
  std::atomic<uint64_t> replies_ = 0, bytes_ = 0, lost_ = 0;
  bool failed_ = false;  // the thread's: the newest record was lost
  asio::thread_pool thread_{1};
};

std::string journal_user(const Tenant& tenant, const std::string& user);

void add_journal_routes(Server& server, Service& service);

}  // namespace kaiju::server
