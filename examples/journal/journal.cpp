// The journal's writer and reader. See journal.hpp.
#include "journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <map>

#include "entries.hpp"
#include "packing.hpp"

namespace kaiju::journal {
namespace {

constexpr size_t kRememberedBytes = size_t{64} << 20;  // of users' newest records, to pack the next ones

Status check_key(const std::string& key) {
  if (key.size() >= kLeastKeyBytes && key.size() <= kMostKeyBytes) return {};
  return invalid_argument(
      fmt::format("the journal's key has {} bytes; it must have {} to {}: head -c 48 /dev/urandom | "
                  "base64 -w 0 makes one",
                  key.size(), kLeastKeyBytes, kMostKeyBytes));
}

// The newest record of each user, as many as the memory allows.
class Newest {
 public:
  std::string_view find(const UserId& user) const {
    const auto found = places_.find(user);
    return found == places_.end() ? std::string_view() : std::string_view(found->second->second);
  }
  void put(const UserId& user, std::string_view record) {
    forget(user);
    if (record.size() > kRememberedBytes) return;
    records_.emplace_front(user, record);
    places_[user] = records_.begin();
    for (bytes_ += record.size(); bytes_ > kRememberedBytes;) forget(records_.back().first);
  }
  void forget(const UserId& user) {
    const auto found = places_.find(user);
    if (found == places_.end()) return;
    bytes_ -= found->second->second.size();
    records_.erase(found->second);
    places_.erase(found);
  }
  void clear() { records_.clear(), places_.clear(), bytes_ = 0; }

 private:
  using Records = std::list<std::pair<UserId, std::string>>;
  Records records_;  // the newest first
  std::map<UserId, Records::iterator> places_;
  size_t bytes_ = 0;
};

}  // namespace

Result<std::string> read_key(const std::string& path) {
  Result<std::string> key = read_all(path);
  if (!key.ok()) return key;
  while (key->ends_with('\n') || key->ends_with('\r')) key->pop_back();
  if (Status status = check_key(*key); !status.ok()) return invalid_argument(path + ": " + status.message());
  return key;
}

std::string pseudonym(const std::string& key, std::string_view user) { return hexadecimal(user_id(key, user)); }

class Writer::Impl {
 public:
  Impl(const Options& options, Users users, uint64_t newest_file)
      : options_(options), users_(std::move(users)), number_(newest_file) {}

  Status append(std::string_view user, int64_t unix_ms, std::string_view record) {
    if (!file_.is_open() || size_ >= options_.file_bytes) KAIJU_TRY(begin_file());
    EntryHead head{user_id(options_.key, user), 0, unix_ms, 0};
    Result<const Key*> key = users_.find_or_make(head.user);
    if (!key.ok()) return key.status();
    head.key = key_mark(**key);
    const std::string_view before = newest_.find(head.user);
    if (!before.empty()) head.flags = kAfterOwn;
    const std::string packed = pack(record, before);
    const std::string sealed = packed.empty() ? packed : seal(**key, packed, beside(number_, place_, head));
    if (sealed.empty() || sealed.size() >= kMostEntryBytes) return internal_error("the record cannot be sealed");
    std::string bytes;
    put_number(bytes, kEntryHeadBytes + sealed.size(), kLengthBytes);
    bytes += head.bytes() + sealed;
    if (Status status = write_all(file_, path_, bytes); !status.ok()) {
      file_ = File();  // it may end within the entry
      return status;
    }
    size_ += bytes.size(), written_ += bytes.size(), ++place_;
    newest_.put(head.user, record);
    return {};
  }

  Result<bool> erase(std::string_view user) {
    const UserId id = user_id(options_.key, user);
    newest_.forget(id);
    return users_.erase(id);
  }
  uint64_t written() const { return written_; }

