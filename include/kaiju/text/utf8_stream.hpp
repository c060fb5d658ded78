// Utf8Stream: takes bytes and returns whole UTF-8 code points. An incomplete code point is held back until its
// remaining bytes have been pushed. Invalid bytes are replaced by U+FFFD: one U+FFFD for each longest sequence of bytes
// that begins a valid code point, and one for every other invalid byte (Unicode 15, section 3.9, "U+FFFD substitution
// of maximal subparts").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kaiju {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// One thread at a time may use a Utf8Stream.
class Utf8Stream {
 public:
  // Takes the next `bytes` and appends all code points that these bytes complete to `out`.
  void push(std::string_view bytes, std::string& out) {
    for (const char c : bytes) push_byte(static_cast<unsigned char>(c), out);
  }
  // Ends the stream. If an incomplete code point is held back, finish() appends U+FFFD to `out`.
  void finish(std::string& out) {
    if (held_ > 0) out += kReplacementCharacter;
    held_ = 0;
  }
  size_t held_bytes() const { return static_cast<size_t>(held_); }

 private:
  void push_byte(unsigned char byte, std::string& out) {
    if (held_ > 0) {
      if (byte >= low_ && byte <= high_) {
        bytes_[held_++] = static_cast<char>(byte);
        low_ = 0x80, high_ = 0xBF;
        if (held_ < size_) return;
        out.append(bytes_, static_cast<size_t>(size_));
        held_ = 0;
        return;
      }
      out += kReplacementCharacter;
      held_ = 0;  // the byte begins a new code point
    }
    if (byte < 0x80) {
      out += static_cast<char>(byte);
      return;
    }
    // The allowed range of the second byte excludes overlong encodings, surrogates and code points above U+10FFFF
    // (Unicode 15, table 3-7).
    low_ = 0x80, high_ = 0xBF;
    if (byte >= 0xC2 && byte <= 0xDF)
      size_ = 2;
    else if (byte >= 0xE0 && byte <= 0xEF) {
      size_ = 3;
      if (byte == 0xE0) low_ = 0xA0;
      if (byte == 0xED) high_ = 0x9F;
    } else if (byte >= 0xF0 && byte <= 0xF4) {
      size_ = 4;
      if (byte == 0xF0) low_ = 0x90;
      if (byte == 0xF4) high_ = 0x8F;
    } else {
      out += kReplacementCharacter;
      return;
    }
    bytes_[0] = static_cast<char>(byte);
    held_ = 1;
  }

  char bytes_[4] = {};
  int held_ = 0;
  int size_ = 0;
  unsigned char low_ = 0x80, high_ = 0xBF;  // range of the next byte
};

inline bool is_utf8(std::string_view text) {
  Utf8Stream stream;
  std::string whole;
  stream.push(text, whole);
  stream.finish(whole);
  return whole == text;
}

}  // namespace kaiju
