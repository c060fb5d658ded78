// Saved sessions and conversations: makes sealers from keys, and saves to and restores from files. The engine writes
// and reads the bytes (engine/detail/saved_session.hpp, saved_conversation.hpp).
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <type_traits>

#include "format/file_calls.hpp"
#include "format/new_file.hpp"
#include "format/path.hpp"
#include "kaiju/kaiju.hpp"

namespace kaiju {
namespace {

constexpr size_t kSaveBufferBytes = size_t{1} << 20;

// Closes what it opened.
struct OpenFile {
  int fd = -1;
  ~OpenFile() {
    if (fd >= 0) format::close_file(fd);
  }
};

}  // namespace

Result<Sealer> make_sealer(std::string_view key) {
  if (key.size() < kLeastKeyBytes || key.size() > kMostKeyBytes)
    return invalid_argument(
        fmt::format("a key is {} bytes long; it must be {} to {}", key.size(), kLeastKeyBytes, kMostKeyBytes));
  return Sealer([key = std::string(key)](std::span<const std::byte> bytes, SealTag& tag) {
    unsigned size = 0;
    return HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                reinterpret_cast<unsigned char*>(tag.data()), &size) != nullptr &&
           size == tag.size();
  });
}

namespace {

// Gives `save` a sink that writes a new file at `path`, which replaces an old one as a whole when all went well.
template <class Save>
Status save_to(const std::string& path, const Save& save) try {
  format::NewFile file(path);
  KAIJU_TRY(file.open(true));
  std::vector<std::byte> buffer;
  buffer.reserve(kSaveBufferBytes);
  uint64_t at = 0;
  const auto put = [&](std::span<const std::byte> bytes) {
    Status status = file.put(bytes, at);
    at += bytes.size();
    return status;
  };
  KAIJU_TRY(save([&](std::span<const std::byte> bytes) -> Status {
    if (buffer.size() + bytes.size() > kSaveBufferBytes) {
      KAIJU_TRY(put(buffer));
      buffer.clear();
    }
    if (bytes.size() > kSaveBufferBytes) return put(bytes);
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    return {};
  }));
  KAIJU_TRY(put(buffer));
  return file.commit();
} catch (const std::bad_alloc&) {
  return {StatusCode::kOutOfMemory, "out of memory"};
}

// Gives `restore` a source that reads the file at `path`, all of which it has to read.
template <class Restore>
std::invoke_result_t<Restore, const SessionSource&> restore_from(const std::string& path, const Restore& restore) try {
  const auto failed = [&](std::string_view what) { return format::file_error(path, what); };
  KAIJU_TRY(format::check_path(path));
  // O_NONBLOCK: opening a pipe would wait for its writer.
  OpenFile file{format::open_file(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return failed("open");
  struct stat info;
  if (::fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode))
    return Status(StatusCode::kIo, path + ": is not a regular file");
  const SessionSource read = [&](std::span<std::byte> bytes) -> Result<size_t> {
    while (true) {
      const ssize_t count = ::read(file.fd, bytes.data(), bytes.size());
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR) return failed("read");
    }
  };
  auto restored = restore(read);
  if (!restored.ok()) return Status(restored.status().code(), path + ": " + restored.status().message());
  std::byte more;
  if (Result<size_t> rest = read(std::span(&more, 1)); rest.ok() && *rest == 0) return restored;
  return bad_model(path + ": something follows what was saved");
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, "out of memory");
}

}  // namespace

Status save_session(Engine& engine, SessionId session, const std::string& path, const SaveOptions& options) {
  KAIJU_TRY(engine.check_process());
  return save_to(path, [&](const SessionSink& write) { return engine.save_session(session, options, write); });
}

Result<SessionId> restore_session(Engine& engine, const std::string& path, const RestoreOptions& options) {
  SessionId made = 0;
  Result<SessionId> restored = restore_from(path, [&](const SessionSource& read) {
    Result<SessionId> session = engine.restore_session(options, read);
    if (session.ok()) made = session.value();
    return session;
  });
  if (!restored.ok() && made != 0) (void)engine.destroy_session(made);
  return restored;
}

Status save_conversation(Conversation& conversation, const std::string& path, const SaveOptions& options) {
  KAIJU_TRY(conversation.engine()->check_process());
  return save_to(path, [&](const SessionSink& write) { return conversation.save(options, write); });
}

Result<Conversation> restore_conversation(const std::shared_ptr<Engine>& engine, const std::string& path,
                                          const RestoreOptions& options) {
  return restore_from(path, [&](const SessionSource& read) { return Conversation::restore(engine, options, read); });
}

}  // namespace kaiju