 private:
  Status begin_file() {
    path_ = options_.folder + "/" + file_name(number_ + 1);
    Result<File> file = open_file(path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
    if (!file.ok()) return file.status();
    ++number_;
    KAIJU_TRY(write_all(*file, path_, kFileHead));
    file_ = std::move(*file);
    size_ = kFileHead.size(), place_ = 0;
    newest_.clear();
    Result<std::vector<uint64_t>> files = files_of(options_.folder);
    if (!files.ok()) return files.status();
    for (size_t i = 0; i + static_cast<size_t>(options_.files) < files->size(); ++i)
      ::unlink((options_.folder + "/" + file_name((*files)[i])).c_str());
    return {};
  }

  Options options_;
  Users users_;
  Newest newest_;
  uint64_t number_, size_ = 0, place_ = 0, written_ = 0;
  std::string path_;
  File file_;
};

Writer::Writer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Writer::~Writer() = default;

Result<std::unique_ptr<Writer>> Writer::open(const Options& options) {
  KAIJU_TRY(check_key(options.key));
  if (options.files < 2) return invalid_argument("a journal needs two files at least");
  if (::mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST) return io_error(options.folder, "made");
  Result<Users> users = Users::own(options.folder, options.key);
  if (!users.ok()) return users.status();
  Result<std::vector<uint64_t>> files = files_of(options.folder);
  if (!files.ok()) return files.status();
  auto impl = std::make_unique<Impl>(options, std::move(*users), files->empty() ? 0 : files->back());
  return std::unique_ptr<Writer>(new Writer(std::move(impl)));
}

Status Writer::append(std::string_view user, int64_t unix_ms, std::string_view record) {
  return impl_->append(user, unix_ms, record);
}
Result<bool> Writer::erase(std::string_view user) { return impl_->erase(user); }
uint64_t Writer::bytes_written() const { return impl_->written(); }

namespace {

class FileReader {
 public:
  FileReader(const Users& users, uint64_t number, ReadCounts& counts)
      : users_(users), number_(number), counts_(counts) {}

  // False: `take` wants no more.
  bool read(std::string_view bytes, const std::function<bool(Entry&)>& take) {
    if (!bytes.starts_with(kFileHead)) return ++counts_.damaged, true;
    bytes.remove_prefix(kFileHead.size());
    for (uint64_t place = 0; !bytes.empty(); ++place) {
      const uint64_t length = bytes.size() < kLengthBytes ? 0 : number_of(bytes.substr(0, kLengthBytes));
      if (length < kEntryHeadBytes || length > bytes.size() - kLengthBytes) return ++counts_.damaged, true;
      Entry entry;
      if (open(bytes.substr(kLengthBytes, length), place, entry) && !take(entry)) return false;
      bytes.remove_prefix(kLengthBytes + length);
    }
    return true;
  }

 private:
  bool open(std::string_view bytes, uint64_t place, Entry& entry) {
    const EntryHead head = EntryHead::of(bytes.substr(0, kEntryHeadBytes));
    const Key* const key = users_.find(head.user);
    if (!key || key_mark(*key) != head.key) return ++counts_.erased, false;
    std::string& before = newest_[head.user];
    const auto packed = open_sealed(*key, bytes.substr(kEntryHeadBytes), beside(number_, place, head));
    auto record = packed ? unpack(*packed, head.flags & kAfterOwn ? before : std::string_view()) : std::nullopt;
    if (!record) return ++counts_.damaged, false;
    before = *record;
    ++counts_.entries;
    entry = {hexadecimal(head.user), head.unix_ms, std::move(*record)};
    return true;
  }

  const Users& users_;
  uint64_t number_;
  ReadCounts& counts_;
  std::map<UserId, std::string> newest_;
};

}  // namespace

Status read(const std::string& folder, const std::string& key, const std::function<bool(Entry&)>& take,
            ReadCounts& counts) {
  KAIJU_TRY(check_key(key));
  Result<Users> users = Users::read(folder, key);
  if (!users.ok()) return users.status();
  Result<std::vector<uint64_t>> files = files_of(folder);
  if (!files.ok()) return files.status();
  for (const uint64_t number : *files) {
    const std::string path = folder + "/" + file_name(number);
    Result<std::string> bytes = read_all(path);
    if (!bytes.ok() && ::access(path.c_str(), F_OK) != 0) continue;  // rotated away meanwhile
    if (!bytes.ok()) return bytes.status();
    ++counts.files;
    if (!FileReader(*users, number, counts).read(*bytes, take)) break;
  }
  return {};
}

}  // namespace kaiju::journal
