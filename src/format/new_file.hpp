// NewFile: a file that gets its name only when it is complete and on the disk (temporary file, fsync, rename, fsync of
// the folder). If it is destroyed before commit(), no new file is left and an old file of that name is unchanged. If
// the name is a symbolic link, its target is written and the link stays.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kaiju/base/status.hpp"

namespace kaiju::format {

class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), target_(path_) {}
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  // Readable by the owner alone when `secret`; otherwise an old file's permissions are kept, and its owner and group as
  // far as the process may give files to them. Errors name the path.
  Status open(bool secret = false);
  // A full disk is told now rather than after the last gigabyte; file systems that cannot reserve space find out as
  // they go.
  Status reserve(uint64_t bytes);
  // Writes all bytes at this place.
  Status put(std::span<const std::byte> bytes, uint64_t at);
  Status commit();

 private:
  Status follow_links();
  Status keep_access(const struct stat& old);
  Status failed(std::string_view what) const;

  std::string path_, target_, temporary_;  // target_: where the path's links lead
  int fd_ = -1, folder_fd_ = -1;
};

}  // namespace kaiju::format
