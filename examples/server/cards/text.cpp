#include "text.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

namespace kaiju::server {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_control(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n') || c == 0x7F; }

char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string small(std::string_view text) {
  std::string all(text);
  for (char& c : all) c = small(c);
  return all;
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return is_blank(c) || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// What the macro with this inside becomes; nothing: it stays as it is written.
std::optional<std::string> settled_macro(std::string_view inside, Settled& settled) {
  const std::string_view body = trimmed(inside);
  const std::string_view start = body.substr(0, std::min<size_t>(body.size(), 12));  // no name is longer
  const std::string name = small(start.substr(0, start.find(':')));
  if (body.starts_with("//") || name == "comment" || name == "hidden_key") return "";
  if (name == "char" || name == "user") return "{{" + name + "}}";
  if (name == "original" || name == "trim" || name == "noop") return "";
  if (name == "newline") return "\n";
  if ((name == "random" || name == "pick") && body.size() > name.size()) {
    std::string_view choices = body.substr(name.size() + 1);
    if (choices.starts_with(':')) choices.remove_prefix(1);  // {{random::a::b}}
    settled.chose = true;
    return std::string(trimmed(choices.substr(0, std::min(choices.find(','), choices.find("::")))));
  }
  settled.unknown = true;
  return std::nullopt;
}

// <USER> and <BOT>, the older spelling.
std::string without_tags(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kTags[] = {
      {"<user>", "{{user}}"}, {"<bot>", "{{char}}"}, {"<char>", "{{char}}"}};
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t next = std::min(text.find('<'), text.size());
    out += text.substr(0, next);
    text.remove_prefix(next);
    if (text.empty()) break;
    size_t taken = 0;
    for (const auto& [tag, macro] : kTags)
      if (taken == 0 && small(text.substr(0, tag.size())) == tag) {
        out += macro;
        taken = tag.size();
      }
    if (taken == 0) out += text.front();
    text.remove_prefix(std::max<size_t>(taken, 1));
  }
  return out;
}

// Resolves macros from the inside outwards. What a removal brings together is for the next round. Of more than kDeepest
// that are open at once the outermost are taken for plain text, which bounds the time for hostile ones.
Settled settled_once(std::string_view text) {
  constexpr size_t kDeepest = 8;
  Settled settled;
  std::string& out = settled.text;
  out.reserve(text.size());
  std::vector<size_t> opened;
  size_t taken = 0;  // braces before this belong to a macro that is done
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    out += c;
    const size_t size = out.size();
    if (c != '{' && c != '}') {
      const size_t run = std::min(text.find_first_of("{}", at + 1), text.size());
      out += text.substr(at + 1, run - at - 1);
      at = run - 1;
      continue;
    }
    if (size < 2 || size - 2 < taken || out[size - 2] != c) continue;
    if (c == '{' && (opened.empty() || opened.back() + 2 <= size - 2)) {
      if (opened.size() == kDeepest) opened.erase(opened.begin());
      opened.push_back(size - 2);
    } else if (c == '}' && !opened.empty() && opened.back() + 4 <= size) {
      const size_t begin = opened.back();
      opened.pop_back();
      const std::string_view inside = std::string_view(out).substr(begin + 2, size - begin - 4);
      if (const auto becomes = settled_macro(inside, settled)) {
        out.resize(begin);
        out += *becomes;
      }
      taken = out.size();
    }
  }
  return settled;
}

// The code point that ends before `at`, or that begins there; -1 at an end of the text.
int32_t code_before(std::string_view text, size_t at) {
  size_t begin = at;
  while (begin > 0 && at - begin < 4) {
    --begin;
    if ((static_cast<uint8_t>(text[begin]) & 0xC0) != 0x80) break;
  }
  utf8proc_int32_t code = -1;
  if (begin < at)
    utf8proc_iterate(reinterpret_cast<const uint8_t*>(text.data()) + begin, static_cast<utf8proc_ssize_t>(at - begin),
                     &code);
  return code;
}
int32_t code_at(std::string_view text, size_t at) {
  utf8proc_int32_t code = -1;
  if (at < text.size())
    utf8proc_iterate(reinterpret_cast<const uint8_t*>(text.data()) + at,
                     static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  return code;
}

bool makes_words(int32_t code) {
  if (code < 0) return false;
  if (code == '_') return true;
  if ((code >= 0x0E00 && code < 0x1000) || (code >= 0x1000 && code < 0x10A0) || (code >= 0x1780 && code < 0x1800) ||
      (code >= 0x2E80 && code < 0xABFF) || (code >= 0xF900 && code < 0xFB00) || code >= 0x20000)
    return false;  // Thai to Tibetan, Burmese, Khmer, Chinese and Japanese: no spaces between words
  if (code >= 0xAC00 && code < 0xD7B0) return false;  // Korean: particles touch the word
  const utf8proc_category_t category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO;  // letters, marks, numbers
}

}  // namespace

std::string tidied(std::string_view text, size_t* removed) {
  std::string out;
  out.reserve(text.size());
  const auto end_line = [&out] {
    while (!out.empty() && is_blank(out.back())) out.pop_back();
    if (!out.empty() && !out.ends_with("\n\n")) out += '\n';
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\r') {
      if (i + 1 < text.size() && text[i + 1] == '\n') continue;
      end_line();
    } else if (c == '\n') {
      end_line();
    } else if (is_control(c)) {
      if (removed) ++*removed;
    } else {
      size_t end = i + 1;
      while (end < text.size() && text[end] != '\n' && text[end] != '\r' && !is_control(text[end])) ++end;
      out += text.substr(i, end - i);
      i = end - 1;
    }
  }
  return std::string(trimmed(out));
}

