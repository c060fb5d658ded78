// Files that the library writes: a limit for their size is told and ends nobody, links are written through, and an old
// file's permissions stay.
#include "src/format/new_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "tiny.hpp"

using kaiju::Status;
using kaiju::StatusCode;
using kaiju::format::NewFile;

namespace {

// While it lives, files of this process may have so many bytes, and who writes more is ended by SIGXFSZ.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_DFL)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit lower = {bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &lower) == 0);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

sigset_t size_signal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGXFSZ);
  return set;
}
bool size_signal_pending() {
  sigset_t pending;
  REQUIRE(::sigpending(&pending) == 0);
  return ::sigismember(&pending, SIGXFSZ) == 1;
}
bool size_signal_blocked() {
  sigset_t mask;
  REQUIRE(::pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0);
  return ::sigismember(&mask, SIGXFSZ) == 1;
}

Status write(const std::string& path, const std::string& text, bool secret = false) {
  NewFile file(path);
  KAIJU_TRY(file.open(secret));
  KAIJU_TRY(file.put(std::as_bytes(std::span(text)), 0));
  return file.commit();
}

mode_t mode_of(const std::string& path) {
  struct stat info;
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

const std::string kLong(10'000, 'x');

}  // namespace

TEST_CASE(
    "a file beyond the process's size limit is an error that names the limit; the process survives and no file is "
    "left") {
  const tiny::Folder folder;
  tiny::write_file(folder / "old", "the old file");
  kaiju::BlockName digest;
  Status answers[4];
  auto tier = kaiju::open_block_file(folder / "tier", 1 << 16);
  REQUIRE(tier.ok());
  {
    const FileLimit limit(4096);
    answers[0] = write(folder / "old", kLong);
    answers[1] = kaiju::write_random_checkpoint(folder / "model", tiny::config(), 1);
    answers[2] = kaiju::open_block_file(folder / "tier", 1 << 20).status();
    answers[3] = (*tier)->write(8192, std::as_bytes(std::span(kLong)), digest);
  }
  for (const Status& answer : answers) {
    INFO(answer.message());
    CHECK(answer.code() == StatusCode::kIo);
    CHECK(tiny::contains(answer.message(), "4096 bytes (RLIMIT_FSIZE"));
    CHECK(tiny::contains(answer.message(), folder / ""));
  }
  CHECK(folder.file_count() == 1);
  CHECK(tiny::read_file(folder / "old") == "the old file");
  CHECK_FALSE(size_signal_pending());
  CHECK_FALSE(size_signal_blocked());
  CHECK(write(folder / "old", kLong).ok());
}

TEST_CASE("a SIGXFSZ that the host blocks stays as it was, pending or not") {
  const tiny::Folder folder;
  const sigset_t set = size_signal();
  sigset_t before;
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
  for (const bool pending : {false, true}) {
    if (pending) REQUIRE(::raise(SIGXFSZ) == 0);
    {
      const FileLimit limit(4096);
      CHECK(write(folder / "file", kLong).code() == StatusCode::kIo);
    }
    CHECK(size_signal_pending() == pending);
    CHECK(size_signal_blocked());
  }
  const struct timespec no_time = {};
  CHECK(::sigtimedwait(&set, nullptr, &no_time) == SIGXFSZ);
  REQUIRE(::pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  CHECK(folder.file_count() == 0);
}

TEST_CASE("writing to a symbolic link writes its target, and the link stays") {
  const tiny::Folder folder, other;
  namespace fs = std::filesystem;
  fs::create_directory(folder / "inner");
  fs::create_symlink("inner/second", folder / "first");     // relative to the link's own folder
  fs::create_symlink("../third", folder / "inner/second");  // likewise
  fs::create_symlink(other / "file", folder / "third");     // absolute, and to nothing yet
  fs::create_directory_symlink("inner", folder / "folder");
  for (const char* text : {"one", "another"}) {
    REQUIRE(write(folder / "first", text).message() == "");
    CHECK(tiny::read_file(other / "file") == text);
    CHECK(fs::is_symlink(folder / "first"));
    CHECK(fs::is_symlink(folder / "inner/second"));
    CHECK(fs::is_symlink(folder / "third"));
    CHECK(folder.file_count() == 4);  // no temporary file beside the links
    CHECK(other.file_count() == 1);
  }
  REQUIRE(write(folder / "folder/second", "through a folder").message() == "");
  CHECK(tiny::read_file(other / "file") == "through a folder");
  REQUIRE(kaiju::write_random_checkpoint(folder / "first", tiny::config(), 1).message() == "");
  CHECK(kaiju::Checkpoint::open(other / "file").ok());
  CHECK(fs::is_symlink(folder / "first"));
}

TEST_CASE("a symbolic link without a target is refused by name and stays") {
  const tiny::Folder folder;
  namespace fs = std::filesystem;
  const auto refused = [&](const char* name, const char* part) {
    const Status answer = write(folder / name, "text");
    INFO(answer.message());
    CHECK(answer.code() == StatusCode::kIo);
    CHECK(tiny::contains(answer.message(), folder / name));
    CHECK(tiny::contains(answer.message(), part));
    CHECK(fs::is_symlink(folder / name));
  };
  fs::create_symlink("one", folder / "other");
  fs::create_symlink("other", folder / "one");
  refused("one", "symbolic links");
  fs::create_symlink("self", folder / "self");
  refused("self", "symbolic links");
  fs::create_symlink("no/such/file", folder / "far");
  refused("far", "no/such/file");
  fs::create_directory(folder / "real");
  fs::create_directory_symlink("real", folder / "folder");
  refused("folder", "is not a regular file");
  // A file without a name: what /proc says of it is none.
  tiny::write_file(folder / "gone", "text");
  const int fd = ::open((folder / "gone").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(::unlink((folder / "gone").c_str()) == 0);
  fs::create_symlink("/proc/self/fd/" + std::to_string(fd), folder / "open");
  refused("open", "is a link that leads to no name");
  ::close(fd);
  CHECK(folder.file_count() == 7);
}

TEST_CASE("a replaced file keeps its permissions, but a secret file is for its owner only") {
  const tiny::Folder folder;
  for (const mode_t mode : {0640, 0600, 0444, 0666}) {
    tiny::write_file(folder / "file", "old");
    REQUIRE(::chmod((folder / "file").c_str(), mode) == 0);
    REQUIRE(write(folder / "file", "new").message() == "");
    CHECK(mode_of(folder / "file") == mode);
    REQUIRE(write(folder / "file", "secret", true).message() == "");
    CHECK(mode_of(folder / "file") == 0600);
    std::filesystem::remove(folder / "file");
  }
  const mode_t mask = ::umask(027);
  CHECK(write(folder / "file", "new").ok());
  ::umask(mask);
  CHECK(mode_of(folder / "file") == 0640);
  if (::geteuid() != 0) return;  // only root gives files away
  REQUIRE(::chown((folder / "file").c_str(), 1234, 2345) == 0);
  REQUIRE(write(folder / "file", "newer").message() == "");
  struct stat info;
  REQUIRE(::stat((folder / "file").c_str(), &info) == 0);
  CHECK(info.st_uid == 1234);
  CHECK(info.st_gid == 2345);
}
