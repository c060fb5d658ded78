// PNG: the text in a PNG file, found without decoding pixels. Says nothing of what the text means.
#pragma once

#include <string>
#include <string_view>

namespace kaiju::server {

struct PngText {
  std::string keyword;  // the chunk's that was found
  std::string text;
  std::string picture;  // the file without text, time and Exif chunks and without what follows its end
};

inline bool is_png(std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1a\n"); }

// The first text chunk with the keyword `wanted`, else with `otherwise`; of either case. Checks the order and the CRC
// of every chunk. A compressed text (zTXt, iTXt) is inflated up to `most_text`. Throws Refusal where the file is
// damaged, cut short, larger than kMaxPngBytes or kMaxPictureSide, or has no such text.
PngText png_text(std::string_view file, std::string_view wanted, std::string_view otherwise, size_t most_text);

}  // namespace kaiju::server