std::string tidied_line(std::string_view text, size_t* removed) {
  const std::string lines = tidied(text, removed);
  std::string out;
  for (const char c : lines) {
    const char blank = c == '\n' || c == '\t' ? ' ' : c;
    if (blank != ' ' || !out.ends_with(' ')) out += blank;
  }
  return out;
}

Settled settle_macros(std::string_view text) {
  Settled settled;
  settled.text = tidied(text);
  for (int round = 0; round < 8; ++round) {
    if (settled.text.find_first_of("{<") == std::string::npos) return settled;
    std::string before = settled.text;
    const Settled once = settled_once(without_tags(before));
    settled.text = tidied(once.text);
    settled.chose |= once.chose;
    settled.unknown |= once.unknown;
    if (settled.text == before) return settled;
  }
  throw Refusal("has macros ({{...}}) inside each other that make new ones; write what they mean");
}

std::string with_names(std::string_view text, std::string_view character, std::string_view user) {
  constexpr std::string_view kCharacter = "{{char}}", kUser = "{{user}}";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find("{{", at), text.size());
    out += text.substr(at, next - at);
    const std::string_view rest = text.substr(next);
    at = next;
    if (rest.starts_with(kCharacter)) {
      out += character;
      at += kCharacter.size();
    } else if (rest.starts_with(kUser)) {
      out += user;
      at += kUser.size();
    } else if (!rest.empty()) {
      out += rest.front();
      ++at;
    }
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static constexpr auto kValues = [kDigits] {
    std::array<int8_t, 256> values{};
    values.fill(-1);
    for (size_t i = 0; i < kDigits.size(); ++i) values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
    return values;
  }();
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  size_t digits = 0, padding = 0;
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const int8_t value = kValues[static_cast<uint8_t>(c)];
    if (value < 0 || padding > 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (++digits % 4 == 0)
      for (const int shift : {16, 8, 0}) out += static_cast<char>(bits >> shift & 0xFF);
  }
  const size_t rest = digits % 4;
  if (rest == 1 || padding > 2 || (padding > 0 && (rest + padding) % 4 != 0)) return std::nullopt;
  if (rest >= 2) out += static_cast<char>(bits >> (rest == 2 ? 4 : 10) & 0xFF);
  if (rest == 3) out += static_cast<char>(bits >> 2 & 0xFF);
  return out;
}

std::string folded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      out += small(text[at++]);
      continue;
    }
    utf8proc_int32_t code = -1;
    const utf8proc_ssize_t size = utf8proc_iterate(reinterpret_cast<const uint8_t*>(text.data()) + at,
                                                   static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (size <= 0) {
      out += text[at++];
      continue;
    }
    uint8_t bytes[4];
    const utf8proc_ssize_t count = utf8proc_encode_char(utf8proc_tolower(code), bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
    at += static_cast<size_t>(size);
  }
  return out;
}

bool contains(std::string_view text, std::string_view key, bool whole_words) {
  if (key.empty()) return false;
  const bool begins = whole_words && makes_words(code_at(key, 0));
  const bool ends = whole_words && makes_words(code_before(key, key.size()));
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1))
    if (!(begins && makes_words(code_before(text, at))) && !(ends && makes_words(code_at(text, at + key.size()))))
      return true;
  return false;
}

std::string joined(const std::vector<std::string>& texts, std::string_view between) {
  std::string out;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    if (!out.empty()) out += between;
    out += text;
  }
  return out;
}

}  // namespace kaiju::server
