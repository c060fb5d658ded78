// Makes cards in the forms that people have them in, PNG files too.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "examples/server/cards/card.hpp"

namespace kaiju::server::test {

using nlohmann::json;

inline Card must_read(const std::string& bytes, const CardOptions& options = {}) {
  auto card = read_card(bytes, options);
  INFO(card.status().message());
  REQUIRE(card.ok());
  return std::move(*card);
}

// The message of the refusal.
inline std::string refusal(const std::string& bytes, const CardOptions& options = {}) {
  const auto card = read_card(bytes, options);
  if (card.ok()) return "not refused";
  CHECK(card.status().code() == StatusCode::kInvalidArgument);
  return card.status().message();
}

inline bool has_note(const Card& card, std::string_view words) {
  for (const std::string& note : card.notes)
    if (note.find(words) != std::string::npos) return true;
  return false;
}

inline json v1() {
  return {{"name", "Wren"},
          {"description", "{{char}} is a hedge witch."},
          {"personality", "kind, wary"},
          {"scenario", "{{user}} meets {{char}} on a road."},
          {"first_mes", "Hello, {{user}}."},
          {"mes_example", "<START>\n{{user}}: Hi\n{{char}}: Hm.\n<START>\n{{char}}: Rain."}};
}

inline json in_data(json fields, const char* spec) {
  return {{"spec", spec}, {"spec_version", "2.0"}, {"data", std::move(fields)}};
}

// A V2 card with this book.
inline std::string with_book(json entries) {
  json fields = v1();
  fields["character_book"] = {{"entries", std::move(entries)}, {"extensions", json::object()}};
  return in_data(std::move(fields), "chara_card_v2").dump();
}

inline std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

inline std::string big_endian(uint32_t value) {
  std::string out;
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift & 0xFF);
  return out;
}

inline std::string chunk(const std::string& type, const std::string& data) {
  const std::string both = type + data;
  const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(both.data()), static_cast<uInt>(both.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + both + big_endian(static_cast<uint32_t>(crc));
}

inline std::string deflated(const std::string& bytes) {
  std::string out(compressBound(static_cast<uLong>(bytes.size())), '\0');
  uLongf size = static_cast<uLongf>(out.size());
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
           static_cast<uLong>(bytes.size()));
  out.resize(size);
  return out;
}

inline std::string zero(const std::string& before, const std::string& after) {
  return before + std::string(1, '\0') + after;
}

inline const std::string kSignature = "\x89PNG\r\n\x1a\n";
inline std::string header(uint32_t width = 1, uint32_t height = 1) {
  return chunk("IHDR", big_endian(width) + big_endian(height) + std::string("\x08\x00\x00\x00\x00", 5));
}
inline std::string pixels() { return chunk("IDAT", deflated(std::string(2, '\0'))); }
inline std::string png(const std::string& chunks) {
  return kSignature + header() + chunks + pixels() + chunk("IEND", "");
}
inline std::string text_chunk(const std::string& keyword, const std::string& card) {
  return chunk("tEXt", zero(keyword, base64(card)));
}

}  // namespace kaiju::server::test
