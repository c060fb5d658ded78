// The library's file calls and C allocations, failing on demand: see shortage.hpp. The linker's --wrap puts these in
// their place.
#include <dirent.h>
#include <fcntl.h>
#include <sentencepiece_processor.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "tests/shortage/shortage.hpp"

namespace shortage {
namespace {

int64_t made = 0;
int64_t fails_at = 0;  // 0: never
bool fails_for_good = false;
bool interrupts = false;
int64_t interrupts_until = 0;

// A call that no signal interrupts.
bool fails() {
  if (interrupts) return false;
  ++made;
  const bool now = fails_at > 0 && (made == fails_at || (fails_for_good && made > fails_at));
  if (now) errno = EIO;
  return now;
}

// One that a signal may.
bool fails_or_is_interrupted() {
  if (!interrupts) return fails();
  ++made;
  const bool now = made >= fails_at && made <= interrupts_until;
  if (now) errno = EINTR;
  return now;
}

}  // namespace

namespace files {
void interrupt_at(int64_t nth, int64_t more) {
  made = 0;
  interrupts = nth > 0;
  fails_at = nth;
  interrupts_until = nth + more;
}
void fail_at(int64_t nth, bool for_good) {
  made = 0;
  interrupts = false;
  fails_at = nth;
  fails_for_good = for_good;
}
int64_t calls() { return made; }
}  // namespace files

size_t open_files() {
  size_t count = 0;
  if (DIR* folder = ::opendir("/proc/self/fd")) {
    while (::readdir(folder)) ++count;
    ::closedir(folder);
  }
  return count;
}

}  // namespace shortage

using shortage::fails;
using shortage::fails_or_is_interrupted;

extern "C" {
void* __real_calloc(size_t count, size_t size);
void* __real_XXH3_createState();
int __real_open(const char* path, int flags, ...);
int __real_stat(const char* path, struct stat* info);
int __real_fstat(int file, struct stat* info);
ssize_t __real_readlink(const char* path, char* to, size_t size);
void* __real_mmap(void* address, size_t size, int protection, int flags, int file, off_t offset);
ssize_t __real_pread(int file, void* bytes, size_t size, off_t offset);
int __real_fallocate(int file, int mode, off_t offset, off_t size);
int __real_ftruncate(int file, off_t size);
ssize_t __real_pwrite(int file, const void* bytes, size_t size, off_t offset);
int __real_close(int file);
int __real_rename(const char* from, const char* to);

void* __wrap_calloc(size_t count, size_t size) { return heap::may_have() ? __real_calloc(count, size) : nullptr; }
void* __wrap_XXH3_createState() { return heap::may_have() ? __real_XXH3_createState() : nullptr; }
int __wrap_open(const char* path, int flags, ...) {
  if (fails_or_is_interrupted()) return -1;
  va_list arguments;
  va_start(arguments, flags);
  const int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return __real_open(path, flags, mode);
}
int __wrap_stat(const char* path, struct stat* info) { return fails() ? -1 : __real_stat(path, info); }
int __wrap_fstat(int file, struct stat* info) { return fails() ? -1 : __real_fstat(file, info); }
ssize_t __wrap_readlink(const char* path, char* to, size_t size) {
  return fails() ? -1 : __real_readlink(path, to, size);
}
void* __wrap_mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  return fails() ? MAP_FAILED : __real_mmap(address, size, protection, flags, file, offset);
}
ssize_t __wrap_pread(int file, void* bytes, size_t size, off_t offset) {
  return fails() ? -1 : __real_pread(file, bytes, size, offset);
}
int __wrap_fallocate(int file, int mode, off_t offset, off_t size) {
  return fails_or_is_interrupted() ? -1 : __real_fallocate(file, mode, offset, size);
}
int __wrap_ftruncate(int file, off_t size) { return fails_or_is_interrupted() ? -1 : __real_ftruncate(file, size); }
ssize_t __wrap_pwrite(int file, const void* bytes, size_t size, off_t offset) {
  return fails_or_is_interrupted() ? -1 : __real_pwrite(file, bytes, size, offset);
}
int __wrap_fsync(int) { return fails_or_is_interrupted() ? -1 : 0; }  // waiting for the disk would test nothing
// A close that fails has closed all the same, on Linux.
int __wrap_close(int file) {
  const bool failed = fails_or_is_interrupted();
  const int error = errno;
  const int answer = __real_close(file);
  return failed ? (errno = error, -1) : answer;
}
int __wrap_rename(const char* from, const char* to) { return fails() ? -1 : __real_rename(from, to); }

// SentencePiece is left out: when memory runs out inside its protobuf messages it crashes in their destructors (0.1.97,
// protobuf 3.21), and nothing outside can help that.
using sentencepiece::SentencePieceProcessor;
sentencepiece::util::Status real_load(SentencePieceProcessor* self, std::string_view model) __asm__(
    "__real__ZN13sentencepiece22SentencePieceProcessor23LoadFromSerializedProto"
    "ESt17basic_string_viewIcSt11char_traitsIcEE");
sentencepiece::util::Status
real_encode(const SentencePieceProcessor* self, std::string_view text, std::vector<int>* ids) __asm__(
    "__real__ZNK13sentencepiece22SentencePieceProcessor6Encode"
    "ESt17basic_string_viewIcSt11char_traitsIcEEPSt6vectorIiSaIiEE");
sentencepiece::util::Status
__wrap__ZN13sentencepiece22SentencePieceProcessor23LoadFromSerializedProtoESt17basic_string_viewIcSt11char_traitsIcEE(
    SentencePieceProcessor* self, std::string_view model) {
  const heap::Pause pause;
  return real_load(self, model);
}
sentencepiece::util::Status
__wrap__ZNK13sentencepiece22SentencePieceProcessor6EncodeESt17basic_string_viewIcSt11char_traitsIcEEPSt6vectorIiSaIiEE(
    const SentencePieceProcessor* self, std::string_view text, std::vector<int>* ids) {
  const heap::Pause pause;
  return real_encode(self, text, ids);
}
}
