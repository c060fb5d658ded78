// Power loss: under the store is a file system (a VFS of SQLite) that remembers what each file was when it was last
// synced. When the power fails, that is all there is; what was written later is gone.
#include <sqlite3.h>

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "store_open.hpp"

using namespace kaiju;
using namespace kaiju::server;
using namespace kaiju::server::test;

namespace {

std::map<std::string, std::string>& synced() {  // by path
  static std::map<std::string, std::string> files;
  return files;
}

sqlite3_vfs* real() {
  static sqlite3_vfs* vfs = sqlite3_vfs_find("unix");
  return vfs;
}

// A file of this VFS: the real one's object follows in the same memory.
struct File {
  sqlite3_file base;
  const char* path;
  sqlite3_file* under() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
File& of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }

// Calls the real file's method of this name with the same arguments.
template <auto Method>
struct Pass;
template <class R, class... A, R (*sqlite3_io_methods::*Method)(sqlite3_file*, A...)>
struct Pass<Method> {
  static R call(sqlite3_file* file, A... arguments) {
    sqlite3_file* under = of(file).under();
    return (under->pMethods->*Method)(under, arguments...);
  }
};

int sync_file(sqlite3_file* file, int flags) {
  sqlite3_file* under = of(file).under();
  const int result = under->pMethods->xSync(under, flags);
  sqlite3_int64 size = 0;
  under->pMethods->xFileSize(under, &size);
  std::string bytes(static_cast<size_t>(size), '\0');
  if (size > 0) under->pMethods->xRead(under, bytes.data(), static_cast<int>(size), 0);
  if (of(file).path) synced()[of(file).path] = bytes;
  return result;
}

const sqlite3_io_methods* methods() {
  using M = sqlite3_io_methods;
  static const sqlite3_io_methods all = {3,
                                         Pass<&M::xClose>::call,
                                         Pass<&M::xRead>::call,
                                         Pass<&M::xWrite>::call,
                                         Pass<&M::xTruncate>::call,
                                         sync_file,
                                         Pass<&M::xFileSize>::call,
                                         Pass<&M::xLock>::call,
                                         Pass<&M::xUnlock>::call,
                                         Pass<&M::xCheckReservedLock>::call,
                                         Pass<&M::xFileControl>::call,
                                         Pass<&M::xSectorSize>::call,
                                         Pass<&M::xDeviceCharacteristics>::call,
                                         Pass<&M::xShmMap>::call,
                                         Pass<&M::xShmLock>::call,
                                         Pass<&M::xShmBarrier>::call,
                                         Pass<&M::xShmUnmap>::call,
                                         Pass<&M::xFetch>::call,
                                         Pass<&M::xUnfetch>::call};
  return &all;
}

int open_file(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* opened_flags) {
  file->pMethods = nullptr;
  of(file).path = path;  // SQLite keeps it until the file is closed
  const int result = real()->xOpen(real(), path, of(file).under(), flags, opened_flags);
  if (result == SQLITE_OK) file->pMethods = methods();
  return result;
}

int delete_file(sqlite3_vfs*, const char* path, int sync_folder) {
  synced().erase(path);
  return real()->xDelete(real(), path, sync_folder);
}

// The VFS is SQLite's default while this lives.
class ForgetfulDisk {
 public:
  ForgetfulDisk() : vfs_(*real()) {
    synced().clear();
    vfs_.zName = "forgetful";
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real()->szOsFile;
    vfs_.xOpen = open_file;
    vfs_.xDelete = delete_file;
    vfs_.pNext = nullptr;
    sqlite3_vfs_register(&vfs_, 1);
  }
  ~ForgetfulDisk() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(real(), 1);
  }

 private:
  sqlite3_vfs vfs_;
};

}  // namespace

TEST_CASE("a power loss after any call loses nothing that the call was told is kept") {
  const Place place, after;
  size_t losses = 0;
  std::vector<std::string> chats;
  std::map<std::string, Chat> expected;
  const auto fail_power = [&] {
    // Without the VFS: the files as they were synced, elsewhere.
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(after.file() + suffix);
    for (const auto& [path, bytes] : synced())
      std::ofstream(after.file() + path.substr(place.file().size()), std::ios::binary) << bytes;
    sqlite3_vfs* forgetful = sqlite3_vfs_find(nullptr);
    sqlite3_vfs_register(real(), 1);
    {
      auto store = must(open_sqlite_store(after.file()));
      for (const std::string& id : chats) {
        const Chat found = must(store->chat("ann", id));
        const Chat& wanted = expected[id];
        REQUIRE(found.turns.size() == wanted.turns.size());
        for (size_t i = 0; i < wanted.turns.size(); ++i) {
          REQUIRE(found.turns[i].user == wanted.turns[i].user);
          REQUIRE(found.turns[i].replies == wanted.turns[i].replies);
          REQUIRE(found.turns[i].chosen == wanted.turns[i].chosen);
        }
      }
    }
    sqlite3_vfs_register(forgetful, 1);
    ++losses;
  };
  const ForgetfulDisk disk;
  auto store = must(open_sqlite_store(place.file()));
  for (int c = 0; c < 3; ++c) {
    chats.push_back(new_chat(*store));
    expected[chats.back()];
    fail_power();
  }
  for (int i = 0; i < 60; ++i) {
    const std::string& id = chats[static_cast<size_t>(i) % 3];
    auto& turns = expected[id].turns;
    // Long ones: the log is written back into the file (a checkpoint) in between, more than once.
    const Turn turn = turn_of(std::string(200'000, static_cast<char>('a' + i % 26)), "r" + std::to_string(i));
    must(store->append_turn("ann", id, static_cast<int64_t>(turns.size()), turn));
    turns.push_back(turn);
    if (i % 4 == 3) fail_power();
    if (i % 5 == 4) {
      must(store->add_reply("ann", id, static_cast<int64_t>(turns.size()) - 1, reply_of("another")));
      turns.back().replies.push_back(reply_of("another"));
      turns.back().chosen = 1;
      fail_power();
    }
    if (i % 20 == 19) {
      must(store->truncate_turns("ann", id, 2));
      turns.resize(2);
      fail_power();
    }
  }
  CHECK(losses == 33);
}
