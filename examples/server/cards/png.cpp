#include "png.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "card.hpp"
#include "text.hpp"

namespace kaiju::server {
namespace {

uint32_t big_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

// Everything up to the next NUL, which is taken off too.
std::string_view take_word(std::string_view& bytes, const char* chunk) {
  const size_t end = bytes.find('\0');
  if (end == std::string_view::npos) throw Refusal(fmt::format("the PNG has a damaged {} chunk", chunk));
  const std::string_view word = bytes.substr(0, end);
  bytes.remove_prefix(end + 1);
  return word;
}

std::string inflated(std::string_view bytes, std::string_view keyword, size_t most) {
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) throw std::bad_alloc();
  std::string out;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  int status = Z_OK;
  char part[16384];
  while (status == Z_OK && out.size() <= most) {
    stream.next_out = reinterpret_cast<Bytef*>(part);
    stream.avail_out = sizeof(part);
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(part, sizeof(part) - stream.avail_out);
  }
  inflateEnd(&stream);
  if (out.size() > most)
    throw Refusal(fmt::format("the PNG's text '{}' has more than {} bytes when it is inflated", keyword, most));
  if (status != Z_STREAM_END) throw Refusal(fmt::format("the PNG's compressed text '{}' is damaged", keyword));
  return out;
}

// The text of a chunk, uncompressed. `rest` is what follows the keyword.
std::string text_of(std::string_view type, std::string_view keyword, std::string_view rest, size_t most) {
  bool compressed = type == "zTXt";
  if (type == "iTXt") {
    if (rest.size() < 2) throw Refusal("the PNG has a damaged iTXt chunk");
    compressed = rest[0] != 0;
    rest.remove_prefix(1);
  }
  if (type != "tEXt") {
    if (rest.empty() || rest[0] != 0)
      throw Refusal(fmt::format("the PNG's text '{}' is compressed by an unknown method", keyword));
    rest.remove_prefix(1);
  }
  if (type == "iTXt") {
    take_word(rest, "iTXt");  // language
    take_word(rest, "iTXt");  // translated keyword
  }
  if (compressed) return inflated(rest, keyword, most);
  if (rest.size() > most)
    throw Refusal(fmt::format("the PNG's text '{}' has {} bytes; at most {}", keyword, rest.size(), most));
  return std::string(rest);
}

void check_header(std::string_view data) {
  if (data.size() != 13) throw Refusal("the PNG's header has the wrong size");
  const uint32_t width = big_endian(data), height = big_endian(data.substr(4));
  if (width == 0 || height == 0 || width > kMaxPictureSide || height > kMaxPictureSide)
    throw Refusal(
        fmt::format("the picture is {} by {} pixels; each side must be from 1 to {}", width, height, kMaxPictureSide));
}

struct Chunk {
  std::string_view type, data, all;
};

// Takes one chunk off `rest`.
Chunk take_chunk(std::string_view& rest) {
  constexpr size_t kAround = 12;  // length, type, CRC
  if (rest.size() < kAround) throw Refusal("the PNG is cut short");
  const uint32_t length = big_endian(rest);
  if (length > rest.size() - kAround) throw Refusal("the PNG is cut short, or a chunk says a wrong length");
  const Chunk chunk{rest.substr(4, 4), rest.substr(8, length), rest.substr(0, kAround + length)};
  const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(chunk.all.data()) + 4, length + 4);
  for (const char c : chunk.type)
    if (!std::isalpha(static_cast<unsigned char>(c))) throw Refusal("the PNG has a damaged chunk: no type");
  if (crc != big_endian(rest.substr(8 + length)))
    throw Refusal(fmt::format("the PNG is damaged: the CRC of a {} chunk is wrong", chunk.type));
  rest.remove_prefix(kAround + length);
  return chunk;
}

}  // namespace

PngText png_text(std::string_view file, std::string_view wanted, std::string_view otherwise, size_t most_text) {
  if (file.size() > kMaxPngBytes)
    throw Refusal(fmt::format("the PNG has {} bytes; at most {}", file.size(), kMaxPngBytes));
  if (!is_png(file)) throw Refusal("the file is no PNG");
  constexpr size_t kSignature = 8;
  std::string_view rest = file.substr(kSignature);
  PngText found;
  found.picture = std::string(file.substr(0, kSignature));
  Chunk first[2];  // of `wanted`, of `otherwise`
  bool has_pixels = false;
  for (size_t count = 0;; ++count) {
    const Chunk chunk = take_chunk(rest);
    if ((count == 0) != (chunk.type == "IHDR")) throw Refusal("the PNG does not begin with its one header");
    if (count == 0) check_header(chunk.data);
    has_pixels |= chunk.type == "IDAT";
    const bool is_text = chunk.type == "tEXt" || chunk.type == "zTXt" || chunk.type == "iTXt";
    if (is_text) {
      std::string_view data = chunk.data;
      const std::string_view keyword = take_word(data, "text");
      for (size_t i = 0; i < 2; ++i)
        if (same_word(keyword, i == 0 ? wanted : otherwise) && first[i].type.empty()) first[i] = chunk;
    } else if (chunk.type != "tIME" && chunk.type != "eXIf") {
      found.picture += chunk.all;
    }
    if (chunk.type == "IEND") break;
  }
  if (!has_pixels) throw Refusal("the PNG has no picture in it");
  const Chunk& chunk = first[0].type.empty() ? first[1] : first[0];
  if (chunk.type.empty())
    throw Refusal(
        fmt::format("the PNG has no card in it (no text chunk '{}' or '{}'); many sites and programs remove "
                    "it: take the file as it was exported",
                    wanted, otherwise));
  std::string_view data = chunk.data;
  found.keyword = std::string(take_word(data, "text"));
  found.text = text_of(chunk.type, found.keyword, data, most_text);
  return found;
}

}  // namespace kaiju::server
