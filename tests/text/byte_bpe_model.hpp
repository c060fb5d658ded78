// A byte-level BPE tokenizer made by hand, and tools to break it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace kaiju::tests {

// The character that shows a byte in a stored tokenizer.
inline std::string shown(uint8_t byte) {
  const auto printable = [](int b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD); };
  int code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (int before = 0; before < byte; ++before) code += !printable(before);
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

inline std::string shown(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += shown(static_cast<uint8_t>(byte));
  return out;
}

// A JSON string of what has no control characters.
inline std::string in_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// Ids: 0 to 255 the bytes, 256 "<|end|>" (control), 257 "<think>" (visible), 258 four spaces (literal), then what
// merges make: 259 "he", 260 "ll", 261 "llo", 262 "hello", 263 " w". All members but the split's name are JSON.
struct ByteBpeModel {
  std::string type = "\"byte_bpe\"", version = "1", normalization = "\"none\"", split = "smollm";
  std::string add_prefix_space = "false", ignore_merges = "false", more;
  std::vector<std::string> tokens;
  std::vector<std::string> merges = {"104", "101", "108", "108", "260", "111", "259", "261", "32", "119"};
  std::vector<std::string> control = {"256"}, visible = {"257"}, literal = {"258"};
  std::vector<std::string> lstrip, rstrip, single_word;

  ByteBpeModel() {
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(in_json(shown(static_cast<uint8_t>(byte))));
    for (const char* text : {"<|end|>", "<think>", "    ", "he", "ll", "llo", "hello", " w"}) add(text);
  }
  void add(std::string_view bytes) { tokens.push_back(in_json(shown(bytes))); }

  std::string json() const {
    const auto list = [](const std::vector<std::string>& items) { return fmt::format("[{}]", fmt::join(items, ",")); };
    return fmt::format(
        R"({{"type":{},"version":{},"normalization":{},"split":{},"add_prefix_space":{},"ignore_merges":{},)"
        R"("tokens":{},"merges":{},"control":{},"visible":{},"literal":{},"lstrip":{},"rstrip":{},)"
        R"("single_word":{}{}}})",
        type, version, normalization, in_json(split), add_prefix_space, ignore_merges, list(tokens), list(merges),
        list(control), list(visible), list(literal), list(lstrip), list(rstrip), list(single_word), more);
  }
};

template <class Change>
std::string changed_bpe(const Change& change) {
  ByteBpeModel model;
  change(model);
  return model.json();
}

}  // namespace kaiju::tests
