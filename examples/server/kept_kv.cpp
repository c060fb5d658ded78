#include "kept_kv.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <vector>

#include "kaiju/kaiju.hpp"

namespace kaiju::server {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostHeld = 4096;  // sessions: their tokens are in memory

std::string key_in(const fs::path& file) {
  if (std::ifstream in(file, std::ios::binary); in) return {std::istreambuf_iterator<char>(in), {}};
  std::string key;
  std::random_device random;
  for (int i = 0; i < 32; ++i) key += static_cast<char>(random());
  std::ofstream out(file, std::ios::binary);
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  out << key;
  if (!out.flush()) throw std::runtime_error(file.string() + ": cannot be written");
  return key;
}

Sealer sealer_of(const std::string& key) {
  auto sealer = make_sealer(key);
  if (!sealer.ok()) throw std::runtime_error(sealer.status().message());
  return std::move(sealer).value();
}

}  // namespace

KeptKv::KeptKv(std::string folder, int64_t most_bytes) : folder_(std::move(folder)), most_bytes_(most_bytes) {
  std::error_code failed;
  fs::create_directory(folder_, failed);
  if (!failed) fs::permissions(folder_, fs::perms::owner_all, failed);
  if (failed)
    throw std::runtime_error(folder_ + ": the folder for KV cannot be made: " + failed.message() +
                             ": name another with --kv, or none");
  key_ = key_in(fs::path(folder_) / "key");
  lock_ = open((folder_ + "/key").c_str(), O_RDONLY | O_CLOEXEC);
  if (lock_ < 0 || flock(lock_, LOCK_EX | LOCK_NB) != 0)
    throw std::runtime_error(folder_ + ": another server keeps its KV there: name another folder with --kv, or none");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
    files_.insert(entry.path().filename().string());
  try {
    (void)sealer_of(key_);
  } catch (const std::runtime_error& problem) {
    throw std::runtime_error(folder_ + "/key: " + problem.what() + ": delete the folder, and its KV is computed again");
  }
}

KeptKv::~KeptKv() { close(lock_); }

namespace {

void destroy(Driver& driver, SessionId session) { (void)driver.engine().destroy_session(session); }

}  // namespace

void KeptKv::hold(const std::string& chat, const Served& at, Driver& driver, SessionId session) {
  if (at.leaving) return destroy(driver, session);
  files_.erase(chat);
  const auto [place, added] = held_.try_emplace(chat, Held{&at, &driver, session, 0});
  if (!added) destroy(*place->second.driver, place->second.session);
  place->second = {&at, &driver, session, ++uses_};
  if (held_.size() <= kMostHeld) return;
  const auto oldest = std::min_element(held_.begin(), held_.end(),
                                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  destroy(*oldest->second.driver, oldest->second.session);
  held_.erase(oldest);
}

void KeptKv::let_go(const Served& at) {
  std::erase_if(held_, [&](const auto& entry) {
    const Held& held = entry.second;
    if (held.at != &at) return false;
    destroy(*held.driver, held.session);
    return true;
  });
}

void KeptKv::forget(const std::string& chat) {
  if (const auto found = held_.find(chat); found != held_.end()) {
    destroy(*found->second.driver, found->second.session);
    held_.erase(found);
  }
  files_.erase(chat);
  std::error_code ignored;
  fs::remove(file_of(chat), ignored);
}

boost::asio::awaitable<bool> KeptKv::restore(const std::string& chat, Driver& at, const Scope& scope) {
  const std::string file = file_of(chat);
  if (files_.erase(chat) == 0 || !fs::exists(file)) co_return false;
  RestoreOptions options;
  options.key = sealer_of(key_);
  options.scope = scope;
  bool found = false;
  const std::function<void(Engine&)> call = [&](Engine& engine) {
    auto session = restore_session(engine, file, options);
    found = session.ok();
    if (found) (void)engine.destroy_session(*session);  // its KV stays in the cache
  };
  co_await at.between_steps(call);
  std::error_code ignored;
  if (!found) fs::remove(file, ignored);  // damaged, or of another model
  co_return found;
}

int KeptKv::save(const Served& at, int64_t& bytes) {
  std::vector<std::pair<uint64_t, std::string>> newest_first;
  for (const auto& [chat, held] : held_)
    if (held.at == &at) newest_first.emplace_back(held.used, chat);
  std::sort(newest_first.rbegin(), newest_first.rend());
  SaveOptions options;
  options.key = sealer_of(key_);
  int chats = 0;
  for (const auto& [used, chat] : newest_first) {
    std::error_code failed;
    const Held& held = held_.at(chat);
    if (!save_session(held.driver->engine(), held.session, file_of(chat), options).ok()) {
      fs::remove(file_of(chat), failed);
      continue;
    }
    const auto size = static_cast<int64_t>(fs::file_size(file_of(chat), failed));
    if (failed || bytes + size > most_bytes_) {
      fs::remove(file_of(chat), failed);
      break;
    }
    bytes += size;
    ++chats;
  }
  drop_files_beyond(most_bytes_);
  return chats;
}

// The newest files stay.
void KeptKv::drop_files_beyond(int64_t most) const {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, failed))
    if (entry.is_regular_file() && entry.path().filename() != "key")
      files.emplace_back(entry.last_write_time(), entry.path());
  std::sort(files.rbegin(), files.rend());
  int64_t bytes = 0;
  for (const auto& [time, file] : files) {
    bytes += static_cast<int64_t>(fs::file_size(file, failed));
    if (bytes > most) fs::remove(file, failed);
  }
}

}  // namespace kaiju::server
