// Reads text files and lines up to a size limit, so that an endless file or pipe is refused and does not fill the
// memory. Skips a byte-order mark at the beginning of a text.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <istream>
#include <string>
#include <string_view>
#include <system_error>

namespace kaiju::tools {

inline void skip_byte_order_mark(std::string& text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
}

struct TextFile {
  std::string text;
  std::string problem;  // empty, or in one line why there is no text; names the file
};

// All of a file of at most `most_bytes`. Waits where the file is a pipe that nobody has opened for writing.
inline TextFile read_text_file(const std::string& path, size_t most_bytes) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  const auto why = [] { return std::generic_category().message(errno); };
  if (!file) return {"", fmt::format("cannot read {}: {}", path, why())};
  TextFile out;
  char piece[1 << 16];
  while (out.text.size() <= most_bytes) {
    const size_t count = std::fread(piece, 1, sizeof piece, file);
    if (count == 0) break;
    out.text.append(piece, count);
  }
  if (std::ferror(file)) out.problem = fmt::format("cannot read {}: {}", path, why());
  if (out.text.size() > most_bytes)
    out.problem = fmt::format("{} is longer than {} bytes, the most that is read of it", path, most_bytes);
  std::fclose(file);
  skip_byte_order_mark(out.text);
  return out;
}

enum class LineRead { kLine, kEnd, kTooLong };

// The next line, without its end. kTooLong after `most_bytes` of one, which `line` then holds; kEnd also where the
// stream cannot be read.
inline LineRead read_line(std::istream& in, std::string& line, size_t most_bytes) {
  line.clear();
  for (char c = 0; in.get(c);) {
    if (c == '\n') return LineRead::kLine;
    if (line.size() == most_bytes) return LineRead::kTooLong;
    line += c;
  }
  return line.empty() ? LineRead::kEnd : LineRead::kLine;
}

}  // namespace kaiju::tools
